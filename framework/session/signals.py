"""SIGINT, SIGTERM and SIGHUP (a closed terminal) ask a run to finish its step and commit."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from absl import logging

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """A context in which the first SIGINT, SIGTERM or SIGHUP is noted, and the second does what it did before.

    Outside the main thread Python allows no handlers: there the context does nothing. A signal that the process was
    started to ignore, as a shell does for SIGINT of its background jobs, stays ignored. A handler that was not set from
    Python can't be put back by Python: the default takes its place.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._received: int | None = None

    @property
    def received(self) -> int | None:
        """The signal's number, None while there was none."""
        return self._received

    def came(self) -> bool:
        """Whether there was one."""
        return self._received is not None

    @property
    def exit_code(self) -> int:
        """What a shell expects of a process that a signal ended: 128 and the signal's number; 0 without one."""
        return 0 if self._received is None else 128 + self._received

    @property
    def sentence(self) -> str:
        """The reason for stopping."""
        return '' if self._received is None else f'{signal.Signals(self._received).name} received'

    def __enter__(self) -> 'StopSignals':
        if threading.current_thread() is threading.main_thread():
            heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._note) or signal.SIG_DFL for number in heeded}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._received = number
        self._restore()
        logging.info('%s: finishing the step.', signal.Signals(number).name)

    def _restore(self) -> None:
        while self._before:
            signal.signal(*self._before.popitem())
