"""When a training tells of itself: its summaries, its lines of progress, and the rate between two of these."""

from collections.abc import Callable

from framework.session.schedule import crossed

_NEVER = 2**62  # steps


class Cadence:
    """Every so many global steps, or every so many seconds."""

    def __init__(self, steps: int | None, secs: float | None, clock: Callable[[], float], at_first: bool = False):
        self._steps = steps
        self._secs = secs
        self._clock = clock
        self._at_first = at_first
        self._done_at = clock()

    def due(self, before: int, after: int) -> bool:
        """Whether it is time in a run between these steps: the first of all perhaps, or one that ends a period."""
        if self._steps is None and self._secs is None:
            return False
        if self._at_first and before == 0 and after > before:
            return True
        if self._secs is not None:
            return self._clock() - self._done_at >= self._secs
        return self._steps is not None and crossed(before, after, self._steps)

    def left(self, step: int) -> int:
        """Returns how many steps there are until it is time, the one that it is time for among them."""
        if self._at_first and step == 0:
            return 1
        if self._secs is not None:
            return 1 if self.due(step, step + 1) else _NEVER
        return _NEVER if self._steps is None else self._steps - step % self._steps

    def done(self) -> None:
        """Begins the next period."""
        self._done_at = self._clock()


class Period:
    """Steps and seconds of training since the last line of progress; passes and commits don't count."""

    def __init__(self) -> None:
        self.steps = 0
        self._secs = 0.0  # of the phases that ended, less what the running one had when the period began

    def rate(self, phase_secs: float) -> float:
        """Returns steps per second of the period and begins the next; `phase_secs` is the running phase's age."""
        secs = self._secs + phase_secs
        rate = self.steps / secs if secs > 0 else 0.0
        self.steps, self._secs = 0, -phase_secs
        return rate

    def pause(self, phase_secs: float) -> None:
        """Ends the running phase."""
        self._secs += phase_secs
