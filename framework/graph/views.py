"""What a later call of model_fn sees of the graph: as if it were the only call.

Its variables are those that it made, asked for or used, in their collections, with the regularization losses that a
new variable would have had; names that a collection is searched by have no prefix. A model_fn may take a weight decay
from `trainable_variables()`, or its losses by a scope.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import tensorflow as tf
from tensorflow.compat import v1

from framework.graph import movement

KEYS = v1.GraphKeys
_OF_VARIABLES = (
    KEYS.GLOBAL_VARIABLES,
    KEYS.LOCAL_VARIABLES,
    KEYS.TRAINABLE_VARIABLES,
    KEYS.MODEL_VARIABLES,
    KEYS.MOVING_AVERAGE_VARIABLES,
)


class CallView:
    """The collections of a graph as one later call sees them.

    Args:
        prefix: The name scope of the call, with a slash at its end.
        weight_losses: The regularization losses of weights that the first call made.
    """

    def __init__(self, prefix: str, weight_losses: Sequence[tf.Tensor] = ()):
        self._graph = v1.get_default_graph()
        self._prefix = prefix
        self._weight_losses = [(loss, _variables_of(loss)) for loss in weight_losses]
        self._ops_before = {op.name for op in self._graph.get_operations()}
        self._before = {id(v) for name in _OF_VARIABLES for v in self._graph.get_collection(name)}
        self._asked: dict[int, Any] = {}
        step = v1.train.get_global_step(self._graph)
        if step is not None:
            self._asked[id(step)] = step

    def note(
        self, variable: Any, collections: Sequence[Any] | None, regularizer: Callable[[Any], Any] | None = None
    ) -> None:
        """Notes a variable that the call was given, and does what TensorFlow does with a new one.

        Args:
            variable: A variable, or a partitioned one.
            collections: The collections that the call named for it.
            regularizer: What the call named to regularize it.
        """
        is_partitioned = hasattr(variable, 'as_tensor') and not hasattr(variable, 'op')
        for part in variable if is_partitioned else [variable]:
            if regularizer is not None and id(part) not in self._asked:
                self._regularize(part, regularizer)
            self._asked.setdefault(id(part), part)
            for name in collections or ():
                if not any(part is other for other in self._graph.get_collection_ref(name)):
                    self._graph.add_to_collection(name, part)

    def _regularize(self, variable: Any, regularizer: Callable[[Any], Any]) -> None:
        with v1.name_scope(f'{self._prefix}{variable.op.name}/Regularizer/'):
            loss = regularizer(variable)
        if loss is not None:
            self._graph.add_to_collection(KEYS.REGULARIZATION_LOSSES, loss)

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Makes the graph answer with this view inside."""
        # On this one object: model_fn asks by many functions, which all come to these public methods.
        graph = self._graph
        with (
            mock.patch.object(graph, 'get_collection', self._get_collection),
            mock.patch.object(graph, 'get_tensor_by_name', _own_first(graph.get_tensor_by_name, self._prefix)),
            mock.patch.object(graph, 'get_operation_by_name', _own_first(graph.get_operation_by_name, self._prefix)),
        ):
            yield

    def _get_collection(self, name: Any, scope: str | None = None) -> list[Any]:
        items = list(self._graph.get_collection_ref(name)) if name in self._graph.collections else []
        if name in _OF_VARIABLES:
            items = self._own(items)
        elif name == KEYS.REGULARIZATION_LOSSES:
            items += self._inherited_losses()
        if scope is None:
            return items
        matches = re.compile(scope).match
        named = [item for item in items if hasattr(item, 'name')]
        # A scope that the call has entered bears the prefix, one that it has written down doesn't.
        return [item for item in named if matches(item.name) or matches(item.name.removeprefix(self._prefix))]

    def _own(self, items: Sequence[Any]) -> list[Any]:
        """Returns the variables of the call: in the order in which it asked for them, then those that it uses."""
        there: Mapping[int, Any] = {id(item): item for item in items}
        asked = [there[key] for key in self._asked if key in there]
        others = [item for key, item in there.items() if key not in self._asked]
        return [*asked, *(item for item in others if id(item) not in self._before or self._is_used(item.op))]

    def _inherited_losses(self) -> list[tf.Tensor]:
        """Returns the losses of weights that this call uses without having asked for them: those of a kept layer."""
        asked = {variable.op.name for variable in self._asked.values()}
        return [
            loss
            for loss, variables in self._weight_losses
            if not asked & {variable.name for variable in variables}
            and all(self._is_used(variable) for variable in variables)
        ]

    def _is_used(self, op: tf.Operation) -> bool:
        # Not by the prefix: a layer that is kept goes back into the name scope of its first call.
        return any(consumer.name not in self._ops_before for consumer in op.outputs[0].consumers())


@contextlib.contextmanager
def own_names(graph: tf.Graph, prefix: str) -> Iterator[None]:
    """Makes the names of ops and tensors mean those of one call, where it has them.

    Args:
        graph: The graph.
        prefix: The name scope of the call, with a slash at its end; empty where the names are those of the graph.
    """
    with mock.patch.object(graph, 'as_graph_element', _own_first(graph.as_graph_element, prefix)):
        yield


def _own_first(find: Callable[..., Any], prefix: str) -> Callable[..., Any]:
    def found(name: Any, *args: Any, **kwargs: Any) -> Any:
        if prefix and isinstance(name, str):
            with contextlib.suppress(KeyError, ValueError):
                return find(prefix + name, *args, **kwargs)
        return find(name, *args, **kwargs)

    return found


def _variables_of(loss: tf.Tensor) -> list[tf.Operation]:
    """Returns the ops of the variables that a loss depends on."""
    return [op for op in movement.ancestors([loss]) if op.type in ('VarHandleOp', 'Variable', 'VariableV2')]
