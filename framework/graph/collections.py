"""Each call of model_fn sees its own graph collections.

Variables and the global step belong to the graph, everything else to the call that added it: losses, update
ops, summaries, metrics, tables and whatever collections a user makes.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.compat import v1

KEYS = v1.GraphKeys

_OF_THE_GRAPH = frozenset(
    {
        KEYS.GLOBAL_VARIABLES,
        KEYS.LOCAL_VARIABLES,
        KEYS.TRAINABLE_VARIABLES,
        KEYS.MODEL_VARIABLES,
        KEYS.MOVING_AVERAGE_VARIABLES,
        KEYS.GLOBAL_STEP,
        KEYS.COND_CONTEXT,
        KEYS.WHILE_CONTEXT,
        KEYS.RESOURCES,  # the session's initialisation must reach those of every call
        KEYS.LOCAL_RESOURCES,
    }
)


def _is_shared(name: Any) -> bool:
    # TensorFlow keeps its variable stores under keys like ('__variable_store',).
    of_tensorflow = isinstance(name, tuple) and all(str(part).startswith('__') for part in name)
    return name in _OF_THE_GRAPH or of_tensorflow


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The collections of one call, by name."""

    items: Mapping[Any, tuple[Any, ...]]

    def get(self, name: Any) -> tuple[Any, ...]:
        """Returns what the call added to a collection, empty when it added nothing."""
        return self.items.get(name, ())


EMPTY = Snapshot({})


def take(graph: tf.Graph) -> Snapshot:
    """Returns the collections that the graph shows now, those of the graph as a whole left out."""
    names = [name for name in graph.collections if not _is_shared(name)]
    return Snapshot({name: tuple(graph.get_collection(name)) for name in names})


def show(graph: tf.Graph, snapshot: Snapshot) -> None:
    """Makes the graph show these collections in place of the ones that it shows now."""
    for name in [name for name in graph.collections if not _is_shared(name)]:
        graph.clear_collection(name)
    for name, items in snapshot.items.items():
        for item in items:
            graph.add_to_collection(name, item)


@contextlib.contextmanager
def shown(graph: tf.Graph, snapshot: Snapshot) -> Iterator[None]:
    """Shows the collections of `snapshot` inside, and the former ones again afterwards."""
    before = take(graph)
    show(graph, snapshot)
    try:
        yield
    finally:
        show(graph, before)


def batch_free_regularization(snapshot: Snapshot) -> tuple[tf.Tensor, ...]:
    """Returns the regularization losses that depend on no batch: those of the weights, not those of activities."""
    losses = snapshot.get(KEYS.REGULARIZATION_LOSSES)
    of_batch = _ops_of_a_batch(losses[0].graph) if losses else set()
    return tuple(loss for loss in losses if loss.op.name not in of_batch)


def _ops_of_a_batch(graph: tf.Graph) -> set[str]:
    """Returns the names of the ops that depend on an iterator."""
    found: set[str] = set()
    for op in graph.get_operations():  # inputs come before the ops that use them
        before = [*(value.op for value in op.inputs), *op.control_inputs]
        if op.type.startswith('Iterator') or any(other.name in found for other in before):
            found.add(op.name)
    return found
