"""`EstimatorSpec.eval_metric_ops`: every form that a metric may have becomes a pair of a value and an update."""

import sys
from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf

from framework import tensors
from framework.errors import ConfigurationError, ConfigurationTypeError

_RESERVED = ('loss', 'global_step')


def checked_metrics(metrics: Any, evaluates: bool) -> dict[str, tuple[Any, Any]]:
    """Returns the metrics as pairs of a value and an update, sorted by name.

    Args:
        metrics: A dict by name, or None.
        evaluates: Whether the spec is of an evaluation, which has metrics of its own.

    Raises:
        ConfigurationError: A name is taken, or a metric was not updated.
        ConfigurationTypeError: A value has a form that isn't known.
    """
    if metrics is None:
        return {}
    if not isinstance(metrics, Mapping):
        raise ConfigurationTypeError(
            f'eval_metric_ops must be a dict, given: [{metrics!r}]. Write `{{"name": (value, update_op)}}`.'
        )
    for name in metrics:
        _check_metric_name(name, evaluates)
    # Sorted, because Keras metrics make ops here: equal metrics must give equal graphs.
    return {name: _metric_pair(name, metrics[name]) for name in sorted(metrics)}


def _check_metric_name(name: object, evaluates: bool) -> None:
    if not isinstance(name, str):
        raise ConfigurationTypeError(
            f'Keys of eval_metric_ops must be strings, given: [{name!r}]. They name the curves.'
        )
    if evaluates and name in _RESERVED:
        quote = '`' if name == 'global_step' else '"'  # as tf.estimator wrote them
        raise ConfigurationError(
            f'Metric with name {quote}{name}{quote} is not allowed, because every evaluation reports `{name}` already. '
            f'Give it another name, for example `my_{name}`.'
        )


def _metric_pair(name: str, metric: Any) -> tuple[Any, Any]:
    if isinstance(metric, _legacy_metric_classes()):
        metric = _keras_metric_pair(metric, f'eval_metric_ops[{name}]')
    elif _is_keras3_metric(metric):
        raise ConfigurationTypeError(
            f'eval_metric_ops[{name}] is a metric of Keras 3, given: [{metric!r}]. In a graph it would '
            'silently stay at its initial value. Use `tf.compat.v1.metrics`, or a metric of tf_keras with '
            'TF_USE_LEGACY_KERAS=1.'
        )
    if not isinstance(metric, tuple) or len(metric) != 2:
        raise ConfigurationTypeError(
            f'Values of eval_metric_ops must be (metric_value, update_op) tuples, given: [{metric!r}] for key: '
            f'[{name}]. `tf.compat.v1.metrics` returns them.'
        )
    value, update = metric
    return tensors.dense_tensor(value, f'eval_metric_ops[{name}]'), _checked_update(update, f'eval_metric_ops[{name}]')


def _checked_update(update: Any, name: str) -> Any:
    if isinstance(update, tf.Operation):
        tensors.check_graph(update, name)
        return update
    return tensors.dense_tensor(update, name, 'Operation or Tensor')


def _legacy_metric_classes() -> tuple[type, ...]:
    # Whoever made a metric has imported its library: looking there spares everyone else the import.
    names = ('tf_keras', 'tensorflow.python.keras.metrics')
    modules = [sys.modules[name] for name in names if name in sys.modules]
    return tuple(getattr(module, 'metrics', module).Metric for module in modules)


def _is_keras3_metric(metric: Any) -> bool:
    parents = type(metric).__mro__
    return any(parent.__name__ == 'Metric' and parent.__module__.split('.')[0] == 'keras' for parent in parents)


def _keras_metric_pair(metric: Any, shown: str) -> tuple[Any, Any]:
    updates = metric.updates
    if not updates:
        raise ConfigurationError(
            f'Please call update_state(...) on the "{metric.name}" metric, in model_fn and in every call of it.'
        )
    for update in updates:
        tensors.check_graph(update, shown)
    for name in (tf.compat.v1.GraphKeys.LOCAL_VARIABLES, tf.compat.v1.GraphKeys.METRIC_VARIABLES):
        _add_to_collection(name, metric.variables)
    return metric.result(), updates[0] if len(updates) == 1 else tf.group(*updates)


def _add_to_collection(name: str, variables: Collection[Any]) -> None:
    present = {id(variable) for variable in tf.compat.v1.get_collection(name)}
    for variable in variables:
        if id(variable) not in present:
            tf.compat.v1.add_to_collection(name, variable)
