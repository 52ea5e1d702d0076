"""`add_metrics`: an Estimator with more metrics than its model_fn returns."""

from collections.abc import Callable
from typing import Any

from framework import errors
from framework.calling import CallSignature
from framework.estimator.estimator import Estimator
from framework.spec import ModeKeys

_ARGUMENTS = ('features', 'labels', 'predictions', 'config')


def add_metrics(estimator: Estimator, metric_fn: Callable[..., Any]) -> Estimator:
    """Returns an Estimator of the same model and directory, with further metrics.

    Args:
        estimator: The Estimator, which stays as it is.
        metric_fn: Takes any of `features`, `labels`, `predictions` and `config`, by name; returns metrics by name. A
            name that the model has as well means the new one.

    Raises:
        ConfigurationError: If `metric_fn` takes something else.
    """
    signature = CallSignature.of(metric_fn, name='metric_fn')
    if unexpected := [name for name in signature.required if name not in _ARGUMENTS]:
        raise errors.ConfigurationError(
            f'metric_fn ({signature.label}) has following not expected args: {unexpected}. '
            f'{errors.nearest(unexpected[0], _ARGUMENTS)}'
        )

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
        spec = estimator.model_fn(features, labels, mode, config)
        if mode != ModeKeys.EVAL:
            return spec
        given = {'features': features, 'labels': labels, 'predictions': spec.predictions, 'config': config}
        added = metric_fn(**{name: value for name, value in given.items() if name in signature.named})
        return spec._replace(eval_metric_ops={**spec.eval_metric_ops, **added})

    return Estimator(model_fn, estimator.model_dir, estimator.config, warm_start_from=estimator._warm_start_settings)
