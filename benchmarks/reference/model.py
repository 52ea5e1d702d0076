"""A model that `tf.estimator` and `framework.estimator` train alike: dense layers, batch norm, Adam, no dropout."""

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compat import v1

STEPS = 200
BATCH = 16
EXAMPLES = 240


def data(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns features `[N, 6]` float32 and labels `[N]` int64 of three classes."""
    generator = np.random.RandomState(seed)
    features = generator.randn(EXAMPLES, 6).astype(np.float32)
    scores = features[:, :3] + 0.5 * features[:, 3:]
    return features, scores.argmax(axis=1).astype(np.int64)


def train_input_fn() -> tf.data.Dataset:
    """Returns the training data, in one order for ever."""
    return tf.data.Dataset.from_tensor_slices(data(0)).repeat().batch(BATCH)


def eval_input_fn() -> tf.data.Dataset:
    """Returns another set, once, with a partial last batch."""
    return tf.data.Dataset.from_tensor_slices(data(1)).batch(32)


def model_fn_of(estimator: Any) -> Any:
    """Returns the model_fn.

    Args:
        estimator: `tf.compat.v1.estimator` or `framework.estimator`.
    """

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        # Without a bias: behind it batch norm makes its gradient zero but for rounding, which Adam makes large.
        hidden = v1.layers.dense(features, 12, use_bias=False)
        normed = v1.layers.batch_normalization(hidden, training=mode == estimator.ModeKeys.TRAIN)
        logits = v1.layers.dense(tf.nn.relu(normed), 3)
        predictions = {'class': tf.argmax(logits, axis=1), 'scores': tf.nn.softmax(logits)}
        if mode == estimator.ModeKeys.PREDICT:
            return estimator.EstimatorSpec(mode, predictions=predictions)
        loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
        if mode == estimator.ModeKeys.EVAL:
            metrics = {
                'accuracy': v1.metrics.accuracy(labels, predictions['class']),
                'auc': v1.metrics.auc(tf.equal(labels, 1), predictions['scores'][:, 1]),
            }
            return estimator.EstimatorSpec(mode, predictions=predictions, loss=loss, eval_metric_ops=metrics)
        optimizer = v1.train.AdamOptimizer(0.01)
        with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
            train_op = optimizer.minimize(loss, v1.train.get_global_step())
        return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    return model_fn


class Losses(v1.train.SessionRunHook):
    """Keeps the loss of every step."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def before_run(self, run_context: Any) -> Any:
        """Asks for the loss."""
        return v1.train.SessionRunArgs(v1.get_collection(v1.GraphKeys.LOSSES)[0])

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Keeps it."""
        self.values.append(float(run_values.results))


def losses(estimator: Any, steps: int) -> list[float]:
    """Trains so many steps, and returns the loss of each."""
    hook = Losses()
    estimator.train(train_input_fn, hooks=[hook], steps=steps)
    return hook.values


def metrics(estimator: Any) -> dict[str, float]:
    """Evaluates the newest checkpoint, and returns the metrics as Python's floats."""
    return {name: float(value) for name, value in sorted(estimator.evaluate(eval_input_fn).items())}
