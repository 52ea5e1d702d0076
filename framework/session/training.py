"""Train runs: batch after batch through the monitored session, or many in one run where no hook has to see them."""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
from absl import logging
from tensorflow.compat import v1

from framework import errors
from framework.graph.calls import Compiled
from framework.reporting.rows import Metrics, PhaseRow, StepRow, SummaryRow
from framework.reporting.writers import Writer
from framework.run_config import RunConfig
from framework.run_dir import TRAIN
from framework.session import ends
from framework.session.cadences import Cadences
from framework.session.pace import Pace
from framework.session.periods import Cadence, Period
from framework.session.position import Position
from framework.session.profiling import Profile
from framework.session.pulse import Pulse

_RUNS_WITHOUT_PROGRESS = 1000


class NanLossError(errors.RunError, v1.train.NanLossDuringTrainingError):
    """The loss was not finite; nothing of that step was saved."""

    def __str__(self) -> str:
        return str(self.args[0])  # TensorFlow's class says 'NaN loss during training.' whatever it was given


@dataclasses.dataclass(frozen=True)
class _Made:
    """Train runs that were made in one run of the session.

    Attributes:
        runs: How many.
        step: The global step after them.
        loss: The loss of the last.
        examples: The examples of all.
        last: Whether the last batch announced itself as the last of its epoch.
        summary: The merged summaries, where they were due.
    """

    runs: int
    step: int
    loss: float
    examples: int
    last: bool = False
    summary: bytes = b''


