"""The keys and counters of one graph's draws.

key = hash(seed, task, op name), counter = (0, tick)
"""

import contextlib
import inspect
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.compat import v1

from framework.graph.random_ops import keys
from framework.graph.random_ops.places import Places


class Keying:
    """The keyed draws of one graph.

    Attributes:
        tick: int64 scalar, to be fed: the count of train runs, or `keys.evaluation_tick`. A run that does not feed it
            draws what every such run draws.
        variables: The local variables that keying made. They are no state: nothing of them need be saved.
    """

    def __init__(self, graph: tf.Graph, seed: int, task: int):
        self._graph = graph
        self._seed = seed
        self._task = task
        self._thread = threading.get_ident()
        self._paused = 0
        self._in_initial_value = 0
        with graph.as_default():
            self.tick, unfed = keys.make_tick()
        self.variables = (unfed,)
        self.places = Places(graph, self.tick, self.key)

    @property
    def uses_tick(self) -> bool:
        """Whether an op draws by the tick."""
        return self.places.uses_tick

    def key(self, path: str) -> int:
        """Returns the key of what has this path."""
        return keys.hashed(self._seed, self._task, path)

    def is_building(self) -> bool:
        """Whether the caller is building this graph, or a function of it: other threads may build others."""
        if self._paused or threading.get_ident() != self._thread:
            return False
        graph = v1.get_default_graph()
        while getattr(graph, 'outer_graph', None) is not None:
            graph = graph.outer_graph
        return graph is self._graph

    def draw(self, scope: str, place: keys.Place) -> keys.Draw:
        """Returns what the op of this name scope draws from."""
        key = tf.constant([self.key(self.places.path(scope))], tf.uint64)
        return keys.Draw(key if place.position is None else key + place.position, place.counter)

    def place(self) -> keys.Place | None:
        """Returns the place of what is being built, None where a draw can't be keyed."""
        if not self.is_building():
            return None
        if self._in_initial_value and v1.get_default_graph() is self._graph:
            return keys.Place(None, tf.zeros([2], tf.uint64))  # whatever the tick
        return self.places.here()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leaves random ops as they are inside."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1

    def create_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        """Creates a variable whose initial value depends on no tick and not on what was made before it."""
        value: Any = kwargs.get('initial_value')
        # An initial value that comes from a checkpoint is recognised by its type.
        if inspect.isroutine(value) or hasattr(value, 'func'):
            kwargs['initial_value'] = lambda *args, **named: self._initial_value(value, *args, **named)
        return next_creator(**kwargs)

    def _initial_value(self, value: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        before = random.getstate()
        # Keras's initialisers are stateless already, with a seed that they take from Python's generator.
        random.seed(self.key(self.places.path(f'{v1.get_default_graph().get_name_scope()}/')))
        self._in_initial_value += 1
        try:
            return value(*args, **kwargs)
        finally:
            self._in_initial_value -= 1
            random.setstate(before)
