"""What an op changes: the variables that some op it depends on may write."""

from collections.abc import Iterable, Iterator

import tensorflow as tf

# Ops that take a variable's handle and only read. Whatever else takes it (an assignment, an optimizer's kernel, a
# function, a branch) may write.
_READERS = frozenset(
    {
        'ReadVariableOp',
        'ResourceGather',
        'ResourceGatherNd',
        'VarIsInitializedOp',
        'VariableShape',
        'Identity',  # of a ref variable: its value
        'IsVariableInitialized',
    }
)


def changed(op: tf.Operation | tf.Tensor, variables: Iterable[tf.Variable]) -> list[tf.Variable]:
    """Returns those of the variables that running the op may change, and surely all that it does change.

    Args:
        op: An op or tensor of the graph.
        variables: Variables of the same graph.
    """
    written = {
        value.op.name
        for ancestor in _ancestors(getattr(op, 'op', op))
        if ancestor.type not in _READERS
        for value in ancestor.inputs
        if value.op.type in _VARIABLES
    }
    return [variable for variable in variables if variable.op.name in written]


_VARIABLES = frozenset({'VarHandleOp', 'Variable', 'VariableV2'})


def _ancestors(op: tf.Operation) -> Iterator[tf.Operation]:
    """Yields the op and everything that it depends on, by data or by control."""
    seen = {op.name}
    stack = [op]
    while stack:
        current = stack.pop()
        yield current
        for before in [*(value.op for value in current.inputs), *current.control_inputs]:
            if before.name not in seen:
                seen.add(before.name)
                stack.append(before)
