"""Mutable tables: evaluation sees what training has put into its own.

A mutable lookup table is no variable, so nothing shares it between two calls of model_fn. `tf.estimator` carried it
over in the checkpoint. Here the later call's table takes the contents of the first call's when a pass begins.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compat import v1

from framework.graph.collections import Snapshot

_SAVEABLES = v1.GraphKeys.SAVEABLE_OBJECTS


def copies(first: Snapshot, later: Snapshot) -> list[tf.Operation]:
    """Returns the ops that copy each saveable object of the first call into its twin in a later call.

    Args:
        first: The collections of the first call.
        later: Those of the later call. Twins have the same name and the same place among objects of that name.
    """
    contents = dict(_numbered(first.get(_SAVEABLES)))
    twins = [(contents[key], saveable) for key, saveable in _numbered(later.get(_SAVEABLES)) if key in contents]
    return [twin.restore([part.tensor for part in origin.specs], None) for origin, twin in twins if origin is not twin]


def keep_out_of_checkpoint(saved: Collection[str]) -> None:
    """Takes the saveable objects out of their collection that no checkpoint holds: a restore would miss them.

    Args:
        saved: The names in the checkpoint.
    """
    shown = v1.get_collection_ref(_SAVEABLES)
    shown[:] = [saveable for saveable in shown if all(part.name in saved for part in saveable.specs)]


def _numbered(saveables: Sequence[Any]) -> Iterator[tuple[tuple[str, int], Any]]:
    counts: Counter[str] = Counter()
    for saveable in saveables:
        counts[saveable.name] += 1
        yield (saveable.name, counts[saveable.name]), saveable
