"""Makes every random op that Python code builds depend on its name and the tick, in place of state of the session.

TensorFlow's Python and Keras layers build their random ops by a few functions, which are exchanged while a graph is
built. What escapes them (`tf.raw_ops`, ops that C++ makes) stays as it is, and the audit finds it.
"""

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import tensorflow as tf
from tensorflow.compat import v1
from tensorflow.python.ops.parallel_for import control_flow_ops as parallel_for  # where all vectorised loops meet

from framework.graph.random_ops import datasets, twins
from framework.graph.random_ops.keying import Keying


@contextlib.contextmanager
def keyed(graph: tf.Graph, seed: int, *, task: int = 0) -> Iterator[Keying]:
    """Keys the random ops that the calling thread builds inside in a graph.

    Seeds that single ops are given are ignored: ops differ by their names. Only for the thread whose turn it is to
    build, as `building.new_graph` sees to: what is exchanged here belongs to the process.

    Args:
        graph: The graph, which is the default one.
        seed: The seed of the run.
        task: The number of the worker, whose draws are its own.
    """
    keying = Keying(graph, seed, task)
    with contextlib.ExitStack() as stack:
        for (module, name), twin in twins.TWINS.items():
            stack.enter_context(mock.patch.object(module, name, _op_builder(keying, getattr(module, name), twin)))
        for module, name, builder in datasets.builders(keying):
            stack.enter_context(mock.patch.object(module, name, builder))
        stack.enter_context(mock.patch.object(parallel_for, '_pfor_impl', _unkeyed(keying, parallel_for._pfor_impl)))
        stack.enter_context(v1.variable_creator_scope(keying.create_variable))
        yield keying


def _op_builder(keying: Keying, original: Callable[..., Any], twin: twins.Twin) -> Callable[..., Any]:
    signature = inspect.signature(original)
    op_type = ''.join(part.capitalize() for part in original.__name__.split('_'))

    def build(*args: Any, **kwargs: Any) -> Any:
        place = keying.place()
        if place is None:
            return original(*args, **kwargs)
        given = signature.bind(*args, **kwargs).arguments
        with v1.name_scope(given.pop('name', None) or op_type) as scope:
            return twin(keying.draw(scope, place), **given)

    return build


def _unkeyed(keying: Keying, original: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that builds the body of a vectorised loop: its iterations are told apart by TensorFlow only.

    A keyed op would draw the same in each of them.
    """

    def build(*args: Any, **kwargs: Any) -> Any:
        if not keying.is_building():
            return original(*args, **kwargs)
        with keying.paused():
            return original(*args, **kwargs)

    return build
