"""Whether the files that a commit names are those that it wrote."""

import contextlib
import hashlib
import os
import re
from collections.abc import Mapping

from framework import run_dir

_FILE = re.compile(r'\.(index|data-\d{5}-of-\d{5})$')
_TEMPORARY = '_temp'  # TensorFlow writes the shards of a checkpoint into such a directory first


def digests(directory: str, prefix: str) -> dict[str, str]:
    """Makes the files of a checkpoint last, and returns the SHA-256 of each by its name.

    Args:
        directory: The run directory.
        prefix: The prefix of the files, relative to it.
    """
    found = {}
    for path in sorted(files_of(os.path.join(directory, prefix))):
        with open(path, 'rb') as file:
            os.fsync(file.fileno())
            found[os.path.relpath(path, directory)] = hashlib.file_digest(file, 'sha256').hexdigest()
    run_dir.sync_directory(directory)
    return found


def fault(directory: str, files: Mapping[str, str]) -> str | None:
    """Returns what is wrong with the files of a commit as a sentence, None where they are as they were written.

    Args:
        directory: The run directory.
        files: The SHA-256 of each by its name.
    """
    for name, digest in files.items():
        path = os.path.join(directory, name)
        try:
            with open(path, 'rb') as file:
                same = hashlib.file_digest(file, 'sha256').hexdigest() == digest
        except OSError as error:
            return f'`{path}` can not be read [{error.strerror}]'
        if not same:
            return f'`{path}` [{os.path.getsize(path)} bytes] is not as it was written'
    return None


def files_of(prefix: str) -> list[str]:
    """Returns the files of a checkpoint, without those that an unfinished save left."""
    return [path for path in _beginning(f'{prefix}.') if _FILE.search(path)]


def remains_of(prefix: str) -> list[str]:
    """Returns whatever there is of a checkpoint, also what an unfinished save left."""
    return [*_beginning(f'{prefix}.'), *_beginning(f'{prefix}{_TEMPORARY}')]


def _beginning(path: str) -> list[str]:
    """Returns the paths that begin like this."""
    folder, name = os.path.split(path)
    with contextlib.suppress(FileNotFoundError):
        return [os.path.join(folder, found) for found in os.listdir(folder or os.curdir) if found.startswith(name)]
    return []
