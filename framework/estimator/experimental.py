"""`tf.estimator.experimental`: early stopping, evaluation in the session of training, supervised receivers."""

import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.compat import v1

from framework import errors
from framework.calling import CallSignature
from framework.estimator import training, unbuilt
from framework.estimator.early_stopping import (
    make_early_stopping_hook,
    stop_if_higher_hook,
    stop_if_lower_hook,
    stop_if_no_decrease_hook,
    stop_if_no_increase_hook,
)
from framework.estimator.in_memory import InMemoryEvaluatorHook
from framework.serving import build_raw_supervised_input_receiver_fn

__all__ = [
    'InMemoryEvaluatorHook',
    'build_raw_supervised_input_receiver_fn',
    'call_logit_fn',
    'make_early_stopping_hook',
    'make_stop_at_checkpoint_step_hook',
    'stop_if_higher_hook',
    'stop_if_lower_hook',
    'stop_if_no_decrease_hook',
    'stop_if_no_increase_hook',
]


class _StopAtCheckpointStepHook(v1.train.SessionRunHook):
    """Ends the training of a worker once the chief has saved a step."""

    def __init__(self, model_dir: str, last_step: int, wait_secs: float):
        self._model_dir = model_dir
        self._last_step = last_step
        self._wait_secs = wait_secs

    def begin(self) -> None:
        """Finds the global step."""
        self._global_step = v1.train.get_global_step()

    def before_run(self, run_context: Any) -> Any:
        """Asks for the global step."""
        return v1.train.SessionRunArgs(self._global_step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Looks for the checkpoint once the step is reached; waits for it between two looks."""
        if run_values.results + 1 < self._last_step:
            return
        if training.saved_step(self._model_dir) >= self._last_step:
            run_context.request_stop()
        else:
            time.sleep(self._wait_secs)


def make_stop_at_checkpoint_step_hook(
    estimator: Any, last_step: int, wait_after_file_check_secs: float = 30
) -> v1.train.SessionRunHook:
    """Returns a hook that ends training at a step: on a worker, once the chief has saved it.

    Args:
        estimator: The Estimator that trains.
        last_step: The step.
        wait_after_file_check_secs: How long a worker waits before it looks again.
    """
    if last_step is None:
        raise errors.ConfigurationError('last_step must be specified.')
    if estimator.config.is_chief:
        return v1.train.StopAtStepHook(last_step=last_step)
    return _StopAtCheckpointStepHook(estimator.model_dir, last_step, wait_after_file_check_secs)


def call_logit_fn(logit_fn: Callable[..., Any], features: Any, mode: str, params: Any, config: Any) -> Any:
    """Calls a function that makes logits with those of the arguments that it names.

    Args:
        logit_fn: Takes `features` and any of `mode`, `params` and `config`.
        features: The features.
        mode: One of `ModeKeys`.
        params: The params.
        config: The run configuration.

    Returns:
        A tensor, or a dict of tensors by name.

    Raises:
        ConfigurationError: If it returned something else.
    """
    named = CallSignature.of(logit_fn, name='logit_fn').named
    optional = {'mode': mode, 'params': params, 'config': config}
    logits = logit_fn(features=features, **{name: value for name, value in optional.items() if name in named})
    parts = logits.items() if isinstance(logits, dict) else [('', logits)]
    if not all(isinstance(name, str) and isinstance(part, tf.Tensor) for name, part in parts):
        raise errors.ConfigurationError(
            'logit_fn should return a Tensor or a dictionary mapping strings to Tensors. logit_fn returned: '
            f'[{logits!r}].'
        )
    return logits


def __getattr__(name: str) -> Any:
    unbuilt.refuse(name, __name__, __all__)
