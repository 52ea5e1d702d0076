"""What can be copied into a loop, and why the rest can't."""

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compat import v1
from tensorflow.python.framework import op_def_registry  # says which ops have state; no public function does

from framework.graph import movement
from framework.graph.random_ops import audit
from framework.graph.subgraph import Subgraph

_SHOWN = 3  # ops that a reason names
_REF = 'is of a variable without a handle: make it with `use_resource=True`'
NO_END = 'the end of its data is not known before it is there: let the input function return a Dataset of tensors'
_OTHER_DATA = 'reads an iterator other than that of the input function'
_REASONS = {
    'QueueDequeue': 'reads a queue',
    'QueueEnqueue': 'fills a queue',
    'ReaderRead': 'reads a queue',
    'IteratorGetNext': _OTHER_DATA,
    'OneShotIterator': _OTHER_DATA,
}
# Ops with state that a copy shares, because it is that of a resource, of Python, or of the files that they write; and
# those that only look as if they had state. Types begin like this. Random ops have a check of their own.
_SHARED = (
    *('ReadVariable', 'Assign', 'VarIsInitialized', 'VariableShape', 'DisableCopyOnRead', 'Resource'),
    *('LookupTable', 'InitializeTable', 'StatefulStandard', 'StatefulUniform', 'StatefulTruncated', 'StatefulRandom'),
    *('Rng', 'TensorArray', 'Stack', 'Anonymous', 'PyFunc', 'EagerPyFunc', 'Assert', 'Print', 'Timestamp'),
    *('StatefulPartitionedCall', 'PartitionedCall', 'If', 'While', 'Case', 'SymbolicGradient', 'RemoteCall'),
    *('Write', 'CreateSummary', 'FlushSummary', 'CloseSummary', 'ImportEvent', 'Save', 'Restore', 'MergeV2'),
)


class CannotFuse(Exception):  # noqa: N818 - a way to answer, not an error
    """Many runs can't be made in one; the arguments say why, as ends of sentences."""


def checked(part: Subgraph, own_ends: frozenset[str] = frozenset()) -> Subgraph:
    """Returns a part of the graph that may be copied into a loop.

    Args:
        part: The part.
        own_ends: The ops in it that read the input function's own iterator.

    Raises:
        CannotFuse: If a copy of it would not do the same.
    """
    reasons: dict[str, list[str]] = {}
    for op in part.ops:
        # `_ref_dtype` differs from the dtype for a variable without a handle; no public property tells.
        if any(value.dtype._is_ref_dtype for value in (*op.inputs, *op.outputs)):
            reasons.setdefault(_REF, []).append(op.name)
    nodes = list(_nodes(part.definition))
    for node in nodes:
        reason = None if node.name in own_ends else _reason(node.op)
        if reason is not None:
            reasons.setdefault(reason, []).append(node.name)
    sentences = [f'{_named(names)} {reason}' for reason, names in reasons.items()]
    if any(node.op in audit.STATEFUL for node in nodes):  # where they were made is dear to find out
        sentences += [str(finding) for finding in audit.stateful_draws(v1.get_default_graph(), part.ops)]
    if sentences:
        raise CannotFuse(*sentences)
    return part


def _nodes(definition: v1.GraphDef) -> Iterator[Any]:
    """Yields the nodes, also those of the functions that they call."""
    yield from definition.node
    for function in definition.library.function:
        yield from function.node_def


def _named(names: Sequence[str]) -> str:
    shown = ', '.join(f'`{name}`' for name in names[:_SHOWN])
    return f'{shown} and {len(names) - _SHOWN} more' if len(names) > _SHOWN else shown


def _reason(op_type: str) -> str | None:
    known = next((reason for kind, reason in _REASONS.items() if kind in op_type), None)
    if known is not None:
        return known
    if op_type.startswith('Placeholder') and op_type != 'PlaceholderWithDefault':
        return 'has to be fed'  # a default is fed by hooks only, and a hook that may feed sees every run
    definition = op_def_registry.get(op_type)
    has_state = definition is not None and definition.is_stateful and op_type not in audit.STATEFUL
    return 'has state that a copy would not share' if has_state and not op_type.startswith(_SHARED) else None


def check_step(fetches: Sequence[tf.Operation | tf.Tensor], global_step: tf.Variable) -> None:
    """Refuses a train run that may move the global step by anything else than 1: the loop counts runs.

    Args:
        fetches: All that a run makes.
        global_step: The global step.

    Raises:
        CannotFuse: If it may.
    """
    movers = movement.writers(fetches, global_step)
    # In a branch or a loop of control flow version 1 the handle comes from another op than its own.
    if len(movers) == 1 and _adds_one(movers[0]) and movers[0].inputs[0].op.type == 'VarHandleOp':
        return
    what = f'{_named([op.name for op in movers])} may move' if movers else 'nothing moves'
    raise CannotFuse(f'{what} `global_step` by something else than 1 in each run')


def _adds_one(op: tf.Operation) -> bool:
    return op.type == 'AssignAddVariableOp' and _is_one(op.inputs[1])


def _is_one(value: tf.Tensor) -> bool:
    number = tf.get_static_value(value)
    return number is not None and int(number) == 1


def fed(name: str) -> tf.Tensor:
    """Returns an int64 scalar that has to be fed."""
    return v1.placeholder(tf.int64, [], name)
