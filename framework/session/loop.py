"""The loop of a run: opens one monitored session and does what the schedule says until it says stop."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging
from tensorflow.compat import v1

from framework import errors
from framework.graph.calls import Compiled
from framework.reporting import tables
from framework.reporting.rows import Best, Metrics, PassRow, PhaseRow, RunResult
from framework.reporting.writers import Writer
from framework.run_config import OFF, REQUIRE, RunConfig
from framework.run_dir import TRAIN
from framework.session import commits, ends, hooks, opening, saver_hooks, warm_start
from framework.session.best import BestSteps
from framework.session.cadences import Cadences
from framework.session.detached import DetachedEvaluation, saved_weights
from framework.session.evaluation import Evaluation, PassInterrupted
from framework.session.exports import Exports
from framework.session.followers import Followers
from framework.session.listeners import Listeners
from framework.session.position import Position
from framework.session.profiling import Profile
from framework.session.pulse import Pulse
from framework.session.schedule import Commit, Evaluate, Progress, Schedule, Stop, Train
from framework.session.side_file import SideFile
from framework.session.signals import StopSignals
from framework.session.training import Training
from framework.warm_start import WarmStartSettings


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a training run needs beside the graph.

    Attributes:
        schedule: What comes next.
        config: Cadences of summaries, logs and commits.
        train_hooks: The caller's hooks.
        seed: The run's seed, for the commits.
        detached: The evaluation sets that have a graph of their own, by stream.
        sanity_batches: Batches of every tower that are tried out before the first step.
        followers: What acts on the metrics of passes.
        on_nan: What a loss that is not finite does: `raise`, `stop` or `ignore`.
        warm_start: What a fresh run begins with.
        identity: What must be the same for the same bits to come, for the commits.
        keeps_place: Whether commits keep the place in the training data.
        state: What else commits keep, for the next start.
        profile_steps: The global steps after which a profile begins and ends.
        listeners: Who is told before and after weights are saved.
        exports: Writes models out after passes.
        refuse_empty: Whether training data without a batch is an error, and not the end of the run.
    """

    schedule: Schedule
    config: RunConfig
    train_hooks: Sequence[hooks.Hook] = ()
    seed: int | None = None
    detached: Mapping[str, DetachedEvaluation] = dataclasses.field(default_factory=dict)
    sanity_batches: int = 0
    followers: Followers = dataclasses.field(default_factory=Followers)
    on_nan: str = 'raise'
    warm_start: WarmStartSettings | None = None
    identity: Mapping[str, str] = dataclasses.field(default_factory=dict)
    keeps_place: bool = True
    state: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    profile_steps: tuple[int, int] | None = None
    listeners: Listeners = dataclasses.field(default_factory=Listeners)
    exports: Exports | None = None
    refuse_empty: bool = True


_DIGEST_LENGTH = 16
_GOES_ON = 'the same command goes on from there'
_NOT_SAVED = 'commits are off, so nothing was saved'
_RESTORE_WITHOUT = 'Set `EarlyStopping.restore_best` to False to end with the weights of the last step.'
_NEW_RUN = '`--model_dir` of a new run trains on them again'
_SAME_VARIABLES = (
    'model_fn must make the same variables when it evaluates as when it trains, unless a `Scaffold.saver` says how the '
    'others get their values.'
)


