"""Train runs: batch after batch through the monitored session, whose hooks see each of them."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from absl import logging
from tensorflow.compat import v1

from framework import errors
from framework.graph.calls import TrainStream
from framework.reporting.rows import Metrics, PhaseRow, StepRow, SummaryRow
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
        epochs: How often it ended and began again.
        epoch_start: The global step at which the running epoch began.
        elements: How many elements of the training data were read since it began.
        metrics: The metrics of the newest log period of this process.
        not_finite: Whether the newest loss was not finite, and the run shall stop for that.
    """

    step: int = 0
    previous_step: int = 0
    runs: int = 0
    loss: float | None = None
    exhausted: bool = False
    epochs: int = 0
    epoch_start: int = 0
    elements: int = 0
    metrics: Metrics = dataclasses.field(default_factory=dict)
    not_finite: bool = False


class Training:
    """Makes train runs, moves a position with them, and tells of losses, summaries and the rate."""

    def __init__(
        self,
        stream: TrainStream,
        tick: tf.Tensor | None,
        summary_op: tf.Tensor | None,
        position: Position,
        config: RunConfig,
        train_steps: int | None,
        on_nan: str,
        restart: bool,
        writer: Writer,
        clock: Callable[[], float],
    ):
        """Takes what a train run is made of.

        Args:
            stream: The training call.
            tick: What its random draws depend on, None where they depend on nothing.
            summary_op: Its merged summaries, None where it has none.
            position: Where training is; moved.
            config: Cadences of summaries and logs.
            train_steps: The step to reach, for the time that is left.
            on_nan: What a loss that is not finite does: `raise`, `stop` or `ignore`.
            restart: Whether the data starts again when it ends.
            writer: Who is told.
            clock: Seconds, monotonic.
        """
        spec = stream.spec
        self._input = stream.input
        self._metrics = stream.metrics
        self._tick = tick
        update = [] if stream.metrics is None else [stream.metrics.update]
        self._fetches = {
            'train_op': [spec.train_op, *update],
            'loss': spec.loss,
            'step': stream.step_after,
            'examples': stream.input.examples,
            **({} if stream.input.last is None else {'last': stream.input.last}),
        }
        self._summary = {} if summary_op is None else {'summary': summary_op}
        self._position = position
        self._train_steps = train_steps
        self._on_nan = on_nan
        self._restart = restart
        self._writer = writer
        self._clock = clock
        self._summaries = _Cadence(config.save_summary_steps, config.save_summary_secs, clock, at_first=True)
        self._lines = _Cadence(config.log_step_count_steps, config.log_step_count_secs, clock)
        self._period = _Period()
        self._ignored = False
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
        start, first, examples, epochs = self._clock(), self._position.step, 0, self._position.epochs
        if self._input.size == 0:
            raise _no_batch()
        while self._position.step < target:
            values = self._run(session)
            if values is None:
                break
            examples += int(values['examples'])
            self._tell(session, values, self._clock() - start)
            if self._is_at_an_end(epochs) or session.should_stop() or pause():
                break
        secs = self._clock() - start
        self._period.pause(secs)
        return PhaseRow('train', self._position.step, secs, TRAIN, self._position.step - first, examples)

    def _is_at_an_end(self, epochs: int) -> bool:
        return self._position.exhausted or self._position.epochs > epochs

    def _run(self, session: v1.train.SingularMonitoredSession) -> dict[str, Any] | None:
        """Makes one train run and returns what it fetched, None where there is nothing to go on with."""
        position = self._position
        # Nobody knows how far a run will move the step: as far as the one before, and by 1 at least.
        expected = position.step + max(position.step - position.previous_step, 1)
        summary = self._summary if self._summaries.due(position.step, expected) else {}
        try:
            values = session.run({**self._fetches, **summary}, feed_dict=self._feeds())
        except tf.errors.OutOfRangeError as error:
            if not self._input.ended(error):
                raise ends.unnamed_end(error, 'training') from error
            self._end_of_data()
            return None
        except tf.errors.InvalidArgumentError as error:
            if not self._input.is_empty(error):
                raise
            raise _no_batch() from error
        position.previous_step, position.step = position.step, int(values['step'])
        position.runs += 1
        position.elements += 1
        self._runs_here += 1
        position.loss = float(values['loss'])
        self._check(position)
        if self._is_last(values):
            self._end_of_data()
        return None if position.not_finite else values

    def _is_last(self, values: dict[str, Any]) -> bool:
        """Whether the batch of a run was the last of its epoch."""
        size = self._input.size
        return bool(values.get('last', False)) if size is None else self._position.elements % size == 0

    def _feeds(self) -> dict[tf.Tensor, int] | None:
        """Returns what draws depend on: the number of this run, which is another one in every run."""
        return None if self._tick is None else {self._tick: self._position.runs}

    def _end_of_data(self) -> None:
        position = self._position
        if not position.runs:
            raise _no_batch()
        if not self._restart:
            position.exhausted = True
            return
        position.epochs += 1
        position.epoch_start = position.step

    def _check(self, position: Position) -> None:
        if not math.isfinite(position.loss or 0.0):
            self._not_finite(position)
        self._still_runs = self._still_runs + 1 if position.step == position.previous_step else 0
        if self._still_runs >= _RUNS_WITHOUT_PROGRESS:
            raise errors.RunError(
                f'`global_step` [{position.step}] has not moved for {_RUNS_WITHOUT_PROGRESS} runs. Pass '
                '`global_step=tf.compat.v1.train.get_global_step()` to the optimizer, or add to it in the train op.'
            )

    def _not_finite(self, position: Position) -> None:
        if self._on_nan == 'raise':
            raise NanLossError(
                f'`loss` [{position.loss}] is not finite at step {position.step}. Nothing of this step was saved. Look '
                f'at the learning rate, and for logarithms and divisions of zero.{self._hint()}'
            )
        if self._on_nan == 'stop':
            position.not_finite = True
        elif not self._ignored:
            self._ignored = True
            logging.warning('`loss` [%s] is not finite at step %d; training goes on.', position.loss, position.step)

    def _hint(self) -> str:
        """Names the newest commit where the run fails at once: its values may be the fault."""
        if self._runs_here > 1 or self._position.previous_step == 0:
            return ''
        return (
            f' It is the first step after a start: if the commit of step {self._position.previous_step} holds such '
            'values already, remove its record from `commits/` to go on from the one before.'
        )

    def _tell(self, session: v1.train.SingularMonitoredSession, values: dict[str, Any], phase_secs: float) -> None:
        step, before, loss = self._position.step, self._position.previous_step, float(values['loss'])
        if self._summaries.due(before, step):
            self._summaries.done()
            self._writer.write_summary(SummaryRow(step, loss, values.get('summary', b'')))
        self._period.steps += step - before
        if self._lines.due(before, step):
            self._lines.done()
            self._position.metrics = self._period_metrics(session)
            rate = self._period.rate(phase_secs)
            self._writer.write_step(StepRow(step, loss, rate, self._train_steps, self._position.metrics))

    def _period_metrics(self, session: v1.train.SingularMonitoredSession) -> Metrics:
        """Returns the metrics of the period and begins the next; no hook sees that."""
        if self._metrics is None:
            return {}
        raw = session.raw_session()
        values = raw.run(dict(self._metrics.values))
        raw.run(self._metrics.reset)
        return values


def _no_batch() -> errors.ConfigurationError:
    return errors.ConfigurationError(
        '`Experiment.train_input_fn` gave no batch. Check what it reads, and whether `drop_remainder` drops its only '
        'batch.'
    )


class _Cadence:
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

    def done(self) -> None:
        """Begins the next period."""
        self._done_at = self._clock()


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
