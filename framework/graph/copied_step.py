"""One run of the session, copied into the body of a loop."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from framework.graph import fusible
from framework.graph.streams import Input
from framework.graph.subgraph import Subgraph


@dataclasses.dataclass(frozen=True)
class Made:
    """What one run in a loop made.

    Attributes:
        one: int64 scalar, 1. What the loop carries must follow from all that a run does, and so from this: anything
            else would be left out of the loop.
        examples: int64 scalar.
        last: bool scalar, whether the batch was the last; nothing where it says nothing of that.
        values: What was asked for.
    """

    one: tf.Tensor
    examples: tf.Tensor
    last: Sequence[tf.Tensor]
    values: Sequence[tf.Tensor]


class Step:
    """Copies what one run of the session makes.

    Args:
        batch: The current batch of the run.
        effects: What the run does.
        values: What it gives beside the examples of the batch, with the bits of a fetch.
        tick: What its random draws depend on; None where there are none that depend on it.

    Attributes:
        no_last: What a loop carries of `Made.last` before its first run.

    Raises:
        CannotFuse: If a copy would not do the same.
    """

    def __init__(
        self,
        batch: Input,
        effects: Sequence[tf.Operation],
        values: Sequence[tf.Tensor],
        tick: tf.Tensor | None,
    ):
        if not batch.knows_end:
            raise fusible.CannotFuse(fusible.NO_END)
        self.no_last = no_last(batch)
        self._effects, self._values, self._has_tick = len(effects), len(values), tick is not None
        fetches = [*effects, *values, batch.examples, *batch.announcement]
        part = Subgraph(fetches, [] if tick is None else [tick], as_fetched=values)
        self._copy = fusible.checked(part, batch.ends)

    def __call__(self, tick: tf.Tensor) -> Made:
        """Copies the run into the default graph.

        Args:
            tick: int64 scalar, what its random draws depend on.
        """
        made = self._copy([tick] if self._has_tick else [])
        effects, values, (examples, *last) = split(made, self._effects, self._values)
        return Made(one_after(effects), examples, last, values)


def one_after(effects: Sequence[tf.Operation]) -> tf.Tensor:
    """Returns an int64 1 that follows from all that a run does."""
    with tf.control_dependencies(effects):
        return tf.constant(1, tf.int64) + 0


def no_last(batch: Input) -> list[tf.Tensor]:
    """Returns what a loop carries of whether a batch is the last, before its first run."""
    return [tf.constant(False) for _ in batch.announcement]


def last_of(carried: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns whether the last batch announced itself as that, by what the loop carried of it."""
    return carried[0] if carried else tf.constant(False)


def split(parts: Sequence[Any], *sizes: int) -> list[Sequence[Any]]:
    """Splits a sequence into parts of these sizes and the rest."""
    found = []
    for size in sizes:
        found.append(parts[:size])
        parts = parts[size:]
    return [*found, parts]
