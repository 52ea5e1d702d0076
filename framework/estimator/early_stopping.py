"""Hooks that end training by what evaluations say: from memory where they are made in this process."""

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from tensorflow.compat import v1

from framework import errors
from framework.estimator.estimator import Estimator
from framework.reporting import tensorboard

Results = Mapping[int, Mapping[str, Any]]


def read_eval_metrics(eval_dir: str) -> 'OrderedDict[int, dict[str, float]]':
    """Returns the metrics in the event files of an evaluation, by step.

    Args:
        eval_dir: The directory, as `Estimator.eval_dir` returns it.
    """
    found: dict[int, dict[str, float]] = {}
    for name, points in tensorboard.read_scalars(eval_dir).items() if os.path.isdir(eval_dir) else ():
        for step, value in points:
            found.setdefault(step, {})[name] = value
    return OrderedDict(sorted(found.items()))


class _StopHook(v1.train.SessionRunHook):
    """Asks from time to time whether training shall end, and after each evaluation of this process."""

    def __init__(
        self, estimator: Any, should_stop_fn: Callable[[], bool], run_every_secs: Any, run_every_steps: int | None
    ):
        self._estimator = estimator
        self._should_stop_fn = should_stop_fn
        self._timer = v1.train.SecondOrStepTimer(every_secs=run_every_secs, every_steps=run_every_steps)
        self._every_steps = run_every_steps
        self._evaluations = 0

    def begin(self) -> None:
        """Finds the global step."""
        self._global_step = v1.train.get_global_step()

    def before_run(self, run_context: Any) -> Any:
        """Asks for the global step."""
        return v1.train.SessionRunArgs(self._global_step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Asks, if it is time to."""
        step = int(run_values.results)
        if not (self._timer.should_trigger_for_step(step) or self._has_news()):
            return
        self._timer.update_last_triggered_step(step)
        self._evaluations = self._estimator._memory.count
        if self._should_stop_fn():
            v1.logging.info('Requesting early stopping at global step %d', step)
            run_context.request_stop()

    def _has_news(self) -> bool:
        return self._estimator._memory.count != self._evaluations

    def next_wanted_step(self, global_step: int) -> int | None:
        """Returns the next step whose run this has to see; see `framework.session.cadences`."""
        if self._timer.should_trigger_for_step(global_step + 1) or self._has_news():
            return global_step + 1
        last = self._timer.last_triggered_step()
        return None if self._every_steps is None or last is None else last + self._every_steps


def make_early_stopping_hook(
    estimator: Estimator,
    should_stop_fn: Callable[[], bool],
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> v1.train.SessionRunHook:
    """Returns a hook of training that ends it when a function says so.

    The function is asked after every evaluation that this process makes, and at the cadence.

    Args:
        estimator: The Estimator that trains.
        should_stop_fn: Returns whether training shall end.
        run_every_secs: Seconds between two questions, None where steps count.
        run_every_steps: Steps between two questions.

    Raises:
        ConfigurationError: If the Estimator is none, or both cadences are set.
    """
    if not isinstance(estimator, Estimator):
        raise errors.ConfigurationTypeError(
            f'`estimator` must have type `tf.estimator.Estimator`. Got: {type(estimator)}'
        )
    if run_every_secs is not None and run_every_steps is not None:
        raise errors.ConfigurationError('Only one of `run_every_secs` and `run_every_steps` must be set.')
    if not callable(should_stop_fn):
        raise errors.ConfigurationTypeError(f'`should_stop_fn` must be callable. Given [{should_stop_fn!r}].')
    return _StopHook(estimator, should_stop_fn, run_every_secs, run_every_steps)


def stop_if_higher_hook(
    estimator: Estimator,
    metric_name: str,
    threshold: float,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> v1.train.SessionRunHook:
    """Returns a hook that ends training when a metric is higher than a threshold.

    Args:
        estimator: The Estimator that trains.
        metric_name: The metric.
        threshold: The threshold.
        eval_dir: The directory of the evaluation, None for that of the one without a name.
        min_steps: Evaluations before this step count in no way.
        run_every_secs: See `make_early_stopping_hook`.
        run_every_steps: The same.
    """
    return _threshold_hook(
        estimator, metric_name, threshold, True, eval_dir, min_steps, run_every_secs, run_every_steps
    )


def stop_if_lower_hook(
    estimator: Estimator,
    metric_name: str,
    threshold: float,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> v1.train.SessionRunHook:
    """Returns a hook that ends training when a metric is lower than a threshold; see `stop_if_higher_hook`."""
    return _threshold_hook(
        estimator, metric_name, threshold, False, eval_dir, min_steps, run_every_secs, run_every_steps
    )


def stop_if_no_increase_hook(
    estimator: Estimator,
    metric_name: str,
    max_steps_without_increase: int,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> v1.train.SessionRunHook:
    """Returns a hook that ends training when a metric has not become higher for a number of steps.

    An equal value is not higher. See `stop_if_higher_hook`.
    """
    return _patience_hook(
        estimator, metric_name, max_steps_without_increase, True, eval_dir, min_steps, run_every_secs, run_every_steps
    )


def stop_if_no_decrease_hook(
    estimator: Estimator,
    metric_name: str,
    max_steps_without_decrease: int,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> v1.train.SessionRunHook:
    """Returns a hook that ends training when a metric has not become lower for a number of steps.

    An equal value is not lower. See `stop_if_higher_hook`.
    """
    return _patience_hook(
        estimator, metric_name, max_steps_without_decrease, False, eval_dir, min_steps, run_every_secs, run_every_steps
    )


def _threshold_hook(
    estimator: Any,
    metric: str,
    threshold: float,
    higher: bool,
    eval_dir: str | None,
    min_steps: int,
    run_every_secs: float | None,
    run_every_steps: int | None,
) -> v1.train.SessionRunHook:
    def should_stop() -> bool:
        for step, value in _values(_results(estimator, eval_dir), metric, min_steps):
            if value > threshold if higher else value < threshold:
                v1.logging.info(
                    'At step %s, metric "%s" has value %s which is %s the configured threshold (%s) for early '
                    'stopping.',
                    step,
                    metric,
                    value,
                    'greater than' if higher else 'less than',
                    threshold,
                )
                return True
        return False

    return make_early_stopping_hook(estimator, should_stop, run_every_secs, run_every_steps)


def _patience_hook(
    estimator: Any,
    metric: str,
    patience: int,
    higher: bool,
    eval_dir: str | None,
    min_steps: int,
    run_every_secs: float | None,
    run_every_steps: int | None,
) -> v1.train.SessionRunHook:
    def should_stop() -> bool:
        best: tuple[int, Any] | None = None
        for step, value in _values(_results(estimator, eval_dir), metric, min_steps):
            if best is None or (value > best[1] if higher else value < best[1]):
                best = step, value
            if step - best[0] >= patience:
                v1.logging.info(
                    'No %s in metric "%s" for %s steps, which is greater than or equal to max steps (%s) configured '
                    'for early stopping.',
                    'increase' if higher else 'decrease',
                    metric,
                    step - best[0],
                    patience,
                )
                return True
        return False

    return make_early_stopping_hook(estimator, should_stop, run_every_secs, run_every_steps)


def _results(estimator: Any, eval_dir: str | None) -> Results:
    """Returns the metrics by step: what this process evaluated, and what another one left in the event files."""
    directory = estimator.eval_dir() if eval_dir is None else eval_dir
    return estimator._memory.results(directory, read_eval_metrics)


def _values(results: Results, metric: str, min_steps: int) -> list[tuple[int, Any]]:
    """Returns the steps and values that count; an evaluation that lacks the metric doesn't.

    Raises:
        ConfigurationError: If none has it.
    """
    counting = {step: metrics for step, metrics in results.items() if step >= min_steps}
    found = [(step, metrics[metric]) for step, metrics in counting.items() if metric in metrics]
    if counting and not found:
        names = sorted({name for metrics in counting.values() for name in metrics})
        raise errors.ConfigurationError(
            f'`metric_name` [{metric}]: no evaluation has produced it. {errors.nearest(metric, names)} There are: '
            f'{", ".join(names)}.'
        )
    return found
