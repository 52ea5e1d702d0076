"""One start of a training in its run directory: what it goes on from, whether it may, what it leaves behind."""

import contextlib
import dataclasses
import json
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging
from tensorflow.compat import v1

from framework import config, errors, policies, provenance, run_dir, settings
from framework.graph import data_files
from framework.graph.calls import Compiled
from framework.reporting import history, tensorboard, terminal, writers
from framework.reporting.rows import RunResult, StartRow
from framework.run_config import EvalSet, InputFn, RunConfig
from framework.session import commits, description, disk, followers, identity, loop, saver_hooks, telling
from framework.session.detached import DetachedEvaluation
from framework.session.evaluation import Evaluation
from framework.session.exports import Exports
from framework.session.graphs import Graphs, metric_names
from framework.session.hooks import Hook
from framework.session.listeners import Listener, Listeners
from framework.session.schedule import Schedule
from framework.warm_start import WarmStartSettings

_TOLD = 'event_files'  # in the state of commits: what these files say of the run as a whole
_HASHED_FILE = 2**24  # larger files are told by their time, so that a start does not read all data once


@dataclasses.dataclass(frozen=True)
class Start:
    """What a start is made of.

    Attributes:
        directory: The run directory.
        store: Its commits.
        graphs: Returns what compiles the graphs, by the seed.
        schedule: What comes when.
        train_input_fn: Returns the training data.
        sets: The evaluation sets by stream.
        run_config: Cadences and the session's configuration.
        seed: The seed, None for that of the run in the directory, or a drawn one.
        train_hooks: The caller's hooks.
        sanity_batches: Batches of every tower that a fresh run tries out.
        policies: What follows a metric.
        on_nan: What a loss that is not finite does; None for what the hooks leave to us.
        warm_start: What a fresh run begins with.
        level: How much is done for the same bits to come again.
        resume: What happens where the directory holds a run.
        writer_fns: Make the writers that the caller adds.
        profile_steps: The global steps after which a profile begins and ends.
        console: Tells people of the progress, in place of the writers that `progress` names.
        keeps_place: Whether the place in the training data is kept; None for what the level says.
        in_calls: Whether starts are calls of one program, each with data and settings of its own, as those of
            `tf.estimator`: no seed is drawn or kept, nothing is compared with the start before, and data without a
            batch is no error.
        listeners: Who is told before and after weights are saved.
        exports: Writes models out after passes.
        events_dir: Returns the directory of a stream's event files; None for that of the run directory.
    """

    directory: run_dir.RunDir
    store: commits.Commits
    graphs: Callable[[int | None], Graphs]
    schedule: Schedule
    train_input_fn: InputFn
    sets: Mapping[str, EvalSet]
    run_config: RunConfig
    seed: int | None
    train_hooks: Sequence[Hook]
    sanity_batches: int
    policies: policies.Policies
    on_nan: str | None
    warm_start: WarmStartSettings | None
    level: str
    resume: str
    calls_all: bool = False
    progress: str = terminal.AUTO
    strict_bindings: bool = False
    writer_fns: Sequence[telling.WriterFn] = ()
    profile_steps: tuple[int, int] | None = None
    console: writers.Writer | None = None
    keeps_place: bool | None = None
    in_calls: bool = False
    listeners: Sequence[Listener] = ()
    exports: Exports | None = None
    events_dir: Callable[[str], str] | None = None

    def run(self) -> RunResult:
        """Trains, and returns how the run ended.

        Raises:
            ConfigurationError: If a setting, or what a function returned, breaks a rule.
            RunDirectoryError: If the run directory is in use, damaged, or holds a run that this one would not continue.
            RunError: If training failed.
        """
        directory = self.directory
        identity.check_settings(self.level, self.run_config.xla)
        with directory.locked(), disk.named_when_full(directory.path), _failure_recorded(directory) as known:
            newest = self._resume_point()
            known.step = 0 if newest is None else newest.step
            seed = self._chosen_seed(newest)
            if self.level == identity.EXACT:
                tf.config.experimental.enable_op_determinism()
            graphs = self.graphs(seed)
            built, apart = graphs.training(self.train_input_fn, self.sets)
            identity.check_audit(built.draws.findings, self.level)
            going_on = self._with_saver_hook(built)
            return going_on._go_on(built, apart, seed, newest, known, graphs.model.params)

    def _with_saver_hook(self, built: Compiled) -> 'Start':
        """Returns the start with what a CheckpointSaverHook of the user lends."""
        lent = saver_hooks.lent(built, self.train_hooks, self.directory.path)
        if lent is None:
            return self
        with built.graph.as_default():
            if lent.saver is not None and not v1.get_collection(v1.GraphKeys.SAVERS):
                v1.add_to_collection(v1.GraphKeys.SAVERS, lent.saver)
        cadence = {'save_checkpoints_steps': lent.steps, 'save_checkpoints_secs': lent.secs}
        own = [listener for listener in self.listeners if listener not in lent.listeners]
        return dataclasses.replace(
            self,
            run_config=self.run_config.replace(**cadence),
            schedule=dataclasses.replace(self.schedule, commits=True, commit_steps=lent.steps),
            listeners=[*lent.listeners, *own],
        )

    def _go_on(
        self,
        built: Compiled,
        apart: Mapping[str, DetachedEvaluation],
        seed: int | None,
        newest: commits.Commit | None,
        known: '_Known',
        params: Any,
    ) -> RunResult:
        plan = self._plan(built, apart, seed)
        self._check_identity(newest, plan.identity)
        known.accept(self.directory.result_file)
        facts = self._write_configuration(built, seed)
        self._tell(built, apart)
        if self.schedule.commits:
            newest = self.store.take_up(_with_place_in(plan.identity, newest))
        row = telling.start_row(built, apart, step=known.step, seed=seed, params=params, facts=facts)
        return self._loop(built, apart, plan, newest, known, row)

    def _loop(
        self,
        built: Compiled,
        apart: Mapping[str, DetachedEvaluation],
        plan: loop.Settings,
        newest: commits.Commit | None,
        known: '_Known',
        row: StartRow,
    ) -> RunResult:
        directory = self.directory
        shared = {stream: s for stream, s in self.sets.items() if stream not in apart}
        over_time = history.HistoryWriter(directory.metrics_file, known.step)
        told = {} if newest is None else newest.state.get(_TOLD, {})
        of_run = telling.training_writers(
            directory, telling.summary_tags(built), told, self._console(), self.events_dir
        )
        of_run += telling.made_writers(self.writer_fns, directory)
        plan = dataclasses.replace(plan, state={_TOLD: tensorboard.parts(row)})
        with contextlib.closing(writers.Writers([*of_run, over_time])) as writer:
            writer.write_start(row)
            most = self.run_config.eval_summaries
            evaluation = Evaluation(built, shared, fuse=self.run_config.fuse, summaries=most)
            known.run = loop.Loop(built, evaluation, self.store, writer, plan)
            with _failure_told(writer, known):
                result = known.run.run(newest)
            writer.write_end(result)
        result = dataclasses.replace(result, history=over_time.history())
        run_dir.write_atomically(directory.result_file, writers.result_json(result))
        return result

    def _resume_point(self) -> commits.Commit | None:
        newest = self.store.resume_point()
        if newest is not None and self.resume == identity.NEVER:
            raise errors.RunDirectoryError(
                f"`{self.directory.path}` holds a run at step {newest.step}, and `resume` is ['never']. Start in a new "
                'run directory.'
            )
        return self._begun_anew(newest) if newest is not None and self.in_calls else newest

    def _begun_anew(self, newest: commits.Commit) -> commits.Commit:
        """Returns the commit of the call before as one whose data begins again, where this call's does."""
        if self._reached(newest):
            newest = dataclasses.replace(newest, passes={})  # this call asks for those of its own
        if self._keeps_place and not newest.exhausted:
            return newest
        return dataclasses.replace(newest, exhausted=False, elements=0, position='', epochs=0, epoch_start=0)

    def _reached(self, newest: commits.Commit) -> bool:
        return self.schedule.reached(newest.step, newest.epochs)

    def _chosen_seed(self, newest: commits.Commit | None) -> int | None:
        if self.in_calls:
            return self.seed
        kept = None if newest is None else newest.seed
        seed = self.seed if self.seed is not None else kept
        if seed is None:
            seed = random.SystemRandom().randrange(settings.LARGEST_SEED)
        logging.info('Seed %d: random draws, initial values, and Python and NumPy while the graph is built.', seed)
        return seed

    def _plan(self, built: Compiled, apart: Mapping[str, DetachedEvaluation], seed: int | None) -> loop.Settings:
        return loop.Settings(
            self.schedule,
            self.run_config,
            self.train_hooks,
            seed,
            apart,
            self.sanity_batches,
            followers=follow(self.policies, built, apart, self.sets),
            on_nan=self.on_nan or self._nan_policy(built),
            warm_start=self.warm_start,
            identity=identity.identity(built, seed, self._numerics()),
            keeps_place=self._keeps_place,
            listeners=Listeners(self.listeners),
            exports=self.exports,
            refuse_empty=not self.in_calls,
            profile_steps=self.profile_steps,
        )

    def _console(self) -> list[writers.Writer]:
        return terminal.console(self.progress) if self.console is None else [self.console]

    @property
    def _keeps_place(self) -> bool:
        return self.level != identity.OFF if self.keeps_place is None else self.keeps_place

    def _numerics(self) -> Mapping[str, object]:
        return provenance.numerics(self.run_config.session_proto, self.level == identity.EXACT)

    def _nan_policy(self, built: Compiled) -> str:
        spec = None if built.train is None else built.train.spec
        of_model = () if spec is None else (*spec.training_hooks, *spec.training_chief_hooks)
        own = any(isinstance(hook, v1.train.NanTensorHook) for hook in (*self.train_hooks, *of_model))
        return 'ignore' if own else 'raise'

    def _check_identity(self, newest: commits.Commit | None, now: Mapping[str, str]) -> None:
        if newest is None or newest.foreign or self.in_calls:
            return
        before = ''
        with (
            contextlib.suppress(OSError, UnicodeDecodeError),
            open(self.directory.config_file, encoding='utf-8') as file,
        ):
            before = file.read()
        found = identity.change(newest.identity, now, (before, config.config_text()))
        identity.check(found, self.directory.path, self.level, self.resume)

    def _write_configuration(self, built: Compiled, seed: int | None) -> Mapping[str, Any]:
        """Writes the configuration and what the run is started with, and returns the latter."""
        directory = self.directory
        text = config.config_text()
        run_dir.write_atomically(directory.config_file, text)
        if lost := config.left_out(text):
            logging.warning(
                "gin can't write the values of these bindings, so that `config.gin` only names them, and a run from it "
                'is another: %s. Make them in a configurable, and bind that.',
                ', '.join(f'`{name}`' for name in lost),
            )
        run_dir.write_atomically(directory.operative_config_file, config.operative_text())
        facts = provenance.collect(
            sys.argv,
            seed,
            session_config=self.run_config.session_proto,
            op_determinism=self.level == identity.EXACT,
            audit=[str(finding) for finding in built.draws.findings],
            data=_data(built),
        )
        run_dir.write_atomically(directory.provenance_file, json.dumps(facts, indent=2) + '\n')
        return facts

    def _tell(self, built: Compiled, apart: Mapping[str, DetachedEvaluation]) -> None:
        if self.calls_all:
            config.check_all_used(self.strict_bindings)
        logging.info('%s', description.describe(built, apart, self.schedule))


