"""Odd but legal models, which one graph for training and evaluation could get wrong in silence.

Each does something that means more, or another thing, where the graph holds a second call of model_fn: it searches
the graph, keeps a Python object over the calls, names its state after an op, counts what is there, or moves state
outside of the train op.
"""

import weakref

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import Experiment, ModeKeys, testing

KEYS = v1.GraphKeys


def said(number):
    """A metric of a fixed number."""
    return tf.constant(number), tf.no_op()


# Ops that are found by name or by search


def outputs_that_are_found_by_name(features, training):
    tf.identity(v1.layers.dense(features['x'], 3, tf.nn.relu, name='hidden'), name='found')
    graph = v1.get_default_graph()
    hidden = graph.get_tensor_by_name('found:0') + graph.get_operation_by_name('hidden/Relu').outputs[0]
    return v1.layers.dense(hidden, 1)


def activations_that_a_search_of_the_graph_finds(features, labels, mode, spec):
    outputs = v1.layers.dense(v1.layers.dense(features['x'], 3, tf.nn.relu), 1)
    found = [op.outputs[0] for op in v1.get_default_graph().get_operations() if op.type == 'Relu']
    return spec(mode, outputs, labels, loss=0.1 * tf.add_n([tf.reduce_mean(hidden) for hidden in found]))


# Python objects that outlive a call


def a_mode_that_is_kept_on_the_graph(features, training):
    graph = v1.get_default_graph()
    if not hasattr(graph, 'is_training'):
        graph.is_training = tf.constant(training)
    return v1.layers.dense(tf.where(graph.is_training, 2 * features['x'], features['x']), 1)


RATES = weakref.WeakKeyDictionary()


def a_rate_that_is_kept_by_graph(features, training):
    graph = v1.get_default_graph()
    if graph not in RATES:
        RATES[graph] = tf.constant(0.5 if training else 0.0)
    return v1.layers.dense(features['x'] * (1 - RATES[graph]), 1)


def make_a_kept_layer_with_regularization_losses(zoo):
    # A kept layer adds its losses of weights in the call that builds it, and in no other.
    regularizer = tf.keras.regularizers.l2(0.1)
    layer = v1.layers.Dense(1, kernel_regularizer=regularizer, activity_regularizer=regularizer)

    def model(features, labels, mode, spec):
        outputs = layer(features['x'])
        terms = said(len(v1.losses.get_regularization_losses()))
        return spec(mode, outputs, labels, loss=v1.losses.get_regularization_loss(), metrics={'terms': terms})

    return model


def make_a_kept_keras_model_with_updates(zoo):
    kept = tf.keras.Sequential([tf.keras.layers.BatchNormalization(momentum=0.5), tf.keras.layers.Dense(1)])

    def model(features, labels, mode, spec):
        outputs = kept(features['x'], training=mode == ModeKeys.TRAIN)
        with tf.control_dependencies(kept.updates if mode == ModeKeys.TRAIN else []):  # each call adds to them
            return spec(mode, outputs, labels)

    return model


def make_a_kept_template_with_a_tf_variable(zoo):
    # A second call of a template reuses what get_variable made, but makes each tf.Variable anew.
    template = v1.make_template('net', lambda x: x @ v1.get_variable('w', [4, 1]) + tf.Variable(0.1, name='bias'))
    return zoo.regression(lambda features, training: template(features['x']))


# Collections


def losses_in_a_collection_named_by_a_tuple(features, labels, mode, spec):
    outputs = v1.layers.dense(features['x'], 1)
    v1.add_to_collection(('losses', 3), tf.reduce_mean(tf.abs(outputs)))
    return spec(mode, outputs, labels, loss=tf.add_n(v1.get_collection(('losses', 3))))


