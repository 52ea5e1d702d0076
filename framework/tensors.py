"""Tensors that a function of the user returned."""

from typing import Any

import tensorflow as tf

from framework.errors import ConfigurationError, ConfigurationTypeError


def checked_tensor(value: Any, name: str, kind: str = 'Tensor') -> Any:
    """Returns a tensor of the default graph, a variable as its value.

    Args:
        value: What was given.
        name: What messages call it.
        kind: What it must be, for messages.

    Raises:
        ConfigurationTypeError: It is no tensor.
        ConfigurationError: It belongs to another graph.
    """
    if not tf.is_tensor(value):
        raise ConfigurationTypeError(
            f'{name} must be {kind}, given: [{value!r}]. Convert it by `tf.convert_to_tensor`.'
        )
    check_graph(value, name)
    return tf.convert_to_tensor(value) if isinstance(value, tf.Variable) else value


def dense_tensor(value: Any, name: str, kind: str = 'Tensor') -> Any:
    """Does what `checked_tensor` does, and refuses sparse and ragged values."""
    tensor = checked_tensor(value, name, kind)
    if not isinstance(tensor, tf.Tensor):
        raise ConfigurationTypeError(
            f'{name} must be {kind}, given: [{value!r}]. A sparse or ragged value has no single tensor: reduce it, or '
            'convert it by `tf.sparse.to_dense` or `.to_tensor()`.'
        )
    return tensor


def check_graph(value: Any, name: str) -> None:
    """Refuses an op, variable or structure of tensors that doesn't belong to the default graph."""
    whole = isinstance(value, (tf.Operation, tf.Variable))
    parts = [value] if whole else tf.nest.flatten(value, expand_composites=True)
    for part in parts:
        # An eager tensor has no graph at all.
        if getattr(part, 'graph', None) is not tf.compat.v1.get_default_graph():
            shown = part.name if hasattr(part, 'graph') else repr(part)
            raise ConfigurationError(
                f'{name} with "{shown}" must be from the default graph. Possible causes of this error include:\n\n'
                f'1) {name} was created outside the context of the default graph.\n\n'
                '2) The object passed through to EstimatorSpec was not created in the most recent call to "model_fn".'
            )
