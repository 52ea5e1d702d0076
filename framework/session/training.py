"""Train runs: batch after batch through the monitored session, whose hooks see each of them."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.compat import v1

from framework import errors
from framework.graph.calls import TrainStream
from framework.reporting.rows import PhaseRow, StepRow, SummaryRow
from framework.reporting.writers import Writer
from framework.run_config import RunConfig
from framework.run_dir import TRAIN
from framework.session import ends
from framework.session.schedule import crossed

_RUNS_WITHOUT_PROGRESS = 1000


class NanLossError(errors.RunError, v1.train.NanLossDuringTrainingError):
    """The loss was not finite; nothing of that step was saved."""

    def __str__(self) -> str:
        return str(self.args[0])  # TensorFlow's class says 'NaN loss during training.' whatever it was given


@dataclasses.dataclass
class Position:
    """Where training is. It moves with every train run.

    Attributes:
        step: The global step.
        previous_step: The global step before the newest train run; equal to `step` before any.
        runs: Train runs from the beginning: a run may move the global step by any number, also by none.
        loss: The loss of the newest train run of this process, None before any.
        exhausted: Whether the training data ended.
    """

    step: int = 0
    previous_step: int = 0
    runs: int = 0
    loss: float | None = None
    exhausted: bool = False


class Training:
    """Makes train runs, moves a position with them, and tells of losses, summaries and the rate."""

    def __init__(
        self,
        stream: TrainStream,
        summary_op: tf.Tensor | None,
        position: Position,
        config: RunConfig,
        train_steps: int | None,
        writer: Writer,
        clock: Callable[[], float],
    ):
        """Takes what a train run is made of.

        Args:
            stream: The training call.
            summary_op: Its merged summaries, None where it has none.
            position: Where training is; moved.
            config: Cadences of summaries and logs.
            train_steps: The step to reach, for the time that is left.
            writer: Who is told.
            clock: Seconds, monotonic.
        """
        spec = stream.spec
        self._input = stream.input
        self._fetches = {
            'train_op': spec.train_op,
            'loss': spec.loss,
            'step': stream.step_after,
            'examples': stream.input.examples,
        }
        self._summary = {} if summary_op is None else {'summary': summary_op}
        self._position = position
        self._config = config
        self._train_steps = train_steps
        self._writer = writer
        self._clock = clock
        self._period = _Period()
        self._still_runs = 0
        self._runs_here = 0

    def phase(self, session: v1.train.SingularMonitoredSession, target: int, pause: Callable[[], bool]) -> PhaseRow:
        """Makes train runs to a step, unless the data ends, a hook stops the session, or `pause` says so after a run.

        Args:
            session: The monitored session.
            target: The global step to reach.
            pause: Whether something else has to be done first.

        Raises:
            NanLossError: The loss was not finite.
            RunError: The global step stands still, or another op than the iterator reports the end of its data.
            ConfigurationError: There is no batch at all.
        """
        start, first, examples = self._clock(), self._position.step, 0
        while self._position.step < target:
            values = self._run(session)
            if values is None:
                break
            examples += int(values['examples'])
            self._tell(values, self._clock() - start)
            if session.should_stop() or pause():
                break
        secs = self._clock() - start
        self._period.pause(secs)
        return PhaseRow('train', self._position.step, secs, TRAIN, self._position.step - first, examples)

    def _run(self, session: v1.train.SingularMonitoredSession) -> dict[str, Any] | None:
        """Makes one train run and returns what it fetched, None where the data had ended."""
        position = self._position
        # Nobody knows how far a run will move the step: as far as the one before, and by 1 at least.
        expected = position.step + max(position.step - position.previous_step, 1)
        summary = self._summary if self._summary_is_due(position.step, expected) else {}
        try:
            values = session.run({**self._fetches, **summary})
        except tf.errors.OutOfRangeError as error:
            if not self._input.ended(error):
                raise ends.unnamed_end(error, 'training') from error
            self._end_of_data()
            return None
        position.previous_step, position.step = position.step, int(values['step'])
        position.runs += 1
        self._runs_here += 1
        position.loss = float(values['loss'])
        self._check(position.loss)
        return values

    def _end_of_data(self) -> None:
        if not self._position.runs:
            raise errors.ConfigurationError(
                '`Experiment.train_input_fn` gave no batch. Check what it reads, and whether `drop_remainder` drops '
                'its only batch.'
            )
        self._position.exhausted = True

    def _check(self, loss: float) -> None:
        step = self._position.step
        if not math.isfinite(loss):
            raise NanLossError(
                f'`loss` [{loss}] is not finite at step {step}. Nothing of this step was saved. Look at the '
                f'learning rate, and for logarithms and divisions of zero.{self._hint()}'
            )
        self._still_runs = self._still_runs + 1 if step == self._position.previous_step else 0
        if self._still_runs >= _RUNS_WITHOUT_PROGRESS:
            raise errors.RunError(
                f'`global_step` [{step}] has not moved for {_RUNS_WITHOUT_PROGRESS} runs. Pass '
                '`global_step=tf.compat.v1.train.get_global_step()` to the optimizer, or add to it in the train op.'
            )

    def _hint(self) -> str:
        """Names the newest commit where the run fails at once: its values may be the fault."""
        if self._runs_here > 1 or self._position.previous_step == 0:
            return ''
        return (
            f' It is the first step after a start: if the commit of step {self._position.previous_step} holds such '
            'values already, remove its record from `commits/` to go on from the one before.'
        )

    def _tell(self, values: dict[str, Any], phase_secs: float) -> None:
        step, before, loss = self._position.step, self._position.previous_step, float(values['loss'])
        if self._summary_is_due(before, step):
            self._writer.write_summary(SummaryRow(step, loss, values.get('summary', b'')))
        self._period.steps += step - before
        every = self._config.log_step_count_steps
        if every is not None and crossed(before, step, every):
            self._writer.write_step(StepRow(step, loss, self._period.rate(phase_secs), self._train_steps))

    def _summary_is_due(self, before: int, after: int) -> bool:
        """Whether a run between these steps is the first of all, or reaches a multiple of the period."""
        every = self._config.save_summary_steps
        return every is not None and after > before and (before == 0 or crossed(before, after, every))


class _Period:
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
