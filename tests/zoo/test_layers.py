"""Layers of every library that graphs are written with."""

import pytest
import sonnet as snt
import tensorflow as tf
import tf_slim as slim
from tensorflow.compat import v1
from tensorflow.python import keras as old_keras  # what code written for TensorFlow 2.4 to 2.12 may still import

from framework import ModeKeys

KEYS = v1.GraphKeys

snt.Module()  # Sonnet wants one module to be made outside of graphs; afterwards it works in them too


def v1_layers_dense_and_dropout(features, training):
    hidden = v1.layers.dense(features['x'], 6, tf.nn.relu)
    hidden = v1.layers.dropout(hidden, 0.5, training=training)
    return v1.layers.dense(v1.layers.dense(hidden, 3, name='named'), 1)


def v1_layers_conv2d(features, training):
    image = tf.reshape(features['x'], [-1, 2, 2, 1])
    hidden = v1.layers.conv2d(image, 2, 2, padding='same', activation=tf.nn.relu)
    return v1.layers.dense(v1.layers.flatten(v1.layers.max_pooling2d(hidden, 2, 2)), 1)


def v1_layers_batch_normalization_with_update_ops(features, labels, mode, spec):
    hidden = v1.layers.batch_normalization(features['x'], training=mode == ModeKeys.TRAIN, momentum=0.9)
    outputs = v1.layers.dense(hidden, 1)
    with tf.control_dependencies(v1.get_collection(KEYS.UPDATE_OPS)):
        return spec(mode, outputs, labels)


def update_ops_that_the_model_runs_in_both_modes(features, labels, mode, spec):
    hidden = v1.layers.batch_normalization(features['x'], training=mode == ModeKeys.TRAIN, momentum=0.9)
    updates = v1.get_collection(KEYS.UPDATE_OPS)
    with tf.control_dependencies(updates):
        outputs = v1.layers.dense(tf.identity(hidden), 1)
    return spec(mode, outputs, labels, metrics={'updates': (tf.constant(len(updates)), tf.no_op())})


def keras_dense(features, training):
    return tf.keras.layers.Dense(1)(tf.keras.layers.Dense(3, 'relu')(features['x']))


def keras_sequential(features, training):
    layers = [tf.keras.layers.Dense(3, 'relu'), tf.keras.layers.Dropout(0.3), tf.keras.layers.Dense(1)]
    return tf.keras.Sequential(layers)(features['x'], training=training)


def keras_functional_model(features, training):
    inputs = tf.keras.Input([4])
    hidden = tf.keras.layers.Dense(4, 'relu')(inputs)
    outputs = tf.keras.layers.Dense(1)(tf.keras.layers.Add()([inputs, hidden]))
    return tf.keras.Model(inputs, outputs)(features['x'])


class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = [tf.keras.layers.Dense(3, 'relu') for _ in range(2)]
        self.last = tf.keras.layers.Dense(1)

    def call(self, x):
        for layer in self.hidden:
            x = layer(x)
        return self.last(x)


def keras_subclassed_model(features, training):
    return Net()(features['x']) + Net()(features['x'])


def keras_own_layer_with_add_weight(features, training):

    class Scale(tf.keras.layers.Layer):
        def build(self, shape):
            self.scale = self.add_weight(name='scale', shape=[shape[-1]], initializer='ones')

        def call(self, x):
            return x * self.scale

    return tf.reduce_sum(Scale()(Scale()(features['x'])), axis=1, keepdims=True)


def keras_lstm(features, training):
    return tf.keras.layers.Dense(1)(tf.keras.layers.LSTM(3)(features['x'][:, :, None]))


def keras_gru(features, training):
    return tf.keras.layers.Dense(1)(tf.keras.layers.GRU(2)(features['x'][:, :, None]))


def keras_embedding(features, training):
    embedded = tf.keras.layers.Embedding(6, 2)(features['ids'])
    return tf.keras.layers.Dense(1)(tf.keras.layers.Flatten()(embedded))


def keras_batch_normalization_whose_updates_the_model_runs(features, labels, mode, spec):
    norm = tf.keras.layers.BatchNormalization(momentum=0.9)
    outputs = tf.keras.layers.Dense(1)(norm(features['x'], training=mode == ModeKeys.TRAIN))
    result = spec(mode, outputs, labels)
    if mode == ModeKeys.EVAL:
        return result
    return result._replace(train_op=tf.group(result.train_op, *norm.updates))


def keras_kernel_and_activity_losses(features, labels, mode, spec):
    net = tf.keras.Sequential(
        [
            tf.keras.layers.Dense(3, kernel_regularizer='l2', activity_regularizer='l1'),
            tf.keras.layers.Dense(1, bias_regularizer=tf.keras.regularizers.l1(0.1)),
        ]
    )
    outputs = net(features['x'])
    return spec(mode, outputs, labels, loss=tf.add_n(net.losses))


