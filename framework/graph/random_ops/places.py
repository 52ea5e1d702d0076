"""Where in a run an op stands that is being built: in a loop, a branch, a function, or the plain graph.

No state is kept: the position of an iteration follows from the number that the loop counts anyway, that of a call from
its call site. So an evaluation can't disturb training, and there is nothing to save.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.compat import v1

# How TensorFlow represents what is being built; there is no public way to ask in which loop or function an op stands.
from tensorflow.python.framework import func_graph as func_graphs
from tensorflow.python.ops import control_flow_ops, control_flow_util
from tensorflow.python.ops import control_flow_v2_func_graphs as v2_graphs

from framework.graph.random_ops import keys
from framework.graph.random_ops.keys import Place

_LOOPS = (v2_graphs.WhileBodyFuncGraph, v2_graphs.WhileCondFuncGraph)
_POSITION = tf.TensorSpec([1], tf.uint64)
_COUNTER = tf.TensorSpec([2], tf.uint64)


class Places:
    """Finds the place and the path of what is being built in one graph.

    Args:
        graph: The graph.
        tick: int64 scalar of it.
        site_key: Returns the key of a call site by its path.
    """

    def __init__(self, graph: tf.Graph, tick: tf.Tensor, site_key: Callable[[str], int]):
        self._graph = graph
        self._site_key = site_key
        self._known: dict[Any, Place] = {}  # by FuncGraph, and by context of a version 1 loop
        self._paths: dict[Any, str] = {}
        self._trials: list[_Trial] = []
        with graph.as_default(), v1.name_scope(keys.SCOPE):
            self._plain = Place(None, keys.counter_of(tick))

    @property
    def uses_tick(self) -> bool:
        """Whether anything stands in a place that depends on the tick."""
        return bool(self._plain.counter.consumers())

    def here(self) -> Place | None:
        """Returns the place of what is being built, None where there is none that is known to be right."""
        graph = v1.get_default_graph()
        loop = control_flow_util.GetContainingWhileContext(graph._get_control_flow_context())
        if loop is not None:
            return self._once(loop, lambda: self._of_loop(graph, loop))
        if graph is self._graph:
            return self._plain
        if type(graph) is func_graphs.FuncGraph and self._is_on_trial(graph):
            return self._of_trial()
        return self._once(graph, lambda: self._of_function(graph))

    def path(self, scope: str) -> str:
        """Returns the name of what is being built: that of its scope, with where the scope stands."""
        return f'{self._path(v1.get_default_graph())}{keys.relative(scope)}'

    # Dataset functions

    @contextlib.contextmanager
    def trial(self) -> Iterator['_Trial']:
        """Builds a Dataset whose function is looked into: the draws in it get a place that is thrown away."""
        self._trials.append(_Trial(v1.get_default_graph()))
        try:
            yield self._trials[-1]
        finally:
            self._trials.pop()

    def note_element(self, path: str, index: tf.Tensor, seed: tf.Tensor) -> None:
        """Tells the place of the Dataset function that is being traced.

        Args:
            path: Its name.
            index: int64 scalar, the number of the element since its iterator began.
            seed: int64 scalar, drawn for the element or made from the elements so far.
        """
        graph = v1.get_default_graph()
        outer = graph.outer_graph
        position = None if outer is self._graph else self._position_of_element(outer)
        # The number in the upper bits: seeds of 32 bits alone would give two elements of a large epoch the same draws.
        number = tf.bitwise.bitwise_xor(tf.bitwise.left_shift(index, tf.constant(32, tf.int64)), seed)
        self._paths[graph] = path
        self._known[graph] = Place(position, keys.counter_of(number))

    def _position_of_element(self, outer: tf.Graph) -> tf.Tensor | None:
        with outer.as_default():
            place = self.here()
            return None if place is None else keys.mixed(place.position, tf.bitcast(place.counter[1], tf.int64))

    def _is_on_trial(self, graph: tf.Graph) -> bool:
        return bool(self._trials) and graph not in self._known and graph.outer_graph is self._trials[-1].graph

    def _of_trial(self) -> Place:
        self._trials[-1].drew = True
        return Place(tf.zeros([1], tf.uint64), tf.zeros([2], tf.uint64))

    # Loops, branches, functions

    def _once(self, owner: Any, make: Callable[[], Place | None]) -> Place | None:
        if owner not in self._known:
            place = make()
            if place is None:
                return None
            self._known[owner] = place
        return self._known[owner]

    def _of_function(self, graph: tf.Graph) -> Place | None:
        if not isinstance(graph, func_graphs.FuncGraph):
            return None
        if isinstance(graph, (*_LOOPS, v2_graphs.CondBranchFuncGraph)):
            return self._of_part(graph)
        with _apart(graph, None):
            return _at_each_call(graph, self._of_call)

    def _of_part(self, graph: Any) -> Place | None:
        """Returns the place of a body or a branch: it runs within its outer graph, whose tensors it may use."""
        with graph.outer_graph.as_default():
            outer = self.here()
        if outer is None or not isinstance(graph, _LOOPS):
            return outer
        with _apart(graph, None):
            return Place(keys.mixed(outer.position, graph.inputs[0]), outer.counter)  # which counts iterations

    def _of_call(self) -> Place:
        """Returns the place of a call that is being built now."""
        place = self.here() or Place(None, tf.zeros([2], tf.uint64))
        with v1.name_scope('random_call') as scope:
            site = tf.constant([self._site_key(self.path(scope))], tf.uint64)
            return Place(site if place.position is None else site + place.position, place.counter)

    def _of_loop(self, graph: tf.Graph, loop: Any) -> Place | None:
        """Returns the place of a version 1 loop, which gets a counter for it."""
        if loop._pivot is None:
            return None  # the condition is being built: what the loop counts with can't be made yet
        with _apart(graph, loop.outer_context):
            outer = self.here()
            zero = tf.constant(0, tf.int64)
        if outer is None:
            return None
        with _apart(graph, loop):
            return Place(keys.mixed(outer.position, _iteration(loop, zero)), outer.counter)

    def _path(self, graph: Any) -> str:
        """Returns what stands before the names of a graph's ops; names of FuncGraphs hold a count of the process."""
        if graph is self._graph:
            return ''
        if graph in self._paths:
            return self._paths[graph]
        if isinstance(graph, v2_graphs.ControlFlowFuncGraph):
            outer = graph.outer_graph
            kind = graph.name.split('_')[-2]  # `<scope>_body_<count>`
            return f'{self._path(outer)}{keys.relative(outer.get_name_scope() + "/")}{kind}:'
        return f'{graph.name}:'


