"""The metrics of training: `eval_metric_ops` of the TRAIN spec, accumulated over a log period."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging
from tensorflow.compat import v1

from framework.graph import movement
from framework.graph.streams import Input

_TAKEN = ('loss', 'steps_per_sec', 'global_step')  # what a line about training holds already


@dataclasses.dataclass(frozen=True)
class TrainMetrics:
    """The metrics of training.

    Attributes:
        update: Takes the current batch into the metrics; run with the train op.
        values: The metrics by name.
        reset: Begins a new period.
        variables: Their state.
    """

    update: tf.Operation
    values: Mapping[str, tf.Tensor]
    reset: tf.Operation
    variables: Sequence[tf.Variable]


def accumulated(metrics: Mapping[str, tuple[tf.Tensor, Any]], batch: Input, train_op: Any) -> TrainMetrics | None:
    """Returns the metrics of the training call, None where it has none that can be accumulated.

    Args:
        metrics: `EstimatorSpec.eval_metric_ops`, pairs of a value and an update.
        batch: The current batch: a value that depends on it can't be read without taking another one.
        train_op: The train op.
    """
    kept = {name: pair for name, pair in metrics.items() if name not in _TAKEN and _is_readable(name, pair[0], batch)}
    if not kept:
        return None
    updates = [update for _, update in kept.values()]
    local = {id(v): v for v in [*v1.local_variables(), *v1.get_collection(v1.GraphKeys.METRIC_VARIABLES)]}
    of_training = {id(variable) for variable in movement.changed([train_op], local.values())}
    state = [v for v in movement.changed(updates, local.values()) if id(v) not in of_training]
    return TrainMetrics(
        update=tf.group(*updates, name='update_metrics'),
        values={name: value for name, (value, _) in kept.items()},
        reset=v1.variables_initializer(state, name='reset_metrics'),
        variables=state,
    )


def _is_readable(name: str, value: tf.Tensor, batch: Input) -> bool:
    if not batch.is_read_by(value):
        return True
    logging.warning(
        'Metric `%s` of training is left out: its value reads the batch, so that reading it would take another one.',
        name,
    )
    return False
