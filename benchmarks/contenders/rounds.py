"""A round: what a contender does at a time, what it computes by that, and how a loop is made to pause after each."""

import abc
import dataclasses
import threading
import time
from collections.abc import Callable, Mapping


@dataclasses.dataclass(frozen=True)
class Figures:
    """What a round computed.

    Attributes:
        step: The global step at its end.
        loss: The loss of its last training step.
        metrics: Of its pass: `loss`, the mean over batches, and `mae`, the mean over examples.
        train_examples: Examples that training read, None where nobody counts them.
        eval_examples: Examples that the pass read, None where nobody counts them.
    """

    step: int
    loss: float
    metrics: Mapping[str, float]
    train_examples: int | None = None
    eval_examples: int | None = None


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a round cost: CPU seconds of all threads of its process, and seconds."""

    cpu_secs: float
    wall_secs: float


class Contender(abc.ABC):
    """Makes rounds: n training steps, then one pass. The first round includes building and start-up."""

    @abc.abstractmethod
    def round(self) -> Figures:
        """Makes the next round."""

    def measured_round(self) -> tuple[Figures, Cost]:
        """Makes the next round, and says what it cost."""
        cpu, wall = time.process_time(), time.perf_counter()
        figures = self.round()
        return figures, Cost(time.process_time() - cpu, time.perf_counter() - wall)

    def close(self) -> None:  # noqa: B027 - some have nothing to end
        """Ends the contender after its last round."""


HandOver = Callable[[Figures], None]


class InTurns(Contender):
    """Runs a loop that owns its rounds in a thread, which rests between two of them."""

    def __init__(self, loop: Callable[[HandOver], object]):
        """Takes the loop.

        Args:
            loop: Makes as many rounds as will be asked for, and calls its argument at the end of each.
        """
        self._loop = loop
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._begin = threading.Semaphore(0)
        self._ended = threading.Semaphore(0)
        self._figures: Figures | None = None
        self._error: BaseException | None = None

    def round(self) -> Figures:
        """Lets the loop go on to the end of its next round."""
        if self._thread.ident is None:
            self._thread.start()
        self._figures = None
        self._begin.release()
        self._ended.acquire()
        if self._figures is None:
            raise RuntimeError('The loop ended, and a round was to come.') from self._error
        return self._figures

    def close(self) -> None:
        """Lets the loop end, which has made all of its rounds."""
        self._begin.release()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        self._begin.acquire()
        try:
            self._loop(self._hand_over)
        except BaseException as error:
            self._error = error
        self._ended.release()

    def _hand_over(self, figures: Figures) -> None:
        self._figures = figures
        self._ended.release()
        self._begin.acquire()
