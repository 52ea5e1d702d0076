"""How the next fused run is made: how many runs in one, and in which threads."""

import math
from collections.abc import Callable

from tensorflow.compat import v1

from framework.session.threads import Threads

_SECS = 2.0  # that one run of the session may take: a signal, a clock and a user wait for its end
_UNKNOWN = 10  # runs in one as long as nothing was measured


class Pace:
    """Measures runs, and says how many of them fit into one.

    Args:
        clock: Seconds, monotonic.
        first: How many runs are made in one as long as nothing was measured.
    """

    def __init__(self, clock: Callable[[], float], first: int = _UNKNOWN):
        self._clock = clock
        self._fits = first
        self._threads = Threads(clock)

    @property
    def options(self) -> v1.RunOptions | None:
        """The options of the next run of the session."""
        return self._threads.options

    @property
    def fits(self) -> int:
        """How many runs fit, as long as those that were measured last; 1 at least."""
        return self._fits

    def measured(self, runs: int, start: float) -> None:
        """Takes note of runs.

        Args:
            runs: How many were made in one.
            start: What the clock said before.
        """
        self._threads.measured(runs, start)
        secs = self._clock() - start
        # The first runs are slow, and the next ones are then as many as that allows: it grows from there.
        self._fits = max(int(_SECS / secs * max(runs, 1)), 1) if secs > 0 else _MANY


_MANY = math.isqrt(2**62)  # far more than anybody waits for, and an integer that a graph can be fed
