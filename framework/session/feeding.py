"""What is fed to a model by hand: checked against its placeholders, so that faults are told in the caller's terms."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compat import v1

from framework import errors, serving

_STRINGS = 'SUO'  # the kinds of numpy's dtypes that may hold strings


def feeds(placeholders: Mapping[str, Any], features: Any) -> dict[Any, Any]:
    """Returns the feed_dict for some features.

    Args:
        placeholders: By name what is fed.
        features: Arrays `[B, ...]` in dicts and tuples; a single one where a single one is fed.

    Raises:
        ConfigurationError: If a name, a shape or a dtype is not that of a placeholder.
    """
    named = _named(placeholders, features)
    _check_kind(placeholders, features)
    for name in named:
        if name not in placeholders:
            raise errors.ConfigurationError(
                f'`features` [{name}]: the model takes no such feature. {errors.nearest(name, placeholders)}'
            )
    if missing := [name for name in placeholders if name not in named]:
        raise errors.ConfigurationError(
            f'`features` lacks [{", ".join(missing)}]. The model takes: {", ".join(placeholders)}.'
        )
    return {placeholder: _value(name, placeholder, named[name]) for name, placeholder in placeholders.items()}


@contextlib.contextmanager
def explained(placeholders: Mapping[str, Any], features: Any) -> Iterator[None]:
    """Explains an error of the model by batches of different sizes, where that may be what it means.

    Args:
        placeholders: By name what is fed.
        features: What was given for it.
    """
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        named = {name: np.shape(value) for name, value in _named(placeholders, features).items() if _is_array(value)}
        sizes = {name: shape[0] for name, shape in named.items() if shape}
        if len(set(sizes.values())) < 2:
            raise
        shown = ', '.join(f'`{name}` [{size}]' for name, size in sizes.items())
        raise errors.ConfigurationError(
            f'The features are not of equally many examples: {shown}. Their first axis is that of the batch. '
            f'(TensorFlow says: {error.message.splitlines()[0]})'
        ) from error


def _named(placeholders: Mapping[str, Any], features: Any) -> dict[str, Any]:
    named = serving.flat_names(features)
    if list(named) == [serving.SINGLE_RECEIVER] and len(placeholders) == 1:
        return dict(zip(placeholders, named.values(), strict=True))
    return named


def _check_kind(placeholders: Mapping[str, Any], features: Any) -> None:
    if isinstance(features, Mapping) and list(placeholders) == [serving.SINGLE_RECEIVER] and len(features) == 1:
        (name,) = features
        if name != serving.SINGLE_RECEIVER:
            raise errors.ConfigurationError(
                f'`features` [a dict of {name}]: the model takes one tensor without a name. Give the array itself.'
            )
    if len(placeholders) > 1 and not isinstance(features, Mapping | tuple):
        raise errors.ConfigurationError(
            f'`features` [{type(features).__name__}] is one value, and the model takes: {", ".join(placeholders)}. '
            'Give them in the structure that the input_fn has, for example a dict.'
        )


def _is_array(value: Any) -> bool:
    return not isinstance(value, v1.SparseTensorValue | v1.ragged.RaggedTensorValue)


def _value(name: str, placeholder: Any, value: Any) -> Any:
    if isinstance(placeholder, tf.SparseTensor):
        return _of_type(name, value, v1.SparseTensorValue, 'tf.compat.v1.SparseTensorValue')
    if isinstance(placeholder, tf.RaggedTensor):
        return _of_type(name, value, v1.ragged.RaggedTensorValue, 'tf.compat.v1.ragged.constant_value')
    array = _as_dtype(name, _as_array(name, value), placeholder.dtype)
    _check_shape(name, array, placeholder.shape)
    return array


def _of_type(name: str, value: Any, kind: Any, maker: str) -> Any:
    if not isinstance(value, kind):
        raise errors.ConfigurationTypeError(
            f'`features[{name}]` [{type(value).__name__}] must be a {kind.__name__}. Make it by `{maker}`.'
        )
    return value


def _as_array(name: str, value: Any) -> np.ndarray:
    try:
        return np.asarray(value)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise errors.ConfigurationTypeError(
            f"`features[{name}]` [{type(value).__name__}] can't become an array: {error}"
        ) from error


def _as_dtype(name: str, array: np.ndarray, dtype: tf.DType) -> np.ndarray:
    """Returns the values in the dtype of the placeholder, where none of them changes but by rounding."""
    if dtype == tf.string:
        fits = array.dtype.kind in _STRINGS and all(isinstance(item, str | bytes) for item in array.flat)
        converted = array
    else:
        fits = array.dtype.kind not in _STRINGS and np.can_cast(array.dtype, dtype.as_numpy_dtype, 'same_kind')
        converted = array.astype(dtype.as_numpy_dtype) if fits else array
        fits = fits and (array.dtype.kind not in 'iu' or bool(np.all(converted == array)))
    if not fits:
        raise errors.ConfigurationTypeError(
            f'`features[{name}]` [{array.dtype}] does not fit the {dtype.name} that the model takes. Convert it.'
        )
    return converted


def _check_shape(name: str, array: np.ndarray, shape: tf.TensorShape) -> None:
    if shape.is_compatible_with(array.shape):
        return
    lacks_batch = shape[1:].is_compatible_with(array.shape)
    remedy = 'Put the example into a batch: `array[np.newaxis]`.' if lacks_batch else 'The first axis is the batch.'
    raise errors.ConfigurationError(
        f'`features[{name}]` [shape {array.shape}] does not fit the shape {shape} that the model takes. {remedy}'
    )
