"""Many train runs, or a whole pass, in one run of the session: the per-step graph, copied into the body of a loop.

    per step   run: batch -> model -> update       run: batch -> model -> update       ...
    fused      run: while more: (batch -> model -> update)

model_fn is called once per mode, whichever way runs are made: seeds, names, initial values, summaries and the tensors
of hooks are those of the per-step graph, because it is that graph. The copies share its variables, so either way may
follow the other at any step.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.compat import v1

from framework.graph import fusible, xla
from framework.graph.calls import FusedPass, FusedTraining, Tower, TrainStream
from framework.graph.copied_step import Step, last_of
from framework.graph.subgraph import Subgraph
from framework.run_config import LOOP, STEP

_SCOPE = 'framework/fused/'


def fuse_training(
    train: TrainStream, tick: tf.Tensor | None, global_step: tf.Variable, way: str | None = None
) -> TrainStream:
    """Returns the training call with what makes many runs in one, or with why that can't be.

    Args:
        train: The training call, in the default graph.
        tick: What random draws depend on; None where there are none that depend on it.
        global_step: The global step.
        way: What XLA compiles: `step`, `loop` or nothing.
    """
    make = xla.training if way == LOOP else functools.partial(_training, compiles=way == STEP)
    try:
        with _version_2(), v1.name_scope(_SCOPE):
            batch = train.input
            others = [train.spec.loss, batch.examples, *batch.announcement]
            fusible.check_step([train.spec.train_op, *train.updates, *others], global_step)
            return dataclasses.replace(train, fused=make(train, tick, global_step))
    except fusible.CannotFuse as error:
        return dataclasses.replace(train, unfused=error.args)


def fuse_pass(tower: Tower, tick: tf.Tensor | None) -> Tower:
    """Returns an evaluation call with what makes a whole pass in one run, or with why that can't be.

    Args:
        tower: The evaluation call, in the default graph.
        tick: What random draws depend on; None where there are none that depend on it.
    """
    try:
        with _version_2(), v1.name_scope(_SCOPE):
            return dataclasses.replace(tower, fused=_pass(tower, tick))
    except fusible.CannotFuse as error:
        return dataclasses.replace(tower, unfused=error.args)


@contextlib.contextmanager
def _version_2() -> Iterator[None]:
    """Makes loops whose body is a function: into a loop of version 1 ops would be copied under its names."""
    before = v1.control_flow_v2_enabled()
    v1.enable_control_flow_v2()
    try:
        yield
    finally:
        if not before:
            v1.disable_control_flow_v2()


def _training(train: TrainStream, tick: tf.Tensor | None, global_step: tf.Variable, compiles: bool) -> FusedTraining:
    step = (xla.Step if compiles else Step)(train.input, [train.spec.train_op, *train.updates], [train.spec.loss], tick)
    limit, start = fusible.fed('limit'), fusible.fed('start')

    # Each value that a loop carries costs as much as four small ops: no more of them than there must be.
    def body(runs: tf.Tensor, goes_on: tf.Tensor, examples: tf.Tensor, losses: Any, *_: tf.Tensor) -> Any:
        del goes_on
        made = step(start + runs)
        loss = tf.reshape(made.values[0], [])
        losses = losses.write(tf.cast(runs, tf.int32), loss)
        goes_on = _is_finite(loss)
        for last in made.last:
            goes_on = tf.logical_and(goes_on, tf.logical_not(last))
        return runs + made.one, goes_on, examples + made.examples, losses, *made.last

    losses = tf.TensorArray(train.spec.loss.dtype, 0, dynamic_size=True, element_shape=[])
    runs, _, examples, losses, *last = tf.while_loop(
        lambda runs, goes_on, *_: tf.logical_and(goes_on, runs < limit),
        body,
        [_zero(), tf.constant(True), _zero(), losses, *step.no_last],
        parallel_iterations=1,
        name='training',
    )
    with tf.control_dependencies([runs]):
        step_after = tf.identity(global_step.read_value())
    return FusedTraining(limit, start, runs, step_after, examples, losses.stack(), last_of(last))


def _pass(tower: Tower, tick: tf.Tensor | None) -> FusedPass:
    step = Step(tower.input, [tower.update], [], tick)
    for name, value in tower.values.items():
        if tower.input.is_read_by(value):
            raise fusible.CannotFuse(f'the value of metric `{name}` reads the batch, and after the last there is none')
    values = fusible.checked(Subgraph(list(tower.values.values())))
    limit, start = fusible.fed('limit'), fusible.fed('start')

    def body(batches: tf.Tensor, examples: tf.Tensor, *_: tf.Tensor) -> list[tf.Tensor]:
        made = step(start + batches)
        return [batches + made.one, examples + made.examples, *made.last]

    batches, examples, *last = tf.while_loop(
        lambda batches, _, *last: tf.reduce_all([batches < limit, *map(tf.logical_not, last)]),
        body,
        [_zero(), _zero(), *step.no_last],
        parallel_iterations=1,
        name=tower.name,
    )
    # Copied, because the metrics' own values may be read before the loop has run.
    with tf.control_dependencies([batches]):
        read = values()
    values_after = dict(zip(tower.values, read, strict=True))
    return FusedPass(limit, start, batches, examples, last_of(last), values_after)


def _zero() -> tf.Tensor:
    return tf.constant(0, tf.int64)


def _is_finite(loss: tf.Tensor) -> tf.Tensor:
    return tf.math.is_finite(loss if loss.dtype.is_floating else tf.cast(loss, tf.float32))
