"""The zoo: one small model_fn for each kind of thing that people write, each compared with lone graphs.

A lone graph is made by plain code that uses nothing of the framework but what model_fn itself uses.

A model is a `model_fn(features, labels, mode, spec)`, where `spec` is `Zoo.spec`; a network makes outputs `[B, 1]` from
`(features, training)`, and `Zoo.regression` makes a model of it.
"""

import functools
import pathlib
import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import EstimatorSpec, EvalSet, Experiment, ModeKeys, RunConfig, errors
from framework.run_config import default_session_config

KEYS = v1.GraphKeys
SEED = 3
STEPS = 20
BATCH = 5  # divides the size of no set

Values = Mapping[str, Any]


def examples(count: int, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Features x `[N, 4]`, ids `[N, 3]` from 0 to 5 and word `[N]`; labels `[N, 1]`."""
    generator = np.random.RandomState(seed)
    x = generator.randn(count, 4).astype(np.float32)
    ids = generator.randint(6, size=[count, 3])
    word = generator.choice(['ant', 'bee', 'cat', 'dog'], count)
    return {'x': x, 'ids': ids, 'word': word}, x.sum(axis=1, keepdims=True)


SETS = {'train': examples(33, 0), 'valid': examples(13, 1), 'test': examples(8, 2)}


def input_fn(stream: str, mode: str) -> tf.data.Dataset:
    dataset = tf.data.Dataset.from_tensor_slices(SETS[stream])
    return (dataset.shuffle(33).repeat() if mode == ModeKeys.TRAIN else dataset).batch(BATCH)


class Zoo:
    """Compares models with their lone graphs; the files of the runs lie in a directory of the test."""

    def __init__(self, directory: pathlib.Path):
        self._directory = directory

    @staticmethod
    def spec(mode, outputs, labels, *, loss=0.0, metrics=None, optimizer=None, train_op=None, in_eval=False):
        """A regression: squared error and `loss`; predictions, metric `error`, one step of an optimizer."""
        loss += tf.reduce_mean(tf.square(outputs - labels))
        metrics = {'error': v1.metrics.mean(tf.abs(outputs - labels)), **(metrics or {})}
        if train_op is None and (in_eval or mode == ModeKeys.TRAIN):
            optimizer = optimizer() if optimizer else v1.train.GradientDescentOptimizer(0.05)
            train_op = optimizer.minimize(loss, v1.train.get_global_step())
        return EstimatorSpec(mode, {'outputs': outputs}, loss, train_op, metrics)

    @staticmethod
    def regression(network: Callable[..., Any], **settings: Any) -> Callable[..., EstimatorSpec]:
        """Makes a model of a network; the settings are those of `spec`."""

        def model(features, labels, mode, spec):
            return spec(mode, network(features, mode == ModeKeys.TRAIN), labels, **settings)

        return model

    def check(self, make_model: Callable[[], Any], *, exact: bool = True, unfused: str | None = None) -> None:
        """Asserts the promises: the numbers of lone graphs, and of training without evaluation, and of fused runs.

        Args:
            make_model: Makes the model, once for each graph.
            exact: Whether the lone EVAL graph is met to the bit, and not to 1e-6 only.
            unfused: Why its runs can't be fused; None where they can.
        """

        def made() -> Callable[..., EstimatorSpec]:
            random.seed(SEED)  # tf_keras initialisers draw their seeds there
            with tf.Graph().as_default():
                model = make_model()
            return lambda features, labels, mode: model(features, labels, mode, self.spec)

        checkpoint, metrics, outputs = run(made(), self._directory / 'evaluated', evaluated=True)
        assert described(checkpoint) == lone_train_variables(made(), str(self._directory / 'lone'))
        for stream, (lone_metrics, lone_outputs) in lone_evaluations(made(), checkpoint).items():
            assert_equal(metrics[stream], lone_metrics, exact)
            assert_equal(outputs[stream], lone_outputs, exact)
        assert values(checkpoint) == values(run(made(), self._directory / 'alone', evaluated=False)[0])
        directory = self._directory / 'fused'
        if unfused is not None:
            with pytest.raises(errors.ConfigurationError, match=f'fuse.*require.*{unfused}'):
                run(made(), directory, evaluated=True, fuse='require')
            return
        fused, of_fused, _ = run(made(), directory, evaluated=True, fuse='require')
        assert values(fused) == values(checkpoint)
        assert of_fused.keys() == metrics.keys()
        for stream, values_of in of_fused.items():
            assert_equal(values_of, metrics[stream], exact=True)


@pytest.fixture
def zoo(tmp_path: pathlib.Path) -> Zoo:
    return Zoo(tmp_path)


# The lone graphs


def initializers() -> list[tf.Operation]:
    metrics = v1.variables_initializer(v1.get_collection(KEYS.METRIC_VARIABLES))
    return [v1.local_variables_initializer(), metrics, v1.tables_initializer()]


def lone_train_variables(model_fn: Any, prefix: str) -> dict[str, Any]:
    """Returns what the Saver of a lone TRAIN graph writes: by name the shape and dtype."""
    with tf.Graph().as_default():
        v1.set_random_seed(SEED)
        v1.train.create_global_step()
        iterator = v1.data.make_initializable_iterator(input_fn('train', ModeKeys.TRAIN))
        train_op = model_fn(*iterator.get_next(), ModeKeys.TRAIN).train_op
        saver = v1.train.Saver()
        with v1.Session() as session:
            session.run([v1.global_variables_initializer(), *initializers(), iterator.initializer])
            for _ in range(STEPS):
                session.run(train_op)
            return described(saver.save(session, prefix))


def lone_evaluations(model_fn: Any, checkpoint: str) -> dict[str, tuple[Values, Values]]:
    """Returns the metrics and the predictions of each whole set by a lone EVAL graph, each in a session of its own."""
    with tf.Graph().as_default():
        v1.set_random_seed(SEED)
        v1.train.create_global_step()
        datasets = {stream: input_fn(stream, ModeKeys.EVAL) for stream in ('valid', 'test')}
        iterator = v1.data.make_initializable_iterator(datasets['valid'])
        starts = {stream: iterator.make_initializer(dataset) for stream, dataset in datasets.items()}
        features, labels = iterator.get_next()
        result = model_fn(features, labels, ModeKeys.EVAL)
        count = tf.cast(tf.shape(labels)[0], tf.float32)
        losses = {'loss': v1.metrics.mean(result.loss), 'loss_per_example': v1.metrics.mean(result.loss, count)}
        metrics = {**result.eval_metric_ops, **losses}
        batch = [result.predictions, [update for _, update in metrics.values()]]
        saver = v1.train.Saver()
        found = {}
        for stream, start in starts.items():
            # As many rounds of graph optimizations as in a run: more may fuse other ops, and round otherwise.
            with v1.Session(config=default_session_config()) as session:
                session.run([*initializers(), start])
                saver.restore(session, checkpoint)
                batches = -(-len(SETS[stream][1]) // BATCH)
                predictions = joined([session.run(batch)[0] for _ in range(batches)])
                found[stream] = session.run({name: value for name, (value, _) in metrics.items()}), predictions
        return found


# The one graph


def run(model_fn: Any, directory: pathlib.Path, *, evaluated: bool, fuse: str = 'off') -> tuple[str, Values, Values]:
    """Returns the final checkpoint, the metrics by set, and the predictions of each set's last pass."""
    made: dict[tf.Graph, Any] = {}  # of evaluation, which may have a graph of its own

    def watched(features, labels, mode):
        result = model_fn(features, labels, mode)
        if mode == ModeKeys.EVAL:
            made[v1.get_default_graph()] = result.predictions
        return result

    hooks = {stream: [Predictions(made)] if fuse == 'off' else [] for stream in ('valid', 'test')}
    experiment = Experiment(
        model_fn=watched,
        train_input_fn=functools.partial(input_fn, 'train'),
        eval_sets=[
            EvalSet(name=stream, input_fn=functools.partial(input_fn, stream), hooks=hooks_of)
            for stream, hooks_of in hooks.items()
        ],
        train_steps=STEPS,
        eval_every_steps=STEPS // 2,
        model_dir=str(directory),
        seed=SEED,
        run_config=RunConfig(save_checkpoints_steps=STEPS, save_summary_steps=10, fuse=fuse),
    )
    result = experiment.train_and_evaluate() if evaluated else experiment.train()
    outputs = {stream: joined(hook.batches) for stream, hooks_of in hooks.items() for hook in hooks_of if evaluated}
    return str(directory / f'model.ckpt-{STEPS}'), result.metrics, outputs


class Predictions(v1.train.SessionRunHook):
    """Keeps what the batches of the newest pass predict."""

    def __init__(self, made: Mapping[tf.Graph, Any]):
        self._made = made

    def after_create_session(self, session, coord):
        self.batches: list[Any] = []

    def before_run(self, run_context):
        return v1.train.SessionRunArgs(self._made[run_context.session.graph])

    def after_run(self, run_context, run_values):
        self.batches.append(run_values.results)


def joined(batches: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def described(checkpoint: str) -> dict[str, Any]:
    reader = v1.train.load_checkpoint(checkpoint)
    dtypes = reader.get_variable_to_dtype_map()
    return {name: (shape, dtypes[name]) for name, shape in reader.get_variable_to_shape_map().items()}


def values(checkpoint: str) -> dict[str, Any]:
    reader = v1.train.load_checkpoint(checkpoint)
    found = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    return {name: value.tolist() if value.dtype == object else value.tobytes() for name, value in found.items()}


def assert_equal(actual: Values, expected: Values, exact: bool) -> None:
    assert sorted(actual) == sorted(expected)
    for name in expected:
        if exact or np.asarray(expected[name]).dtype.kind not in 'fc':
            np.testing.assert_array_equal(actual[name], expected[name], err_msg=name)
        else:
            np.testing.assert_allclose(actual[name], expected[name], rtol=1e-6, err_msg=name)