def _data(built: Compiled) -> dict[str, provenance.Fingerprint]:
    """Returns what tells the files of each stream from others of the same names."""
    sources = [source for tower in built.towers for source in tower.sources.values()]
    if built.train is not None:
        sources = [built.train.source, *sources]
    return {source.stream: provenance.fingerprint(data_files.files_of(source), _HASHED_FILE) for source in sources}


def _with_place_in(now: Mapping[str, str], newest: commits.Commit | None) -> commits.Commit | None:
    """Returns the commit without its place in the training data, where that is other data now."""
    before = {} if newest is None else newest.identity
    if newest is None or before.get(identity.DATA, now.get(identity.DATA)) == now.get(identity.DATA):
        return newest
    return dataclasses.replace(newest, position='')


def follow(
    chosen: policies.Policies,
    built: Compiled,
    apart: Mapping[str, DetachedEvaluation],
    sets: Mapping[str, EvalSet],
) -> followers.Followers:
    """Returns what follows the metrics of a run.

    Args:
        chosen: The settings.
        built: The graph of training, not finalized yet.
        apart: The sets that have a graph of their own.
        sets: All sets.

    Raises:
        ConfigurationError: For a metric that no set produces, or a variable that the graph has not.
    """
    if not sets:
        if chosen.names:
            logging.warning('Without evaluation there is nothing to follow for: %s.', ', '.join(chosen.names))
        return followers.Followers()
    found = followers.followers_of(chosen, built.graph)
    followers.check_metrics(found, metric_names(built, apart))
    return found


