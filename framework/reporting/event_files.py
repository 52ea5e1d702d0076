"""Event files, written by a thread: what fails there is raised by the next call, in a sentence.

TensorFlow's own writer of event files ignores what goes wrong while it writes.
"""

import contextlib
import functools
import os
import platform
import queue
import threading
import time
from collections.abc import Callable, Iterator

import tensorflow as tf
from tensorflow.compat import v1

from framework import errors

_FILE_VERSION = 'brain.Event:2'  # what readers expect of the first record
_FLUSH_SECS = 20  # after which a reader beside the run sees an event
_MOST_WAITING = 200  # events, before whoever tells waits for the disk


class EventFiles:
    """Appends events to files that it makes, one a directory. Use it from one thread.

    Every method raises a `RunError` where an event was lost: on a full disk, in a file that somebody removed.
    """

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue(_MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._failure: errors.RunError | None = None

    def add(self, directory: str, event: v1.Event) -> None:
        """Hands over an event, which may not be changed afterwards.

        Args:
            directory: The directory of the file; both are made with its first event.
            event: The event.
        """
        self._check()
        if directory not in self._files:
            self._files[directory] = _File(directory)
        self._do(functools.partial(self._files[directory].write, event))

    def flush(self) -> None:
        """Waits until all events are where a reader of the files finds them."""
        self._check()
        if self._files:
            self._do(self._flush)
            self._jobs.join()
            self._check()

    def close(self) -> None:
        """Flushes and closes the files; an error that was raised before is not raised again."""
        if self._thread is None:
            return
        raised = self._failure
        self._do(self._flush)
        self._do(None)
        self._thread.join()
        self._thread = None
        for file in self._files.values():
            file.close()
        self._files.clear()
        if self._failure is not raised:
            self._check()

    def _do(self, job: Callable[[], None] | None) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name='event files', daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    # In the thread.

    def _work(self) -> None:
        flush_at = time.monotonic() + _FLUSH_SECS
        while True:
            try:
                job = self._jobs.get(timeout=max(flush_at - time.monotonic(), 0))
            except queue.Empty:
                self._try(self._flush)
                flush_at = time.monotonic() + _FLUSH_SECS
                continue
            if job is not None:
                self._try(job)
            self._jobs.task_done()
            if job is None:
                return

    def _try(self, job: Callable[[], None]) -> None:
        if self._failure is not None:
            return  # events after one that is lost would make a curve that lies
        try:
            job()
        except errors.RunError as error:
            self._failure = error

    def _flush(self) -> None:
        for file in list(self._files.values()):
            file.flush()


class _File:
    """One event file."""

    def __init__(self, directory: str):
        # TensorFlow names files by the second and truncates one that exists: a run that starts again within a second,
        # or a user's own writer in the directory, would destroy events. Nanoseconds keep the names in order, too.
        now = time.time_ns()
        name = f'events.out.tfevents.{now // 10**9:010d}.{platform.node()}.{now}.{os.getpid()}.run'
        self._path = os.path.join(directory, name)
        with self._explained():
            os.makedirs(directory, exist_ok=True)
            self._records = tf.io.TFRecordWriter(self._path)
        self.write(v1.Event(wall_time=now / 1e9, file_version=_FILE_VERSION))

    def write(self, event: v1.Event) -> None:
        with self._explained():
            self._records.write(event.SerializeToString())

    def flush(self) -> None:
        with self._explained():
            self._records.flush()
        if not os.path.exists(self._path):  # the system goes on writing into a file without a name
            raise errors.RunError(
                f'`{self._path}` was removed while the run wrote to it, and what it told is lost. Leave the files of a '
                'run alone until it ends, and start it again.'
            )

    def close(self) -> None:
        with contextlib.suppress(tf.errors.OpError):  # of a file that can't be written, which was said
            self._records.close()

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (tf.errors.OpError, OSError) as error:
            raise errors.RunError(
                f'Events can not be written to `{self._path}` [{error}]. Mend that, and the same command goes on from '
                'the newest commit.'
            ) from error