def losses_that_are_found_by_scope(features, labels, mode, spec):
    outputs = v1.layers.dense(features['x'], 1)
    with v1.name_scope('head_a'):
        v1.losses.mean_squared_error(labels, outputs)
    with v1.name_scope('head_b') as scope:
        v1.losses.absolute_difference(labels, outputs)
    found = {'a': v1.losses.get_losses('head_a'), 'b': v1.losses.get_losses(scope)}
    terms = {name: said(len(losses)) for name, losses in found.items()}
    return spec(mode, outputs, labels, loss=tf.add_n(found['a']) + 2 * tf.add_n(found['b']), metrics=terms)


def updates_and_summaries_that_are_found_by_scope(features, labels, mode, spec):
    hidden = v1.layers.batch_normalization(features['x'], momentum=0.5, training=True, name='bn')
    v1.summary.scalar('x/y', tf.reduce_mean(hidden))
    updates = v1.get_collection(KEYS.UPDATE_OPS, scope='bn/')
    metrics = {'updates': said(len(updates)), 'summaries': said(len(v1.get_collection(KEYS.SUMMARIES, scope='x')))}
    with tf.control_dependencies(updates if mode == ModeKeys.TRAIN else []):
        return spec(mode, v1.layers.dense(tf.identity(hidden), 1), labels, metrics=metrics)


def metric_variables_that_are_found_by_scope(features, labels, mode, spec):
    outputs = v1.layers.dense(features['x'], 1)
    with v1.name_scope('mine'):
        metrics = {'mean': v1.metrics.mean(outputs), 'root': v1.metrics.root_mean_squared_error(labels, outputs)}
    found = {'metric': v1.get_collection(KEYS.METRIC_VARIABLES, scope='mine'), 'local': v1.local_variables('mine/')}
    return spec(mode, outputs, labels, metrics={**metrics, **{name: said(len(vs)) for name, vs in found.items()}})


def decay_of_all_global_variables(features, labels, mode, spec):
    # In one graph the slots of Adam are there when evaluation asks.
    outputs = v1.layers.dense(features['x'], 1)
    variables = [v for v in v1.global_variables() if v.dtype.base_dtype == tf.float32]
    loss = 0.1 * tf.add_n([tf.nn.l2_loss(v) for v in variables])
    count = said(len(v1.global_variables()))
    return spec(
        mode, outputs, labels, loss=loss, metrics={'count': count}, optimizer=lambda: v1.train.AdamOptimizer(0.05)
    )


def decay_and_the_last_layer_beside_a_head_of_training(features, labels, mode, spec):
    hidden = v1.layers.dense(features['x'], 3, tf.tanh)
    outputs, loss = v1.layers.dense(hidden, 1, name='main'), 0.0
    if mode == ModeKeys.TRAIN:
        loss = tf.reduce_mean(tf.square(v1.layers.dense(hidden, 1, name='aux') - labels))
    variables = v1.trainable_variables()
    loss += 0.1 * tf.add_n([tf.nn.l2_loss(v) for v in variables])
    metrics = {'count': said(len(variables)), 'last': v1.metrics.mean(variables[-2])}
    return spec(mode, outputs, labels, loss=loss, metrics=metrics)


def a_saver_in_its_collection(features, labels, mode, spec):
    outputs = v1.layers.dense(features['x'], 1)
    result = spec(mode, outputs, labels, optimizer=lambda: v1.train.AdamOptimizer(0.05))
    v1.add_to_collection(KEYS.SAVERS, v1.train.Saver())
    return result


def test_weights_that_only_training_has_are_in_no_sum_of_evaluation(zoo):
    # Not to the bit: the mean of three numbers is rounded by where they lie.
    zoo.check(lambda: decay_and_the_last_layer_beside_a_head_of_training, exact=False)


# State


def a_count_that_evaluation_moves_and_reads(features, training):
    seen = v1.get_variable('seen', [], initializer=v1.zeros_initializer(), trainable=False)
    with tf.control_dependencies([seen.assign_add(tf.cast(tf.shape(features['x'])[0], tf.float32))]):
        return v1.layers.dense(features['x'], 1) + 0.001 * seen.read_value()


