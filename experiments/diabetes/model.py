"""Regression on feature columns: numbers, buckets of age, sex and their cross, through dense layers."""

import contextlib
import functools
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gin
import tensorflow as tf
from tensorflow.compat import v1

from experiments.diabetes import data
from framework import EstimatorSpec, ModeKeys

AGE_BOUNDARIES = (30, 40, 50, 60, 70)  # years
SEXES = (1, 2)


def _standardized(values: tf.Tensor, statistics: data.Statistics) -> tf.Tensor:
    return (values - statistics.mean) / statistics.deviation


def build_columns(cross_dimension: int) -> list[Any]:
    """Returns the feature columns.

    Numbers are standardized by the statistics of train; that is a part of the model, so a served one takes raw values.

    Args:
        cross_dimension: Size of the embedding of each pair of sex and age bucket; 0 leaves the cross out.
    """
    statistics = data.training_statistics()
    columns = v1.feature_column
    numbers = [
        columns.numeric_column(name, normalizer_fn=functools.partial(_standardized, statistics=statistics[name]))
        for name in data.NUMBERS
    ]
    age = columns.bucketized_column(columns.numeric_column('age'), AGE_BOUNDARIES)
    sex = columns.categorical_column_with_vocabulary_list(data.SEX, SEXES)
    built = [*numbers, age, columns.indicator_column(sex)]
    if cross_dimension:
        pairs = len(SEXES) * (len(AGE_BOUNDARIES) + 1)
        crossed = columns.crossed_column([age, sex], hash_bucket_size=4 * pairs)  # room, so that few pairs collide
        built.append(columns.embedding_column(crossed, cross_dimension))
    return built


def _is_no_deprecation(record: logging.LogRecord) -> bool:
    return 'is deprecated and will be removed' not in record.getMessage()


@contextlib.contextmanager
def quiet_deprecations() -> Iterator[None]:
    """Keeps TensorFlow's notices of deprecation out of the log: feature columns give one per method and column."""
    logger = tf.get_logger()
    logger.addFilter(_is_no_deprecation)
    try:
        yield
    finally:
        logger.removeFilter(_is_no_deprecation)


def predict_progression(
    features: Mapping[str, tf.Tensor],
    *,
    hidden: Sequence[int],
    dropout_rate: float,
    cross_dimension: int,
    training: bool,
) -> tf.Tensor:
    """Returns the predicted progression `[B]`, in the unit of the labels.

    Args:
        features: `[B]` by column.
        hidden: Units of each hidden layer.
        dropout_rate: Share of units dropped after each hidden layer.
        cross_dimension: See `build_columns`.
        training: Whether dropout drops.
    """
    with quiet_deprecations():
        net = v1.feature_column.input_layer(dict(features), build_columns(cross_dimension))
    for units in hidden:
        net = v1.layers.dense(net, units, activation=tf.nn.relu)
        net = v1.layers.dropout(net, rate=dropout_rate, training=training)
    # The layers predict deviations from the mean of train: they start from a guess that is right on average.
    statistics = data.training_statistics()[data.TARGET]
    return statistics.mean + statistics.deviation * v1.layers.dense(net, 1)[:, 0]


def r2(labels: tf.Tensor, predictions: tf.Tensor, center: float) -> tuple[tf.Tensor, tf.Operation]:
    """Returns the coefficient of determination over all examples of a pass, as a metric: value and update.

    It is 1 - mean((y - p)^2) / var(y) for labels y and predictions p, from means that are streamed: the mean of the
    values of batches would be another number.

    Args:
        labels: `[B]`.
        predictions: `[B]`.
        center: A number near the labels; it makes no difference but to rounding.
    """
    off = labels - center
    error, update_error = v1.metrics.mean_squared_error(labels, predictions)
    mean, update_mean = v1.metrics.mean(off)
    square, update_square = v1.metrics.mean(tf.square(off))
    return 1.0 - error / (square - tf.square(mean)), tf.group(update_error, update_mean, update_square)


def evaluation_metrics(labels: tf.Tensor, predictions: tf.Tensor) -> dict[str, Any]:
    """Returns the metrics, each over all examples of a pass; 'mae' and 'rmse' are in the unit of the labels."""
    center = data.training_statistics()[data.TARGET].mean
    return {
        'mae': v1.metrics.mean_absolute_error(labels, predictions),
        'rmse': v1.metrics.root_mean_squared_error(labels, predictions),
        'r2': r2(labels, predictions, center),
    }


@gin.configurable(module='diabetes')
def model_fn(
    features: Mapping[str, tf.Tensor],
    labels: tf.Tensor | None,
    mode: str,
    learning_rate: float = 3e-3,
    hidden: Sequence[int] = (64,),
    dropout_rate: float = 0.3,
    cross_dimension: int = 2,
) -> EstimatorSpec:
    """Builds the network for one mode.

    Args:
        features: `[B]` by column, see `data.load_diabetes`.
        labels: `[B]` float32, the progression; unused for prediction.
        mode: One of `ModeKeys`.
        learning_rate: Learning rate of Adam.
        hidden: Units of each hidden layer.
        dropout_rate: Share of units dropped after each hidden layer, in training.
        cross_dimension: Size of the embedding of each pair of sex and age bucket; 0 leaves the cross out.

    Returns:
        The spec: the loss is the mean squared error; evaluation adds 'mae', 'rmse' and 'r2'; prediction, and with it an
        export, gives 'progression' `[B]`.
    """
    progression = predict_progression(
        features,
        hidden=hidden,
        dropout_rate=dropout_rate,
        cross_dimension=cross_dimension,
        training=mode == ModeKeys.TRAIN,
    )
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions={data.TARGET: progression})
    loss = v1.losses.mean_squared_error(labels, progression)
    if mode == ModeKeys.EVAL:
        return EstimatorSpec(mode, loss=loss, eval_metric_ops=evaluation_metrics(labels, progression))
    train_op = v1.train.AdamOptimizer(learning_rate).minimize(loss, global_step=v1.train.get_global_step())
    return EstimatorSpec(mode, loss=loss, train_op=train_op)
