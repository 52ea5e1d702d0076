"""Collections that a model reads, and metrics of every form."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

KEYS = v1.GraphKeys


# Collections


def merged_summaries_that_the_model_asks_for(features, labels, mode, spec):
    outputs = v1.layers.dense(features['x'], 1)
    v1.summary.scalar('mean', tf.reduce_mean(outputs))
    v1.summary.histogram('outputs', outputs)
    with tf.control_dependencies([v1.summary.merge_all()]):
        outputs = tf.identity(outputs)
    count = (tf.constant(len(v1.get_collection(KEYS.SUMMARIES))), tf.no_op())
    return spec(mode, outputs, labels, metrics={'summaries': count})


def regularization_losses_of_weights_and_activities(features, labels, mode, spec):
    regularizer = tf.keras.regularizers.l2(0.1)
    hidden = v1.layers.dense(features['x'], 3, kernel_regularizer=regularizer, activity_regularizer=regularizer)
    outputs = v1.layers.dense(hidden, 1, kernel_regularizer=regularizer)
    terms = (tf.constant(len(v1.losses.get_regularization_losses())), tf.no_op())
    return spec(mode, outputs, labels, loss=v1.losses.get_regularization_loss(), metrics={'terms': terms})


def a_collection_of_the_user(features, labels, mode, spec):
    for _ in range(2):
        v1.add_to_collection('outputs', v1.layers.dense(features['x'], 1))
    collected = v1.get_collection('outputs')
    names = (tf.constant(len(collected)), tf.no_op())
    return spec(mode, tf.add_n(collected), labels, metrics={'collected': names})


def a_collection_of_variables(features, labels, mode, spec):
    w = v1.get_variable('w', [4, 3], collections=['decayed', KEYS.GLOBAL_VARIABLES, KEYS.TRAINABLE_VARIABLES])
    v = v1.Variable(tf.ones([3, 1]), name='v', collections=['decayed', KEYS.GLOBAL_VARIABLES])
    decayed = v1.get_collection('decayed')
    loss = sum(tf.nn.l2_loss(variable) for variable in decayed)
    count = (tf.constant(len(decayed)), tf.no_op())
    return spec(mode, features['x'] @ w @ v, labels, loss=0.01 * loss, metrics={'count': count})


def update_ops_of_batch_statistics_in_both_modes(features, labels, mode, spec):
    hidden = v1.layers.batch_normalization(features['x'], training=True, momentum=0.9)
    with tf.control_dependencies(v1.get_collection(KEYS.UPDATE_OPS)):
        outputs = v1.layers.dense(tf.identity(hidden), 1)
    return spec(mode, outputs, labels)


# Metrics


def metrics_of_tensorflow(features, labels, mode, spec):
    outputs = v1.layers.dense(features['x'], 1)
    true, found = labels > 0, outputs > 0
    metrics = {
        'accuracy': v1.metrics.accuracy(true, found),
        'auc': v1.metrics.auc(true, tf.sigmoid(outputs)),
        'per_class': v1.metrics.mean_per_class_accuracy(tf.cast(true, tf.int32), tf.cast(found, tf.int32), 2),
        'renamed': v1.metrics.mean(outputs, name='error'),
    }
    return spec(mode, outputs, labels, metrics=metrics)


def metrics_of_keras(features, labels, mode, spec):
    outputs = v1.layers.dense(features['x'], 1)
    metrics = {'absolute': tf.keras.metrics.MeanAbsoluteError(), 'auc': tf.keras.metrics.AUC(num_thresholds=9)}
    metrics['absolute'].update_state(labels, outputs)
    metrics['auc'].update_state(labels > 0, tf.sigmoid(outputs))
    return spec(mode, outputs, labels, metrics=metrics)


def own_streaming_metrics(features, labels, mode, spec):
    outputs = v1.layers.dense(features['x'], 1)
    local = [KEYS.LOCAL_VARIABLES]
    largest = v1.Variable(-1.0, name='largest', trainable=False, collections=local)
    count = v1.get_local_variable('count', [], tf.int64, v1.zeros_initializer())
    total = v1.get_variable('total', initializer=0.0, trainable=False, collections=[KEYS.METRIC_VARIABLES])
    counted = count.assign_add(tf.size(labels, out_type=tf.int64))
    summed = total.assign_add(tf.reduce_sum(outputs))
    metrics = {
        'largest': (largest.read_value(), largest.assign(tf.maximum(largest, tf.reduce_max(outputs)))),
        'mean': (total / tf.cast(count, tf.float32), tf.group(counted, summed)),
    }
    return spec(mode, outputs, labels, metrics=metrics)


def variables_as_value_and_update(features, labels, mode, spec):
    w = v1.get_variable('w', [4, 1])
    rows = v1.get_local_variable('rows', [], tf.int32, v1.zeros_initializer())
    metrics = {
        'w': (w, w),
        'rows': (rows, rows.assign_add(tf.shape(labels)[0])),
        'step': (v1.train.get_global_step(),) * 2,
    }
    return spec(mode, features['x'] @ w, labels, metrics=metrics)


def a_metric_of_a_py_function(features, labels, mode, spec):
    outputs = v1.layers.dense(features['x'], 1)
    total, update = v1.metrics.mean(outputs)
    doubled = v1.py_func(lambda value: np.float32(2 * value), [total], tf.float32)
    return spec(mode, outputs, labels, metrics={'doubled': (doubled, update)})


def string_and_vector_values(features, labels, mode, spec):
    outputs = v1.layers.dense(features['x'], 1)
    text = (tf.strings.as_string(v1.train.get_global_step()), tf.no_op())
    vector = v1.metrics.mean_tensor(tf.reduce_mean(features['x'], axis=0))
    words = (tf.constant(['ant', 'bee']), tf.no_op())
    return spec(mode, outputs, labels, metrics={'text': text, 'vector': vector, 'words': words})


MODELS = [
    merged_summaries_that_the_model_asks_for,
    a_collection_of_the_user,
    a_collection_of_variables,
    update_ops_of_batch_statistics_in_both_modes,
    metrics_of_tensorflow,
    metrics_of_keras,
    own_streaming_metrics,
    variables_as_value_and_update,
    a_metric_of_a_py_function,
    string_and_vector_values,
]


@pytest.mark.parametrize('model', MODELS)
def test_the_model_is_trained_and_evaluated_as_in_lone_graphs(zoo, model):
    zoo.check(lambda: model)


def test_regularization_losses_are_those_of_a_lone_graph(zoo):
    # To 1e-6 only, because evaluation has the losses of weights first and so adds them in another order.
    zoo.check(lambda: regularization_losses_of_weights_and_activities, exact=False)
