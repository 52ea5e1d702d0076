"""What the benchmarks train: networks, data, optimizer and metrics, in plain TensorFlow.

Nothing of the framework is imported here, so that programs of other environments run the very same functions. All
values follow from constants: whoever builds a network begins with the same weights and reads the same batches.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from tensorflow.compat import v1

EPSILON = 1e-7  # Keras's default; that of `AdamOptimizer` is another one
_NOISE = 0.5  # of the labels, so that losses stay large enough to be compared
_NORM = {'momentum': 0.99, 'epsilon': 1e-3}
_BLOCKS = 64


class Layers(Protocol):
    """The layers of one build of a network, by whatever library."""

    def dense(self, inputs: Any, units: int, activation: Any = None) -> Any:
        """Returns `[B, units]`."""

    def conv(self, inputs: Any, filters: int) -> Any:
        """Returns `[B, H, W, filters]` of kernels of 5x5, rectified."""

    def pool(self, inputs: Any) -> Any:
        """Returns `[B, H / 2, W / 2, C]`."""

    def flatten(self, inputs: Any) -> Any:
        """Returns `[B, H * W * C]`."""

    def norm(self, inputs: Any) -> Any:
        """Returns the batch, normalised."""

    def dropout(self, inputs: Any, rate: float) -> Any:
        """Returns the inputs with some left out, where the build has that."""


class Initial:
    """Hands out the initial values of kernels, the same in every build."""

    def __init__(self) -> None:
        self._kernels = 0

    def next(self) -> Callable[..., tf.Tensor]:
        """Returns the initializer of the next kernel."""
        seed, self._kernels = self._kernels, self._kernels + 1

        def initial(shape: Any, dtype: Any = tf.float32, **_: Any) -> tf.Tensor:
            limit = math.sqrt(3 / math.prod(shape[:-1]))
            return tf.constant(np.random.RandomState(seed).uniform(-limit, limit, tuple(shape)), dtype)

        return initial


class GraphLayers:
    """`tf.compat.v1.layers`; a second build in the same graph shares the variables of the first."""

    def __init__(self, training: bool, drops: bool = False):
        self._training = training
        self._drops = drops
        self._initial = Initial()
        self._layers = 0

    def dense(self, inputs: tf.Tensor, units: int, activation: Any = None) -> tf.Tensor:
        """See `Layers`."""
        return v1.layers.dense(inputs, units, activation, kernel_initializer=self._initial.next(), name=self._name())

    def conv(self, inputs: tf.Tensor, filters: int) -> tf.Tensor:
        """See `Layers`."""
        kernel = self._initial.next()
        return v1.layers.conv2d(
            inputs, filters, 5, padding='same', activation=tf.nn.relu, kernel_initializer=kernel, name=self._name()
        )

    def pool(self, inputs: tf.Tensor) -> tf.Tensor:
        """See `Layers`."""
        return v1.layers.max_pooling2d(inputs, 2, 2)

    def flatten(self, inputs: tf.Tensor) -> tf.Tensor:
        """See `Layers`."""
        return v1.layers.flatten(inputs)

    def norm(self, inputs: tf.Tensor) -> tf.Tensor:
        """See `Layers`."""
        return v1.layers.batch_normalization(inputs, training=self._training, name=self._name(), **_NORM)

    def dropout(self, inputs: tf.Tensor, rate: float) -> tf.Tensor:
        """See `Layers`."""
        return v1.layers.dropout(inputs, rate, training=self._training) if self._drops else inputs

    def _name(self) -> str:
        self._layers += 1
        return f'layer_{self._layers}'


class KerasLayers:
    """Layers of a Keras that behaves like version 2; without dropout."""

    def __init__(self, layers: Any):
        """Takes the module `layers` of that Keras."""
        self._of = layers
        self._initial = Initial()

    def dense(self, inputs: Any, units: int, activation: Any = None) -> Any:
        """See `Layers`."""
        return self._of.Dense(units, activation, kernel_initializer=self._initial.next())(inputs)

    def conv(self, inputs: Any, filters: int) -> Any:
        """See `Layers`."""
        kernel = self._initial.next()
        return self._of.Conv2D(filters, 5, padding='same', activation=tf.nn.relu, kernel_initializer=kernel)(inputs)

    def pool(self, inputs: Any) -> Any:
        """See `Layers`."""
        return self._of.MaxPooling2D(2, 2)(inputs)

    def flatten(self, inputs: Any) -> Any:
        """See `Layers`."""
        return self._of.Flatten()(inputs)

    def norm(self, inputs: Any) -> Any:
        """See `Layers`."""
        return self._of.BatchNormalization(**_NORM)(inputs)

    def dropout(self, inputs: Any, rate: float) -> Any:
        """See `Layers`."""
        del rate
        return inputs


def _mlp(layers: Layers, features: Any) -> Any:
    hidden = layers.dense(features, 64, tf.nn.relu)
    return layers.dense(layers.dropout(hidden, 0.5), 1)


def _conv(filters: tuple[int, int], units: int) -> Callable[[Layers, Any], Any]:
    """Returns two convolutions and two dense layers."""

    def network(layers: Layers, features: Any) -> Any:
        maps = layers.pool(layers.conv(features, filters[0]))
        maps = layers.pool(layers.conv(maps, filters[1]))
        hidden = layers.dense(layers.flatten(maps), units, tf.nn.relu)
        return layers.dense(layers.dropout(hidden, 0.4), 1)

    return network


def _deep(blocks: int) -> Callable[[Layers, Any], Any]:
    """Returns residual blocks of width 16 with 8 variables each, between two layers with 2."""

    def network(layers: Layers, features: Any) -> Any:
        state = layers.dense(features, 16, tf.nn.relu)
        for _ in range(blocks):
            # Normalised first: a bias just before would be moved by nothing but the rounding of its gradient.
            state = state + layers.dense(layers.dense(layers.norm(state), 16, tf.nn.relu), 16)
        return layers.dense(state, 1)

    return network


@dataclasses.dataclass(frozen=True)
class Workload:
    """A network, its data, and the size of a round: training steps, then one pass over all evaluation batches.

    Attributes:
        network: Makes outputs `[B, 1]` of features `[B, ...]`.
        shape: The shape of the features of an example.
        distinct: How many examples differ; training and evaluation read them in their order, again and again.
        batch_size: Examples a batch `B`.
        steps: Training steps a round.
        batches: Evaluation batches a round, of which the last is half full.
        learning_rate: Small where rounding errors grow from step to step.
    """

    network: Callable[[Layers, Any], Any]
    shape: tuple[int, ...]
    distinct: int
    batch_size: int
    steps: int
    batches: int
    learning_rate: float

    @property
    def eval_examples(self) -> int:
        """Examples an evaluation pass."""
        return self.batches * self.batch_size - self.batch_size // 2

    def examples(self) -> tf.data.Dataset:
        """Returns the examples `(features, labels [1])`, each once."""
        generator = np.random.RandomState(0)
        features = generator.randn(self.distinct, *self.shape).astype(np.float32)
        sums = features.reshape(self.distinct, -1).sum(axis=1, keepdims=True) / math.sqrt(math.prod(self.shape))
        labels = sums + _NOISE * generator.randn(self.distinct, 1)
        return tf.data.Dataset.from_tensor_slices((features, labels.astype(np.float32)))

    def input_fn(self, mode: str) -> tf.data.Dataset:
        """Returns the batches of training, without end, or those of a pass.

        Nothing is shuffled or fetched ahead, and no thread tunes anything: between two rounds all is at rest.
        """
        examples = self.examples().repeat()
        if mode != 'train':
            examples = examples.take(self.eval_examples)
        options = tf.data.Options()
        options.autotune.enabled = False
        return examples.batch(self.batch_size).with_options(options)


def deep(blocks: int) -> Workload:
    """Returns the workload whose graph has `8 * blocks + 4` variables of the model."""
    return Workload(_deep(blocks), (10,), distinct=640, batch_size=32, steps=20, batches=10, learning_rate=1e-4)


def conv(filters: tuple[int, int], units: int) -> Workload:
    """Returns the workload of images of 28x28.

    Args:
        filters: Those of the first and of the second convolution.
        units: Those of the dense layer between them and the output.
    """
    return Workload(
        _conv(filters, units), (28, 28, 1), distinct=640, batch_size=64, steps=100, batches=50, learning_rate=3e-6
    )


WORKLOADS = {
    'mlp': Workload(_mlp, (10,), distinct=3200, batch_size=32, steps=100, batches=50, learning_rate=1e-3),
    'conv': conv((8, 16), 64),
    'deep': deep(_BLOCKS),
}


def mean_square(outputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Returns the loss of a batch."""
    return tf.reduce_mean(tf.square(outputs - labels))


