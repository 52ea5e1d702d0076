"""Calls of training: a start of the engine in the Estimator's directory."""

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from tensorflow.compat import v1

from framework import errors, policies, run_dir
from framework.estimator import evaluating, graph_files, in_memory, log_lines
from framework.estimator.input_calls import with_tensors
from framework.reporting.rows import RunResult
from framework.run_config import EvalSet
from framework.run_dir import TRAIN
from framework.session import identity, reading, start
from framework.session.exports import Exports
from framework.session.schedule import Schedule

_NO_STEPS = 'Training with estimator made no steps. Perhaps input is empty or misspecified.'
NO_SAVER = (
    'There should be a CheckpointSaverHook to use saving_listeners. Please set one of the '
    'RunConfig.save_checkpoints_steps or RunConfig.save_checkpoints_secs.'
)


def checked_hooks(hooks: Iterable[Any] | None) -> list[Any]:
    """Returns the hooks as a list; raises a `ConfigurationTypeError` for anything that is no SessionRunHook."""
    every = list(hooks or ())
    for hook in every:
        if not isinstance(hook, v1.train.SessionRunHook):
            raise errors.ConfigurationTypeError(f'Hooks must be a SessionRunHook, given: {hook}')
    return every


def checked_listeners(listeners: Iterable[Any] | None) -> list[Any]:
    """Returns the listeners as a list; raises a `ConfigurationTypeError` for anything else."""
    every = list(listeners or ())
    for listener in every:
        if not isinstance(listener, v1.train.CheckpointSaverListener):
            raise errors.ConfigurationTypeError(
                f'saving_listeners must be a list of CheckpointSaverListener, given: {listener}'
            )
    return every


def saved_step(model_dir: str) -> int:
    """Returns the global step of the newest checkpoint, 0 where there is none."""
    checkpoint = v1.train.latest_checkpoint(model_dir) if os.path.isdir(model_dir) else None
    return 0 if checkpoint is None else reading.global_step(checkpoint)


@dataclasses.dataclass(frozen=True)
class Passes:
    """The evaluations of a training.

    Attributes:
        sets: The evaluation sets by stream.
        schedule: The arguments of the schedule that say when they are evaluated.
        exports: Writes models out after them.
        names: What the user calls them, by stream.
    """

    sets: Mapping[str, EvalSet] = dataclasses.field(default_factory=dict)
    schedule: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    exports: Exports | None = None
    names: Mapping[str, str | None] = dataclasses.field(default_factory=dict)


def train(
    estimator: Any,
    input_fn: Callable[..., Any],
    hooks: Sequence[Any],
    max_steps: int | None,
    listeners: Sequence[Any],
    passes: Passes = Passes(),
) -> RunResult:
    """Trains in the directory of an Estimator, and logs how that ended.

    Args:
        estimator: The Estimator.
        input_fn: Returns the training data.
        hooks: The caller's hooks, which may ask for evaluations in this session (`InMemoryEvaluatorHook`).
        max_steps: The global step to reach, None for none.
        listeners: The caller's listeners.
        passes: The evaluations.

    Returns:
        How the run ended.

    Raises:
        KeyboardInterrupt: After Ctrl-C, once everything is saved.
        SystemExit: After another signal, once everything is saved.
    """
    hooks, of_hooks = in_memory.without_evaluators(hooks)
    sets = {**passes.sets, **of_hooks.sets}
    result = _start(estimator, input_fn, hooks, max_steps, listeners, passes, sets, of_hooks.periods).run()
    loss = result.metrics.get(TRAIN, {}).get('loss')
    if loss is None and result.status != 'done':
        v1.logging.warning(_NO_STEPS)
    v1.logging.info('Training ended: %s.', result.stop_reason)
    v1.logging.info('Loss for final step: %s.', None if loss is None else np.float32(loss))
    if result.status == 'interrupted':
        raise evaluating.stopped(result.exit_code)
    return result


def _start(
    estimator: Any,
    input_fn: Callable[..., Any],
    hooks: Sequence[Any],
    max_steps: int | None,
    listeners: Sequence[Any],
    passes: Passes,
    sets: Mapping[str, EvalSet],
    periods: Mapping[str, int | None],
) -> start.Start:
    config, engine = estimator.config, estimator._engine_config()
    _refuse_clusters(config)
    has_saver_hook = any(isinstance(hook, v1.train.CheckpointSaverHook) for hook in hooks)
    if listeners and not engine.has_commits and not has_saver_hook:
        raise errors.ConfigurationError(NO_SAVER)
    directory = estimator._directory()
    names = {**{stream: eval_set.name for stream, eval_set in sets.items()}, **passes.names}
    of_passes = dict(passes.schedule)
    of_passes['periods'] = {**of_passes.get('periods', {}), **periods}
    of_passes['only_at_end'] = frozenset(passes.sets)  # only those of hooks are evaluated before training
    return start.Start(
        directory=directory,
        store=estimator._store(),
        graphs=estimator._graphs,
        schedule=Schedule(
            train_steps=max_steps,
            commits=engine.has_commits,
            commit_steps=engine.save_checkpoints_steps,
            eval_at_start=bool(periods),
            **of_passes,
        ),
        train_input_fn=with_tensors(input_fn),
        sets=sets,
        run_config=engine,
        seed=config.tf_random_seed,
        train_hooks=hooks,
        sanity_batches=0,
        policies=policies.Policies(),
        on_nan=None,
        warm_start=estimator._warm_start_settings,
        level=config.reproducible,
        resume=identity.AUTO,
        console=_Memory(estimator, names),
        keeps_place=config.keep_input_position or config.reproducible == identity.EXACT,
        in_calls=config.reproducible == identity.OFF,
        listeners=_listeners(directory, config, listeners),
        exports=passes.exports,
        events_dir=lambda stream: directory.path if stream == TRAIN else estimator.eval_dir(names[stream]),
    )


def _listeners(directory: run_dir.RunDir, config: Any, listeners: Sequence[Any]) -> list[Any]:
    told = log_lines.SavingLines(directory.checkpoint_prefix, listeners)
    return [graph_files.GraphFiles(directory), told] if config.checkpoint_save_graph_def else [told]


class _Memory(log_lines.LogLines):
    """The log, and the metrics of passes for those who follow them in this process."""

    def __init__(self, estimator: Any, names: Mapping[str, str | None]):
        self._estimator = estimator
        self._names = names

    def write_pass(self, row: Any) -> None:
        """Logs the metrics, and keeps them."""
        super().write_pass(row)
        directory = self._estimator.eval_dir(self._names[row.stream])
        self._estimator._memory.add(directory, row.step, row.metrics)


def _refuse_clusters(config: Any) -> None:
    """Refuses what this room doesn't do yet: several processes, several replicas."""
    if config.num_worker_replicas > 1 or config.num_ps_replicas:
        raise errors.ConfigurationError(
            f'TF_CONFIG describes a cluster of {config.num_worker_replicas} workers and {config.num_ps_replicas} '
            'parameter servers, and training in a cluster is not here yet. Unset TF_CONFIG to train in one process.'
        )
    for name in ('train_distribute', 'eval_distribute', 'experimental_distribute'):
        strategy = getattr(config, name)
        replicas = getattr(strategy, 'num_replicas_in_sync', 2 if strategy is not None else 1)
        if replicas > 1:
            raise errors.ConfigurationError(
                f'`RunConfig.{name}` [{type(strategy).__name__}] has {replicas} replicas, and training on several is '
                'not here yet. Leave it out to train on one device.'
            )
        if strategy is not None:
            v1.logging.info('`RunConfig.%s` has one replica: left out.', name)
