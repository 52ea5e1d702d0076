"""The input_fn contract: how a function of the user is checked and called, and how its elements are read."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from framework import errors
from framework.calling import CallSignature, call_by_keyword
from framework.errors import ConfigurationError, ConfigurationTypeError

_ARGUMENTS = ('mode', 'params', 'config', 'input_context')


def check_input_fn(input_fn: Any, *, name: str) -> None:
    """Checks the arguments of an input_fn before anything is built.

    Args:
        input_fn: Takes any of `mode`, `params`, `config` and `input_context`, by keyword. Further arguments need a
            default; where gin wraps the function, its bindings are asked when it is called.
        name: The argument that holds it, for example `Experiment.train_input_fn`.

    Raises:
        ConfigurationError: It can't be called in that way.
    """
    if isinstance(input_fn, tf.data.Dataset):
        raise ConfigurationTypeError(
            f'`{name}` must be callable, given: [{type(input_fn).__name__}]. Give the function that makes the Dataset, '
            'not the Dataset: it has to be made inside the graph.'
        )
    signature = CallSignature.of(input_fn, name=name)
    unexpected = [argument for argument in signature.required if argument not in _ARGUMENTS]
    if unexpected and not signature.by_gin:
        raise ConfigurationError(
            f'`{name}` [{signature.label}] has following not expected args: {unexpected}. They are required, and '
            f'nothing supplies them: give each a default or bind it in gin. '
            f'{errors.nearest(unexpected[0], _ARGUMENTS)}'
        )


def call_input_fn(input_fn: Callable[..., Any], *, stream: str, mode: str, params: Any, config: Any) -> Any:
    """Calls an input_fn on the CPU with those of `mode`, `params` and `config` that it names.

    Args:
        input_fn: Passed `check_input_fn`. A required `input_context` gets that of a single process.
        stream: The stream that it feeds, for messages: `train` or the name of an evaluation set.
        mode: One of `ModeKeys`.
        params: Any object, copied deeply for this call. None means that none were given.
        config: The run configuration.

    Returns:
        A Dataset, a v1 iterator, or a structure of tensors, made in the default graph.

    Raises:
        ConfigurationError: gin lacks a binding, or it returned something else.
    """
    signature = CallSignature.of(input_fn, name='input_fn')
    arguments = {'mode': mode, 'config': config, **signature.params_argument(params)}
    if 'input_context' in signature.required:
        arguments['input_context'] = tf.distribute.InputContext()
    arguments = {name: value for name, value in arguments.items() if name in signature.named}
    with tf.device('/cpu:0'):
        result = call_by_keyword(input_fn, arguments, name=f'input_fn of {stream}')
        _check_result(result, stream, signature.label)
    return result


def _check_result(result: Any, stream: str, label: str) -> None:
    if isinstance(result, (tf.data.Dataset, tf.compat.v1.data.Dataset)):
        tensors = [tf.data.experimental.to_variant(result)]
    elif isinstance(result, tf.compat.v1.data.Iterator):
        return
    else:
        tensors = tf.nest.flatten(result, expand_composites=True)
    is_empty = not tensors and not isinstance(result, Mapping)  # no features at all may be meant: those of a generator
    if is_empty or not all(isinstance(tensor, tf.Tensor) for tensor in tensors):
        raise ConfigurationTypeError(
            f'The input_fn of stream `{stream}` ({label}) must return a tf.data.Dataset, or tensors of the graph, '
            f'given: [{_describe(result)}]. {_dataset_remedy(result)}'
        )
    if any(getattr(tensor, 'graph', None) is not tf.compat.v1.get_default_graph() for tensor in tensors):
        raise ConfigurationError(
            f'The input_fn of stream `{stream}` ({label}) returned a {_describe(result)} that was made in another '
            'graph or eagerly. Make it inside of input_fn, anew in each call.'
        )


def _describe(result: Any) -> str:
    if isinstance(result, (tuple, list)):
        return f'{type(result).__name__} of ({", ".join(type(part).__name__ for part in result)})'
    return type(result).__name__


def _dataset_remedy(result: Any) -> str:
    if result is None:
        return 'Does every branch of it end in `return dataset`?'
    if isinstance(result, tf.data.Iterator):
        return 'Return the Dataset itself: the framework makes and owns its iterator.'
    parts = tf.nest.flatten(result)
    if parts and all(tf.is_tensor(part) or isinstance(part, (np.ndarray, np.generic, int, float)) for part in parts):
        return (
            'For one batch, wrap it in `tf.data.Dataset.from_tensors(...)`; for a table of examples use '
            '`framework.inputs.from_arrays`.'
        )
    if callable(result) and not hasattr(result, '__getitem__'):
        return 'It returned a function: call that, `return make_input_fn(...)()`, or give it as the input_fn.'
    if hasattr(result, '__iter__') or hasattr(result, '__getitem__'):
        return (
            'Wrap a Python generator, a Keras Sequence or a loader in `tf.data.Dataset.from_generator(...)`; such a '
            'stream cannot be resumed exactly, files and arrays can.'
        )
    return 'Build one, for example by `framework.inputs.from_arrays`.'


def split_element(element: Any, *, stream: str) -> tuple[Any, Any]:
    """Splits an element of a Dataset into features and labels.

    Args:
        element: A tuple or list of length 2, `(features, labels)`; anything else is features.
        stream: The stream that it comes from, for messages.

    Returns:
        The features and the labels, None where there are none.

    Raises:
        ConfigurationError: It is a tuple or list of another length.
    """
    if not isinstance(element, (tuple, list)):
        return element, None
    if len(element) != 2:
        raise ConfigurationError(
            f'input_fn should return (features, labels) as a len 2 tuple. The elements of stream `{stream}` have '
            f'length [{len(element)}]: put several features, or weights, into a dict, for example by '
            '`dataset.map(lambda x, y, w: ({"x": x, "weights": w}, y))`.'
        )
    features, labels = element
    return features, labels
