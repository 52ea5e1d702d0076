"""`Experiment`: the one root that gin binds, where the rooms are wired together."""

import contextlib
import dataclasses
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gin
from absl import logging
from tensorflow.compat import v1

from framework import config, errors, input_functions, run_dir, settings, spec
from framework.graph import compiled
from framework.graph.calls import Compiled
from framework.reporting import progress, tables, tensorboard, writers
from framework.reporting.rows import ParameterRow, RunResult
from framework.run_config import EvalSet, InputFn, RunConfig, hooks_tuple, positive
from framework.session import commits, detached, evaluation, loop, opening
from framework.session.schedule import Schedule

_SMOKE_STEPS = 2
_BY_REQUEST = '`Experiment.evaluation_graph` asks for it'


@gin.configurable(module='framework')
class Experiment:
    """Trains a model and evaluates it on several sets, in one graph and one session.

    Yours are the model_fn, the input functions and the schedule. Ours are the graph (shared variables, one stream for
    training and streams for evaluation), the session, checkpoints, the log and the curves. Extend a run by what
    model_fn returns (hooks, Scaffold, metrics) and by `train_hooks` and `EvalSet.hooks`.
    """

    def __init__(
        self,
        *,
        model_fn: Callable[..., Any] | None = None,
        train_input_fn: InputFn | None = None,
        eval_sets: settings.EvalSets = (),
        train_steps: int | None = None,
        eval_every_steps: int | None = None,
        eval_at_start: bool = False,
        model_dir: str | None = None,
        params: Any = None,
        run_config: RunConfig | None = None,
        seed: int | None = None,
        train_hooks: Sequence[Any] = (),
        require_equal_structures: bool = False,
        evaluation_graph: str = 'auto',
        sanity_batches: int = 2,
    ):
        """Checks every setting; nothing is built or written before a method is called.

        Args:
            model_fn: `model_fn(features, labels, mode, params, config)`, asked for by name; returns an `EstimatorSpec`.
            train_input_fn: Returns the training Dataset of `(features, labels)` or of features.
            eval_sets: The evaluation sets: a list of `EvalSet`, a dict of input functions by name, or one input
                function (the set `eval`).
            train_steps: The global step to reach. None: until the training data ends.
            eval_every_steps: Global steps between two passes, for each set without `every_steps`. None: one pass at
                the end of the run.
            eval_at_start: Whether there is a pass over every set at step 0.
            model_dir: The run directory.
            params: Handed to functions that name `params`, a fresh copy each time.
            run_config: Cadences and the session's configuration.
            seed: Seeds the graph, and Python and NumPy while it is built. None: drawn, logged and kept.
            train_hooks: SessionRunHooks around every training run.
            require_equal_structures: Refuse evaluation elements of another structure than training's.
            evaluation_graph: `auto` evaluates in the graph of training wherever that is right, else, for one set, in a
                graph of its own with the weights of a checkpoint. `separate` does so for all sets.
            sanity_batches: Batches of every evaluation tower that a fresh run tries out before its first step.

        Raises:
            ConfigurationError: For any value that breaks its rule.
        """
        if model_fn is None:
            remedy = 'Bind it: `Experiment.model_fn = @my.model_fn`.'
            raise errors.missing('Experiment.model_fn', 'an experiment', remedy)
        if run_config is not None and not isinstance(run_config, RunConfig):
            raise errors.ConfigurationTypeError(f'`Experiment.run_config` [{run_config!r}] must be a RunConfig.')
        positive('Experiment.train_steps', train_steps)
        positive('Experiment.eval_every_steps', eval_every_steps)
        spec.check_model_fn(model_fn, has_params=params is not None, bound=config.bound_parameters(model_fn))
        if train_input_fn is not None:
            input_functions.check_input_fn(train_input_fn, name='Experiment.train_input_fn')
        self._model_fn = model_fn
        self._train_input_fn = train_input_fn
        self._eval_sets = settings.as_eval_sets(eval_sets)
        self._train_steps = train_steps
        self._eval_every_steps = eval_every_steps
        self._eval_at_start = settings.checked_bool('Experiment.eval_at_start', eval_at_start)
        self._config = RunConfig() if run_config is None else run_config
        self._model_dir = settings.checked_directory(settings.agreed('model_dir', model_dir, self._config.model_dir))
        self._params = params
        self._seed = settings.checked_seed(settings.agreed('seed', seed, self._config.tf_random_seed))
        self._train_hooks = hooks_tuple('Experiment.train_hooks', train_hooks)
        self._require_equal_structures = settings.checked_bool(
            'Experiment.require_equal_structures', require_equal_structures
        )
        self._all_apart = settings.checked_evaluation_graph(evaluation_graph)
        self._sanity_batches = settings.checked_sanity_batches(sanity_batches)

    def train_and_evaluate(self) -> RunResult:
        """Trains to `train_steps`, with passes over the evaluation sets at their periods and at the end.

        Goes on from the newest commit of the run directory.

        Returns:
            How the run ended.

        Raises:
            ConfigurationError: If a setting, or what a function returned, breaks a rule.
            RunDirectoryError: If the run directory is in use or damaged.
            RunError: If training failed.
        """
        return self._train(self._eval_sets, self._schedule(self._eval_sets))

    def train(self) -> RunResult:
        """Trains without any evaluation; see `train_and_evaluate`."""
        return self._train({}, self._schedule({}))

    def smoke(self) -> RunResult:
        """Tries everything out: 2 steps, then 2 batches of every set, in a directory that is removed afterwards."""
        sets = {
            stream: dataclasses.replace(s, steps=min(s.steps or _SMOKE_STEPS, _SMOKE_STEPS), every_steps=None)
            for stream, s in self._eval_sets.items()
        }
        logging.info('Smoke: %d steps and batches of every set; the run directory stays untouched.', _SMOKE_STEPS)
        with tempfile.TemporaryDirectory(prefix='smoke-') as directory:
            schedule = Schedule(_SMOKE_STEPS, dict.fromkeys(sets))
            return self._train(sets, schedule, run_dir.RunDir(directory))

    def evaluate(self, sets: Sequence[str] | None = None, checkpoint: str | None = None) -> RunResult:
        """Makes a pass over evaluation sets with the weights of a checkpoint, without any training.

        Takes no lock: it may run beside a training. Its metrics go to `evaluations.jsonl`.

        Args:
            sets: Names of sets, None for all.
            checkpoint: The prefix of a checkpoint's files, None for the newest commit of the run directory.

        Raises:
            ConfigurationError: For an unknown set.
            RunDirectoryError: If there is no such checkpoint, or it is damaged or of another model.
        """
        chosen = self._chosen(sets)
        directory = self._directory()
        store = self._store(directory)
        path = store.newest_path() if checkpoint is None else checkpoint
        parts = self._evaluation_parts(chosen, self._seed or 0, opening.saved_names(path))
        if checkpoint is None:
            path = store.newest_path()  # a training beside this may have removed the former one meanwhile
        # Not into the event files: TensorBoard takes a smaller step for a restart, and hides what came after it.
        writer = writers.Writers([progress.ConsoleWriter(), writers.MetricsWriter(directory.evaluations_file)])
        with contextlib.closing(writer):
            result = detached.evaluate_checkpoint(parts, path, writer)
        logging.info('Result:\n%s', tables.result_table(result))
        return result

    def _train(
        self, sets: Mapping[str, EvalSet], schedule: Schedule, directory: run_dir.RunDir | None = None
    ) -> RunResult:
        if self._train_input_fn is None:
            raise errors.missing(
                'Experiment.train_input_fn', 'training', 'Bind it: `Experiment.train_input_fn = @train/my.input_fn`.'
            )
        directory = directory or self._directory()
        with directory.locked(), _failure_recorded(directory) as known:
            store = self._store(directory)
            newest = store.latest()
            known.step = 0 if newest is None else newest.step
            seed = self._run_seed(newest)
            self._write_configuration(directory, seed)
            built, apart = self._build(self._train_input_fn, sets, seed)
            run_dir.write_atomically(directory.operative_config_file, config.operative_text())
            if sets and (unused := config.unused_bindings()):
                logging.warning('%s', config.unused_report(unused))
            logging.info('%s', schedule)
            logging.info('Variables:\n%s', tables.parameter_table(_parameters(built)))
            plan = loop.Settings(schedule, self._config, self._train_hooks, seed, apart, self._sanity_batches)
            shared = {stream: s for stream, s in sets.items() if stream not in apart}
            with contextlib.closing(_training_writer(directory)) as writer:
                known.run = loop.Loop(built, evaluation.Evaluation(built, shared), store, writer, plan)
                result = known.run.run()
            run_dir.write_atomically(directory.result_file, writers.result_json(result))
        logging.info('Result:\n%s', tables.result_table(result))
        return result

    def _build(
        self, train_input_fn: InputFn, sets: Mapping[str, EvalSet], seed: int
    ) -> tuple[Compiled, dict[str, detached.DetachedEvaluation]]:
        """Returns the graph of training, and the sets that need a graph of their own, by stream."""
        built = self._compile(train_input_fn, {} if self._all_apart else sets, seed)
        reasons = dict.fromkeys(sets, _BY_REQUEST) if self._all_apart else built.apart
        saved = built.saved_names
        return built, {stream: self._detached(sets[stream], seed, reason, saved) for stream, reason in reasons.items()}

    def _evaluation_parts(
        self, sets: Mapping[str, EvalSet], seed: int, saved: frozenset[str]
    ) -> list[detached.DetachedEvaluation]:
        """Returns the sets in graphs without training: those that can share one in one, the others each in its own."""
        apart: Mapping[str, str] = dict.fromkeys(sets, _BY_REQUEST)
        if not self._all_apart:
            built = self._compile(None, sets, seed, saved=saved)
            apart = built.apart
        shared = {stream: s for stream, s in sets.items() if stream not in apart}
        parts = [self._detached(sets[stream], seed, reason, saved) for stream, reason in apart.items()]
        if not shared:
            return parts
        if apart:
            built = self._compile(None, shared, seed, saved=saved)
        return [detached.DetachedEvaluation(evaluation.Evaluation(built, shared), self._config.session_config), *parts]

    def _detached(
        self, eval_set: EvalSet, seed: int, reason: str, saved: frozenset[str]
    ) -> detached.DetachedEvaluation:
        logging.info('`%s` is evaluated in a graph of its own, by a checkpoint: %s.', eval_set.stream, reason)
        sets = {eval_set.stream: eval_set}
        built = self._compile(None, sets, seed, alone=True, saved=saved)
        return detached.DetachedEvaluation(evaluation.Evaluation(built, sets), self._config.session_config)

    def _compile(
        self,
        train_input_fn: InputFn | None,
        sets: Mapping[str, EvalSet],
        seed: int,
        *,
        alone: bool = False,
        saved: frozenset[str] | None = None,
    ) -> Compiled:
        # The functions of the user see the directory and the seed wherever they were set.
        told = self._config.replace(model_dir=self._model_dir, tf_random_seed=seed)
        model = compiled.Model(self._model_fn, self._params, told)
        with config.gin_errors():
            built = compiled.compile_graph(
                model,
                train_input_fn,
                list(sets.values()),
                seed=seed,
                alone=alone,
                saved=saved,
                require_equal_structures=self._require_equal_structures,
            )
        compiled.check_scaffolds(built)
        compiled.check_train_op(built, hooked=bool(self._train_hooks))
        return built

    def _schedule(self, sets: Mapping[str, EvalSet]) -> Schedule:
        cadences = self._config
        return Schedule(
            train_steps=self._train_steps,
            periods={stream: s.every_steps or self._eval_every_steps for stream, s in sets.items()},
            commits=cadences.save_checkpoints_steps is not None or cadences.save_checkpoints_secs is not None,
            commit_steps=cadences.save_checkpoints_steps,
            eval_at_start=self._eval_at_start,
        )

    def _store(self, directory: run_dir.RunDir) -> commits.Commits:
        return commits.Commits(
            directory,
            keep=self._config.keep_checkpoint_max,
            keep_every_n_hours=self._config.keep_checkpoint_every_n_hours,
        )

    def _directory(self) -> run_dir.RunDir:
        if not self._model_dir:
            raise errors.missing('Experiment.model_dir', 'a run', 'Pass `--model_dir=runs/my_run`, or bind it.')
        return run_dir.RunDir(os.path.abspath(self._model_dir))

    def _run_seed(self, newest: commits.Commit | None) -> int:
        kept = None if newest is None else newest.seed
        seed = self._seed if self._seed is not None else kept
        if seed is None:
            seed = random.SystemRandom().randrange(settings.LARGEST_SEED)
        if kept is not None and kept != seed:
            logging.warning('`Experiment.seed` [%d]: this run began with %d; the weights go on from there.', seed, kept)
        logging.info('Seed %d: the graph, and Python and NumPy while it is built.', seed)
        return seed

    def _write_configuration(self, directory: run_dir.RunDir, seed: int) -> None:
        run_dir.write_atomically(directory.config_file, config.config_text())
        provenance = json.dumps(run_dir.provenance(sys.argv, seed), indent=2)
        run_dir.write_atomically(directory.provenance_file, provenance + '\n')

    def _chosen(self, names: Sequence[str] | None) -> dict[str, EvalSet]:
        if not self._eval_sets:
            raise errors.missing('Experiment.eval_sets', 'evaluation', 'Bind at least one: `[@valid/EvalSet()]`.')
        for name in names or ():
            if name not in self._eval_sets:
                raise errors.ConfigurationError(
                    f'`sets` [{name}]: no such evaluation set. {errors.nearest(name, self._eval_sets)}'
                )
        return {stream: self._eval_sets[stream] for stream in names or self._eval_sets}


