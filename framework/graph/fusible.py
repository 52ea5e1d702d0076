"""What can be copied into a loop, and why the rest can't."""

from collections.abc import Sequence

import tensorflow as tf
from tensorflow.compat import v1

from framework.graph import movement
from framework.graph.random_ops import audit
from framework.graph.subgraph import Copier, Subgraph

_SHOWN = 3  # ops that a reason names
NO_END = 'the end of its data is not known before it is there: let the input function return a Dataset of tensors'
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


def checked(part: Subgraph, own_ends: frozenset[str] = frozenset()) -> Copier:
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


def check_step(effects: Sequence[tf.Operation], global_step: tf.Variable) -> None:
    """Refuses a train op that may move the global step by anything else than 1: the loop counts runs."""
    movers = movement.writers(effects, global_step)
    if len(movers) == 1 and movers[0].type == 'AssignAddVariableOp' and _is_one(movers[0].inputs[1]):
        return
    what = f'{_named([op.name for op in movers])} may move' if movers else 'nothing moves'
    raise CannotFuse(f'{what} `global_step` by something else than 1 in each run')


def _is_one(value: tf.Tensor) -> bool:
    number = tf.get_static_value(value)
    return number is not None and int(number) == 1


def fed(name: str) -> tf.Tensor:
    """Returns an int64 scalar that has to be fed."""
    return v1.placeholder(tf.int64, [], name)