class _Trial:
    def __init__(self, graph: tf.Graph):
        self.graph = graph
        self.drew = False


@contextlib.contextmanager
def _apart(graph: Any, context: Any) -> Iterator[None]:
    """Builds in a control flow context, independent of what the user is inside of."""
    with v1.name_scope(keys.SCOPE), graph.control_dependencies(None):
        graph._set_control_flow_context(context)
        yield


def _iteration(loop: Any, zero: tf.Tensor) -> tf.Tensor:
    """Returns the number of the iteration of a version 1 loop whose body is being built, as its gradient counts it."""
    loop.AddName(zero.name)
    enter = control_flow_ops._Enter(zero, loop.name, parallel_iterations=loop.parallel_iterations)
    merge = control_flow_ops.merge([enter, enter])[0]
    _, index = control_flow_ops.switch(merge, loop.pivot)
    merge.op._update_input(1, control_flow_ops._NextIteration(index + 1))
    return index


def _at_each_call(graph: Any, place: Callable[[], Place]) -> Place:
    """Returns the place of a function: what `place` builds where the function is called, once per call.

    `FuncGraph.capture_call_time_value` does this where nothing but functions call a function; here the graph of a
    session does.
    """
    made: list[Place] = []

    def position() -> list[tf.Tensor]:
        made.append(place())
        return [made[-1].position]

    def counter() -> list[tf.Tensor]:
        return [made.pop().counter]

    inner = []
    for name, spec, value in (('position', _POSITION, position), ('counter', _COUNTER, counter)):
        inner.append(v1.placeholder(spec.dtype, spec.shape, name))
        graph._function_captures.add_or_replace(
            key=('framework', name), external=value, internal=inner[-1], tracetype=spec, is_by_ref=True
        )
    return Place(*inner)
