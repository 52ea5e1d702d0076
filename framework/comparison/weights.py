"""What two runs saved: the first commit that differs, and the first variable in it."""

import contextlib
import json
import os
import pathlib
import re
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.compat import v1

from framework import errors
from framework.comparison import lines
from framework.comparison.parts import ABSENT, Difference, Part
from framework.run_dir import RunDir

_CHECKPOINT = re.compile(r'model\.ckpt-(\d+)\.index')
# From C++ some errors of the reader arrive as Python's own.
_READ_ERRORS = (tf.errors.OpError, IndexError, RuntimeError, ValueError)


def compare(a: RunDir, b: RunDir) -> Part:
    """Compares the commits of steps that both runs have, in order, up to the first that differs.

    The digests in their timelines tell also of checkpoints that were removed, and spare reading those that are equal.
    """
    saved = [_checkpoints(run) for run in (a, b)]
    digests = [_digests(run) for run in (a, b)]
    steps = sorted((saved[0].keys() & saved[1].keys()) | (digests[0].keys() & digests[1].keys()))
    equal_to = None
    found: list[Difference] = []
    for step in steps:
        found = _at(step, [one.get(step) for one in saved], [one.get(step) for one in digests])
        if found:
            break
        equal_to = step
    return Part('commits', found, f'{len(steps)} that both have', True, equal_to)


def _at(step: int, prefixes: Sequence[str | None], digests: Sequence[str | None]) -> list[Difference]:
    """Compares the commits of one step, of which both checkpoints are there, or both digests."""
    told = [digest for digest in digests if digest is not None]
    if len(told) == 2 and told[0] == told[1]:
        return []
    there = [prefix for prefix in prefixes if prefix is not None]
    found = _variables(step, there[0], there[1]) if len(there) == 2 else []
    return found or ([Difference('digest of the commit', told[0], told[1], step)] if len(told) == 2 else [])


def _checkpoints(run: RunDir) -> dict[int, str]:
    """Returns the prefixes of the checkpoints of a run by step: as its commits name them, else by their file names."""
    named = dict(_named(run))
    if named:
        return named
    steps = [int(match[1]) for match in map(_CHECKPOINT.fullmatch, os.listdir(run.path)) if match]
    return {step: f'{run.checkpoint_prefix}-{step}' for step in steps}


def _named(run: RunDir) -> Iterator[tuple[int, str]]:
    for path in pathlib.Path(run.commits).glob('commit-*.json'):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # a damaged one names nothing
            record = json.loads(path.read_text(encoding='utf-8'))
            prefix = os.path.join(run.path, record['checkpoint'])
            if os.path.exists(f'{prefix}.index'):
                yield int(record['step']), prefix


def _digests(run: RunDir) -> dict[int, str]:
    """Returns the digests of the commits that a run made by step."""
    made = [row for row in lines.rows(run.timeline_file) if row.get('phase') == 'commit' and row.get('digest')]
    return {row['step']: str(row['digest']) for row in made}


def _variables(step: int, a: str, b: str) -> list[Difference]:
    """Compares two checkpoints, and returns the first variable that differs, by name."""
    saved = _Checkpoint(a), _Checkpoint(b)
    names = sorted(saved[0].names | saved[1].names)
    found = {name: apart for name in names if (apart := _apart(saved[0].value(name), saved[1].value(name)))}
    if not found:
        return []
    name, (how, first, second) = next(iter(found.items()))
    others = f', the first of {len(found)} that differ of {len(names)}' if len(found) > 1 else ''
    return [Difference(f'variable `{name}`{others}{how}', first, second, step)]


def _apart(a: np.ndarray | None, b: np.ndarray | None) -> tuple[str, str, str] | None:
    """Returns how two values of a variable differ, and what of each shows it; None where they are the same bits."""
    if a is None or b is None or (a.shape, a.dtype) != (b.shape, b.dtype):
        return '', _kind(a), _kind(b)
    differing = _differing(a, b)
    count = int(differing.sum())
    if not count:
        return None
    place = tuple(int(i) for i in np.argwhere(differing)[0])
    how = f', {count} of {a.size} elements{_farthest(a[differing], b[differing])}, first {list(place)}'
    return how, str(a[place]), str(b[place])


def _kind(value: np.ndarray | None) -> str:
    return ABSENT if value is None else f'{value.dtype}{list(value.shape)}'


def _differing(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns where the bits of two arrays of one shape and dtype differ: NaN is NaN, and 0 is not -0."""
    if a.dtype.hasobject:
        return np.asarray(a != b)
    shape = (*a.shape, a.dtype.itemsize)
    bits = [np.frombuffer(np.ascontiguousarray(value).tobytes(), np.uint8).reshape(shape) for value in (a, b)]
    return np.asarray((bits[0] != bits[1]).any(axis=-1))


def _farthest(a: np.ndarray, b: np.ndarray) -> str:
    """Returns the largest difference between numbers as text; '' for other values."""
    wide = np.complex128 if a.dtype.kind == 'c' else np.float64
    try:
        with np.errstate(all='ignore'):
            gaps = np.abs(a.astype(wide) - b.astype(wide))
    except (TypeError, ValueError):
        return ''
    known = gaps[~np.isnan(gaps)]
    return f' by at most {known.max():.3g}' if known.size else ''


class _Checkpoint:
    def __init__(self, prefix: str):
        self._prefix = prefix
        try:
            self._reader = v1.train.load_checkpoint(prefix)
            self.names = frozenset(self._reader.get_variable_to_shape_map())
        except _READ_ERRORS as error:
            raise self._unreadable(error) from error

    def value(self, name: str) -> np.ndarray | None:
        if name not in self.names:
            return None
        try:
            return np.asarray(self._reader.get_tensor(name))
        except _READ_ERRORS as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> errors.RunDirectoryError:
        said = next(iter(str(error).splitlines()), type(error).__name__)
        return errors.RunDirectoryError(f"`{self._prefix}` can't be read [{said}]. Remove its files to leave it out.")