def keras_layers_inside_a_tf_function(features, labels, mode, spec):
    net = tf.keras.Sequential([tf.keras.layers.Dense(3, 'relu'), tf.keras.layers.Dense(1)])
    outputs = tf.function(net)(features['x'])
    loss = tf.reduce_mean(tf.square(outputs - labels))
    optimizer = v1.train.GradientDescentOptimizer(0.05)
    train_op = optimizer.minimize(loss, v1.train.get_global_step(), net.trainable_variables)
    return spec(mode, outputs, labels, train_op=train_op)


def tensorflow_python_keras_layers(features, training):
    embedded = old_keras.layers.Embedding(6, 2)(features['ids'])
    hidden = old_keras.layers.recurrent.LSTM(2, unroll=True)(embedded)
    hidden = tf.concat([hidden, old_keras.layers.Dense(2)(features['x'])], axis=1)
    return old_keras.Sequential([old_keras.layers.Dense(3, 'relu'), old_keras.layers.Dense(1)])(hidden)


def rnn_cell_and_dynamic_rnn(features, training):
    cell = v1.nn.rnn_cell.MultiRNNCell([v1.nn.rnn_cell.LSTMCell(2), v1.nn.rnn_cell.BasicRNNCell(2)])
    hidden, _ = v1.nn.dynamic_rnn(cell, features['x'][:, :, None], dtype=tf.float32)
    return v1.layers.dense(hidden[:, -1], 1)


def sonnet_modules(features, training):
    hidden = snt.nets.MLP([4, 4])(features['x'])
    hidden = snt.BatchNorm(True, True)(hidden, is_training=training)
    hidden, _ = snt.LSTM(3)(hidden, snt.LSTM(3).initial_state(tf.shape(hidden)[0]))
    return snt.Linear(1)(snt.Sequential([snt.Linear(3), tf.nn.relu])(hidden))


def slim_layers_with_arg_scope(features, labels, mode, spec):
    regularizer = slim.l2_regularizer(0.01)
    with slim.arg_scope([slim.conv2d, slim.fully_connected], weights_regularizer=regularizer):
        hidden = slim.conv2d(tf.reshape(features['x'], [-1, 2, 2, 1]), 2, [2, 2], scope='conv')
        hidden = slim.stack(slim.flatten(hidden), slim.fully_connected, [3, 3], scope='stack')
        hidden = slim.dropout(hidden, 0.7, is_training=mode == ModeKeys.TRAIN)
        outputs = slim.fully_connected(hidden, 1, activation_fn=None)
    variables = (tf.constant(len(slim.get_model_variables())), tf.no_op())
    return spec(mode, outputs, labels, loss=v1.losses.get_regularization_loss(), metrics={'variables': variables})


def outside_keras():
    return tf.keras.Sequential([tf.keras.layers.Dense(3, 'relu'), tf.keras.layers.Dense(1)])


def outside_v1_layer():
    return v1.layers.Dense(1)


def outside_sonnet():
    return snt.nets.MLP([3, 1])


def outside_template():
    return v1.make_template('outside', lambda x: x @ v1.get_variable('w', [4, 1]))


def feature_columns(features, training):
    column = tf.feature_column
    words = column.categorical_column_with_vocabulary_list('word', ['ant', 'bee', 'cat', 'dog'])
    ids = column.categorical_column_with_identity('ids', 6)
    columns = [column.numeric_column('x', [4]), column.embedding_column(words, 2), column.indicator_column(ids)]
    return v1.layers.dense(v1.feature_column.input_layer(features, columns), 1)


def keras_dense_features(features, training):
    column = tf.feature_column
    words = column.categorical_column_with_hash_bucket('word', 5)
    columns = [column.numeric_column('x', [4]), column.embedding_column(words, 2)]
    return tf.keras.layers.Dense(1)(tf.keras.layers.DenseFeatures(columns)(features))


NETWORKS = [
    v1_layers_dense_and_dropout,
    v1_layers_conv2d,
    keras_dense,
    keras_sequential,
    keras_functional_model,
    keras_subclassed_model,
    keras_own_layer_with_add_weight,
    keras_lstm,
    keras_gru,
    keras_embedding,
    tensorflow_python_keras_layers,
    rnn_cell_and_dynamic_rnn,
    sonnet_modules,
    feature_columns,
    keras_dense_features,
]


MODELS = [
    v1_layers_batch_normalization_with_update_ops,
    update_ops_that_the_model_runs_in_both_modes,
    keras_batch_normalization_whose_updates_the_model_runs,
    keras_kernel_and_activity_losses,
    keras_layers_inside_a_tf_function,
    slim_layers_with_arg_scope,
]


@pytest.mark.parametrize('network', NETWORKS)
def test_the_network_is_trained_and_evaluated_as_in_lone_graphs(zoo, network):
    zoo.check(lambda: zoo.regression(network))


@pytest.mark.parametrize('model', MODELS)
def test_the_model_is_trained_and_evaluated_as_in_lone_graphs(zoo, model):
    zoo.check(lambda: model)


@pytest.mark.parametrize('make', [outside_keras, outside_v1_layer, outside_sonnet, outside_template])
def test_one_layer_object_made_outside_serves_both_calls(zoo, make):
    def make_model():
        layer = make()
        return zoo.regression(lambda features, training: layer(features['x']))

    zoo.check(make_model)