def spectral_norm_whose_vector_every_call_moves(features, training):
    w = v1.get_variable('w', [4, 3])
    u = v1.get_variable('u', [1, 3], initializer=v1.random_normal_initializer(), trainable=False)
    v = tf.math.l2_normalize(u @ tf.transpose(w))
    moved = tf.math.l2_normalize(v @ w)
    with tf.control_dependencies([u.assign(moved)]):
        normed = w / tf.reduce_sum((v @ w) * moved)
    return v1.layers.dense(tf.tanh(features['x'] @ normed), 1)


def batch_norm_whose_updates_every_output_runs(features, training):
    hidden = v1.layers.batch_normalization(features['x'], momentum=0.5, training=True)
    with tf.control_dependencies(v1.get_collection(KEYS.UPDATE_OPS)):
        return v1.layers.dense(tf.identity(hidden), 1)


def a_random_generator_whose_state_is_a_variable(features, training):
    generator = tf.random.Generator.from_seed(3)
    return v1.layers.dense(features['x'] + 0.1 * generator.normal(tf.shape(features['x'])), 1)


def moving_averages_of_activations(features, training):
    # As batch norm was written in 2016: the averages are named after the ops that they follow.
    hidden = v1.layers.dense(features['x'], 3)
    moments = tf.nn.moments(hidden, [0], name='moments')
    averages = tf.train.ExponentialMovingAverage(0.5)
    moved = averages.apply(moments)
    with tf.control_dependencies([moved] if training else []):
        mean, variance = [tf.identity(m if training else averages.average(m)) for m in moments]
    return v1.layers.dense(tf.nn.batch_normalization(hidden, mean, variance, None, None, 1e-3), 1)


def a_mean_named_after_an_op(features, labels, mode, spec):
    hidden = v1.layers.dense(features['x'], 3, name='hidden')
    name = hidden.op.name.replace('/', '_') + '_mean'
    mean = v1.get_variable(name, [3], initializer=v1.zeros_initializer(), trainable=False)
    moved = mean.assign(0.5 * mean + 0.5 * tf.reduce_mean(hidden, axis=0))
    with tf.control_dependencies([moved] if mode == ModeKeys.TRAIN else []):
        return spec(mode, v1.layers.dense(hidden - mean, 1), labels, metrics={'mean': (mean.read_value(), tf.no_op())})


def variables_of_a_shape_that_only_the_session_knows(features, labels, mode, spec):
    with v1.name_scope('dynamic'):
        w = v1.Variable(tf.zeros(tf.random.uniform([2], 4, 5, tf.int32))[:, :1], validate_shape=False, name='w')
        last = tf.Variable(tf.zeros([0, 4]), shape=[None, 4], validate_shape=False, name='last', trainable=False)
    kept = v1.metrics.mean(tf.reduce_sum(last))
    kept_rows = v1.metrics.mean(tf.shape(last)[0])
    with tf.control_dependencies([last.assign(features['x'])] if mode == ModeKeys.TRAIN else []):
        outputs = features['x'] @ tf.ensure_shape(w, [4, 1])
    return spec(mode, outputs, labels, metrics={'kept': kept, 'kept_rows': kept_rows})


def a_rate_that_follows_the_global_step(features, labels, mode, spec):
    step = v1.train.get_or_create_global_step()
    rate = v1.train.exponential_decay(0.1, step, 5, 0.5, staircase=True)
    metrics = {'rate': v1.metrics.mean(rate), 'step': v1.metrics.mean(step)}
    outputs = v1.layers.dense(features['x'], 1)
    return spec(mode, outputs, labels, metrics=metrics, optimizer=lambda: v1.train.GradientDescentOptimizer(rate))


