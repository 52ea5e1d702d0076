"""model_fn as the engine calls it: with what `tf.estimator` added to a spec, and with its log lines."""

import functools
from collections.abc import Callable
from typing import Any

from tensorflow.compat import v1

from framework import spec
from framework.graph.calls import Model
from framework.spec import ModeKeys


def model_of(model_fn: Callable[..., Any], params: Any, config: Any) -> Model:
    """Returns what the engine builds graphs of.

    Args:
        model_fn: The user's.
        params: Its params.
        config: The RunConfig that functions of the user get.
    """

    @functools.wraps(model_fn)
    def with_lines(**arguments: Any) -> Any:
        v1.logging.info('Calling model_fn.')
        result = model_fn(**arguments)
        v1.logging.info('Done calling model_fn.')
        result = result.as_estimator_spec() if hasattr(result, 'as_estimator_spec') else result
        is_training = isinstance(result, spec.EstimatorSpec) and result.mode == ModeKeys.TRAIN
        return _completed(result, config.log_step_count_steps) if is_training else result

    return Model(with_lines, params, config)


def _completed(result: spec.EstimatorSpec, every_n_iter: int | None) -> spec.EstimatorSpec:
    """Returns the spec of training with the hook that logs its loss; the loss joins the collection of losses."""
    v1.add_to_collection(v1.GraphKeys.LOSSES, result.loss)
    if not every_n_iter:
        return result
    shown = {'loss': result.loss, 'step': v1.train.get_global_step()}
    lines = v1.train.LoggingTensorHook(shown, every_n_iter=every_n_iter)
    return result._replace(training_hooks=(lines, *result.training_hooks))
