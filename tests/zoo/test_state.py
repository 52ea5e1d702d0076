"""State beside the weights: tables, slots of optimizers, moving averages."""

import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import ModeKeys

# Tables


def a_lookup_table(features, training):
    words = tf.constant(['ant', 'bee', 'cat', 'dog'])
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(words, tf.range(4)), -1)
    buckets = tf.lookup.StaticVocabularyTable(
        tf.lookup.KeyValueTensorInitializer(words[:2], tf.range(2, dtype=tf.int64)), 3
    )
    found = tf.one_hot(table.lookup(features['word']), 4), tf.one_hot(buckets.lookup(features['word']), 5)
    return v1.layers.dense(tf.concat([features['x'], *found], axis=1), 1)


def with_table(table, features, labels, mode, spec):
    """A model whose bias is the label of the same word that training met last, from a mutable table."""
    found = table.lookup(features['word'])[:, None]
    outputs = v1.layers.dense(features['x'], 1) + found
    result = spec(mode, outputs, labels, metrics={'found': v1.metrics.mean(found)})
    if mode == ModeKeys.EVAL:
        return result
    with tf.control_dependencies([result.train_op]):
        return result._replace(train_op=table.insert(features['word'], labels[:, 0]))


def a_mutable_hash_table_that_training_fills(features, labels, mode, spec):
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, 0.0)
    return with_table(table, features, labels, mode, spec)


def a_dense_hash_table_that_training_fills(features, labels, mode, spec):
    table = tf.lookup.experimental.DenseHashTable(tf.string, tf.float32, 0.0, 'empty', 'deleted')
    return with_table(table, features, labels, mode, spec)


# Optimizers and moving averages


def three_layers(features, training):
    hidden = features['x'] @ v1.get_variable('w', [4, 3], partitioner=v1.fixed_size_partitioner(2))
    hidden = hidden @ tf.Variable(tf.random.normal([3, 3], stddev=0.5), name='v')
    return v1.layers.dense(hidden, 1)


OPTIMIZERS = {
    'adam': lambda: v1.train.AdamOptimizer(0.01),
    'momentum': lambda: v1.train.MomentumOptimizer(0.01, 0.9, use_nesterov=True),
    'adagrad': lambda: v1.train.AdagradOptimizer(0.1),
    'ftrl': lambda: v1.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
    'rmsprop': lambda: v1.train.RMSPropOptimizer(0.01, momentum=0.5, centered=True),
}


def keras_legacy_optimizer(features, labels, mode, spec):
    outputs = tf.keras.layers.Dense(1)(features['x'])
    loss = tf.reduce_mean(tf.square(outputs - labels))
    optimizer = tf.keras.optimizers.legacy.Adam(0.01)
    optimizer.iterations = v1.train.get_global_step()
    train_op = tf.group(optimizer.get_updates(loss, v1.trainable_variables()))
    return spec(mode, outputs, labels, train_op=train_op)


def two_optimizers_of_a_gan(features, labels, mode, spec):
    with v1.variable_scope('generator'):
        outputs = v1.layers.dense(features['x'], 1)
    with v1.variable_scope('discriminator', reuse=v1.AUTO_REUSE):
        fake = v1.layers.dense(outputs, 1, name='judge')
        real = v1.layers.dense(labels, 1, name='judge')
    losses = {'generator': tf.reduce_mean(tf.nn.softplus(-fake))}
    losses['discriminator'] = tf.reduce_mean(tf.nn.softplus(fake) + tf.nn.softplus(-real))
    steps = [
        v1.train.AdamOptimizer(0.01).minimize(loss, var_list=v1.trainable_variables(scope))
        for scope, loss in losses.items()
    ]
    count = v1.assign_add(v1.train.get_global_step(), 1)
    return spec(mode, outputs, labels, loss=sum(losses.values()), train_op=tf.group(*steps, count))


