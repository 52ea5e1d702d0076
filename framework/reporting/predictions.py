"""Predictions in files: JSON lines or NumPy's arrays, by the suffix of the name."""

import base64
import contextlib
import json
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from framework import errors, run_dir
from framework.reporting import values

Batch: TypeAlias = Mapping[str, Any]

_LINES = '.jsonl'
_ARRAYS = '.npz'


def split(batch: Batch) -> Iterator[dict[str, Any]]:
    """Yields the predictions of each example of a batch.

    Args:
        batch: Predictions `[B, ...]` by name.

    Raises:
        ConfigurationError: If they are not of equally many examples.
    """
    sizes = {name: _examples(name, value) for name, value in batch.items()}
    (first, size), *others = sizes.items()
    for name, other in others:
        if other != size:
            raise errors.ConfigurationError(
                f'Batch length of predictions should be same. `{name}` [{other}] has different batch length than '
                f'`{first}` [{size}]. Ask for whole batches, or leave out what is not of the batch by `keys`.'
            )
    for index in range(size):
        yield {name: value[index] for name, value in batch.items()}


def _examples(name: str, value: Any) -> int:
    _check_dense(name, value)
    if not value.ndim:
        raise errors.ConfigurationError(
            f'Prediction `{name}` [shape ()] has no first axis, which is that of the batch. Ask for whole batches, or '
            'leave it out by `keys`.'
        )
    return len(value)


def _check_dense(name: str, value: Any) -> None:
    if not isinstance(value, np.ndarray | np.generic):
        raise errors.ConfigurationError(
            f'Prediction `{name}` [{type(value).__name__}] is no array, so it has no examples. Convert it in model_fn '
            'by `tf.sparse.to_dense` or `.to_tensor()`, or leave it out by `keys`.'
        )


def check_output(path: str | os.PathLike[str]) -> None:
    """Refuses a file that predictions can't be written to, before anything runs.

    Args:
        path: The file.

    Raises:
        ConfigurationError: If its suffix is none that we write, or its directory is missing.
    """
    target = os.fspath(path)
    if os.path.splitext(target)[1] not in _WRITERS:
        raise errors.ConfigurationError(
            f'`output` [{target}] must end in `{_LINES}` (an object a line, an example each) or `{_ARRAYS}` (an array '
            'for each prediction). Rename it.'
        )
    directory = os.path.dirname(target) or os.curdir
    if os.path.isdir(target) or not os.path.isdir(directory):
        raise errors.ConfigurationError(
            f'`output` [{target}] must be a file in a directory that exists. Make `{directory}`, or name another file.'
        )
    if not os.access(directory, os.W_OK | os.X_OK):
        raise errors.ConfigurationError(f'`output` [{target}]: `{directory}` can not be written. Name another file.')


def write(path: str | os.PathLike[str], batches: Iterable[Batch]) -> int:
    """Writes predictions to a file, which is there, whole, when this returns; until then the former one stays.

    In `.jsonl` a line is an object of the predictions of one example, as `values.to_json` writes them. Bytes are text
    where they are UTF-8, and base64 where they aren't. In `.npz` an array is the predictions `[N, ...]` of all examples
    under one name, and bytes are numpy's fixed-width strings.

    Args:
        path: The file; its suffix says the form.
        batches: Predictions `[B, ...]` by name, for example what `predict` yields.

    Returns:
        The number of examples.

    Raises:
        ConfigurationError: If the file can't be written, or the predictions don't fit its form.
    """
    check_output(path)
    target = os.fspath(path)
    with contextlib.ExitStack() as stack:
        return _WRITERS[os.path.splitext(target)[1]](_opened(stack, target), batches)


def _opened(stack: contextlib.ExitStack, target: str) -> BinaryIO:
    try:
        return stack.enter_context(run_dir.replacing(target))
    except OSError as error:
        raise errors.ConfigurationError(
            f'`output`: `{target}` can not be written [{error.strerror}]. Name another file.'
        ) from error


def _write_lines(file: BinaryIO, batches: Iterable[Batch]) -> int:
    count = 0
    for batch in batches:
        for example in split(batch):
            line = {name: _to_json(value) for name, value in example.items()}
            file.write(json.dumps(line, ensure_ascii=False).encode() + b'\n')
            count += 1
    return count


def _to_json(value: Any) -> Any:
    value = values.plain(value)
    if isinstance(value, bytes):
        return _to_text(value)
    if isinstance(value, np.ndarray) and value.dtype.kind in 'SO':
        return [_to_json(item) for item in value]
    return values.to_json(value)


def _to_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()


def _write_arrays(file: BinaryIO, batches: Iterable[Batch]) -> int:
    parts: dict[str, list[np.ndarray]] = {}
    count = 0
    for batch in batches:
        sizes = [_examples(name, value) for name, value in batch.items()]
        count += sizes[0]
        for name, value in batch.items():
            parts.setdefault(name, []).append(value)
    # Not by `np.savez`, which takes a prediction called `file` for its own argument.
    with zipfile.ZipFile(file, 'w') as archive:
        for name, of_batches in parts.items():
            with archive.open(f'{name}.npy', 'w', force_zip64=True) as member:
                np.lib.format.write_array(member, _joined(name, of_batches), allow_pickle=False)
    return count


def _joined(name: str, parts: list[np.ndarray]) -> np.ndarray:
    shapes = {part.shape[1:] for part in parts}
    if len(shapes) > 1:
        raise errors.ConfigurationError(
            f'Prediction `{name}` has examples of different shapes [{", ".join(map(str, sorted(shapes)))}], and '
            f'`{_ARRAYS}` holds one array of all. Write `{_LINES}`.'
        )
    joined = np.concatenate(parts)
    return _fixed_width(name, joined) if joined.dtype.kind == 'O' else joined


def _fixed_width(name: str, array: np.ndarray) -> np.ndarray:
    fixed = array.astype(np.bytes_)
    if fixed.tolist() != array.tolist():
        raise errors.ConfigurationError(
            f"Prediction `{name}` holds bytes that end in zeros, which numpy's strings lose. Write `{_LINES}`."
        )
    return fixed


_WRITERS: Mapping[str, Callable[[BinaryIO, Iterable[Batch]], int]] = {_LINES: _write_lines, _ARRAYS: _write_arrays}
