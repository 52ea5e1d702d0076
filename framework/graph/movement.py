"""What running an op may change, and what it depends on."""

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compat import v1

# Ops that take a variable's handle and only read.
_READERS = frozenset(
    {
        'ReadVariableOp',
        'ReadVariableXlaSplitND',
        'ResourceGather',
        'ResourceGatherNd',
        'VarIsInitializedOp',
        'VariableShape',
        'IsVariableInitialized',
    }
)
# Ops that hand on what they get; of a ref variable, Identity is the reader.
_HANDS_ON = frozenset({'Identity', 'Switch', 'RefSwitch', 'Enter', 'RefEnter', 'Merge', 'RefMerge', 'NextIteration'})
_BRANCHES = frozenset({'If', 'StatelessIf', 'Case', 'StatelessCase'})  # their first input chooses


def ancestors(
    fetches: Iterable[tf.Operation | tf.Tensor],
    fed: Collection[str] = (),
    is_given: Callable[[tf.Operation], bool] = lambda _: False,
) -> Iterator[tf.Operation]:
    """Yields the ops and everything that they depend on, by data or by control, each once.

    Args:
        fetches: Ops and tensors.
        fed: The names of tensors whose values are given, so that nothing depends on what makes them.
        is_given: Whether all that an op makes is given; not asked of the fetches.
    """
    stack = [getattr(fetch, 'op', fetch) for fetch in fetches if not fed or fetch.name not in fed]
    seen: set[str] = set()
    while stack:
        op = stack.pop()
        if op.name in seen:
            continue
        seen.add(op.name)
        yield op
        needed = [*(value.op for value in op.inputs if value.name not in fed), *op.control_inputs]
        stack.extend(other for other in needed if not is_given(other))


def changed(fetches: Iterable[tf.Operation | tf.Tensor], variables: Iterable[tf.Variable]) -> list[tf.Variable]:
    """Returns those of the variables that running the fetches may change, also inside of functions and branches.

    Args:
        fetches: Ops and tensors of the default graph.
        variables: Variables of the same graph.
    """
    run = {op.name for op in ancestors(fetches)}
    writers = _Writers(v1.get_default_graph())
    return [variable for variable in variables if any(name in run for name in writers.of(variable.op.outputs[0]))]


def writers(fetches: Iterable[tf.Operation | tf.Tensor], variable: tf.Variable) -> list[tf.Operation]:
    """Returns the ops that running the fetches runs and that may change a variable.

    Args:
        fetches: Ops and tensors of the default graph.
        variable: A variable of the same graph.
    """
    run = {op.name: op for op in ancestors(fetches)}
    found = _Writers(v1.get_default_graph()).of(variable.op.outputs[0])
    return [run[name] for name in dict.fromkeys(found) if name in run]


class _Writers:
    """Finds the ops that may write what a handle stands for."""

    def __init__(self, graph: tf.Graph):
        self._graph = graph

    def of(self, handle: tf.Tensor) -> Iterator[str]:
        """Yields the names of the ops of the graph that may write."""
        seen = {handle.name}
        stack = [handle]
        while stack:
            value = stack.pop()
            for op in value.consumers():
                if op.type in _HANDS_ON and not _reads_ref(op):
                    stack.extend(output for output in op.outputs if output.name not in seen)
                    seen.update(output.name for output in op.outputs)
                elif self._writes(op.type, op.node_def, [i for i, t in enumerate(op.inputs) if t is value]):
                    yield op.name

    def _writes(self, kind: str, node: Any, positions: Sequence[int]) -> bool:
        if kind in _READERS or kind in _HANDS_ON:
            return False
        names = function_names(node)
        offset = 1 if kind in _BRANCHES else 0
        if not names:
            return True
        return any(self._function_writes(name, position - offset) for name in names for position in positions)

    def _function_writes(self, name: str, position: int) -> bool:
        function = self._library.get(name)
        if function is None or not 0 <= position < len(function.signature.input_arg):
            return True
        carriers = {function.signature.input_arg[position].name}
        for node in function.node_def:
            sources = [value.split(':')[0] for value in node.input if not value.startswith('^')]
            positions = [i for i, source in enumerate(sources) if source in carriers]
            if positions and node.op in _HANDS_ON:
                carriers.add(node.name)
            elif positions and self._writes(node.op, node, positions):
                return True
        return False

    @functools.cached_property
    def _library(self) -> dict[str, Any]:
        # Serialising the graph is dear, and needed only where a function takes a variable.
        return {function.signature.name: function for function in self._graph.as_graph_def().library.function}


def _reads_ref(op: tf.Operation) -> bool:
    return op.type == 'Identity' and op.outputs[0].dtype != tf.resource


def function_names(node: Any) -> list[str]:
    """Returns the names of the functions that a node calls."""
    found = []
    for attr in node.attr.values():
        if attr.HasField('func'):
            found.append(attr.func.name)
        found.extend(function.name for function in attr.list.func)
    return found
