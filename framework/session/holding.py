"""The checkpoint that a name means, kept readable while a training beside this removes it."""

import contextlib
import difflib
import os
import tempfile
from collections.abc import Callable, Iterator

from absl import logging

from framework import errors
from framework.session import checkpoints, commits, integrity

LATEST, BEST = 'latest', 'best'
_TRIES = 5
_HELD = '.held-'


def chosen(store: commits.Commits, name: str) -> str:
    """Returns the prefix of a checkpoint's files.

    Args:
        store: The commits of the run directory.
        name: `latest`, `best`, the prefix itself, or a directory: of a run, of its best checkpoints, of a SavedModel.

    Raises:
        RunDirectoryError: If the run directory has no such checkpoint.
    """
    if name == LATEST:
        return store.newest_path()
    if name == BEST:
        return store.best_path()
    if os.path.isdir(name):
        return checkpoints.resolve(name, setting='checkpoint')
    if os.sep not in name and not exists(name) and difflib.get_close_matches(name, (LATEST, BEST)):
        raise errors.ConfigurationError(
            f'`checkpoint` [{name}]: there is no such checkpoint. {errors.nearest(name, (LATEST, BEST))}'
        )
    return name


def exists(prefix: str) -> bool:
    """Whether there is a checkpoint of this prefix."""
    return os.path.exists(f'{prefix}.index')


@contextlib.contextmanager
def held(choose: Callable[[], str]) -> Iterator[str]:
    """Yields a prefix under which a checkpoint stays readable, also when a training beside this removes it.

    Its files get a second name in a directory beside them, which is removed afterwards. Where the file system has no
    second names, or the directory can't be written, the prefix is that of the checkpoint itself.

    Args:
        choose: Returns the prefix of the checkpoint's files; asked again where they went while they were named.
    """
    with contextlib.ExitStack() as stack:
        prefix = choose()
        for _ in range(_TRIES):
            try:
                directory = stack.enter_context(_beside(prefix))
                if _link(prefix, directory):
                    prefix = os.path.join(directory, os.path.basename(prefix))
                    break
            except OSError as error:
                logging.debug('`%s` is read where it is: %s.', prefix, error)
                break
            prefix = choose()
        yield prefix


def original(prefix: str) -> str:
    """Returns the prefix of the checkpoint that `held` yielded a second name of, or the prefix itself."""
    directory, name = os.path.split(prefix)
    return os.path.join(os.path.dirname(directory), name) if os.path.basename(directory).startswith(_HELD) else prefix


def _beside(prefix: str) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix=_HELD, dir=os.path.dirname(prefix) or os.curdir)


def _link(prefix: str, directory: str) -> bool:
    """Names the files a second time, and returns whether all of them were there until the end."""
    parts = integrity.files_of(prefix)
    for part in parts:
        with contextlib.suppress(FileNotFoundError):
            os.link(part, os.path.join(directory, os.path.basename(part)))
    return bool(parts) and all(os.path.exists(part) for part in parts)
