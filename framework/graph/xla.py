"""Train runs that XLA compiles, step by step or many at once: fast for small models, and with other bits.

XLA computes sums in another order, and draws other numbers from the same key (measured: TensorFlow 2.21, Philox with a
counter that is no constant), so this is outside of the promise that fused runs have the bits of single ones. A program
is compiled for each shape of a batch and, where the whole loop is compiled, for each number of runs.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from framework.graph import fusible
from framework.graph.calls import FusedTraining, TrainStream
from framework.graph.copied_step import Made, last_of, no_last, one_after, split
from framework.graph.streams import Input
from framework.graph.subgraph import Subgraph


class _Parts:
    """A train run in two: what reads a batch, and what computes from it."""

    def __init__(
        self, batch: Input, effects: Sequence[tf.Operation], values: Sequence[tf.Tensor], tick: tf.Tensor | None
    ):
        if not batch.knows_end:
            raise fusible.CannotFuse(fusible.NO_END)
        graph = effects[0].graph
        self.no_last = no_last(batch)
        readers = [graph.get_operation_by_name(name) for name in batch.empties or batch.ends]
        self.element = [part for op in readers for part in op.outputs]
        self.has_tick = tick is not None
        self._effects, self._values = len(effects), len(values)
        self._read = fusible.checked(Subgraph([*self.element, *batch.announcement]), batch.ends)
        inputs = [*self.element, *([] if tick is None else [tick])]
        self._compute = fusible.checked(Subgraph([*effects, *values, batch.examples], inputs))

    def read(self) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Reads a batch; returns its parts, and whether it is the last where it says so."""
        made = self._read()
        return made[: len(self.element)], made[len(self.element) :]

    def compute(self, element: Sequence[tf.Tensor], tick: tf.Tensor) -> list[tf.Tensor]:
        """Makes the run with a batch; returns an int64 1 that follows from all of it, the values, and the examples."""
        made = self._compute([*element, *([tick] if self.has_tick else [])])
        effects, values, (examples,) = split(made, self._effects, self._values)
        return [one_after(effects), *values, examples]


class Step:
    """A copy of a run whose computation is compiled; has the interface of `copied_step.Step`."""

    def __init__(
        self, batch: Input, effects: Sequence[tf.Operation], values: Sequence[tf.Tensor], tick: tf.Tensor | None
    ):
        self._parts = _Parts(batch, effects, values, tick)
        self.no_last = self._parts.no_last

    def __call__(self, tick: tf.Tensor) -> Made:
        """Copies the run into the default graph."""
        element, last = self._parts.read()
        compiled = tf.function(self._parts.compute, jit_compile=True, autograph=False)
        one, *values, examples = compiled(element, tick)
        return Made(one, examples, last, values)


def training(train: TrainStream, tick: tf.Tensor | None, global_step: tf.Variable) -> FusedTraining:
    """Returns train runs of which as many as are asked for are compiled into one program.

    Their batches are read before, so they must be of one shape. A loss that is not finite ends nothing.

    Args:
        train: The training call, in the default graph.
        tick: What random draws depend on; None where there are none that depend on it.
        global_step: The global step.

    Raises:
        CannotFuse: If that can't be.
    """
    parts = _Parts(train.input, [train.spec.train_op, *train.updates], [train.spec.loss], tick)
    limit, start = fusible.fed('limit'), fusible.fed('start')
    batches, last = _read_ahead(parts, limit)

    def steps(batches: Sequence[tf.Tensor], start: tf.Tensor) -> list[tf.Tensor]:
        number = tf.shape(batches[0])[0]

        def body(i: tf.Tensor, runs: tf.Tensor, examples: tf.Tensor, losses: Any) -> tuple[Any, ...]:
            one, loss, count = parts.compute([batch[i] for batch in batches], start + runs)
            return i + 1, runs + one, examples + count, losses.write(i, tf.reshape(loss, []))

        zero = tf.constant(0, tf.int64)
        losses = tf.TensorArray(train.spec.loss.dtype, number, element_shape=[])
        _, runs, examples, losses = tf.while_loop(
            lambda i, *_: i < number, body, [0, zero, zero, losses], maximum_iterations=number
        )
        return [runs, examples, losses.stack()]

    runs, examples, losses = tf.function(steps, jit_compile=True, autograph=False)(batches, start)
    with tf.control_dependencies([runs]):
        step_after = tf.identity(global_step.read_value())
    return FusedTraining(limit, start, runs, step_after, examples, losses, last, compiles_each_number=True)


def _read_ahead(parts: _Parts, limit: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Returns up to so many batches, each part of them stacked, and whether the last one announced itself as that."""
    if not parts.element:
        raise fusible.CannotFuse('XLA can not compile a loop over data that has no Dataset')

    def body(i: tf.Tensor, arrays: Sequence[Any], *_: tf.Tensor) -> tuple[Any, ...]:
        element, last = parts.read()
        arrays = [array.write(tf.cast(i, tf.int32), part) for array, part in zip(arrays, element, strict=True)]
        return i + 1, arrays, *last

    arrays = [tf.TensorArray(part.dtype, 0, dynamic_size=True, element_shape=part.shape) for part in parts.element]
    _, arrays, *last = tf.while_loop(
        lambda i, _, *last: tf.reduce_all([i < limit, *map(tf.logical_not, last)]),
        body,
        [tf.constant(0, tf.int64), arrays, *parts.no_last],
        parallel_iterations=1,
        name='batches',
    )
    return [array.stack() for array in arrays], last_of(last)
