"""A full disk, said in a sentence."""

import contextlib
import errno
from collections.abc import Iterator

from framework import errors

_FULL = (errno.ENOSPC, errno.EDQUOT)
_TEXTS = ('No space left on device', 'Disk quota exceeded')


@contextlib.contextmanager
def named_when_full(directory: str) -> Iterator[None]:
    """Turns what a full disk raises, Python's errors and TensorFlow's, into an error that says so.

    Args:
        directory: The run directory.

    Raises:
        RunError: If the disk is full.
    """
    try:
        yield
    except Exception as error:
        if not _is_full(error):
            raise
        raise errors.RunError(
            f'A disk is full in the run of `{directory}` [{_line(error)}]. What was saved is whole: free some '
            'space, and the same command goes on from its newest commit.'
        ) from error


def _is_full(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    return any(text in str(error) for text in _TEXTS)


def _line(error: Exception) -> str:
    return next(line for line in [*str(error).splitlines(), type(error).__name__] if line.strip())[:200]
