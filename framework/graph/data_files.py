"""Which files a stream reads, as far as its pipeline names them."""

import os
from collections.abc import Iterator

import tensorflow as tf

from framework.graph import movement
from framework.graph.sources import Source

_MOST_NAMES = 100_000


def files_of(source: Source) -> list[str]:
    """Returns the files that the pipeline of a stream names in constants, sorted; most pipelines name all.

    Args:
        source: What the input_fn returned.
    """
    return sorted({name for name in _strings(source.pipeline) if os.path.isfile(name)})


def _strings(roots: list[tf.Operation | tf.Tensor]) -> Iterator[str]:
    for op in movement.ancestors(roots):
        if op.type != 'Const' or op.outputs[0].dtype != tf.string:
            continue
        if (op.outputs[0].shape.num_elements() or 0) > _MOST_NAMES:
            continue  # a table of words, for example
        for value in tf.get_static_value(op.outputs[0]).ravel():
            yield value.decode(errors='replace')
