"""`Experiment`: the one root that gin binds, where the rooms are wired together."""

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import gin
from absl import logging

from framework import config, errors, input_functions, policies, run_dir, serving, settings, spec, warm_start
from framework.graph import sums
from framework.graph.calls import Model
from framework.reporting import csv_file, history, predictions, tables, terminal
from framework.reporting import writers as reporting_writers
from framework.reporting.rows import RunResult
from framework.run_config import EvalPeriod, EvalSet, InputFn, RunConfig, hooks_tuple, positive
from framework.session import (
    commits,
    description,
    detached,
    export,
    holding,
    identity,
    opening,
    prediction,
    prediction_files,
    profiling,
    reading,
    start,
    telling,
)
from framework.session.graphs import Graphs
from framework.session.schedule import Schedule, periods_of

_SMOKE_STEPS = 2
gin.external_configurable(csv_file.CsvWriter, module='framework')
_ON_NAN = ('raise', 'stop', 'ignore')


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
        train_epochs: int | None = None,
        on_train_end: str = 'stop',
        eval_every_steps: int | None = None,
        eval_every_epochs: int | None = None,
        eval_every_secs: float | None = None,
        eval_at_start: bool = False,
        keep_best: policies.KeepBest | None = None,
        early_stopping: policies.EarlyStopping | None = None,
        reduce_on_plateau: policies.ReduceOnPlateau | None = None,
        on_nan: str | None = None,
        train_metrics: bool = True,
        warm_start_from: Any = None,
        model_dir: str | None = None,
        params: Any = None,
        run_config: RunConfig | None = None,
        seed: int | None = None,
        train_hooks: Sequence[Any] = (),
        require_equal_structures: bool = False,
        evaluation_graph: str = 'auto',
        sanity_batches: int = 2,
        reproducible: str = identity.BEST_EFFORT,
        resume: str = identity.AUTO,
        writers: Sequence[telling.WriterFn] = (),
        profile_steps: str | None = None,
        predict_input_fn: InputFn | None = None,
        serving_input_receiver_fn: serving.ReceiverFn | None = None,
        strict_bindings: bool = False,
        progress: str = terminal.AUTO,
    ):
        """Checks every setting; nothing is built or written before a method is called.

        Args:
            model_fn: `model_fn(features, labels, mode, params, config)`, asked for by name; returns an `EstimatorSpec`.
            train_input_fn: Returns the training Dataset of `(features, labels)` or of features.
            eval_sets: The evaluation sets: a list of `EvalSet`, a dict of input functions by name, or one input
                function (the set `eval`).
            train_steps: The global step to reach. None: until the training data ends.
            train_epochs: The epochs of training data to train, where it starts again.
            on_train_end: What happens when the training data ends: `stop` ends the run; `restart` makes a pass over
                the sets that have a period, starts the data again, shuffled anew, and goes on.
            eval_every_steps: Global steps between two passes, for each set without a period of its own. Where none of
                the three periods is given: one pass at the end of the run. Where the data starts again, steps count
                from the beginning of the epoch.
            eval_every_epochs: The same in epochs of training data, where it starts again.
            eval_every_secs: The same in seconds.
            eval_at_start: Whether there is a pass over every set at step 0.
            keep_best: Keeps the checkpoints of the best passes.
            early_stopping: Ends training when a metric does not become better.
            reduce_on_plateau: Makes a learning rate in a variable smaller when a metric does not become better.
            on_nan: What a loss that is not finite does: `raise` an error; `stop` the run without saving that step;
                `ignore` it. None: `raise`, unless a hook of training is a `NanTensorHook`, which then decides.
            train_metrics: Whether `eval_metric_ops` of the TRAIN spec are accumulated over each log period.
            warm_start_from: What a fresh run begins with: a path (of a checkpoint, a run directory or its `best/`, a
                SavedModel) for all trainable variables, or `WarmStartSettings`.
            model_dir: The run directory.
            params: Handed to functions that name `params`, a fresh copy each time.
            run_config: Cadences and the session's configuration.
            seed: Seeds the graph, and Python and NumPy while it is built. None: drawn, logged and kept.
            train_hooks: SessionRunHooks around every training run.
            require_equal_structures: Refuse evaluation elements of another structure than training's.
            evaluation_graph: `auto` evaluates in the graph of training wherever that is right, else, for one set, in a
                graph of its own with the weights of a checkpoint. `separate` does so for all sets.
            sanity_batches: Batches of every evaluation tower that a fresh run tries out before its first step.
            reproducible: How much is done so that a run that is killed and started again ends with the same bits.
                `best_effort`: all that can be, and what can't is said in a line. `exact` refuses that, and the rounding
                of another machine. `off`: nothing.
            resume: What happens where the run directory holds a run that this one would not continue as it began:
                `auto` refuses, `force` goes on. `never` refuses any directory with a commit.
            writers: Functions that take the run directory and return a `Writer`, which is told what happens in a
                training: the class of one, for example `CsvWriter`. They are told after ours.
            profile_steps: `10:20` writes a profile of the train runs between these global steps, and of what is between
                them, for TensorBoard's profiler.
            predict_input_fn: What `predict` reads by default; called with mode PREDICT.
            serving_input_receiver_fn: What an export is fed, see `framework.serving`; `framework.serving` builds some.
                None: features as the batches of training have them.
            strict_bindings: Whether a gin binding that nothing uses is refused, in place of a warning, before anything
                is trained with evaluation.
            progress: How the terminal is told: `plain`, a line of the log per log period and pass; `bar`, a bar over
                the run beside these; `auto`, a bar where the standard error stream is a terminal; `off`, nothing.

        Raises:
            ConfigurationError: For any value that breaks its rule.
        """
        if model_fn is None:
            remedy = 'Bind it: `Experiment.model_fn = @my.model_fn`.'
            raise errors.missing('Experiment.model_fn', 'an experiment', remedy)
        if run_config is not None and not isinstance(run_config, RunConfig):
            raise errors.ConfigurationTypeError(
                f'`Experiment.run_config` [{run_config!r}] must be a RunConfig. In gin: `Experiment.run_config = '
                '@RunConfig()`, with the parentheses.'
            )
        positive('Experiment.train_steps', train_steps)
        positive('Experiment.train_epochs', train_epochs)
        period = EvalPeriod(eval_every_steps, eval_every_epochs, eval_every_secs)
        period.check('Experiment', ('eval_every_steps', 'eval_every_epochs', 'eval_every_secs'))
        spec.check_model_fn(model_fn, has_params=params is not None, bound=config.bound_parameters(model_fn))
        if train_input_fn is not None:
            input_functions.check_input_fn(train_input_fn, name='Experiment.train_input_fn')
        self._model_fn = model_fn
        self._train_input_fn = train_input_fn
        self._eval_sets = settings.as_eval_sets(eval_sets)
        self._train_steps = train_steps
        self._train_epochs = train_epochs
        self._eval_period = period
        in_epochs = [f'EvalSet.every_epochs of {stream}' for stream, s in self._eval_sets.items() if s.every_epochs]
        in_epochs += ['Experiment.eval_every_epochs'] if eval_every_epochs is not None else []
        self._restart = settings.checked_epochs(on_train_end, train_epochs, in_epochs)
        self._on_nan = None if on_nan is None else errors.checked_choice('Experiment.on_nan', on_nan, _ON_NAN)
        self._train_metrics = settings.checked_bool('Experiment.train_metrics', train_metrics)
        self._warm_start = warm_start.as_settings(warm_start_from)
        self._eval_at_start = settings.checked_bool('Experiment.eval_at_start', eval_at_start)
        self._config = RunConfig() if run_config is None else run_config
        self._policies = settings.checked_policies(
            keep_best, early_stopping, reduce_on_plateau, self._config.has_commits
        )
        self._model_dir = settings.checked_directory(settings.agreed('model_dir', model_dir, self._config.model_dir))
        self._params = params
        self._seed = settings.checked_seed(settings.agreed('seed', seed, self._config.tf_random_seed))
        self._train_hooks = hooks_tuple('Experiment.train_hooks', train_hooks)
        self._require_equal_structures = settings.checked_bool(
            'Experiment.require_equal_structures', require_equal_structures
        )
        self._all_apart = settings.checked_evaluation_graph(evaluation_graph)
        self._sanity_batches = settings.checked_sanity_batches(sanity_batches)
        self._level = errors.checked_choice('Experiment.reproducible', reproducible, identity.LEVELS)
        if self._level == identity.EXACT:
            self._config = self._config.replace(session_config=sums.session_config(self._config.session_config))
        self._resume = errors.checked_choice('Experiment.resume', resume, identity.RESUMES)
        self._writer_fns = telling.checked_writers(writers)
        self._profile_steps = profiling.checked_profile_steps(profile_steps)
        if predict_input_fn is not None:
            input_functions.check_input_fn(predict_input_fn, name='Experiment.predict_input_fn')
        self._predict_input_fn = predict_input_fn
        self._progress = errors.checked_choice('Experiment.progress', progress, terminal.PROGRESS)
        self._strict_bindings = settings.checked_bool('Experiment.strict_bindings', strict_bindings)
        self._receiver_fn = settings.checked_callable('Experiment.serving_input_receiver_fn', serving_input_receiver_fn)

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
            stream: dataclasses.replace(s, steps=min(s.steps or _SMOKE_STEPS, _SMOKE_STEPS))
            for stream, s in self._eval_sets.items()
        }
        logging.info('Smoke: %d steps and batches of every set; the run directory stays untouched.', _SMOKE_STEPS)
        with tempfile.TemporaryDirectory(prefix='smoke-') as directory:
            schedule = Schedule(_SMOKE_STEPS, dict.fromkeys(sets), restart=self._restart)
            result = self._train(sets, schedule, run_dir.RunDir(directory))
        return dataclasses.replace(result, best=None)  # its files are gone

    def evaluate(
        self, sets: Sequence[str] | None = None, checkpoint: str = holding.LATEST, every_commit: bool = False
    ) -> RunResult:
        """Makes a pass over evaluation sets with the weights of a checkpoint, without any training.

        Takes no lock: it may run beside a training. Its metrics go to `evaluations.jsonl`.

        Args:
            sets: Names of sets, None for all.
            checkpoint: `latest` (the newest commit of the run directory), `best`, the prefix of a checkpoint's files,
                or another run directory.
            every_commit: Whether all commits of the run directory are evaluated, oldest first, in place of one.

        Raises:
            ConfigurationError: For an unknown set.
            RunDirectoryError: If there is no such checkpoint, or it is damaged or of another model.
        """
        chosen = self._chosen(sets)
        directory = self._directory()
        store = self._store(directory)
        graphs = self._graphs(self._seed_of(store))
        parts = graphs.evaluation(chosen, self._saved_names(store, checkpoint))
        each: Iterable[Callable[[], str]] = store.choices() if every_commit else [self._choice(store, checkpoint)]
        # Not into the event files: TensorBoard takes a smaller step for a restart, and hides what came after it.
        over_time = history.HistoryWriter()
        told = [*terminal.console(self._progress), over_time]
        if directory.can_be_written():
            told.append(reporting_writers.MetricsWriter(directory.evaluations_file))
        else:
            logging.warning('`%s` can not be written, so there will be no `evaluations.jsonl`.', directory.path)
        with contextlib.closing(reporting_writers.Writers(told)) as writer:
            result = detached.evaluate_checkpoints(parts, each, writer, skip_missing=every_commit)
        logging.info('Result:\n%s', tables.result_table(result))
        return dataclasses.replace(result, history=over_time.history())

    def predict(
        self,
        output: str | os.PathLike[str],
        source: str | InputFn | None = None,
        checkpoint: str = holding.LATEST,
        keys: Sequence[str] | None = None,
    ) -> RunResult:
        """Writes the predictions for every example of a set to a file.

        Takes no lock: it may run beside a training. The file is there, whole, at the end.

        Args:
            output: The file: `.jsonl` for an object a line, `.npz` for an array a prediction.
            source: An evaluation set's name, or an input function, which is called with mode PREDICT. None:
                `predict_input_fn`, or the only evaluation set.
            checkpoint: As for `evaluate`.
            keys: The names of the predictions to write, None for all.
        """
        predictions.check_output(output)
        data = self._source(source)
        store = self._store(self._directory())
        built = self._graphs(self._seed or 0).predicting(data, self._saved_names(store, checkpoint))
        with holding.held(self._choice(store, checkpoint)) as path:
            batches = prediction.predict(built, path, keys=keys, session_config=self._config.session_proto)
            return prediction_files.write(output, batches, reading.global_step(path))

    def predictions(
        self,
        source: str | InputFn | None = None,
        checkpoint: str = holding.LATEST,
        keys: Sequence[str] | None = None,
    ) -> prediction.Batches:
        """Returns a generator of the predictions `[B, ...]` of each batch by name; see `predict`.

        Nothing runs before the first `next`. `framework.session.prediction.single_examples` splits the batches.
        """
        store = self._store(self._directory())
        built = self._graphs(self._seed or 0).predicting(self._source(source), self._saved_names(store, checkpoint))
        choice = self._choice(store, checkpoint)
        return prediction.predict(built, choice, keys=keys, session_config=self._config.session_proto)

    def predictor(self, checkpoint: str = holding.LATEST) -> prediction.Predictor:
        """Returns the model, loaded: call it with features `[B, ...]` as the batches of training have them.

        Args:
            checkpoint: As for `evaluate`.
        """
        store = self._store(self._directory())
        graphs = self._graphs(self._seed or 0)
        built = graphs.served(graphs.receiver_fn(self._any_source()), self._saved_names(store, checkpoint))
        choice = self._choice(store, checkpoint)
        return prediction.Predictor(built, choice, session_config=self._config.session_proto)

    def export(self, checkpoint: str = holding.LATEST) -> str:
        """Writes a SavedModel into `export/<latest, best or checkpoint>/<timestamp>/`, and returns its directory.

        It is fed what `serving_input_receiver_fn` says, by default features as the batches of training have them.

        Args:
            checkpoint: As for `evaluate`.
        """
        directory = self._directory()
        directory.check_writable()
        name = checkpoint if checkpoint in (holding.LATEST, holding.BEST) else 'checkpoint'
        return self._export(self._graphs(self._seed or 0), directory, checkpoint, name)

    def describe(self) -> str:
        """Builds the graph of training and evaluation, and returns what is in it; nothing is written or trained."""
        built, apart = self._graphs(self._seed or 0).training(self._training_data(), self._eval_sets)
        start.follow(self._policies, built, apart, self._eval_sets)
        if self._strict_bindings:
            config.check_all_used(strict=True)
        return description.describe(built, apart, self._schedule(self._eval_sets), config.unused_bindings())

    # Training.

    def _train(
        self, sets: Mapping[str, EvalSet], schedule: Schedule, directory: run_dir.RunDir | None = None
    ) -> RunResult:
        directory = directory or self._directory()
        result = start.Start(
            directory=directory,
            store=self._store(directory),
            graphs=self._graphs,
            schedule=schedule,
            train_input_fn=self._training_data(),
            sets=sets,
            run_config=self._config,
            seed=self._seed,
            train_hooks=self._train_hooks,
            sanity_batches=self._sanity_batches,
            policies=self._policies,
            on_nan=self._on_nan,
            warm_start=self._warm_start,
            level=self._level,
            resume=self._resume,
            calls_all=len(sets) == len(self._eval_sets),
            strict_bindings=self._strict_bindings,
            progress=self._progress,
            writer_fns=self._writer_fns,
            profile_steps=self._profile_steps,
        ).run()
        self._export_best(directory, result)
        logging.info('Result:\n%s', tables.result_table(result))
        return result

    def _schedule(self, sets: Mapping[str, EvalSet]) -> Schedule:
        return Schedule(
            train_steps=self._train_steps,
            **periods_of(sets, self._eval_period),
            commits=self._config.has_commits,
            commit_steps=self._config.save_checkpoints_steps,
            eval_at_start=self._eval_at_start,
            restart=self._restart,
            train_epochs=self._train_epochs,
        )

    def _graphs(self, seed: int | None) -> Graphs:
        # The functions of the user see the directory and the seed wherever they were set.
        told = self._config.replace(model_dir=self._model_dir, tf_random_seed=seed)
        return Graphs(
            Model(self._model_fn, self._params, told),
            seed,
            session_config=self._config.session_proto,
            all_apart=self._all_apart,
            require_equal_structures=self._require_equal_structures,
            restart=self._restart,
            train_metrics=self._train_metrics,
            keyed=self._level != identity.OFF,
            ordered_sums=self._level == identity.EXACT,
            hooked=bool(self._train_hooks),
            fuse=self._config.fuse,
            xla=self._config.xla,
            eval_summaries=self._config.eval_summaries,
        )

    # Checkpoints.

    def _choice(self, store: commits.Commits, checkpoint: str) -> Callable[[], str]:
        return lambda: holding.chosen(store, checkpoint)

    def _saved_names(self, store: commits.Commits, checkpoint: str) -> frozenset[str]:
        with holding.held(self._choice(store, checkpoint)) as path:
            return opening.saved_names(path)

    def _seed_of(self, store: commits.Commits) -> int:
        """Returns the seed that the passes of the run have: a set may draw."""
        newest = None if self._seed is not None else store.latest()
        return self._seed or (newest.seed if newest is not None else None) or 0

    def _export(self, graphs: Graphs, directory: run_dir.RunDir, checkpoint: str, name: str) -> str:
        store = self._store(directory)
        receiver_fn = self._receiver_fn or graphs.receiver_fn(self._any_source())
        built = graphs.served(receiver_fn, self._saved_names(store, checkpoint))
        with holding.held(self._choice(store, checkpoint)) as path:
            return export.export_saved_model(
                built, path, directory.exports(name), session_config=self._config.session_proto
            )

    def _export_best(self, directory: run_dir.RunDir, result: RunResult) -> None:
        """Exports the best checkpoint of a run that ended, if that is asked for, once."""
        if result.exit_code != 0 or result.best is None or not self._policies.exports_best:
            return
        if export.newest_step(directory.exports(holding.BEST)) != result.best.step:
            self._export(self._graphs(self._seed or 0), directory, holding.BEST, holding.BEST)

    def _store(self, directory: run_dir.RunDir) -> commits.Commits:
        return commits.Commits(
            directory,
            keep=self._config.keep_checkpoint_max,
            keep_every_n_hours=self._config.keep_checkpoint_every_n_hours,
        )

    # What the user gave.

    def _directory(self) -> run_dir.RunDir:
        if not self._model_dir:
            raise errors.missing('Experiment.model_dir', 'a run', 'Pass `--model_dir=runs/my_run`, or bind it.')
        return run_dir.RunDir(os.path.abspath(self._model_dir))

    def _training_data(self) -> InputFn:
        if self._train_input_fn is None:
            raise errors.missing(
                'Experiment.train_input_fn', 'training', 'Bind it: `Experiment.train_input_fn = @train/my.input_fn`.'
            )
        return self._train_input_fn

    def _chosen(self, names: Sequence[str] | None) -> dict[str, EvalSet]:
        if not self._eval_sets:
            raise errors.missing('Experiment.eval_sets', 'evaluation', 'Bind at least one: `[@valid/EvalSet()]`.')
        return {stream: self._set(stream) for stream in names or self._eval_sets}

    def _set(self, name: str) -> EvalSet:
        if name not in self._eval_sets:
            raise errors.ConfigurationError(
                f'`sets` [{name}]: no such evaluation set. {errors.nearest(name, self._eval_sets)}'
            )
        return self._eval_sets[name]

    def _source(self, source: str | InputFn | None) -> EvalSet | InputFn:
        """Returns what to predict for."""
        if isinstance(source, str):
            return self._set(source)
        if source is not None:
            input_functions.check_input_fn(source, name='source')
            return source
        if self._predict_input_fn is not None:
            return self._predict_input_fn
        if len(self._eval_sets) == 1:
            return next(iter(self._eval_sets.values()))
        raise errors.missing(
            'Experiment.predict_input_fn',
            'prediction',
            f'Bind it, or name one evaluation set: `--sets=`{"|".join(self._eval_sets) or "NAME"}.',
        )

    def _any_source(self) -> EvalSet | InputFn:
        """Returns something whose features a served model is fed like."""
        if self._train_input_fn is not None:
            return self._train_input_fn
        if self._eval_sets:
            return next(iter(self._eval_sets.values()))
        raise errors.missing(
            'Experiment.serving_input_receiver_fn', 'a served model', 'Bind it, or an input function to take after.'
        )