def clipped_gradients_and_a_decayed_rate(features, labels, mode, spec):
    outputs = v1.layers.dense(v1.layers.dense(features['x'], 3), 1)
    loss = tf.reduce_mean(tf.square(outputs - labels))
    step = v1.train.get_or_create_global_step()
    optimizer = v1.train.MomentumOptimizer(v1.train.exponential_decay(0.1, step, 5, 0.9), 0.9)
    gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
    clipped, norm = tf.clip_by_global_norm(gradients, 0.5)
    train_op = optimizer.apply_gradients(zip(clipped, variables, strict=True), step)
    return spec(mode, outputs, labels, train_op=train_op, metrics={'norm': v1.metrics.mean(norm)})


def an_embedding_with_sparse_gradients(features, training):
    table = v1.get_variable('table', [6, 2])
    return v1.layers.dense(tf.reduce_mean(tf.nn.embedding_lookup(table, features['ids']), axis=1), 1)


def accumulated_gradients(features, labels, mode, spec):
    w = v1.get_variable('w', [4, 1])
    result = spec(mode, features['x'] @ w, labels)
    if mode == ModeKeys.EVAL:
        return result
    total = tf.Variable(tf.zeros([4, 1]), name='total', trainable=False)
    (gradient,) = tf.gradients(result.loss, [w])
    step = v1.train.get_global_step()
    with tf.control_dependencies([total.assign_add(gradient)]):
        applied = tf.cond(step % 2 > 0, lambda: tf.group(w.assign_sub(0.1 * total)).name, lambda: '')
    with tf.control_dependencies([applied]):
        return result._replace(train_op=step.assign_add(1))


def averaged_network(features):
    hidden = tf.tanh(features['x'] @ v1.get_variable('w', [4, 3]))
    return v1.layers.dense(hidden, 1, name='last')


def moving_averages_that_a_getter_of_evaluation_makes(features, labels, mode, spec):
    def average(getter, name, *args, **kwargs):
        getter(name, *args, **kwargs)
        return getter(f'{name}/ExponentialMovingAverage', *args, **{**kwargs, 'trainable': False})

    with v1.variable_scope(v1.get_variable_scope(), custom_getter=average if mode == ModeKeys.EVAL else None):
        result = spec(mode, averaged_network(features), labels)
    if mode == ModeKeys.EVAL:
        return result
    with tf.control_dependencies([result.train_op]):
        return result._replace(train_op=tf.train.ExponentialMovingAverage(0.9).apply(v1.trainable_variables()))


def moving_averages_applied_in_both_modes(features, labels, mode, spec):
    ema = tf.train.ExponentialMovingAverage(0.9, num_updates=v1.train.get_global_step())
    result = spec(mode, averaged_network(features), labels)
    with tf.control_dependencies([result.train_op] if mode == ModeKeys.TRAIN else []):
        applied = ema.apply(v1.trainable_variables())
    if mode == ModeKeys.TRAIN:
        return result._replace(train_op=applied)

    def average(getter, name, *args, **kwargs):
        return ema.average(getter(name, *args, **kwargs))

    with v1.variable_scope(v1.get_variable_scope(), reuse=True, custom_getter=average):
        return spec(mode, averaged_network(features), labels)


NETWORKS = [
    a_lookup_table,
    an_embedding_with_sparse_gradients,
]


MODELS = [
    a_mutable_hash_table_that_training_fills,
    a_dense_hash_table_that_training_fills,
    keras_legacy_optimizer,
    two_optimizers_of_a_gan,
    clipped_gradients_and_a_decayed_rate,
    accumulated_gradients,
    moving_averages_that_a_getter_of_evaluation_makes,
    moving_averages_applied_in_both_modes,
]


@pytest.mark.parametrize('network', NETWORKS)
def test_the_network_is_trained_and_evaluated_as_in_lone_graphs(zoo, network):
    zoo.check(lambda: zoo.regression(network))


@pytest.mark.parametrize('model', MODELS)
def test_the_model_is_trained_and_evaluated_as_in_lone_graphs(zoo, model):
    zoo.check(lambda: model)


@pytest.mark.parametrize('optimizer', OPTIMIZERS)
def test_an_optimizer_built_in_every_mode_has_the_slots_of_a_lone_graph(zoo, optimizer):
    zoo.check(lambda: zoo.regression(three_layers, optimizer=OPTIMIZERS[optimizer], in_eval=True))
