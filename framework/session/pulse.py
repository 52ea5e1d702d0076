"""Tells where the run is, at moments that come anyway, and not too often."""

from collections.abc import Callable

from framework.reporting.rows import ProgressRow
from framework.reporting.writers import Writer

_SECS = 0.1


class Pulse:
    """Tells a writer where training and passes are, if it wants to know.

    Args:
        writer: Who is told.
        clock: Seconds, monotonic.
        train_steps: The step to reach, None where only the end of the data or a hook ends the run.
    """

    def __init__(self, writer: Writer, clock: Callable[[], float], train_steps: int | None = None):
        self._writer = writer if writer.wants_progress else None
        self._clock = clock
        self._train_steps = train_steps
        self._step = 0
        self._due = clock()

    def step(self, step: int) -> None:
        """Tells that training has reached a step.

        Args:
            step: The global step.
        """
        self._step = step
        if self._writer is not None and self._is_due():
            self._writer.write_progress(ProgressRow('train', step, self._train_steps))

    def batches(self, stream: str, batches: int, size: int | None) -> None:
        """Tells that so many batches of a pass are read; 0 at its beginning.

        Args:
            stream: The set.
            batches: How many are read.
            size: How many there are, None where nobody knows.
        """
        if self._writer is not None and (not batches or self._is_due()):
            self._writer.write_progress(ProgressRow(stream, self._step, self._train_steps, batches, size))

    def _is_due(self) -> bool:
        now = self._clock()
        if now < self._due:
            return False
        self._due = now + _SECS
        return True
