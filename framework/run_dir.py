"""Where every file of a run lives, and who may write there."""

import contextlib
import os
import platform
import re
from collections.abc import Iterator
from typing import BinaryIO

import filelock

from framework import errors

TRAIN = 'train'  # the stream of training
UNNAMED_SET = 'eval'  # the stream of an evaluation set that was given no name

_STREAM_NAME = re.compile(r'[A-Za-z0-9_.-]+')
_LONGEST_NAME = 200  # file systems take 255 characters, and `eval_` comes before it
_PATTERN_CHARACTERS = '[]*?\\'


class RunDir:
    """The directory of one run: names its files, and hands out the right to train in it.

    Naming a file touches nothing. Whoever reads beside a running training takes no lock; whoever trains does so
    inside `locked()`.

    Attributes:
        path: The directory as the user wrote it.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = os.fspath(path)
        if '://' in self.path:
            raise errors.RunDirectoryError(
                f'`model_dir` [{self.path}] is an address, and a run lives on a file system. '
                'Choose a local or mounted directory.'
            )
        if found := [character for character in _PATTERN_CHARACTERS if character in self.path]:
            # Saving takes the path as it is, restoring matches it as a pattern and may find nothing, or another run.
            raise errors.RunDirectoryError(
                f'`model_dir` [{self.path}] holds {" and ".join(f"`{character}`" for character in found)}, which '
                'TensorFlow takes for a pattern when it restores a checkpoint. Choose a path without any of '
                f'{" ".join(_PATTERN_CHARACTERS)}.'
            )

    @property
    def checkpoint_prefix(self) -> str:
        """The prefix of the model's checkpoints, which the saver extends by `-<step>`."""
        return self._join('model.ckpt')

    @property
    def commits(self) -> str:
        """The directory of the commit records."""
        return self._join('commits')

    @property
    def best(self) -> str:
        """The directory of the best checkpoints."""
        return self._join('best')

    @property
    def metrics_file(self) -> str:
        """The metrics of training and of every pass, a JSON object a line."""
        return self._join('metrics.jsonl')

    @property
    def csv_file(self) -> str:
        """The same as comma-separated values, where a run has a writer of them."""
        return self._join('metrics.csv')

    @property
    def evaluations_file(self) -> str:
        """The metrics of evaluations that were made without training, a JSON object a line."""
        return self._join('evaluations.jsonl')

    @property
    def timeline_file(self) -> str:
        """The phases of the run, a JSON object a line."""
        return self._join('timeline.jsonl')

    @property
    def result_file(self) -> str:
        """How the run ended; missing until it did."""
        return self._join('result.json')

    @property
    def config_file(self) -> str:
        """The gin configuration as it was given."""
        return self._join('config.gin')

    @property
    def operative_config_file(self) -> str:
        """The gin configuration as it was used."""
        return self._join('operative_config.gin')

    @property
    def provenance_file(self) -> str:
        """What the run was started with."""
        return self._join('provenance.json')

    def events_dir(self, stream: str) -> str:
        """Returns the directory of a stream's event files: one curve each in TensorBoard.

        Args:
            stream: `train`, `eval` for the evaluation set without a name, or the name of a set.
        """
        if stream == TRAIN:
            return self.path
        return self._join(stream if stream == UNNAMED_SET else f'eval_{stream}')

    @property
    def hparams(self) -> str:
        """The directory of what TensorBoard's dashboard of hyperparameters shows."""
        return self._join('hparams')

    def exports(self, name: str) -> str:
        """Returns the directory of the exports of one kind.

        Args:
            name: What is exported: `best`.
        """
        return self._join('export', name)

    def can_be_written(self) -> bool:
        """Makes the directory where it is missing, and returns whether files can be made in it."""
        try:
            os.makedirs(self.path, exist_ok=True)
        except OSError:
            return False
        return os.access(self.path, os.W_OK | os.X_OK)

    def check_writable(self) -> None:
        """Raises a `RunDirectoryError` unless files can be made in the directory."""
        if not self.can_be_written():
            raise self._unusable(PermissionError('no permission'))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Creates the directory and holds it exclusively; the kernel lets go when the process dies.

        Raises:
            RunDirectoryError: Another process trains here, or the directory can't be created or written.
        """
        lock = self._acquire()
        try:
            yield
        finally:
            # While we still hold the lock: afterwards the file may be another process's.
            with contextlib.suppress(OSError):
                os.remove(self._pid_file)
            lock.release()

    def holder(self) -> str | None:
        """Returns who trains here, as `12 on host`, and None where nobody does. Takes no lock, not for a moment.

        Of a process on another machine that was killed nobody knows here: it counts as one that trains.
        """
        try:
            with open(self._pid_file, encoding='utf-8') as file:
                told = file.read()
        except (OSError, UnicodeDecodeError):
            return None
        pid, _, host = told.partition(' on ')
        if not pid.isdigit() or (host == platform.node() and not self._is_held_by(int(pid))):
            return None
        return told

    def _is_held_by(self, pid: int) -> bool:
        """Whether a process of this machine holds the lock; its number may be another process's by now."""
        try:
            with open('/proc/locks', encoding='ascii') as file:
                held = [line.split() for line in file]
            inode = str(os.stat(self._join('lock')).st_ino)
        except OSError:  # no Linux
            return _is_alive(pid)
        return any(len(each) > 5 and each[-4] == str(pid) and each[-3].endswith(f':{inode}') for each in held)

    @property
    def _pid_file(self) -> str:
        # Beside the lock and not in it: what the lock file holds is filelock's business, and differs by its version.
        return self._join('lock.pid')

    def _join(self, *names: str) -> str:
        return os.path.join(self.path, *names)

    def _acquire(self) -> filelock.FileLock:
        lock = filelock.FileLock(self._join('lock'), timeout=0)
        try:
            os.makedirs(self.path, exist_ok=True)
            lock.acquire()
            _write(self._pid_file, f'{os.getpid()} on {platform.node()}'.encode())
        except filelock.Timeout as error:
            raise self._in_use() from error
        except OSError as error:
            lock.release()
            raise self._unusable(error) from error
        return lock

    def _in_use(self) -> errors.RunDirectoryError:
        return errors.RunDirectoryError(
            f'`{self.path}` is in use by {self._holder()}: only one training at a time may write a run '
            'directory. Wait for it to end, stop it, or choose another `model_dir`.'
        )

    def _holder(self) -> str:
        try:
            with open(self._pid_file, encoding='utf-8') as file:
                holder = file.read()
        except (OSError, UnicodeDecodeError):
            holder = ''
        return f'process {holder}' if holder else 'another process'

    def _unusable(self, error: OSError) -> errors.RunDirectoryError:
        if os.path.isfile(self.path):
            return errors.RunDirectoryError(
                f'`{self.path}` is a file, and a run needs a directory. Choose another `model_dir`.'
            )
        return errors.RunDirectoryError(
            f"`{self.path}` can't be created or written [{error}]. Choose another `model_dir`, or mend its permissions."
        )


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Writes a file so that a reader, or a crash, sees the old content or the new one and nothing between.

    Args:
        path: The file; its directory must exist.
        content: Bytes, or text that is written as UTF-8.
    """
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yields a file that takes the place of another one at the end, whole; an error leaves that as it was.

    Args:
        path: The file to replace; its directory must exist.
    """
    target = os.fspath(path)
    temporary = f'{target}.{os.getpid()}.tmp'
    try:
        with open(temporary, 'wb') as file:
            yield file
            _sync(file)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)
        raise
    sync_directory(os.path.dirname(target) or os.curdir)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True


