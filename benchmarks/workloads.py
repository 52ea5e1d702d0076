"""The models that benchmarks run: small enough that overhead shows, or large enough that it must not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compat import v1

from framework import EstimatorSpec, ModeKeys


def mlp() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns model_fn and input_fn of 10-64-1, in batches of 32."""
    generator = np.random.RandomState(0)
    x = generator.randn(3200, 10).astype(np.float32)

    def outputs(features: tf.Tensor, training: bool) -> tf.Tensor:
        hidden = v1.layers.dense(features, 64, activation=tf.nn.relu)
        return v1.layers.dense(v1.layers.dropout(hidden, 0.5, training=training), 1)

    return _regression(outputs), _input_fn(x, x.sum(axis=1, keepdims=True), 32)


def conv() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns model_fn and input_fn of a convolutional net on images of 28x28, in batches of 64."""
    generator = np.random.RandomState(0)
    x = generator.randn(640, 28, 28, 1).astype(np.float32)

    def outputs(features: tf.Tensor, training: bool) -> tf.Tensor:
        maps = v1.layers.conv2d(features, 32, 5, padding='same', activation=tf.nn.relu)
        maps = v1.layers.max_pooling2d(maps, 2, 2)
        maps = v1.layers.conv2d(maps, 64, 5, padding='same', activation=tf.nn.relu)
        hidden = v1.layers.dense(v1.layers.flatten(v1.layers.max_pooling2d(maps, 2, 2)), 256, activation=tf.nn.relu)
        return v1.layers.dense(v1.layers.dropout(hidden, 0.4, training=training), 1)

    return _regression(outputs), _input_fn(x, x.mean(axis=(1, 2)), 64)


WORKLOADS = {'mlp': mlp, 'conv': conv}


def _regression(outputs: Callable[[tf.Tensor, bool], tf.Tensor]) -> Callable[..., EstimatorSpec]:
    def model_fn(features: tf.Tensor, labels: tf.Tensor, mode: str) -> EstimatorSpec:
        loss = tf.reduce_mean(tf.square(outputs(features, mode == ModeKeys.TRAIN) - labels))
        train_op = None
        if mode == ModeKeys.TRAIN:
            train_op = v1.train.AdamOptimizer(1e-3).minimize(loss, v1.train.get_global_step())
        return EstimatorSpec(mode, loss=loss, train_op=train_op)

    return model_fn


def _input_fn(features: np.ndarray, labels: np.ndarray, batch_size: int) -> Callable[..., tf.data.Dataset]:
    def input_fn(mode: str) -> tf.data.Dataset:
        dataset = tf.data.Dataset.from_tensor_slices((features, labels))
        if mode == ModeKeys.TRAIN:
            dataset = dataset.shuffle(1000).repeat()
        return dataset.batch(batch_size)

    return input_fn
