"""What every graph of ours begins with: its seed and its global step, before any function of the user is called."""

import contextlib
import random
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compat import v1

KEYS = v1.GraphKeys

# Building seeds generators and counts Keras names that the whole process shares, so threads take turns.
_ONE_BUILD = threading.RLock()


@contextlib.contextmanager
def new_graph(seed: int | None) -> Iterator[tf.Graph]:
    """Makes a graph the default one while it is built.

    Args:
        seed: Seeds the graph, and Python's and NumPy's generators while user code builds. None seeds nothing.
    """
    graph = tf.Graph()
    with _ONE_BUILD, graph.as_default():
        if seed is None:
            yield graph
            return
        with _seeded(seed):
            v1.set_random_seed(seed)
            yield graph


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seeds Python's and NumPy's global generators: tf_keras initialisers draw their seeds from Python's."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)


def create_global_step() -> tf.Variable:
    """Makes the global step of the default graph, a resource variable as all others."""
    with v1.variable_scope(v1.get_variable_scope(), use_resource=True):
        return v1.train.create_global_step()


def local_variables(without: Sequence[Any] = ()) -> list[Any]:
    """Returns the local variables of the default graph and those of metrics, each once.

    Args:
        without: Variables to leave out.
    """
    left_out = {id(variable) for variable in without}
    found = {id(variable): variable for variable in [*v1.local_variables(), *v1.get_collection(KEYS.METRIC_VARIABLES)]}
    return [variable for key, variable in found.items() if key not in left_out]
