"""Metrics of training, accumulated between two readings."""

import numpy as np
import tensorflow as tf
from tensorflow.compat import v1

from framework import testing
from framework.graph import compiled
from framework.spec import EstimatorSpec

BATCH = 4
FEATURES, LABELS = testing.blobs(12)


def _built(metrics, input_fn=None, accumulate=True):
    """Returns the graph of a model whose TRAIN metrics are made by `metrics(features, labels)`."""

    def model_fn(features, labels, mode):
        made = testing.linear_model_fn(features, labels, mode)
        return EstimatorSpec(mode, loss=made.loss, train_op=made.train_op, eval_metric_ops=metrics(features, labels))

    model = compiled.Model(model_fn, None, None)
    input_fn = input_fn or testing.array_input_fn(FEATURES, LABELS, BATCH)
    return compiled.compile_graph(model, input_fn, [], seed=1, accumulate=accumulate)


def _mean(features, labels):
    return {'mean': v1.metrics.mean(features), 'positive': v1.metrics.mean(labels)}


def _session(built):
    session = v1.Session(graph=built.graph)
    with built.graph.as_default():
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
    session.run(list(built.train.input.initializers.values()))
    return session


def test_metrics_are_those_of_the_batches_since_the_reset():
    built = _built(_mean)
    train = built.train
    with _session(built) as session:
        for period in ([0, 1], [2]):
            session.run(train.metrics.reset)
            for _ in period:
                session.run([train.spec.train_op, train.metrics.update])
            values = session.run(dict(train.metrics.values))
            rows = np.concatenate([FEATURES[BATCH * i : BATCH * (i + 1)] for i in period])
            np.testing.assert_allclose(values['mean'], rows.mean(), rtol=1e-6)


def test_a_value_that_reads_the_batch_is_left_out():
    # Reading it would take a batch from training.
    def metrics(features, labels):
        return {**_mean(features, labels), 'batch': (tf.reduce_mean(features), tf.no_op())}

    assert list(_built(metrics).train.metrics.values) == ['mean', 'positive']


def test_names_that_a_line_about_training_has_already_are_left_out():
    assert _built(lambda features, _: {'loss': v1.metrics.mean(features)}).train.metrics is None


def test_a_model_without_metrics_has_none():
    assert _built(lambda *_: {}).train.metrics is None
    assert _built(_mean, accumulate=False).train.metrics is None


def test_only_the_state_of_metrics_is_reset():
    # A local variable that the train op writes is the model's: gradients that it accumulates, for example.
    def model_fn(features, labels, mode):
        made = testing.linear_model_fn(features, labels, mode)
        count = v1.get_local_variable('count', initializer=0)
        counted = v1.assign_add(count, 1)
        metrics = {'count': (count.read_value(), counted), 'mean': v1.metrics.mean(features)}
        train_op = tf.group(made.train_op, counted)
        return EstimatorSpec(mode, loss=made.loss, train_op=train_op, eval_metric_ops=metrics)

    model = compiled.Model(model_fn, None, None)
    built = compiled.compile_graph(model, testing.array_input_fn(FEATURES, LABELS, BATCH), [], seed=1, accumulate=True)
    names = [variable.op.name for variable in built.train.metrics.variables]
    assert len(names) == 2 and 'count' not in names