def _write(path: str, content: bytes) -> None:
    with open(path, 'wb') as file:
        file.write(content)
        _sync(file)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def sync_directory(path: str) -> None:
    """Makes the names in a directory last."""
    # The new name is an entry of the directory: without this a power cut may undo the rename.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_stream_name(name: str) -> None:
    """Checks the name of an evaluation set, which becomes part of directory names and of metric names.

    Args:
        name: The name that the user gave.

    Raises:
        ConfigurationError: It has other characters than letters, digits, `_`, `-` and `.`, or is reserved.
    """
    if not isinstance(name, str):
        raise errors.ConfigurationTypeError(
            f"An evaluation set's `name` must be a string, not [{name!r}]. Write it in quotes."
        )
    if name in (TRAIN, UNNAMED_SET):
        raise errors.ConfigurationError(
            f"An evaluation set's `name` must not be [{name}], which the framework uses itself. Choose another."
        )
    if len(name) > _LONGEST_NAME:
        raise errors.ConfigurationError(
            f"An evaluation set's `name` [{name[:20]}...] of {len(name)} characters becomes part of directory names: "
            f'{_LONGEST_NAME} are the most. Choose a shorter one.'
        )
    if not _STREAM_NAME.fullmatch(name):
        raise errors.ConfigurationError(
            f"An evaluation set's `name` [{name}] becomes part of directory and metric names: it may hold ASCII "
            'letters, digits, `_`, `-` and `.` only, and at least one. Choose another.'
        )
