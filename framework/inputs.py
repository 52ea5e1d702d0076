"""Makers of Datasets from arrays, TFRecord files and CSV files, for input functions.

They shuffle, repeat and batch by mode. In TRAIN the examples are shuffled anew in every epoch, repeated
`num_epochs` times (default: for ever) and batched. EVAL and PREDICT make exactly one pass, in order, and keep the
partial last batch; `num_epochs`, `shuffle_buffer`, `seed` and `drop_remainder` speak of training only and are ignored
there, so that one input_fn can serve all modes. Every Dataset made here can be saved and resumed exactly.

Shapes: B is the size of a batch, at most `batch_size`; N the number of examples.
"""

import csv
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from framework import errors
from framework.errors import ConfigurationError, ConfigurationTypeError
from framework.spec import ModeKeys, check_mode

Files = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
ParseFn = Callable[[tf.Tensor], Any]
Compression = Literal['', 'GZIP', 'ZLIB']

_ARRAY_LIMIT_BYTES = 1_900_000_000  # A graph is one protobuf message, of less than 2 GB.
_FILE_SHUFFLE_BUFFER = 10_000
_PARALLEL_FILES = 16
_PREFETCHED_BATCHES = 2
_CSV_TYPES = ('float32', 'float64', 'int32', 'int64', 'string')
_CSV_PYTHON_TYPES: dict[Any, str] = {float: 'float32', int: 'int64', str: 'string'}


# Shuffling, repeating and batching by mode.


@dataclasses.dataclass(frozen=True)
class _Batching:
    """How examples become batches; see the docstring of the module."""

    mode: str
    batch_size: int
    num_epochs: int | None
    shuffle_buffer: int
    seed: int | None
    drop_remainder: bool

    def __post_init__(self) -> None:
        check_mode(self.mode, 'mode')
        _check_at_least('batch_size', self.batch_size, 1)
        _check_at_least('shuffle_buffer', self.shuffle_buffer, 0)
        if self.num_epochs is not None:
            _check_at_least('num_epochs', self.num_epochs, 1)

    @property
    def trains(self) -> bool:
        return self.mode == ModeKeys.TRAIN

    def batches(self, examples: tf.data.Dataset) -> tf.data.Dataset:
        return self.grouped(self.ordered(examples))

    def ordered(self, examples: tf.data.Dataset) -> tf.data.Dataset:
        """Returns the examples in the order, and as often, as the mode asks for."""
        if not self.trains:
            return examples
        if self.shuffle_buffer > 1:
            examples = examples.shuffle(self.shuffle_buffer, self.seed, reshuffle_each_iteration=True)
        return examples.repeat(self.num_epochs)

    def grouped(self, examples: tf.data.Dataset) -> tf.data.Dataset:
        return examples.batch(self.batch_size, drop_remainder=self.drop_remainder and self.trains)


