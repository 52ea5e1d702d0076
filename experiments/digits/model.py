"""A small convolutional network with batch normalization and dropout."""

from collections.abc import Mapping, Sequence

import gin
import tensorflow as tf
from tensorflow.compat import v1

from framework import EstimatorSpec, ModeKeys

CLASSES = 10


def compute_logits(
    images: tf.Tensor,
    *,
    training: bool,
    filters: Sequence[int],
    hidden: int,
    dropout_rate: float,
    batch_norm_momentum: float,
) -> tf.Tensor:
    """Returns logits `[B, 10]`: a block of two convolutions per entry of `filters`, halved in between, then two layers.

    Args:
        images: `[B, 8, 8, 1]` in [0, 1].
        training: Whether batch normalization uses the batch's own statistics and dropout drops.
        filters: Channels of each block.
        hidden: Units of the hidden dense layer.
        dropout_rate: Share of units dropped before each dense layer.
        batch_norm_momentum: Share of the moving statistics that a step keeps.
    """
    net = images
    for block, channels in enumerate(filters):
        if block:
            net = v1.layers.max_pooling2d(net, pool_size=2, strides=2)
        for _ in range(2):
            net = v1.layers.conv2d(net, channels, kernel_size=3, padding='same', use_bias=False)
            net = v1.layers.batch_normalization(net, momentum=batch_norm_momentum, training=training)
            net = tf.nn.relu(net)
    net = v1.layers.flatten(net)
    net = v1.layers.dropout(net, rate=dropout_rate, training=training)
    net = v1.layers.dense(net, hidden, activation=tf.nn.relu)
    net = v1.layers.dropout(net, rate=dropout_rate, training=training)
    return v1.layers.dense(net, CLASSES)


def build_train_op(loss: tf.Tensor, learning_rate: float, decay_steps: int) -> tf.Operation:
    """Returns a step of Adam that also updates the moving statistics and moves the global step.

    Args:
        loss: The scalar to minimise.
        learning_rate: Learning rate at step 0.
        decay_steps: Steps over which it falls to 0 along half a cosine.
    """
    global_step = v1.train.get_or_create_global_step()
    rate = v1.train.cosine_decay(learning_rate, global_step, decay_steps)
    v1.summary.scalar('learning_rate', rate)
    with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
        return v1.train.AdamOptimizer(rate).minimize(loss, global_step=global_step)


@gin.configurable(module='digits')
def model_fn(
    features: Mapping[str, tf.Tensor],
    labels: tf.Tensor | None,
    mode: str,
    learning_rate: float = 3e-3,
    decay_steps: int = 600,
    filters: Sequence[int] = (48, 96),
    hidden: int = 128,
    dropout_rate: float = 0.4,
    batch_norm_momentum: float = 0.9,
) -> EstimatorSpec:
    """Builds the network for one mode.

    Args:
        features: {'image': `[B, 8, 8, 1]` float32 in [0, 1]}.
        labels: `[B]` int64 in 0..9; unused for prediction.
        mode: One of `ModeKeys`.
        learning_rate: Learning rate of Adam at step 0.
        decay_steps: Steps over which it falls to 0 along half a cosine; no less than the steps of the run.
        filters: Channels of each block of two convolutions.
        hidden: Units of the hidden dense layer.
        dropout_rate: Share of units dropped before each dense layer, in training.
        batch_norm_momentum: Share of the moving statistics that a training step keeps.

    Returns:
        The spec: the loss is the mean cross entropy; evaluation adds 'accuracy'; prediction gives 'class' `[B]` and
        'probability' `[B, 10]`.
    """
    logits = compute_logits(
        features['image'],
        training=mode == ModeKeys.TRAIN,
        filters=filters,
        hidden=hidden,
        dropout_rate=dropout_rate,
        batch_norm_momentum=batch_norm_momentum,
    )
    predictions = {'class': tf.argmax(logits, axis=-1), 'probability': tf.nn.softmax(logits)}
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions=predictions)
    loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
    if mode == ModeKeys.EVAL:
        metrics = {'accuracy': v1.metrics.accuracy(labels, predictions['class'])}
        return EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    return EstimatorSpec(mode, loss=loss, train_op=build_train_op(loss, learning_rate, decay_steps))
