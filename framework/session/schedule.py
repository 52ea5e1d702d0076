"""What comes next in a run: pure arithmetic from the global step and the settings.

    step   0        50       100      137 (SIGTERM)          150
           commit   E C      E C      commit, stop | start   E C ...

A boundary at a multiple of a period belongs to the first step at or after it. Passes come before the commit of their
step, so a commit says which passes were made; whatever else a resumed run needs follows from the step.

Where the training data starts again when it ends, periods of passes count from the beginning of their epoch, and each
epoch ends with passes. Epochs of 7 batches, a pass every 5 steps:

    step   0     5  7     12 14    19 21
    epoch  |0       |1       |2       |
    pass         E  E     E  E     E  E
"""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from framework.run_config import EvalPeriod, EvalSet


@dataclasses.dataclass(frozen=True)
class Train:
    """Train until the global step has grown by `steps`."""

    steps: int


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Make a pass over each of these sets, in this order."""

    streams: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Commit:
    """Save, so that a later process can go on from here."""


@dataclasses.dataclass(frozen=True)
class Stop:
    """Nothing is left to do."""


Phase = Train | Evaluate | Commit | Stop


@dataclasses.dataclass(frozen=True)
class Progress:
    """Where a run is.

    Attributes:
        step: The global step.
        previous_step: The global step before the newest train run; equal to `step` before any.
        evaluated: Per evaluation set the step of its newest pass.
        epochs: How often the training data has ended and begun again.
        epoch_start: The global step at which the running epoch began.
        committed: Whether there is a commit yet.
        unsaved_runs: Whether there were train runs since the newest commit.
        unsaved_passes: Whether there were passes since the newest commit.
        unsaved_end: Whether the data, or an epoch of it, ended since the newest commit.
        commit_wanted: Whether something else than the cadence asks for a commit: a best value that a pass gave.
        ended: Whether training is over, whatever the reason: the data, a hook, a signal.
        interrupted: Whether it is over at once: no more passes.
    """

    step: int
    previous_step: int
    evaluated: Mapping[str, int] = dataclasses.field(default_factory=dict)
    epochs: int = 0
    epoch_start: int = 0
    committed: bool = False
    unsaved_runs: bool = False
    unsaved_passes: bool = False
    unsaved_end: bool = False
    commit_wanted: bool = False
    ended: bool = False
    interrupted: bool = False

    @property
    def epoch_just_ended(self) -> bool:
        """Whether no train run came since the training data ended."""
        return self.epochs > 0 and self.step == self.epoch_start


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The settings that decide what comes next.

    Attributes:
        train_steps: The global step to reach, None to go on until the data ends.
        periods: Per evaluation set its period in global steps, None for a pass at the end only.
        epoch_periods: Per evaluation set whose period is one of epochs that period.
        second_periods: Per evaluation set whose passes a clock asks for the seconds between them.
        throttle_secs: Per evaluation set the seconds between two passes at least, where its period is one of steps:
            passes that come sooner are left out, but for that at the end.
        commits: Whether there are commits at all.
        commit_steps: Global steps between two commits; None where a clock decides.
        eval_at_start: Whether a pass over every set is made at step 0, but over those in `only_at_end`.
        only_at_end: The sets that are for the end of the run only.
        restart: Whether the training data starts again when it ends.
        train_epochs: The epochs to train where it does, None for any number.
    """

    train_steps: int | None
    periods: Mapping[str, int | None] = dataclasses.field(default_factory=dict)
    epoch_periods: Mapping[str, int] = dataclasses.field(default_factory=dict)
    second_periods: Mapping[str, float] = dataclasses.field(default_factory=dict)
    throttle_secs: Mapping[str, float] = dataclasses.field(default_factory=dict)
    commits: bool = True
    commit_steps: int | None = None
    eval_at_start: bool = False
    only_at_end: Collection[str] = ()
    restart: bool = False
    train_epochs: int | None = None

    def __str__(self) -> str:
        """Says what comes when, as one sentence for people."""
        passes = [f'`{name}` {self._when(name)}' for name in self.periods]
        evaluation = f'evaluate {", ".join(passes)}' if passes else 'no evaluation'
        if not self.commits:
            return f'Train {self._goal()}; {evaluation}; no commits.'
        cadence = 'by the clock' if self.commit_steps is None else f'every {self.commit_steps} steps'
        return f'Train {self._goal()}; {evaluation}; commit {cadence} and at the end.'

    def _goal(self) -> str:
        ends = [] if self.train_steps is None else [f'to step {self.train_steps}']
        if self.train_epochs is not None:
            ends.append(f'for {_counted(self.train_epochs, "epoch")}')
        if not self.restart:
            return ' '.join(ends) or 'until the data ends'
        return f'{" or ".join(ends) or "until something stops it"}, starting the data again when it ends'

    def _when(self, name: str) -> str:
        end_of_data = ' and at the end of the data' if self.restart else ' and at the end'
        if name in self.epoch_periods:
            return f'every {_counted(self.epoch_periods[name], "epoch")} and at the end'
        if name in self.second_periods:
            return f'every {self.second_periods[name]:g} s{end_of_data}'
        period = self.periods[name]
        if period is None:
            return 'at the end'
        apart = f' but not within {secs:g} s' if (secs := self.throttle_secs.get(name)) else ''
        return f'every {_counted(period, "step")}{apart}{end_of_data}'

    def next(
        self,
        progress: Progress,
        commit_due: bool = False,
        streams_due: Collection[str] = (),
        throttled: Collection[str] = (),
    ) -> Phase:
        """Returns the next phase.

        Args:
            progress: Where the run is.
            commit_due: Whether the clock asks for a commit.
            streams_due: The sets that the clock asks a pass for.
            throttled: The sets whose last pass is too near.
        """
        ended = progress.ended or self.reached(progress.step, progress.epochs)
        streams = () if progress.interrupted else self._streams_due(progress, ended, streams_due, throttled)
        if streams:
            return Evaluate(streams)
        if self._commit_is_due(progress, ended, commit_due):
            return Commit()
        if ended:
            return Stop()
        return Train(self._steps_to_boundary(progress))

    def reached(self, step: int, epochs: int) -> bool:
        """Whether the step or the epoch to reach is reached.

        Args:
            step: The global step.
            epochs: How often the training data has ended and begun again.
        """
        by_step = self.train_steps is not None and step >= self.train_steps
        return by_step or (self.train_epochs is not None and epochs >= self.train_epochs)

    def _streams_due(
        self, progress: Progress, ended: bool, clock: Collection[str], throttled: Collection[str]
    ) -> tuple[str, ...]:
        by_step = [name for name in self.periods if name not in throttled and self._pass_is_due(progress, name)]
        due = (name for name in self.periods if ended or name in clock or name in by_step)
        return tuple(name for name in due if progress.evaluated.get(name) != progress.step)

    def _pass_is_due(self, progress: Progress, name: str) -> bool:
        if progress.step == 0:
            return self.eval_at_start and name not in self.only_at_end
        period = self.periods[name]
        if progress.epoch_just_ended:
            epochs = self.epoch_periods.get(name, 1 if period is not None or name in self.second_periods else None)
            return epochs is not None and progress.epochs % epochs == 0
        first = progress.epoch_start
        return period is not None and crossed(progress.previous_step - first, progress.step - first, period)

    def _commit_is_due(self, progress: Progress, ended: bool, clock: bool) -> bool:
        if not self.commits:
            return False
        if not progress.committed or progress.commit_wanted:
            return True
        if not progress.unsaved_runs:
            return ended and (progress.unsaved_passes or progress.unsaved_end)
        steps = self.commit_steps
        return ended or clock or (steps is not None and crossed(progress.previous_step, progress.step, steps))

    def _steps_to_boundary(self, progress: Progress) -> int:
        in_epoch = progress.step - progress.epoch_start
        ends = [period - in_epoch % period for period in self.periods.values() if period is not None]
        if self.commits and self.commit_steps is not None:
            ends.append(self.commit_steps - progress.step % self.commit_steps)
        if self.train_steps is not None:
            ends.append(self.train_steps - progress.step)
        return min(ends, default=_NO_BOUNDARY)


_NO_BOUNDARY = 2**31 - 1


def periods_of(sets: Mapping[str, EvalSet], default: EvalPeriod) -> dict[str, Any]:
    """Returns the arguments of a `Schedule` that say when passes are made.

    Args:
        sets: The evaluation sets by stream.
        default: The period of sets that have none of their own.
    """
    periods = {stream: eval_set.period or default for stream, eval_set in sets.items()}
    return {
        'periods': {stream: period.steps for stream, period in periods.items()},
        'epoch_periods': {stream: period.epochs for stream, period in periods.items() if period.epochs is not None},
        'only_at_end': frozenset(stream for stream, eval_set in sets.items() if eval_set.only_at_end),
        'second_periods': {stream: period.secs for stream, period in periods.items() if period.secs is not None},
    }


def _counted(number: int, noun: str) -> str:
    return noun if number == 1 else f'{number} {noun}s'


def crossed(before: int, after: int, period: int) -> bool:
    """Whether a train run between these two steps reached or passed a multiple of the period."""
    return after // period > before // period