def training_step(
    workload: Workload, features: tf.Tensor, labels: tf.Tensor, drops: bool = False
) -> tuple[tf.Operation, tf.Tensor]:
    """Returns the train op and the loss of a batch in the default graph, which has a global step.

    Args:
        workload: The network.
        features: `[B, ...]`.
        labels: `[B, 1]`.
        drops: Whether the network has its dropout.
    """
    loss = mean_square(_outputs(workload, features, GraphLayers(True, drops)), labels)
    with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
        optimizer = v1.train.AdamOptimizer(workload.learning_rate, epsilon=EPSILON)
        return optimizer.minimize(loss, v1.train.get_global_step()), loss


def evaluation(
    workload: Workload, features: tf.Tensor, labels: tf.Tensor
) -> tuple[tf.Tensor, Mapping[str, tuple[tf.Tensor, tf.Operation]]]:
    """Returns the loss of a batch, and the metrics (value and update) of a pass: `mae`, the mean over its examples."""
    outputs = _outputs(workload, features, GraphLayers(False))
    return mean_square(outputs, labels), {'mae': v1.metrics.mean_absolute_error(labels, outputs)}


def _outputs(workload: Workload, features: tf.Tensor, layers: GraphLayers) -> tf.Tensor:
    with v1.variable_scope('model', reuse=v1.AUTO_REUSE):
        return workload.network(layers, features)


def make_model_fn(workload: Workload, spec: Callable[..., Any], drops: bool = False) -> Callable[..., Any]:
    """Returns the model_fn of a workload.

    Args:
        workload: The network.
        spec: The class `EstimatorSpec` of whoever calls it.
        drops: Whether the network has its dropout.
    """

    def model_fn(features: tf.Tensor, labels: tf.Tensor, mode: str) -> Any:
        if mode == 'train':
            train_op, loss = training_step(workload, features, labels, drops)
            return spec(mode, loss=loss, train_op=train_op)
        loss, metrics = evaluation(workload, features, labels)
        return spec(mode, loss=loss, eval_metric_ops=metrics)

    return model_fn
