"""What comes next in a run: pure arithmetic from the global step and the settings.

    step   0        50       100      137 (SIGTERM)          150
           commit   E C      E C      commit, stop | start   E C ...

A boundary at a multiple of a period belongs to the first step at or after it. Passes come before the commit of their
step, so a commit says which passes were made; whatever else a resumed run needs follows from the step.
"""

import dataclasses
from collections.abc import Mapping, Sequence


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
        committed: Whether there is a commit yet.
        unsaved_runs: Whether there were train runs since the newest commit.
        unsaved_passes: Whether there were passes since the newest commit.
        ended: Whether training is over, whatever the reason: the data, a hook, a signal.
        interrupted: Whether it is over at once: no more passes.
    """

    step: int
    previous_step: int
    evaluated: Mapping[str, int] = dataclasses.field(default_factory=dict)
    committed: bool = False
    unsaved_runs: bool = False
    unsaved_passes: bool = False
    ended: bool = False
    interrupted: bool = False


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The settings that decide what comes next.

    Attributes:
        train_steps: The global step to reach, None to go on until the data ends.
        periods: Per evaluation set its period in global steps, None for a pass at the end only.
        commits: Whether there are commits at all.
        commit_steps: Global steps between two commits; None where a clock decides.
        eval_at_start: Whether a pass over every set is made at step 0.
    """

    train_steps: int | None
    periods: Mapping[str, int | None] = dataclasses.field(default_factory=dict)
    commits: bool = True
    commit_steps: int | None = None
    eval_at_start: bool = False

    def __str__(self) -> str:
        """Says what comes when, as one sentence for people."""
        goal = 'until the data ends' if self.train_steps is None else f'to step {self.train_steps}'
        passes = [
            f'`{name}` at the end' if period is None else f'`{name}` every {period} steps and at the end'
            for name, period in self.periods.items()
        ]
        evaluation = f'evaluate {", ".join(passes)}' if passes else 'no evaluation'
        if not self.commits:
            return f'Train {goal}; {evaluation}; no commits.'
        cadence = 'by the clock' if self.commit_steps is None else f'every {self.commit_steps} steps'
        return f'Train {goal}; {evaluation}; commit {cadence} and at the end.'

    def next(self, progress: Progress, commit_due: bool = False) -> Phase:
        """Returns the next phase.

        Args:
            progress: Where the run is.
            commit_due: Whether the clock asks for a commit.
        """
        ended = progress.ended or self.reached(progress.step)
        streams = () if progress.interrupted else self._streams_due(progress, ended)
        if streams:
            return Evaluate(streams)
        if self._commit_is_due(progress, ended, commit_due):
            return Commit()
        if ended:
            return Stop()
        return Train(self._steps_to_boundary(progress.step))

    def reached(self, step: int) -> bool:
        """Whether the step to reach is reached."""
        return self.train_steps is not None and step >= self.train_steps

    def _streams_due(self, progress: Progress, ended: bool) -> tuple[str, ...]:
        due = (name for name, period in self.periods.items() if ended or self._pass_is_due(progress, period))
        return tuple(name for name in due if progress.evaluated.get(name) != progress.step)

    def _pass_is_due(self, progress: Progress, period: int | None) -> bool:
        if progress.step == 0:
            return self.eval_at_start
        return period is not None and crossed(progress.previous_step, progress.step, period)

    def _commit_is_due(self, progress: Progress, ended: bool, clock: bool) -> bool:
        if not self.commits:
            return False
        if not progress.committed:
            return True
        if not progress.unsaved_runs:
            return ended and progress.unsaved_passes
        steps = self.commit_steps
        return ended or clock or (steps is not None and crossed(progress.previous_step, progress.step, steps))

    def _steps_to_boundary(self, step: int) -> int:
        periods: Sequence[int | None] = [*self.periods.values(), self.commit_steps if self.commits else None]
        ends = [period - step % period for period in periods if period is not None]
        if self.train_steps is not None:
            ends.append(self.train_steps - step)
        return min(ends, default=_NO_BOUNDARY)


_NO_BOUNDARY = 2**31 - 1


def crossed(before: int, after: int, period: int) -> bool:
    """Whether a train run between these two steps reached or passed a multiple of the period."""
    return after // period > before // period