def _check_at_least(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ConfigurationTypeError(f'`{name}` [{value!r}] must be an integer of at least {least}.')
    if value < least:
        raise ConfigurationError(f'`{name}` [{value}] must be at least {least}.')


# Arrays.


def from_arrays(
    features: Any,
    labels: Any = None,
    *,
    mode: str,
    batch_size: int,
    num_epochs: int | None = None,
    shuffle_buffer: int | None = None,
    seed: int | None = None,
    drop_remainder: bool = False,
) -> tf.data.Dataset:
    """Makes a Dataset of arrays in memory.

    Args:
        features: Array `[N, ...]`, or dict or tuple of such arrays.
        labels: The same, or None.
        mode: One of `ModeKeys`.
        batch_size: Examples in a batch.
        num_epochs: Passes over the examples in TRAIN; None for ever. Ignored elsewhere.
        shuffle_buffer: Examples that TRAIN shuffles among; None takes all, 0 keeps the order. Ignored elsewhere.
        seed: Of the shuffle; None derives it from the graph's seed.
        drop_remainder: Whether TRAIN drops a partial last batch. Ignored elsewhere.

    Returns:
        A Dataset of `features` or `(features, labels)`, each `[B, ...]` with the dtype of its array.

    Raises:
        ConfigurationError: The arrays are empty, differ in length, or are too large for a graph.
    """
    if isinstance(features, tuple) and labels is None:
        raise ConfigurationError(
            f'`features` [a tuple of {len(features)}] without `labels` would be read as features and labels. Give its '
            'parts names in a dict, or pass `labels=`.'
        )
    element = {'features': _as_arrays('features', features), 'labels': _as_arrays('labels', labels)}
    count = _number_of_examples(dict(_leaves(element)))
    buffer = count if shuffle_buffer is None else shuffle_buffer
    batching = _Batching(mode, batch_size, num_epochs, buffer, seed, drop_remainder)
    slices = element['features'] if labels is None else (element['features'], element['labels'])
    # There is nothing to tune, and the thread that tunes would keep a session from closing for up to a minute.
    options = tf.data.Options()
    options.autotune.enabled = False
    batches = batching.batches(tf.data.Dataset.from_tensor_slices(slices).with_options(options))
    return batches.prefetch(_PREFETCHED_BATCHES)


def _as_arrays(name: str, value: Any) -> Any:
    # Lists are arrays here, not structures: `labels=[0, 1, 2]`.
    if isinstance(value, Mapping):
        return {key: _as_arrays(f'{name}[{key!r}]', part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_as_arrays(f'{name}[{index}]', part) for index, part in enumerate(value))
    return None if value is None and name == 'labels' else _as_array(name, value)


def _as_array(name: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
        tf.as_dtype(array.dtype)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise ConfigurationTypeError(
            f"`{name}` [{type(value).__name__}] can't become an array of numbers or strings: {error}"
        ) from error
    if array.dtype == object and not all(isinstance(part, (str, bytes)) for part in array.flat):
        raise ConfigurationTypeError(
            f'`{name}` holds Python objects [{type(next(iter(array.flat))).__name__}, ...]. Convert it to numbers or '
            'strings, for example by `.astype("float32")`.'
        )
    return array


def _leaves(structure: Any, name: str = '') -> Iterator[tuple[str, np.ndarray]]:
    if isinstance(structure, (dict, tuple)):
        parts = structure.items() if isinstance(structure, dict) else enumerate(structure)
        for key, part in parts:
            yield from _leaves(part, f'{name}[{key!r}]' if name else str(key))
    elif structure is not None:
        yield name, structure


def _number_of_examples(arrays: Mapping[str, np.ndarray]) -> int:
    if not arrays:
        raise ConfigurationError('`features` [{}] has no arrays. Give at least one.')
    for name, array in arrays.items():
        if not array.ndim or not len(array):
            raise ConfigurationError(
                f'`{name}` [shape {array.shape}] must have at least one example along its first axis.'
            )
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        shown = ', '.join(f'`{name}` [{length}]' for name, length in lengths.items())
        raise ConfigurationError(f'All arrays must have the same first dimension, given: {shown}.')
    _check_size(sum(_bytes_in(array) for array in arrays.values()))
    return next(iter(lengths.values()))


def _bytes_in(array: np.ndarray) -> int:
    return sum(map(len, array.flat)) if array.dtype == object else array.nbytes


def _check_size(size: int) -> None:
    if size > _ARRAY_LIMIT_BYTES:
        raise ConfigurationError(
            f'The arrays [{size / 1e9:.2f} GB] are larger than {_ARRAY_LIMIT_BYTES / 1e9} GB. They become constants of '
            'the graph, which cannot pass 2 GB: write TFRecord files and use `from_tfrecords`.'
        )


# Files.


def from_tfrecords(
    files: Files,
    parser: ParseFn | Mapping[str, Any],
    *,
    mode: str,
    batch_size: int,
    label_key: str | None = None,
    num_epochs: int | None = None,
    shuffle_buffer: int = _FILE_SHUFFLE_BUFFER,
    seed: int | None = None,
    drop_remainder: bool = False,
    compression_type: Compression = '',
) -> tf.data.Dataset:
    """Makes a Dataset of TFRecord files.

    The files are sorted by name and each is read once. EVAL and PREDICT read one after the other; TRAIN reads up to 16
    at a time, in an order that does not depend on timing.

    Args:
        files: Path or glob pattern, or a list of them.
        parser: Feature spec of `tf.io.parse_example`, or a function of one serialized record.
        mode: One of `ModeKeys`.
        batch_size: Examples in a batch.
        label_key: The feature that becomes the labels; None leaves what the parser returns.
        num_epochs: Passes over the examples in TRAIN; None for ever. Ignored elsewhere.
        shuffle_buffer: Records that TRAIN shuffles among; 0 keeps the order. Ignored elsewhere.
        seed: Of the shuffle; None derives it from the graph's seed.
        drop_remainder: Whether TRAIN drops a partial last batch. Ignored elsewhere.
        compression_type: `''`, `'GZIP'` or `'ZLIB'`.

    Returns:
        A Dataset of batches of what the parser returns, or `(features, labels)`.

    Raises:
        ConfigurationError: A file does not exist, or the parser makes no feature `label_key`.
    """
    batching = _Batching(mode, batch_size, num_epochs, shuffle_buffer, seed, drop_remainder)
    records = batching.ordered(_records(_existing(files), compression_type, interleaved=batching.trains))
    if callable(parser):
        batches = batching.grouped(_mapped(records, parser))
    else:
        features = dict(parser)
        batches = _mapped(batching.grouped(records), lambda serialized: tf.io.parse_example(serialized, features))
    return _with_labels(batches, label_key, 'label_key').prefetch(tf.data.AUTOTUNE)


def from_csv(
    files: Files,
    columns: Mapping[str, Any],
    *,
    mode: str,
    batch_size: int,
    label_column: str | None = None,
    header: bool = True,
    delimiter: str = ',',
    num_epochs: int | None = None,
    shuffle_buffer: int = _FILE_SHUFFLE_BUFFER,
    seed: int | None = None,
    drop_remainder: bool = False,
) -> tf.data.Dataset:
    """Makes a Dataset of CSV files, sorted by name, each read once.

    Args:
        files: Path or glob pattern, or a list of them.
        columns: Column to its type, for a column without empty fields (`tf.float32`, `np.int64`, `float`, or one of
            the names float32, float64, int32, int64 and string), or to the value of an empty field (`0.0` makes it
            float32, `0` int64, `''` string). With a header, any of the file's columns in any order; without one, all
            columns in the order of the file.
        mode: One of `ModeKeys`.
        batch_size: Examples in a batch.
        label_column: The column that becomes the labels; None for features only.
        header: Whether the first line of each file names its columns.
        delimiter: Between fields.
        num_epochs: Passes over the examples in TRAIN; None for ever. Ignored elsewhere.
        shuffle_buffer: Rows that TRAIN shuffles among; 0 keeps the order. Ignored elsewhere.
        seed: Of the shuffle; None derives it from the graph's seed.
        drop_remainder: Whether TRAIN drops a partial last batch. Ignored elsewhere.

    Returns:
        A Dataset of `{column: [B]}` or `({column: [B]}, labels [B])`.

    Raises:
        ConfigurationError: A file or column does not exist, or a type is none of a CSV file.
    """
    batching = _Batching(mode, batch_size, num_epochs, shuffle_buffer, seed, drop_remainder)
    paths = _existing(files)
    positions = _column_positions(paths, list(columns), header, delimiter)
    names = sorted(positions, key=lambda name: positions[name])
    rows = tf.data.experimental.CsvDataset(
        paths,
        [_csv_default(name, columns[name]) for name in names],
        header=header,
        field_delim=delimiter,
        select_cols=[positions[name] for name in names],
    )
    batches = _mapped(batching.batches(rows), lambda *values: dict(zip(names, values, strict=True)))
    return _with_labels(batches, label_column, 'label_column').prefetch(tf.data.AUTOTUNE)


def _existing(files: Files) -> list[str]:
    patterns = [files] if isinstance(files, (str, os.PathLike)) else list(files)
    found = sorted({file for pattern in patterns for file in _matches(os.fspath(pattern))})
    if not found:
        raise ConfigurationError('`files` [] must name at least one file.')
    return found


def _matches(pattern: str) -> list[str]:
    if tf.io.gfile.isdir(pattern):
        raise ConfigurationError(f'`files` [{pattern}] is a directory. Write a pattern, for example `{pattern}/*`.')
    matches = [pattern] if tf.io.gfile.exists(pattern) else tf.io.gfile.glob(pattern)
    if not matches:
        raise ConfigurationError(
            f'`files` [{pattern}] does not exist or matches no file. A relative path starts at [{os.getcwd()}].'
        )
    return matches


def _records(files: list[str], compression_type: Compression, *, interleaved: bool) -> tf.data.Dataset:
    if not interleaved:
        return tf.data.TFRecordDataset(files, compression_type)
    return tf.data.Dataset.from_tensor_slices(files).interleave(
        lambda file: tf.data.TFRecordDataset(file, compression_type),
        cycle_length=min(len(files), _PARALLEL_FILES),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )


def _mapped(dataset: tf.data.Dataset, function: Callable[..., Any]) -> tf.data.Dataset:
    return dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def _with_labels(batches: tf.data.Dataset, label: str | None, argument: str) -> tf.data.Dataset:
    if label is None:
        return batches
    spec = batches.element_spec
    if not isinstance(spec, Mapping):
        raise ConfigurationError(
            f'`{argument}` [{label}] needs features in a dict, but the parser returns [{spec}]. Return a dict, or '
            '(features, labels) and no key.'
        )
    if label not in spec:
        raise ConfigurationError(f'`{argument}` [{label}] is no feature. {errors.nearest(label, spec)}')
    return _mapped(
        batches, lambda features: ({key: features[key] for key in features if key != label}, features[label])
    )


def _column_positions(files: list[str], columns: list[str], header: bool, delimiter: str) -> dict[str, int]:
    first = _first_row(files[0], delimiter)
    if not header:
        if len(first) != len(columns):
            raise ConfigurationError(
                f'`columns` [{len(columns)}] must name every column of a file without header, but [{files[0]}] has '
                f'{len(first)}.'
            )
        return {name: position for position, name in enumerate(columns)}
    for file in files[1:]:
        if _first_row(file, delimiter) != first:
            raise ConfigurationError(f'`files` must have the same header, but [{file}] differs from [{files[0]}].')
    for name in columns:
        if name not in first:
            raise ConfigurationError(f'`columns` [{name}] is not in [{files[0]}]. {errors.nearest(name, first)}')
    return {name: first.index(name) for name in columns}


def _first_row(file: str, delimiter: str) -> list[str]:
    with tf.io.gfile.GFile(file) as lines:
        line = lines.readline().removeprefix('\ufeff')
    if not line.strip():
        raise ConfigurationError(f'`files` [{file}] starts with an empty line or is empty.')
    return next(csv.reader([line], delimiter=delimiter))


def _csv_default(name: str, value: Any) -> Any:
    is_type = isinstance(value, (tf.DType, np.dtype, type)) or (isinstance(value, str) and value in _CSV_TYPES)
    declared = value if is_type else _type_of_default(value)
    try:
        dtype = tf.as_dtype(_CSV_PYTHON_TYPES.get(declared, declared))
    except TypeError:
        dtype = None
    if dtype is None or dtype.name not in _CSV_TYPES:
        raise ConfigurationTypeError(
            f'`columns[{name!r}]` [{value!r}] is neither a type of a CSV column nor the value of an empty field. '
            f'Types: {", ".join(_CSV_TYPES)}.'
        )
    return dtype if is_type else tf.constant([value], dtype)


def _type_of_default(value: Any) -> Any:
    return type(value) if type(value) in _CSV_PYTHON_TYPES else getattr(value, 'dtype', None)