def gradients_of_four_batches_for_one_step_of_adam(features, labels, mode, spec):
    outputs = v1.layers.dense(features['x'], 1)
    if mode == ModeKeys.EVAL:
        return spec(mode, outputs, labels)
    variables, step = v1.trainable_variables(), v1.train.get_global_step()
    sums = [v1.Variable(tf.zeros_like(v), trainable=False, name='sum') for v in variables]
    gradients = tf.gradients(tf.reduce_mean(tf.square(outputs - labels)), variables)
    optimizer = v1.train.AdamOptimizer(0.05)

    def apply():
        applied = optimizer.apply_gradients([(s.read_value() / 4, v) for s, v in zip(sums, variables, strict=True)])
        with tf.control_dependencies([applied]):
            return tf.group(*(s.assign(tf.zeros_like(s)) for s in sums))

    with tf.control_dependencies([s.assign_add(g) for s, g in zip(sums, gradients, strict=True)]):
        applied = tf.cond(step % 4 > 2, apply, tf.no_op)
    with tf.control_dependencies([applied]):
        return spec(mode, outputs, labels, train_op=step.assign_add(1))


def gradients_that_evaluation_takes(features, labels, mode, spec):
    def net(x):
        return v1.layers.dense(v1.layers.dense(x, 3, tf.tanh, name='a'), 1, name='b')

    outputs = net(features['x'])
    loss = tf.reduce_mean(tf.square(outputs - labels))
    norm = tf.linalg.global_norm(tf.gradients(loss, v1.trainable_variables()))
    penalty = tf.reduce_mean(tf.square(tf.norm(tf.gradients(outputs, features['x'])[0], axis=1) - 1))
    with v1.variable_scope(v1.get_variable_scope(), reuse=True):
        attacked = net(features['x'] + 0.1 * tf.sign(tf.gradients(loss, features['x'])[0]))
    metrics = {'norm': v1.metrics.mean(norm), 'attacked': v1.metrics.mean(attacked)}
    return spec(mode, outputs, labels, loss=0.1 * penalty, metrics=metrics)


def a_second_stream_of_the_model_itself(features, training):
    outputs = v1.layers.dense(features['x'], 1)
    if training:
        return outputs
    numbers = tf.data.Dataset.range(99).map(lambda n: tf.cast(n, tf.float32))
    return outputs + v1.data.make_one_shot_iterator(numbers).get_next()


def a_queue_that_evaluation_fills(features, training):
    outputs = v1.layers.dense(features['x'], 1)
    if training:
        return outputs
    queue = tf.queue.FIFOQueue(50, [tf.float32], [[]])
    with tf.control_dependencies([queue.enqueue(1.0), outputs]):
        return outputs + tf.cast(queue.size(), tf.float32)


NETWORKS = [
    outputs_that_are_found_by_name,
    moving_averages_of_activations,
]


MODELS = [
    losses_in_a_collection_named_by_a_tuple,
    losses_that_are_found_by_scope,
    updates_and_summaries_that_are_found_by_scope,
    metric_variables_that_are_found_by_scope,
    decay_of_all_global_variables,
    a_mean_named_after_an_op,
    variables_of_a_shape_that_only_the_session_knows,
    a_rate_that_follows_the_global_step,
    gradients_of_four_batches_for_one_step_of_adam,
    gradients_that_evaluation_takes,
]


KEPT = [
    make_a_kept_layer_with_regularization_losses,
    make_a_kept_keras_model_with_updates,
    make_a_kept_template_with_a_tf_variable,
]


@pytest.mark.parametrize('network', NETWORKS)
def test_the_network_is_trained_and_evaluated_as_in_lone_graphs(zoo, network):
    zoo.check(lambda: zoo.regression(network))


@pytest.mark.parametrize('model', MODELS)
def test_the_model_is_trained_and_evaluated_as_in_lone_graphs(zoo, model):
    zoo.check(lambda: model)


@pytest.mark.parametrize('make', KEPT)
def test_a_kept_object_is_trained_and_evaluated_as_in_lone_graphs(zoo, make):
    zoo.check(lambda: make(zoo))


# Those that read or write what belongs to training, or have a saver, with the reason that is told


