"""Variables that a model makes by `get_variable` and by `tf.Variable`."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import ModeKeys

# get_variable


def get_variable_with_a_partitioner(features, training):
    w = v1.get_variable('w', [4, 3], partitioner=v1.fixed_size_partitioner(2))
    return features['x'] @ w @ v1.get_variable('v', [3, 1])


def get_variable_under_a_partitioner_of_the_scope(features, training):
    with v1.variable_scope('part', partitioner=v1.fixed_size_partitioner(2)):
        hidden = v1.layers.dense(features['x'], 4)
        return v1.layers.dense(hidden, 1, name='last')


def get_variable_with_a_custom_getter(features, training):

    def normed(getter, name, *args, **kwargs):
        return tf.math.l2_normalize(getter(name, *args, **kwargs), axis=0)

    with v1.variable_scope('normed', custom_getter=normed):
        hidden = features['x'] @ v1.get_variable('w', [4, 3])
    return hidden @ v1.get_variable('w', [3, 1])


def get_variable_in_nested_scopes(features, training):
    with v1.variable_scope('a'), v1.variable_scope('b') as inner:
        hidden = features['x'] @ v1.get_variable('w', [4, 3])
    with v1.variable_scope('c'), v1.variable_scope(inner, reuse=True):
        hidden += features['x'] @ v1.get_variable('w', [4, 3])
    with v1.variable_scope('a/b/d'), v1.name_scope('e'):
        return hidden @ v1.get_variable('w', [3, 1])


def get_variable_with_a_regularizer_and_get_total_loss(features, labels, mode, spec):
    w = v1.get_variable('w', [4, 1], regularizer=tf.keras.regularizers.l2(0.1))
    v1.losses.mean_squared_error(labels, features['x'] @ w)
    v1.losses.absolute_difference(labels, features['x'] @ w, weights=0.1)
    loss = v1.losses.get_total_loss()
    terms = (tf.constant(len(v1.losses.get_losses())), tf.no_op())
    return spec(mode, features['x'] @ w, labels, loss=loss, metrics={'terms': terms})


def get_variable_in_default_name_scopes(features, training):
    hidden = features['x']
    for _ in range(2):
        with v1.variable_scope(None, default_name='block'):
            hidden = tf.tanh(hidden @ v1.get_variable('w', [4, 4]))
    with v1.variable_scope(None, 'block', [hidden]):
        return v1.layers.dense(hidden, 1)


def get_variable_tied_by_reuse(features, training):

    def tower(x):
        return tf.tanh(x @ v1.get_variable('w', [4, 4]))

    with v1.variable_scope('tied') as scope:
        hidden = tower(features['x'])
        scope.reuse_variables()
        hidden = tower(hidden)
    with v1.variable_scope('tied', reuse=True):
        return tf.reduce_sum(tower(hidden), axis=1, keepdims=True)


def get_variable_in_a_template(features, training):

    def layer(x):
        return tf.tanh(x @ v1.get_variable('w', [4, 4]))

    shared = v1.make_template('shared', layer)
    unique = v1.make_template('shared', layer, create_scope_now_=True)
    return tf.reduce_sum(unique(shared(shared(features['x']))), axis=1, keepdims=True)


def get_variable_in_another_order_by_mode(features, training):
    shapes = {'first': [4, 3], 'second': [3, 1]}
    made = {name: v1.get_variable(name, shapes[name]) for name in sorted(shapes, reverse=training)}
    return features['x'] @ made['first'] @ made['second']


def get_variable_of_an_initial_value_without_dtype(features, training):
    scale = v1.get_variable('scale', initializer=3, trainable=False)
    return (
        features['x']
        @ tf.cast(v1.get_variable('w', initializer=np.ones([4, 1])), tf.float32)
        * tf.cast(scale, tf.float32)
    )


def get_variable_made_inside_while_and_cond(features, training):

    def body(i, x):
        with v1.variable_scope('body', reuse=v1.AUTO_REUSE):
            return i + 1, tf.tanh(x @ v1.get_variable('w', [4, 4], use_resource=True))

    _, hidden = tf.while_loop(lambda i, x: i < 2, body, [0, features['x']])
    bias = v1.get_variable('bias', [], initializer=v1.ones_initializer())
    outputs = tf.reduce_sum(hidden, axis=1, keepdims=True)
    return tf.cond(tf.reduce_sum(hidden) > 0, lambda: outputs + bias, lambda: outputs * bias)


# tf.Variable


def variable(features, training):
    w = tf.Variable(tf.random.normal([4, 1]), name='w')
    return features['x'] @ w + v1.Variable(0.5, name='b')


def variables_of_equal_names_and_of_none(features, training):
    hidden = features['x']
    for width in (3, 3, 2):
        hidden = tf.tanh(hidden @ tf.Variable(tf.random.normal([hidden.shape[1], width]), name='w'))
    return hidden @ tf.Variable(tf.random.normal([2, 1])) + tf.Variable(1.0)


def variables_in_nested_name_scopes(features, training):
    hidden = features['x']
    for _ in range(2):
        with tf.name_scope('outer'), v1.name_scope('inner'):
            hidden = tf.tanh(hidden @ tf.Variable(tf.random.normal([4, 4]), name='w'))
    with v1.variable_scope('scope'):
        return hidden @ tf.Variable(tf.random.normal([4, 1]), name='w')


def variables_in_another_order_by_mode(features, training):
    shapes = {'first': [4, 3], 'second': [3, 1]}
    made = {n: tf.Variable(tf.random.normal(shapes[n]), name=n) for n in sorted(shapes, reverse=training)}
    return features['x'] @ made['first'] @ made['second']


def a_variable_beside_get_variable_of_its_name(features, training):
    hidden = features['x'] @ v1.get_variable('w', [4, 3])
    return hidden @ tf.Variable(tf.random.normal([3, 1]), name='w')


def an_untrained_counter_that_training_assigns(features, labels, mode, spec):
    seen = tf.Variable(0, name='seen', trainable=False)
    mean = v1.get_variable('mean', [4], initializer=v1.zeros_initializer(), trainable=False)
    outputs = v1.layers.dense(features['x'] - mean, 1)
    result = spec(mode, outputs, labels, metrics={'seen': (seen, tf.no_op())})
    if mode == ModeKeys.EVAL:
        return result
    with tf.control_dependencies([outputs]):  # or it would be read before or after the step, as threads will have it
        moved = mean.assign_add(0.1 * (tf.reduce_mean(features['x'], axis=0) - mean))
    return result._replace(train_op=tf.group(result.train_op, moved, seen.assign_add(tf.shape(labels)[0])))


def a_variable_of_partly_unknown_shape(features, training):
    w = tf.Variable(tf.random.normal([4, 1]), shape=tf.TensorShape([4, None]), name='w')
    return tf.ensure_shape(features['x'] @ w, [None, 1])


def an_untrained_variable_that_both_modes_assign(features, training):
    w = v1.get_variable('w', [4, 3])
    u = v1.get_variable('u', [1, 3], trainable=False)  # spectral normalisation by power iteration
    v = tf.math.l2_normalize(u @ tf.transpose(w))
    moved = tf.math.l2_normalize(v @ w)
    with tf.control_dependencies([u.assign(moved)]):
        norm = v @ w @ tf.transpose(moved)
    return v1.layers.dense(features['x'] @ (w / norm), 1)


def variables_of_a_tf_module(features, training):

    class Linear(tf.Module):
        def __init__(self, size):
            super().__init__()
            with self.name_scope:
                self.w = tf.Variable(tf.random.normal(size), name='w')

        @tf.Module.with_name_scope
        def __call__(self, x):
            return x @ self.w

    return Linear([3, 1])(Linear([4, 3])(features['x']))


NETWORKS = [
    get_variable_with_a_partitioner,
    get_variable_under_a_partitioner_of_the_scope,
    get_variable_with_a_custom_getter,
    get_variable_in_nested_scopes,
    get_variable_in_default_name_scopes,
    get_variable_tied_by_reuse,
    get_variable_in_a_template,
    get_variable_in_another_order_by_mode,
    get_variable_of_an_initial_value_without_dtype,
    get_variable_made_inside_while_and_cond,
    variable,
    variables_of_equal_names_and_of_none,
    variables_in_nested_name_scopes,
    variables_in_another_order_by_mode,
    a_variable_beside_get_variable_of_its_name,
    a_variable_of_partly_unknown_shape,
    an_untrained_variable_that_both_modes_assign,
    variables_of_a_tf_module,
]


MODELS = [
    get_variable_with_a_regularizer_and_get_total_loss,
    an_untrained_counter_that_training_assigns,
]


@pytest.mark.parametrize('network', NETWORKS)
def test_the_network_is_trained_and_evaluated_as_in_lone_graphs(zoo, network):
    zoo.check(lambda: zoo.regression(network))


@pytest.mark.parametrize('model', MODELS)
def test_the_model_is_trained_and_evaluated_as_in_lone_graphs(zoo, model):
    zoo.check(lambda: model)
