"""A copy of what computes some fetches: the same ops on the same variables, with other inputs."""

import functools
import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compat import v1

from framework.graph import movement

_NAME = 'copied_step'  # the scope of a copy, which no user's scope may be taken for
# Types of ops that no optimisation replaces by ops that round otherwise: a sum of sums is added in another order, but
# a mean is a mean. Others are marked as not to be removed. That keeps them, with all that they depend on, in every run
# of the session until it is optimised: seconds for each kind of run of a big model, so nothing is marked without need.
_NEVER_REPLACED = frozenset({'Mean', 'Sum', 'DivNoNan', 'Identity', 'Reshape', 'Squeeze', 'Select', 'SelectV2', 'Cast'})
_COPIED = re.compile(rf'{{{{node (?:\S*?/)?{_NAME}(?:_\d+)?/(\S+?)}}}}')


def original_of(graph: tf.Graph, error: tf.errors.OpError) -> tf.Operation | None:
    """Returns the op whose copy raised an error, None where it was no copy.

    Args:
        graph: The graph of the subgraph.
        error: What a run raised.
    """
    name = original_name(error)
    try:
        return None if name is None else graph.get_operation_by_name(name)
    except KeyError:  # it stands in a function
        return None


def original_name(error: tf.errors.OpError) -> str | None:
    """Returns the name of the op whose copy raised an error, None where it was no copy."""
    match = _COPIED.search(error.message)
    return match.group(1) if match else None


class Subgraph:
    """What computes fetches from inputs, ready to be copied into a graph or into a function of it.

    Only what the fetches depend on is in it: an op with an effect that nobody asked for would run in a copy.

    Args:
        fetches: Ops and tensors of the default graph.
        inputs: Tensors in whose place a copy gets others; nothing that makes them is in the copy.
        as_fetched: Those of the fetches whose copies must have the bits that a run gives when it fetches them: what is
            fetched is never replaced by ops that round otherwise.
    """

    def __init__(
        self,
        fetches: Sequence[tf.Operation | tf.Tensor],
        inputs: Sequence[tf.Tensor] = (),
        as_fetched: Sequence[tf.Tensor] = (),
    ):
        self._graph = v1.get_default_graph()
        self._fetches = [fetch.name for fetch in fetches]
        self._kept = {value.op.name for value in as_fetched if value.op.type not in _NEVER_REPLACED}
        self._inputs = [value.name for value in inputs]
        made = {value.op.name for value in inputs}
        walked = movement.ancestors(fetches, is_given=lambda op: op.name in made or _makes_handle(op))
        self._ops = {op.name: op for op in walked}
        read = [value for op in self.ops for value in op.inputs]
        self._used = {value.name for value in read}
        # Variables, tables, iterators: shared, not copied.
        self._handles = {value.name: value for value in read if _makes_handle(value.op)}

    @property
    def ops(self) -> list[tf.Operation]:
        """The ops that a copy holds."""
        return list(self._ops.values())

    @functools.cached_property
    def definition(self) -> v1.GraphDef:
        """The ops as a GraphDef, with the functions that they call."""
        part = v1.GraphDef(versions=self._graph.graph_def_versions)
        for op in self._ops.values():
            node = part.node.add()
            node.CopyFrom(op.node_def)
            node.input[:] = [i for i in node.input if not i.startswith('^') or i[1:] in self._ops]
            self._keep_near(node)
            if op.name in self._kept:
                node.attr['_grappler_do_not_remove'].b = True
        self._add_functions(part)
        return part

    def __call__(self, inputs: Sequence[tf.Tensor] = ()) -> list[Any]:
        """Copies into the default graph, and returns the copies of the fetches.

        Args:
            inputs: In the order of those of the subgraph; of the same dtypes and shapes.
        """
        here = v1.get_default_graph()
        capture = getattr(here, 'capture', lambda value: value)  # a function takes what is outside as an argument
        mapping = {name: value for name, value in zip(self._inputs, inputs, strict=True) if name in self._used}
        mapping |= {name: capture(handle) for name, handle in self._handles.items()}
        return tf.graph_util.import_graph_def(self.definition, mapping, self._fetches, name=_NAME)

    def _keep_near(self, node: Any) -> None:
        """Leaves a node near those nodes only that come along."""
        if '_class' not in node.attr:
            return
        near = [place for place in node.attr['_class'].list.s if place.decode().split('@')[-1] in self._ops]
        del node.attr['_class']
        if near:
            node.attr['_class'].list.s.extend(near)

    def _add_functions(self, part: v1.GraphDef) -> None:
        missing = [name for node in part.node for name in movement.function_names(node)]
        if not missing:
            return  # serialising the graph is dear
        library = self._graph.as_graph_def().library
        functions = {function.signature.name: function for function in library.function}
        gradients = {gradient.function_name: gradient for gradient in library.gradient}
        added: set[str] = set()
        while missing:
            name = missing.pop()
            if name in added or name not in functions:
                continue
            added.add(name)
            part.library.function.append(functions[name])
            missing.extend(called for node in functions[name].node_def for called in movement.function_names(node))
            if name in gradients:
                part.library.gradient.append(gradients[name])
                missing.append(gradients[name].gradient_func)


def _makes_handle(op: tf.Operation) -> bool:
    """Whether an op gives a resource that lasts: the handle of a variable, table or iterator."""
    if op.type.startswith(_OF_A_RUN) or not any(value.dtype == tf.resource for value in op.outputs):
        return False
    return all(value.dtype != tf.resource for value in op.inputs)


# Resources that each run makes for itself: what the gradients of loops keep, and what has no name.
_OF_A_RUN = ('Stack', 'TensorArray', 'Anonymous')