@dataclasses.dataclass
class _Known:
    """How far a start came: the step of its newest commit, then its loop."""

    step: int = 0
    run: loop.Loop | None = None
    accepted: bool = False

    def accept(self, result_file: str) -> None:
        """The start goes on: what the one before left as its result is no longer true."""
        self.accepted = True
        with contextlib.suppress(FileNotFoundError):
            os.remove(result_file)

    def failed(self, error: Exception) -> RunResult:
        """Returns how the start ended by an error."""
        step = self.step if self.run is None else self.run.step
        return RunResult('failed', f'{type(error).__name__}: {error}', step, exit_code=1)


@contextlib.contextmanager
def _failure_told(writer: writers.Writer, known: _Known) -> Iterator[None]:
    """Tells how a run that fails ended, and lets the error go on."""
    try:
        yield
    except Exception as error:
        with contextlib.suppress(Exception):  # the error may be the writer's own, and tells more than another one
            writer.write_end(known.failed(error))
        raise


@contextlib.contextmanager
def _failure_recorded(directory: run_dir.RunDir) -> Iterator[_Known]:
    """Leaves a `result.json` behind a start that fails, and lets the error go on; a refused start changes none."""
    known = _Known()
    try:
        yield known
    except Exception as error:
        refused = isinstance(error, errors.RunDirectoryError) and not known.accepted
        if refused and os.path.exists(directory.result_file):
            raise
        result = known.failed(error)
        with contextlib.suppress(OSError):  # of a full disk, which must not hide what happened
            run_dir.write_atomically(directory.result_file, writers.result_json(result))
        raise
