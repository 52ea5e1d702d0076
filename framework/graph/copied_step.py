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
        values: What it gives beside the examples of the batch.
        tick: What its random draws depend on; None where there are none that depend on it.

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
        self._last = [] if batch.last is None else [batch.last]
        self._effects, self._values, self._has_tick = len(effects), len(values), tick is not None
        part = Subgraph([*effects, *values, batch.examples, *self._last], [] if tick is None else [tick])
        self._copy = fusible.checked(part, batch.ends)

    def __call__(self, tick: tf.Tensor) -> Made:
        """Copies the run into the default graph.

        Args:
            tick: int64 scalar, what its random draws depend on.
        """
        made = self._copy([tick] if self._has_tick else [])
        effects, values, (examples, *last) = split(made, self._effects, self._values)
        with tf.control_dependencies(effects):
            one = tf.constant(1, tf.int64) + 0
        return Made(one, examples, last, values)

    @property
    def no_last(self) -> list[tf.Tensor]:
        """What a loop carries of `last` before its first run."""
        return [tf.constant(False) for _ in self._last]


def split(parts: Sequence[Any], *sizes: int) -> list[Sequence[Any]]:
    """Splits a sequence into parts of these sizes and the rest."""
    found = []
    for size in sizes:
        found.append(parts[:size])
        parts = parts[size:]
    return [*found, parts]
