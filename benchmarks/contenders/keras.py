"""Keras of version 2: `fit` with validation data, and a loop of one's own around `tf.function`."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tf_keras

from benchmarks import networks
from benchmarks.contenders.rounds import Contender, Figures, HandOver, InTurns


class _Model(tf_keras.Model):
    """A network with the step of `fit` that gives the loss of a batch, in place of a mean over the epoch.

    That is the documented way to change a step. It leaves out the metrics of training, which no contender has.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.of_pass = _Metrics()

    @property
    def metrics(self) -> list[tf_keras.metrics.Metric]:
        """What is reset before a pass."""
        return [self.of_pass.loss, self.of_pass.mae]

    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        """Makes a training step."""
        return {'loss': _train(self, self.optimizer, *data)}

    def test_step(self, data: Any) -> dict[str, tf.Tensor]:
        """Takes a batch into the metrics."""
        self.of_pass.update(self, *data)
        return {metric.name: metric.result() for metric in self.metrics}


class _Metrics:
    """The metrics of a pass."""

    def __init__(self) -> None:
        self.loss = tf_keras.metrics.Mean('loss')
        self.mae = tf_keras.metrics.MeanAbsoluteError('mae')

    def update(self, model: tf_keras.Model, features: tf.Tensor, labels: tf.Tensor) -> None:
        """Takes a batch."""
        outputs = model(features, training=False)
        self.loss.update_state(networks.mean_square(outputs, labels))
        self.mae.update_state(labels, outputs)


def _model(workload: networks.Workload) -> _Model:
    inputs = tf_keras.Input(workload.shape)
    return _Model(inputs, workload.network(networks.KerasLayers(tf_keras.layers), inputs))


def _optimizer(workload: networks.Workload) -> tf_keras.optimizers.Optimizer:
    return tf_keras.optimizers.Adam(workload.learning_rate, epsilon=networks.EPSILON)


def _train(
    model: tf_keras.Model, optimizer: tf_keras.optimizers.Optimizer, features: tf.Tensor, labels: tf.Tensor
) -> tf.Tensor:
    with tf.GradientTape() as tape:
        loss = networks.mean_square(model(features, training=True), labels)
    variables = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    return loss


def fit(workload: networks.Workload, rounds: int, steps_per_execution: int) -> Contender:
    """Returns `fit`, with an epoch a round and no callback but the one that ends a round.

    Args:
        workload: What it trains.
        rounds: How many rounds it will be asked for.
        steps_per_execution: Steps in one call of a `tf.function`.
    """

    def loop(hand_over: HandOver) -> None:
        model = _model(workload)
        model.compile(_optimizer(workload), steps_per_execution=steps_per_execution)
        model.fit(
            workload.input_fn('train'),
            epochs=rounds,
            steps_per_epoch=workload.steps,
            validation_data=workload.input_fn('eval'),
            callbacks=[_EndOfRound(hand_over)],
            shuffle=False,
            verbose=0,
        )

    return InTurns(loop)


class _EndOfRound(tf_keras.callbacks.Callback):
    def __init__(self, hand_over: HandOver):
        super().__init__()
        self._hand_over = hand_over

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        del epoch
        found = logs or {}
        metrics = {name: float(found[f'val_{name}']) for name in ('loss', 'mae')}
        step, examples = int(self.model.optimizer.iterations), int(self.model.of_pass.mae.count)
        self._hand_over(Figures(step, float(found['loss']), metrics, None, examples))


class Functions(Contender):
    """A training step and an evaluation step, each a `tf.function`, called batch by batch."""

    def __init__(self, workload: networks.Workload, rounds: int):
        del rounds
        self._workload = workload
        self._model: _Model | None = None

    def round(self) -> Figures:
        """See `Contender`."""
        if self._model is None:
            self._build()
        loss = tf.constant(0.0)
        for _ in range(self._workload.steps):
            loss = self._train(*next(self._batches))
        for metric in self._model.metrics:
            metric.reset_state()
        for features, labels in self._eval_data:
            self._evaluate(features, labels)
        metrics = {metric.name: float(metric.result()) for metric in self._model.metrics}
        step, examples = int(self._optimizer.iterations), int(self._model.of_pass.mae.count)
        return Figures(step, float(loss), metrics, None, examples)

    def _build(self) -> None:
        self._model = model = _model(self._workload)
        self._optimizer = optimizer = _optimizer(self._workload)
        optimizer.build(model.trainable_variables)
        self._batches = iter(self._workload.input_fn('train'))
        self._eval_data = self._workload.input_fn('eval')
        self._train = tf.function(lambda features, labels: _train(model, optimizer, features, labels))
        self._evaluate = tf.function(lambda features, labels: model.of_pass.update(model, features, labels))