class Training:
    """Makes train runs, moves a position with them, and tells of losses, summaries and the rate."""

    def __init__(
        self,
        compiled: Compiled,
        *,
        summary_op: tf.Tensor | None,
        position: Position,
        config: RunConfig,
        train_steps: int | None,
        on_nan: str,
        restart: bool,
        writer: Writer,
        clock: Callable[[], float],
        cadences: Cadences,
        profile: Profile,
        request_stop: Callable[[], None],
        pulse: Pulse,
        refuse_empty: bool = True,
    ):
        """Takes what a train run is made of.

        Args:
            compiled: The graph, with a training call.
            summary_op: Its merged summaries, None where it has none.
            position: Where training is; moved.
            config: Cadences of summaries and logs.
            train_steps: The step to reach, for the time that is left.
            on_nan: What a loss that is not finite does: `raise`, `stop` or `ignore`.
            restart: Whether the data starts again when it ends.
            writer: Who is told.
            clock: Seconds, monotonic.
            cadences: Which runs the hooks of the session have to see.
            profile: Traces some of the steps.
            request_stop: Asks the session to stop, as one of its hooks would.
            pulse: Is told of every step.
            refuse_empty: Whether data without a batch is an error, and not the end of it.
        """
        stream = compiled.train
        assert stream is not None
        spec = stream.spec
        self._global_step = compiled.global_step
        self._input = stream.input
        self._size = stream.input.sizes.get(TRAIN)
        self._fused = stream.fused
        self._metrics = stream.metrics
        self._tick = compiled.draws.tick
        self._fetches = {
            'train_op': [spec.train_op, *stream.updates],
            'loss': spec.loss,
            'step': stream.step_after,
            'examples': stream.input.examples,
            **({} if stream.input.last is None else {'last': stream.input.last}),
        }
        self._summary = {} if summary_op is None else {'summary': summary_op}
        self._position = position
        self._train_steps = train_steps
        self._xla = config.xla
        self._on_nan = on_nan
        self._restart = restart
        self._writer = writer
        self._clock = clock
        self._cadences = cadences
        self._profile = profile
        self._request_stop = request_stop
        self._pulse = pulse
        self._refuse_empty = refuse_empty
        self._pace = Pace(clock)
        self._summaries = Cadence(config.save_summary_steps, config.save_summary_secs, clock, at_first=True)
        self._lines = Cadence(config.log_step_count_steps, config.log_step_count_secs, clock)
        self._period = Period()
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
        if self._size == 0:
            self._no_batch()
            return PhaseRow('train', first, 0.0, TRAIN)
        while self._position.step < target:
            before = self._position.step
            self._profile.begin(before)
            with self._profile.marked(before):
                made = self._next(session, target)
            self._profile.end(self._position.step)
            if made is None:
                break
            examples += made.examples
            if self._position.not_finite:
                break
            self._period.steps += made.step - before
            self._pulse.step(made.step)
            self._tell(session, made, self._clock() - start)
            if self._is_at_an_end(epochs) or session.should_stop() or pause():
                break
        secs = self._clock() - start
        self._period.pause(secs)
        return PhaseRow('train', self._position.step, secs, TRAIN, self._position.step - first, examples)

    def _is_at_an_end(self, epochs: int) -> bool:
        return self._position.exhausted or self._position.epochs > epochs

    def _next(self, session: v1.train.SingularMonitoredSession, target: int) -> _Made | None:
        """Makes train runs and moves the position; returns None where the data has ended."""
        many = self._many(session, target)
        try:
            made = self._fused_run(session, many) if many > 1 else self._run(session)
        except tf.errors.OutOfRangeError as error:
            if not self._input.ended(error):
                raise ends.unnamed_end(error, 'training') from error
            self._end_of_data()
            return None
        except tf.errors.InvalidArgumentError as error:
            if not self._input.is_empty(error):
                raise
            self._no_batch(error)
            return None
        self._advance(made.runs, made.step, made.loss)
        self._check(self._position)
        if self._is_last(made):
            self._end_of_data()
        return made

    def _many(self, session: v1.train.SingularMonitoredSession, target: int) -> int:
        """Returns how many runs can be made in one: none of them but the last is told of, or seen by a hook."""
        if self._fused is None:
            return 1
        step, size = self._position.step, self._size
        # A run that fetches summaries is not one of those: its ops are others.
        until_summary = self._summaries.left(step) - (1 if self._summary else 0)
        many = min(target - step, self._pace.fits, self._lines.left(step), until_summary, self._profile.left(step))
        if size is not None:
            many = min(many, size - self._position.elements % size)
        many = self._cadences.quiet(step, many) if many > 1 else 1
        if many > 1 and self._was_moved(session):
            return 1
        if many > 1 and self._fused.compiles_each_number:
            return 1 << (many.bit_length() - 1)  # few numbers, and so few programs
        return many

    def _was_moved(self, session: v1.train.SingularMonitoredSession) -> bool:
        """Whether a hook has moved the global step: a single run finds out to where."""
        watched = self._cadences.watched
        return watched and int(session.raw_session().run(self._global_step)) != self._position.step

    def _run(self, session: v1.train.SingularMonitoredSession) -> _Made:
        """Makes one train run, which all hooks see."""
        position = self._position
        # Nobody knows how far a run will move the step: as far as the one before, and by 1 at least.
        expected = position.step + max(position.step - position.previous_step, 1)
        summary = self._summary if self._summaries.due(position.step, expected) else {}
        start = self._clock()
        values = session.run({**self._fetches, **summary}, feed_dict=self._feeds())
        if self._pace.fits == 1:
            self._pace.measured(1, start)
        return _Made(
            runs=1,
            step=int(values['step']),
            loss=float(values['loss']),
            examples=int(values['examples']),
            last=bool(values.get('last', False)),
            summary=values.get('summary', b''),
        )

    def _fused_run(self, session: v1.train.SingularMonitoredSession, many: int) -> _Made:
        """Makes up to so many train runs in one, which no hook sees."""
        fused, raw = self._fused, session.raw_session()
        assert fused is not None
        fetches = {'runs': fused.runs, 'step': fused.step, 'examples': fused.examples, 'losses': fused.losses}
        feeds = {fused.limit: many, fused.start: self._position.runs}
        with self._place_kept(raw), ends.explained(raw.graph):
            start = self._clock()
            values = raw.run({**fetches, 'last': fused.last}, feeds, self._pace.options)
            self._pace.measured(int(values['runs']), start)
        made = _Made(
            runs=int(values['runs']),
            step=int(values['step']),
            loss=float(values['losses'][-1]),
            examples=int(values['examples']),
            last=bool(values['last']),
        )
        self._cadences.skipped(made.runs)
        if made.step != self._position.step + made.runs:
            raise errors.RunError(
                f'`global_step` moved from {self._position.step} to {made.step} in {made.runs} runs, and where many '
                "are made in one each has to move it by 1. Set `RunConfig.fuse` to 'off'."
            )
        bad = np.flatnonzero(~np.isfinite(np.asarray(values['losses'], np.float64)))
        return made if bad.size == 0 else self._not_finite_run(raw, made, values['losses'], int(bad[0]))

    def _not_finite_run(self, session: v1.Session, made: _Made, losses: np.ndarray, first: int) -> _Made:
        """Moves the position to where the first loss was that is not finite, and returns what is left of the runs.

        It is the last one, unless XLA compiled them all: then those behind it were made all the same.
        """
        goes_on = self._on_nan == 'ignore' and first < made.runs - 1
        runs = made.runs if goes_on else first + 1
        step = made.step - made.runs + runs
        if runs > 1:  # a hook that raises for the last run leaves the position before it
            self._advance(runs - 1, step - 1, float(losses[runs - 2]))
        if self._cadences.saw_loss(session, float(losses[first])):
            self._request_stop()
        return dataclasses.replace(made, runs=1, step=step, loss=float(losses[runs - 1]))

    @contextlib.contextmanager
    def _place_kept(self, session: v1.Session) -> Iterator[None]:
        """Takes note of the runs that were made before one failed, or before the data ended."""
        try:
            yield
        except tf.errors.OpError as error:
            with contextlib.suppress(tf.errors.OpError):
                step = int(session.run(self._global_step))
                if runs := step - self._position.step:
                    self._advance(runs, step, self._position.loss)
            if self._xla is not None:
                error.add_note(
                    f"`RunConfig.xla` is ['{self._xla}']: XLA can't compile every op, and a loop needs batches of one "
                    'shape (`drop_remainder=True`). Set it to None to see whether the fault lies there.'
                )
            raise

    def _advance(self, runs: int, step: int, loss: float | None) -> None:
        position = self._position
        position.previous_step = position.step if runs == 1 else step - 1
        position.step = step
        position.runs += runs
        position.elements += runs
        position.loss = loss
        self._runs_here += runs

    def _is_last(self, made: _Made) -> bool:
        """Whether the batch of the newest run was the last of its epoch."""
        return made.last if self._size is None else self._position.elements % self._size == 0

    def _feeds(self) -> dict[tf.Tensor, int] | None:
        """Returns what draws depend on: the number of this run, which is another one in every run."""
        return None if self._tick is None else {self._tick: self._position.runs}

    def _end_of_data(self) -> None:
        position = self._position
        if not position.runs and self._refuse_empty:
            raise _no_batch()
        if not self._restart:
            position.exhausted = True
            return
        position.epochs += 1
        position.epoch_start = position.step

    def _no_batch(self, cause: Exception | None = None) -> None:
        """Takes data without a batch for data that has ended, unless that is refused."""
        if self._refuse_empty:
            raise _no_batch() from cause
        self._position.exhausted = True

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

    def _tell(self, session: v1.train.SingularMonitoredSession, made: _Made, phase_secs: float) -> None:
        step, before, loss = made.step, self._position.previous_step, made.loss
        if self._summaries.due(before, step):
            self._summaries.done()
            self._writer.write_summary(SummaryRow(step, loss, made.summary))
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