class Loop:
    """Runs training and passes in turns, in one session. A loop runs once."""

    def __init__(
        self,
        compiled: Compiled,
        evaluation: Evaluation,
        store: commits.Commits,
        writer: Writer,
        settings: Settings,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ):
        """Takes what a run is made of.

        Args:
            compiled: The graph, with a training call.
            evaluation: The evaluation sets.
            store: The commits of the run directory.
            writer: Who is told.
            settings: The schedule and the cadences.
            clock: Seconds, monotonic.
        """
        if compiled.train is None:
            raise errors.missing('Experiment.train_input_fn', 'training', 'Bind an input function.')
        self._compiled = compiled
        self._stream = compiled.train
        self._store = store
        self._writer = writer
        self._settings = settings
        self._clock = clock
        self._signals = StopSignals()
        self._pulse = Pulse(writer, clock, settings.schedule.train_steps)
        self._evaluation = dataclasses.replace(
            evaluation, interrupted=self._signals.came, clock=clock, progress=self._pulse.batches
        )
        self._profile = Profile(settings.profile_steps, store.directory)
        self._starts = hooks.StartStreams(compiled.init, *self._stream.input.initializers.values())
        # Where the run is.
        self._position = Position()
        self._passes: dict[str, commits.LastPass] = {}
        self._made: set[str] = set()  # the sets that this process made a pass over
        self._unsaved_passes = False
        self._newest: commits.Commit | None = None
        self._restored: int | None = None  # the step whose weights came back, until training goes on
        self._weights_changed = False  # since the newest commit, by something else than a train run
        self._committed_at = clock()
        self._passed_at = dict.fromkeys(settings.schedule.periods, clock())
        self._pass_begun_at: dict[str, float] = {}
        self._end: tuple[str, str] | None = None  # status and reason
        self._secs = {'start_up': 0.0, 'train': 0.0, 'hooks': 0.0, 'evaluate': 0.0, 'commit': 0.0}
        self._hook_clock = hooks.HookClock(clock)

    @property
    def step(self) -> int:
        """The newest global step that is known."""
        return self._position.step

    def run(self, newest: commits.Commit | None = None) -> RunResult:
        """Runs until the schedule stops, and says how it ended.

        Args:
            newest: The commit to go on from, None to begin.

        Raises:
            ConfigurationError: A stream has no batch, or an evaluation set has no end.
            RunDirectoryError: The newest commit can't be restored.
            RunError: The loss was not finite, or the global step stood still.
        """
        start = self._clock()
        self._newest = newest
        self._position.step = 0 if newest is None else newest.step
        with self._signals, self._compiled.graph.as_default():
            scaffold = opening.session_scaffold(self._compiled)
            self._side = self._side_file()
            self._put_step = opening.VariableWriter(self._compiled.global_step, 'framework/restored_step/')
            with self._session(scaffold) as session, contextlib.closing(self._profile), ends.named_ends():
                self._start(session, scaffold.saver)
                self._secs['start_up'] = self._clock() - start
                self._phases(session, self._training(scaffold), scaffold.saver)
                self._settings.listeners.end(session.raw_session(), self.step)
        self._writer.flush()
        return self._result(self._clock() - start)

    # Opening

    def _side_file(self) -> SideFile | None:
        """Returns what saves the state that is no part of the model, None where nothing is saved."""
        if not self._settings.schedule.commits or not self._settings.keeps_place:
            return None
        train, draws = self._stream, self._compiled.draws
        variables = [*draws.state, *(() if train.metrics is None else train.metrics.variables)]
        # Where nothing but lookup tables has state, TensorFlow's check of the data's functions has nothing to find.
        harmless = bool(draws.findings) and all(finding.allowed for finding in draws.findings)
        return SideFile(variables, train, harmless, replays=train.source.restarts)

    @contextlib.contextmanager
    def _session(self, scaffold: v1.train.Scaffold) -> Iterator[v1.train.SingularMonitoredSession]:
        spec = self._stream.spec
        prepared = self._warm_start(scaffold)
        own = self._without_savers([*self._settings.train_hooks, *spec.training_hooks])
        of_chief = self._without_savers(spec.training_chief_hooks)
        train_hooks = self._hook_clock.around([*of_chief, self._starts, *own])
        self._cadences = self._seen_by([*of_chief, *own])
        self._evaluation.begin(begun=train_hooks)
        self._settings.listeners.begin()
        config = self._settings.config.session_proto
        if prepared is None:
            checkpoint = None if self._newest is None else self._store.path(self._newest)
            opened = opening.open_session(scaffold, train_hooks, config, checkpoint)
        else:
            with prepared.explained():
                opened = opening.open_session(scaffold, [prepared.hook, *train_hooks], config, None)
        with opened as session:
            yield session

    def _without_savers(self, of_training: Sequence[hooks.Hook]) -> list[hooks.Hook]:
        return [hook for hook in of_training if not saver_hooks.saves_into(hook, self._store.directory)]

    def _seen_by(self, train_hooks: Sequence[hooks.Hook]) -> Cadences:
        """Returns which runs the hooks have to see, and says so where that is every run."""
        cadences = Cadences(train_hooks, self._stream.spec.loss)
        if cadences.every_step and self._settings.config.fuse != OFF:
            names = ', '.join(f'`{type(hook).__name__}`' for hook in cadences.every_step)
            what = f'{names} has to see every train run, so that many can not be made in one'
            if self._settings.config.fuse == REQUIRE:
                raise errors.ConfigurationError(
                    f"`RunConfig.fuse` is ['require']: {what}. Give the hook a method `next_wanted_step(global_step)`, "
                    'which returns the next step that it has to see.'
                )
            logging.info('Training is per step: %s.', what)
        return cadences

    def _warm_start(self, scaffold: v1.train.Scaffold) -> warm_start.Prepared | None:
        """Prepares what a fresh run begins with; a run that goes on has its own weights."""
        settings = self._settings.warm_start
        if settings is None or self._newest is not None:
            return None
        prepared = warm_start.prepare(settings, self._compiled.graph, scaffold)
        logging.info('Warm start from %s:\n%s', prepared.checkpoint, tables.warm_start_table(prepared.rows))
        return prepared

    def _start(self, session: v1.train.SingularMonitoredSession, saver: v1.train.Saver) -> None:
        """Checks the evaluation sets, and finds out where the run is."""
        raw = session.raw_session()
        self._evaluation.check(raw)
        position = self._position
        position.step = position.previous_step = int(raw.run(self._compiled.global_step))
        newest = self._newest
        if newest is not None:
            logging.info('Going on from step %d: %s.', position.step, self._store.path(newest))
            position.previous_step, position.runs = newest.previous_step, newest.runs
            self._take_epochs(position, newest)
            if self._side is not None:
                prefix = self._store.side_path(newest) if newest.side_file else ''
                position.elements = self._side.restore(
                    raw, prefix, newest.position, newest.elements, self._signals.came
                )
            self._restored = newest.restored
            self._settings.followers.set(newest.state)
            if self._settings.exports is not None:
                self._settings.exports.set(newest.state)
            self._passes = dict(newest.passes)
            done = [stream for stream, last in newest.passes.items() if last.step == position.step]
            if done:
                logging.info('Evaluated at step %d before, and not again: %s.', position.step, ', '.join(done))
            if position.exhausted and not self._reached():
                self._end = ('exhausted', f'{_data_ended(position.step)}; {_NEW_RUN}')
        self._check_epochs(raw)
        with contextlib.suppress(PassInterrupted):  # the signal ends the run, as it does in a pass
            self._try_out(raw, saver, self._settings.sanity_batches if newest is None else 0)

    def _take_epochs(self, position: Position, newest: commits.Commit) -> None:
        position.epochs, position.epoch_start = newest.epochs, newest.epoch_start
        position.exhausted = newest.exhausted
        if newest.exhausted and self._settings.schedule.restart:  # its data did not start again, and now it does
            position.exhausted = False
            position.epochs, position.epoch_start = position.epochs + 1, position.step

    def _check_epochs(self, session: v1.Session) -> None:
        """Refuses periods in epochs of data that has none."""
        schedule = self._settings.schedule
        if not schedule.restart or session.run(self._stream.source.cardinality) != tf.data.INFINITE_CARDINALITY:
            return
        if schedule.epoch_periods or schedule.train_epochs is not None:
            raise errors.ConfigurationError(
                'The Dataset of `Experiment.train_input_fn` is infinite, so there are no epochs to count. Leave out '
                "`repeat()` (or set `num_epochs` to 1): `Experiment.on_train_end` ['restart'] repeats it."
            )
        logging.warning('The training data is infinite: `Experiment.on_train_end` [restart] changes nothing.')

    def _try_out(self, session: v1.Session, saver: v1.train.Saver, batches: int) -> None:
        if batches and self._settings.schedule.periods:
            logging.info('Trying out %d batches of every evaluation.', batches)
        self._evaluation.try_out(session, batches)
        for stream, part in self._settings.detached.items():
            with self._weights(session, saver, stream) as checkpoint:
                part.try_out(checkpoint, self._signals.came, batches)

    def _training(self, scaffold: v1.train.Scaffold) -> Training:
        settings = self._settings
        return Training(
            self._compiled,
            summary_op=scaffold.summary_op,
            position=self._position,
            config=settings.config,
            train_steps=settings.schedule.train_steps,
            on_nan=settings.on_nan,
            restart=settings.schedule.restart,
            writer=self._writer,
            clock=self._clock,
            cadences=self._cadences,
            profile=self._profile,
            request_stop=self._starts.request_stop,
            pulse=self._pulse,
            refuse_empty=settings.refuse_empty,
        )

    # Phases

    def _phases(self, session: v1.train.SingularMonitoredSession, training: Training, saver: v1.train.Saver) -> None:
        while True:
            self._note_end(session, saver)
            if self._position.not_finite:
                return  # nothing of that step may be saved, and no pass over such weights would say anything
            phase = self._settings.schedule.next(
                self._progress(), self._commit_is_due(), self._streams_due(), self._throttled()
            )
            match phase:
                case Train(steps):
                    self._train(session, training, steps)
                case Evaluate(streams):
                    self._evaluate(session.raw_session(), streams, saver)
                case Commit():
                    self._commit(session.raw_session(), saver)
                case Stop():
                    return

    def _train(self, session: v1.train.SingularMonitoredSession, training: Training, steps: int) -> None:
        row = training.phase(session, self.step + steps, self._pause)
        if self._settings.train_hooks or self._stream.spec.training_hooks or self._stream.spec.training_chief_hooks:
            self._position.step = int(session.raw_session().run(self._compiled.global_step))  # a hook may have moved it
        if row.examples or row.steps:  # the end of an epoch may come at once
            self._restored = None
            self._told(row)

    def _note_end(self, session: v1.train.SingularMonitoredSession, saver: v1.train.Saver) -> None:
        step = self._position.step
        stopping = self._settings.followers.stopping
        if self._position.not_finite:
            reason = f"`loss` [{self._position.loss}] is not finite at step {step}, and `on_nan` is ['stop']"
            self._end = ('stopped', f'{reason}; nothing of that step was saved')
        elif self._signals.came():
            outlook = _GOES_ON if self._settings.schedule.commits else _NOT_SAVED
            self._end = ('interrupted', f'{self._signals.sentence} at step {step}; {outlook}')
        elif self._end is not None:
            return
        elif self._position.exhausted and not self._reached():
            self._end = ('exhausted', _data_ended(step))
        elif session.should_stop():
            self._end = ('stopped', f'a hook asked for it at step {step}')
        elif stopping is not None and stopping.reason is not None:
            self._end = ('stopped', f'{stopping.reason}; ended at step {step}')
            if stopping.restores_best:
                self._restore_best(session.raw_session(), saver)

    def _restore_best(self, session: v1.Session, saver: v1.train.Saver) -> None:
        """Brings back the weights of the best pass; the passes of this step are then made with them."""
        best = self._settings.followers.best
        if best is None or not best.kept or best.kept[0][0] in (self.step, self._restored):
            return
        if best.unsaved:
            self._commit(session, saver)  # while the weights of this step are there
        step = best.kept[0][0]
        opening.restore(session, saver, self._store.best.path(step), remedy=_RESTORE_WITHOUT)
        self._put_step(session, self.step)  # the weights come back, the count of steps does not
        logging.info('The weights of step %d came back: the best of `%s`.', step, best.metric.name)
        self._restored, self._weights_changed = step, True
        self._passes = {}

    def _wants_commit(self) -> bool:
        exports = self._settings.exports
        return self._settings.followers.want_commit or (exports is not None and exports.wants_commit(self._is_final()))

    def _is_final(self) -> bool:
        """Whether no train run will follow, and that is no interruption."""
        if self._end is not None:
            return self._end[0] != 'interrupted'
        return self._reached()

    def _reached(self) -> bool:
        return self._settings.schedule.reached(self._position.step, self._position.epochs)

    def _progress(self) -> Progress:
        newest = self._newest
        return Progress(
            step=self._position.step,
            previous_step=self._position.previous_step,
            epochs=self._position.epochs,
            epoch_start=self._position.epoch_start,
            evaluated={stream: last.step for stream, last in self._passes.items()},
            committed=newest is not None,
            unsaved_runs=newest is None or newest.runs != self._position.runs,
            unsaved_passes=self._unsaved_passes or self._weights_changed,
            unsaved_end=newest is not None and (newest.exhausted, newest.epochs) != self._ends,
            commit_wanted=self._wants_commit(),
            ended=self._end is not None,
            interrupted=self._end is not None and self._end[0] == 'interrupted',
        )

    @property
    def _ends(self) -> tuple[bool, int]:
        return self._position.exhausted, self._position.epochs

    def _pause(self) -> bool:
        return self._signals.came() or self._commit_is_due() or bool(self._streams_due())

    def _commit_is_due(self) -> bool:
        secs = self._settings.config.save_checkpoints_secs
        return secs is not None and self._clock() - self._committed_at >= secs

    def _streams_due(self) -> list[str]:
        """Returns the sets that the clock asks a pass for."""
        now = self._clock()
        periods = self._settings.schedule.second_periods
        return [stream for stream, secs in periods.items() if now - self._passed_at[stream] >= secs]

    def _throttled(self) -> list[str]:
        """Returns the sets whose last pass is too near for another one."""
        now, begun = self._clock(), self._pass_begun_at
        throttle = self._settings.schedule.throttle_secs
        return [stream for stream, secs in throttle.items() if stream in begun and now - begun[stream] < secs]

    def _evaluate(self, session: v1.Session, streams: Sequence[str], saver: v1.train.Saver) -> None:
        with contextlib.suppress(PassInterrupted):
            for stream in streams:
                start = self._pass_begun_at[stream] = self._clock()
                row = self._make_pass(session, stream, saver)
                row = dataclasses.replace(row, step=self.step)  # a hook may have moved the one in the graph
                self._passes[stream] = commits.LastPass(row.step, row.metrics)
                self._made.add(stream)
                self._unsaved_passes = True
                self._passed_at[stream] = self._clock()
                self._writer.write_pass(row)
                self._follow(session, row)
                if self._settings.exports is not None:
                    self._settings.exports.saw(row)
                self._told(PhaseRow('evaluate', row.step, self._clock() - start, stream, row.batches, row.examples))

    def _follow(self, session: v1.Session, row: PassRow) -> None:
        if self._restored is not None:
            return  # these weights were seen at their own step
        followers = self._settings.followers
        followers.saw(row)
        if followers.plateau is not None and followers.plateau.act(session):
            self._weights_changed = True

    def _make_pass(self, session: v1.Session, stream: str, saver: v1.train.Saver) -> PassRow:
        detached = self._settings.detached.get(stream)
        if detached is None:
            return self._evaluation.make_pass(session, stream, self.step)
        made: list[PassRow] = []
        with self._weights(session, saver, stream) as checkpoint:
            detached.make_passes(checkpoint, self._signals.came, made.append)
        return made[0]

    @contextlib.contextmanager
    def _weights(self, session: v1.Session, saver: v1.train.Saver, stream: str) -> Iterator[str]:
        """A checkpoint of this moment, which is nothing that the user could mend."""
        with saved_weights(session, saver) as checkpoint:
            try:
                yield checkpoint
            except opening.CheckpointError as error:
                weights = f'The weights of step {self.step}, for `{stream}` in a graph of its own,'
                raise opening.CheckpointError(weights, error.fault, _SAME_VARIABLES) from error

    def _commit(self, session: v1.Session, saver: v1.train.Saver) -> None:
        start = self._clock()
        best = self._settings.followers.best
        steps = BestSteps() if best is None else best.steps

        def tell(digest: str) -> None:
            # Before the record is written, so that the line is a part of the commit that it tells of.
            secs = self._clock() - start
            self._told(PhaseRow('commit', self._position.step, secs, digest=digest[:_DIGEST_LENGTH] or None))
            self._writer.flush()

        self._writer.flush()
        self._settings.listeners.before_save(session, self.step)
        self._newest = self._store.save(
            session, saver, self._record(), self._newest, steps, self._side, tell, self._weights_changed, self._exported
        )
        if self._settings.listeners.after_save(session, self.step):
            self._starts.request_stop()
        if best is not None:
            best.committed()
        self._unsaved_passes = self._weights_changed = False
        self._committed_at = self._clock()

    def _exported(self, commit: commits.Commit) -> commits.Commit:
        """Writes models out, and returns the commit with what is known of that afterwards."""
        exports = self._settings.exports
        if exports is None:
            return commit
        exports.export(self._store.path(commit), self._is_final())
        return dataclasses.replace(commit, state={**commit.state, **exports.get()})

    def _record(self) -> commits.Commit:
        position = self._position
        return commits.Commit(
            step=position.step,
            previous_step=position.previous_step,
            passes=self._passes,
            exhausted=position.exhausted,
            seed=self._settings.seed,
            runs=position.runs,
            epochs=position.epochs,
            epoch_start=position.epoch_start,
            elements=position.elements,
            restored=self._restored,
            # Also what nothing follows in this start: the next one may.
            state={
                **({} if self._newest is None else self._newest.state),
                **self._settings.followers.get(),
                **self._settings.state,
            },
            identity=self._settings.identity,
        )

    def _told(self, row: PhaseRow) -> None:
        self._secs[row.phase] += row.secs
        self._writer.write_phase(row)

    # The end

    def _result(self, total: float) -> RunResult:
        status, reason = self._end or ('done', self._goal())
        metrics: dict[str, Metrics] = {
            stream: last.metrics
            for stream, last in self._passes.items()
            if stream in self._made or last.step == self.step
        }
        if self._position.loss is not None:
            metrics[TRAIN] = {'loss': self._position.loss, **self._position.metrics}
        return RunResult(
            status=status,
            stop_reason=reason,
            global_step=self.step,
            metrics=metrics,
            timing=self._timing(total),
            exit_code=self._signals.exit_code if status == 'interrupted' else 0,
            best=self._best(),
        )

    def _timing(self, total: float) -> dict[str, float]:
        """Returns where the seconds went; those of the hooks of training are no part of training's."""
        of_hooks = min(self._hook_clock.secs, self._secs['train'])
        secs = {**self._secs, 'train': self._secs['train'] - of_hooks, 'hooks': of_hooks}
        return {**secs, 'other': max(total - sum(secs.values()), 0.0), 'total': total}

    def _goal(self) -> str:
        schedule, epochs = self._settings.schedule, self._position.epochs
        if schedule.train_epochs is not None and epochs >= schedule.train_epochs:
            return f'trained epoch {epochs} of {schedule.train_epochs}, to step {self.step}'
        return f'reached step {self.step} of {schedule.train_steps}'

    def _best(self) -> Best | None:
        best = self._settings.followers.best
        if best is None or not best.kept:
            return None
        path = self._store.best.path(best.kept[0][0])
        return Best(best.metric.name, best.metric.mode, tuple(best.kept), path)


def _data_ended(step: int) -> str:
    return f'the training data ended at step {step}'
