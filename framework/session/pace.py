"""How the next fused run is made: how many runs in one, and in which threads."""

from collections.abc import Callable

from tensorflow.compat import v1

from framework.session.threads import Threads

_SECS = 2.0  # that one run of the session may take: a signal, a clock and a user wait for its end


class Pace:
    """Measures runs, and says how many of them fit into one.

    Args:
        clock: Seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float]):
        self._clock = clock
        self._fits = self._most = 1
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
        allowed = max(int(_SECS / secs * max(runs, 1)), 1) if secs > 0 else _MANY
        # No more than twice as many as were measured: what made a few of them fast, as data that was fetched ahead, may
        # be over with the next.
        self._most = min(max(self._most, runs), allowed)
        self._fits = min(2 * self._most, allowed)


_MANY = 2**30  # more than anybody waits for