NETWORKS_APART = {
    a_mode_that_is_kept_on_the_graph: 'it reads `Const`, which training made',
    a_rate_that_is_kept_by_graph: 'it reads `Const`, which training made',
    a_count_that_evaluation_moves_and_reads: 'it writes `seen`, which is not its own',
    spectral_norm_whose_vector_every_call_moves: 'it writes `u`, which is not its own',
    batch_norm_whose_updates_every_output_runs: 'it writes `batch_normalization/moving_mean`, which is not its own',
    a_random_generator_whose_state_is_a_variable: 'it writes `random_generator/StateVar`, which is not its own',
    a_second_stream_of_the_model_itself: 'it keeps state in `eval/tower_0/IteratorGetNext` [IteratorGetNext], which no',
    a_queue_that_evaluation_fills: 'it keeps state in `eval/tower_0/fifo_queue',
}


UNFUSED = {
    a_second_stream_of_the_model_itself: 'reads an iterator other than that of the input function',
    a_queue_that_evaluation_fills: 'fills a queue',
}


MODELS_APART = {
    activations_that_a_search_of_the_graph_finds: 'it reads `dense/Relu`, which training made',
    a_saver_in_its_collection: 'its Scaffold has a saver of its own',
}


@pytest.fixture
def told(caplog):
    caplog.set_level('INFO')
    return lambda reason: all(
        f'`{stream}` is evaluated in a graph of its own, by a checkpoint: {reason}' in caplog.text
        for stream in ('valid', 'test')
    )


@pytest.mark.parametrize('network', NETWORKS_APART)
def test_the_network_is_evaluated_in_a_graph_of_its_own_for_the_reason_told(zoo, network, told):
    zoo.check(lambda: zoo.regression(network), unfused=UNFUSED.get(network))
    assert told(NETWORKS_APART[network])


@pytest.mark.parametrize('model', MODELS_APART)
def test_the_model_is_evaluated_in_a_graph_of_its_own_for_the_reason_told(zoo, model, told):
    zoo.check(lambda: model)
    assert told(MODELS_APART[model])


def test_a_queue_runner_of_evaluation_is_started(tmp_path, caplog):
    caplog.set_level('INFO')
    experiment = Experiment(
        model_fn=queue_runner_model_fn,
        train_input_fn=testing.array_input_fn(*testing.blobs(20), 5),
        eval_sets={'valid': testing.array_input_fn(*testing.blobs(13, 1), 5)},
        train_steps=2,
        model_dir=str(tmp_path),
        seed=1,
    )
    assert experiment.train_and_evaluate().metrics['valid']['zero'] == 0.0
    assert 'its model_fn makes queue runners' in caplog.text


def queue_runner_model_fn(features, labels, mode):
    spec = testing.linear_model_fn(features, labels, mode)
    if mode == ModeKeys.TRAIN:
        return spec
    produced = v1.train.range_input_producer(1, shuffle=False).dequeue()
    return spec._replace(eval_metric_ops={'zero': v1.metrics.mean(produced)})


def test_a_table_that_only_evaluation_fills_begins_empty_in_every_pass(tmp_path):
    def model_fn(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)
        if mode == ModeKeys.TRAIN:
            return spec
        seen = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0)
        with tf.control_dependencies([seen.insert(labels, labels)]):
            size = seen.size()
        return spec._replace(eval_metric_ops={'seen': v1.metrics.mean(size)})

    constant = (np.ones([10, 4], np.float32), np.zeros(10, np.int64))
    other = (np.ones([10, 4], np.float32), np.ones(10, np.int64))
    experiment = Experiment(
        model_fn=model_fn,
        train_input_fn=testing.array_input_fn(*testing.blobs(20), 5),
        eval_sets={'zeros': testing.array_input_fn(*constant, 5), 'ones': testing.array_input_fn(*other, 5)},
        train_steps=2,
        eval_every_steps=1,
        model_dir=str(tmp_path),
        seed=1,
    )
    metrics = experiment.train_and_evaluate().metrics
    assert [float(metrics[stream]['seen']) for stream in ('zeros', 'ones')] == [1.0, 1.0]
