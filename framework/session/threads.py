"""Whether the ops of a fused run go to several threads or stay in the one that calls: what was faster is kept.

The bits don't depend on it: how the work of one op is shared among threads is another matter. Measured on 2 cores: a
small network takes 0.6 of the processor time in one thread, a convolutional net 1.1 of the time on the wall.
"""

import math
from collections.abc import Callable

from tensorflow.compat import v1

_TRIALS = 3  # calls each way, by turns
_FEWEST = 8  # runs in a call that tells something


class Threads:
    """Chooses for the fused runs of one kind.

    Args:
        clock: Seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float]):
        self._clock = clock
        self._secs: dict[bool, list[float]] = {False: [], True: []}  # per run, by whether it was in one thread
        self._one = False
        self._chooses = True

    @property
    def options(self) -> v1.RunOptions | None:
        """The options of the next run of the session."""
        return v1.RunOptions(inter_op_thread_pool=-1) if self._one else None

    def measured(self, runs: int, start: float) -> None:
        """Takes note of a call, and chooses for the next.

        Args:
            runs: How many runs it made.
            start: What the clock said before.
        """
        if not self._chooses or runs < _FEWEST:
            return
        self._secs[self._one].append((self._clock() - start) / runs)
        several, one = self._secs[False], self._secs[True]
        if min(len(several), len(one)) < _TRIALS:
            self._one = len(one) < len(several)
            return
        self._chooses = False
        self._one = min(one, default=math.inf) < min(several)