def _parameters(built: Compiled) -> list[ParameterRow]:
    """Returns the model's variables; those named below a trainable one are its optimizer's and left out."""
    with built.graph.as_default():
        trainable = {variable.op.name for variable in v1.trainable_variables()}
        variables = v1.global_variables()
    rows = []
    for variable in variables:
        name = variable.op.name
        if name in trainable or not any(name.startswith(f'{owner}/') for owner in trainable):
            shape = None if variable.shape.rank is None else tuple(variable.shape.as_list())
            rows.append(ParameterRow(name, shape, variable.dtype.base_dtype.name, name in trainable))
    return rows


def _training_writer(directory: run_dir.RunDir) -> writers.Writers:
    return writers.Writers(
        [
            progress.ConsoleWriter(),
            writers.MetricsWriter(directory.metrics_file),
            writers.TimelineWriter(directory.timeline_file),
            tensorboard.EventWriter(directory.events_dir),
        ]
    )


@dataclasses.dataclass
class _Known:
    """How far a start came: the step of its newest commit, then its loop."""

    step: int = 0
    run: loop.Loop | None = None


@contextlib.contextmanager
def _failure_recorded(directory: run_dir.RunDir) -> Iterator[_Known]:
    """Removes the `result.json` of the start before, leaves one behind a start that fails, and lets the error go on."""
    with contextlib.suppress(FileNotFoundError):
        os.remove(directory.result_file)
    known = _Known()
    try:
        yield known
    except Exception as error:
        step = known.step if known.run is None else known.run.step
        result = RunResult('failed', f'{type(error).__name__}: {error}', step, exit_code=1)
        run_dir.write_atomically(directory.result_file, writers.result_json(result))
        raise
