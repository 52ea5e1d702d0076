"""Many train runs, or a whole pass, in one run of the session: the per-step graph, copied into the body of a loop.

    per step   run: batch -> model -> update       run: batch -> model -> update       ...
    fused      run: while more: (batch -> model -> update)

model_fn is called once per mode, whichever way runs are made: seeds, names, initial values, summaries and the tensors
of hooks are those of the per-step graph, because it is that graph. The copies share its variables, so either way may
follow the other at any step.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compat import v1

from framework.graph import movement
from framework.graph.calls import FusedPass, FusedTraining, Tower, TrainStream
from framework.graph.random_ops import audit
from framework.graph.streams import Input
from framework.graph.subgraph import Copier, Subgraph

_SCOPE = 'framework/fused/'
_SHOWN = 3  # ops that a reason names
_NO_END = 'the end of its data is not known before it is there: let the input function return a Dataset of tensors'
_REASONS = {
    'QueueDequeue': 'reads a queue',
    'QueueEnqueue': 'fills a queue',
    'ReaderRead': 'reads a queue',
    'Unstage': 'reads a staging area',
    'IteratorGetNext': 'reads an iterator other than that of the input function',
    'OneShotIterator': 'reads an iterator other than that of the input function',
    'Placeholder': 'has to be fed',
}
_NO_REASON = ('PlaceholderWithDefault',)  # only hooks feed it, and a hook that may feed sees every run


class CannotFuse(Exception):  # noqa: N818 - a way to answer, not an error
    """Many runs can't be made in one; the arguments say why, as ends of sentences."""


def fuse_training(train: TrainStream, tick: tf.Tensor | None, global_step: tf.Variable) -> TrainStream:
    """Returns the training call with what makes many runs in one, or with why that can't be.

    Args:
        train: The training call, in the default graph.
        tick: What random draws depend on; None where there are none that depend on it.
        global_step: The global step.
    """
    try:
        with _version_2(), v1.name_scope(_SCOPE):
            return dataclasses.replace(train, fused=_training(train, tick, global_step))
    except CannotFuse as error:
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
    except CannotFuse as error:
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


def _training(train: TrainStream, tick: tf.Tensor | None, global_step: tf.Variable) -> FusedTraining:
    _check_step([train.spec.train_op, *train.updates], global_step)
    step = _Step(train.input, [train.spec.train_op, *train.updates], [train.spec.loss], tick)
    limit, start = _fed('limit'), _fed('start')

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
    return FusedTraining(limit, start, runs, step_after, examples, losses.stack(), _last_of(last))


def _pass(tower: Tower, tick: tf.Tensor | None) -> FusedPass:
    step = _Step(tower.input, [tower.update], [], tick)
    values = _checked(Subgraph(list(tower.values.values()), [] if tick is None else [tick]))
    limit, start = _fed('limit'), _fed('start')

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
        read = values([] if tick is None else [start])
    values_after = dict(zip(tower.values, read, strict=True))
    return FusedPass(limit, start, batches, examples, _last_of(last), values_after)


@dataclasses.dataclass(frozen=True)
class _Made:
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


class _Step:
    """Copies what one run of the session makes."""

    def __init__(
        self,
        batch: Input,
        effects: Sequence[tf.Operation],
        values: Sequence[tf.Tensor],
        tick: tf.Tensor | None,
    ):
        if not batch.knows_end:
            raise CannotFuse(_NO_END)
        self._last = [] if batch.last is None else [batch.last]
        self._effects, self._values, self._has_tick = len(effects), len(values), tick is not None
        part = Subgraph([*effects, *values, batch.examples, *self._last], [] if tick is None else [tick])
        self._copy = _checked(part, batch.ends)

    def __call__(self, tick: tf.Tensor) -> _Made:
        made = self._copy([tick] if self._has_tick else [])
        effects, values, (examples, *last) = _split(made, self._effects, self._values)
        with tf.control_dependencies(effects):
            one = tf.constant(1, tf.int64) + 0
        return _Made(one, examples, last, values)

    @property
    def no_last(self) -> list[tf.Tensor]:
        """What a loop carries of `last` before its first run."""
        return [tf.constant(False) for _ in self._last]


def _last_of(carried: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns whether the last batch announced itself as that, by what the loop carried of it."""
    return carried[0] if carried else tf.constant(False)


def _split(parts: Sequence[Any], *sizes: int) -> list[Sequence[Any]]:
    found = []
    for size in sizes:
        found.append(parts[:size])
        parts = parts[size:]
    return [*found, parts]


def _zero() -> tf.Tensor:
    return tf.constant(0, tf.int64)


def _is_finite(loss: tf.Tensor) -> tf.Tensor:
    return tf.math.is_finite(loss if loss.dtype.is_floating else tf.cast(loss, tf.float32))


def _fed(name: str) -> tf.Tensor:
    return v1.placeholder(tf.int64, [], name)


# What can't be copied


def _checked(part: Subgraph, own_ends: frozenset[str] = frozenset()) -> Copier:
    """Returns what copies a part of the graph.

    Args:
        part: The part.
        own_ends: The ops in it that read the input function's own iterator.

    Raises:
        CannotFuse: If a copy of it would not do the same.
    """
    reasons: dict[str, list[str]] = {}
    for op in part.ops:
        reason = None if op.name in own_ends else _reason(op)
        if reason is not None:
            reasons.setdefault(reason, []).append(op.name)
    sentences = [f'{_named(names)} {reason}' for reason, names in reasons.items()]
    sentences += [str(finding) for finding in audit.stateful_draws(v1.get_default_graph(), part.ops)]
    if sentences:
        raise CannotFuse(*sentences)
    return part.copier()


def _named(names: Sequence[str]) -> str:
    shown = ', '.join(f'`{name}`' for name in names[:_SHOWN])
    return f'{shown} and {len(names) - _SHOWN} more' if len(names) > _SHOWN else shown


def _reason(op: tf.Operation) -> str | None:
    # `_ref_dtype` differs from the dtype for a variable without a handle; no public property tells.
    if any(value.dtype._is_ref_dtype for value in (*op.inputs, *op.outputs)):
        return 'is of a variable without a handle: make it with `use_resource=True`'
    if op.type in _NO_REASON:
        return None
    return next((reason for kind, reason in _REASONS.items() if kind in op.type), None)


def _check_step(effects: Sequence[tf.Operation], global_step: tf.Variable) -> None:
    """Refuses a train op that may move the global step by anything else than 1: the loop counts runs."""
    movers = movement.writers(effects, global_step)
    if len(movers) == 1 and movers[0].type == 'AssignAddVariableOp' and _is_one(movers[0].inputs[1]):
        return
    what = f'{_named([op.name for op in movers])} may move' if movers else 'nothing moves'
    raise CannotFuse(f'{what} `global_step` by something else than 1 in each run')


def _is_one(value: tf.Tensor) -> bool:
    number = tf.get_static_value(value)
    return number is not None and int(number) == 1
