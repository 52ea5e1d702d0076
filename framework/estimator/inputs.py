"""`numpy_input_fn` and `pandas_input_fn`: batches of arrays in memory, which are no part of the graph."""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compat import v1

from framework import errors

__all__ = ['numpy_input_fn', 'pandas_input_fn']

_ALONE = ''  # what the only array is called


class ArrayBatches(tf.data.Dataset):
    """A Dataset that can also be taken for its current batch, which is what these input functions once returned.

    Old code wraps them: `features, labels = input_fn()`.

    Args:
        batches: The Dataset.
    """

    def __init__(self, batches: tf.data.Dataset):
        self._batches = batches
        super().__init__(tf.data.experimental.to_variant(batches))

    @property
    def element_spec(self) -> Any:
        """The structure of a batch."""
        return self._batches.element_spec

    def _inputs(self) -> list[Any]:
        return [self._batches]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._element)

    def __getitem__(self, key: Any) -> Any:
        return self._element[key]

    @functools.cached_property
    def _element(self) -> Any:
        return v1.data.make_one_shot_iterator(self._batches).get_next()


def numpy_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
) -> Callable[[], tf.data.Dataset]:
    """Returns an input_fn over arrays: batches go on over the ends of epochs, and the last one may be smaller.

    Args:
        x: Features: an array `[N, ...]` or a dict of such.
        y: Labels: the same, or None.
        batch_size: Examples in a batch.
        num_epochs: How often the examples are read; None for ever.
        shuffle: Whether they are read in random order, another one in every epoch. Must be given.
        queue_capacity: Taken for old code's sake, and not used.
        num_threads: The same.

    Raises:
        ConfigurationError: If `shuffle` is not given; with the call of the input_fn if the arrays don't match.
    """
    del queue_capacity, num_threads
    _check_shuffle(shuffle)

    def input_fn() -> tf.data.Dataset:
        features = _checked(x)
        labels = {} if y is None else _labels(y, features)
        _check_lengths(features, labels)
        arrays = [*features.values(), *labels.values()]

        def element(*parts: tf.Tensor) -> Any:
            named = _structured(x, features, parts)
            return named if y is None else (named, _structured(y, labels, parts[len(features) :]))

        return ArrayBatches(_batches(arrays, batch_size, num_epochs, bool(shuffle)).map(element))

    return input_fn


def pandas_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
    target_column: str = 'target',
) -> Callable[[], tf.data.Dataset]:
    """Returns an input_fn over the columns of a table; see `numpy_input_fn`.

    Args:
        x: Features: a `pandas.DataFrame`.
        y: Labels: a `pandas.Series`, or a `DataFrame` for a dict of them, with the index of `x`; or None.
        batch_size: The same.
        num_epochs: The same.
        shuffle: The same.
        queue_capacity: The same.
        num_threads: The same.
        target_column: A name for the labels that no feature may have.

    Raises:
        ConfigurationError: If `shuffle` is not given, or the tables don't match.
    """
    _check_shuffle(shuffle)
    if not isinstance(target_column, str):
        raise errors.ConfigurationTypeError(f'target_column must be a string type. Given [{target_column!r}].')
    if y is not None and target_column in x:
        raise errors.ConfigurationError(
            f'Cannot use name {target_column} for target column: DataFrame already has a column with that name: '
            f'{list(x.columns)}'
        )
    if y is not None and not np.array_equal(x.index, y.index):
        raise errors.ConfigurationError(
            f'Index for x and y are mismatched.\nIndex for x: {x.index}\nIndex for y: {y.index}'
        )
    features = _columns(x)
    labels = None
    if y is not None:  # a copy, because a caller may go on with the table
        labels = _columns(y) if hasattr(y, 'columns') else np.array(y)
    apart = labels if not isinstance(labels, dict) else {f'{name}\0label': part for name, part in labels.items()}
    input_fn = numpy_input_fn(features, apart, batch_size, num_epochs, shuffle, queue_capacity, num_threads)
    if not isinstance(labels, dict):
        return input_fn
    return lambda: ArrayBatches(
        input_fn().map(lambda f, t: (f, {name.removesuffix('\0label'): part for name, part in t.items()}))
    )


def _columns(table: Any) -> dict[str, np.ndarray]:
    return {name: np.array(table[name]) for name in table.columns}


def _check_shuffle(shuffle: Any) -> None:
    if not isinstance(shuffle, bool):
        raise errors.ConfigurationError(
            'shuffle must be provided and explicitly set as boolean (it is recommended to set it as True for '
            f'training); got {shuffle}'
        )


def _checked(x: Any) -> dict[str, np.ndarray]:
    """Returns the features by name, in an order that doesn't depend on the caller's."""
    if isinstance(x, Mapping):
        if not x:
            raise errors.ConfigurationError('x cannot be an empty dict')
        return {name: np.asarray(x[name]) for name in sorted(x)}
    if not isinstance(x, np.ndarray):
        raise errors.ConfigurationTypeError(f'x must be a dict or array; got {type(x).__name__}')
    if x.size == 0:
        raise errors.ConfigurationError('x cannot be an empty array')
    return {_ALONE: x}


def _labels(y: Any, features: Mapping[str, Any]) -> dict[str, np.ndarray]:
    if not isinstance(y, Mapping):
        return {_ALONE: np.asarray(y)}
    if not y:
        raise errors.ConfigurationError('y cannot be empty dict, use None instead.')
    if twice := sorted(features.keys() & y.keys()):
        raise errors.ConfigurationError(f'{len(twice)} duplicate keys are found in both x and y: {twice}')
    return {name: np.asarray(y[name]) for name in sorted(y)}


def _check_lengths(features: Mapping[str, np.ndarray], labels: Mapping[str, np.ndarray]) -> None:
    if len({len(array) for array in (*features.values(), *labels.values())}) != 1:
        shapes = [{name: array.shape for name, array in arrays.items()} for arrays in (features, labels)]
        raise errors.ConfigurationError(
            'Length of tensors in x and y is mismatched. All elements in x and y must have the same length.\n'
            f'Shapes in x: {shapes[0]}\nShapes in y: {shapes[1]}'
        )


def _structured(given: Any, arrays: Mapping[str, Any], parts: Any) -> Any:
    return dict(zip(arrays, parts, strict=False)) if isinstance(given, Mapping) else parts[0]


def _batches(arrays: list[np.ndarray], batch_size: int, num_epochs: int | None, shuffle: bool) -> tf.data.Dataset:
    """Returns batches of the arrays, which stay where they are: the graph holds their rows' numbers only."""
    rows = tf.data.Dataset.range(len(arrays[0]))
    rows = rows.shuffle(len(arrays[0]), reshuffle_each_iteration=True) if shuffle else rows
    types = [tf.as_dtype(array.dtype) for array in arrays]

    def read(numbers: tf.Tensor) -> tuple[tf.Tensor, ...]:
        # Not stateful: the same rows are the same values, so that the place in the data can be saved.
        parts = tf.numpy_function(lambda n: [array[n] for array in arrays], [numbers], types, stateful=False)
        for part, array in zip(parts, arrays, strict=True):
            part.set_shape([None, *array.shape[1:]])
        return tuple(parts)

    return rows.repeat(num_epochs).batch(batch_size).map(read)
