"""The graph of one call in PREDICT."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.compat import v1

from framework import errors, serving, testing
from framework.graph import calls, prediction
from framework.run_config import EvalSet
from framework.spec import EstimatorSpec, ModeKeys

FEATURES, LABELS = testing.blobs(10)
INPUT_FN = testing.array_input_fn(FEATURES, LABELS, batch_size=4)


def model(model_fn=testing.linear_model_fn):
    return calls.Model(model_fn, None, None)


def on_input(model_fn=testing.linear_model_fn, data=INPUT_FN, **settings):
    return prediction.compile_input(model(model_fn), data, **{'seed': 1, **settings})


def on_receiver(model_fn=testing.linear_model_fn, spec=None, **settings):
    spec = tf.TensorSpec([4, 4]) if spec is None else spec
    fed = lambda: serving.receiver_of_spec(spec)  # noqa: E731
    return prediction.compile_receiver(model(model_fn), fed, **{'seed': 1, **settings})


def names(built, collection=v1.GraphKeys.GLOBAL_VARIABLES):
    return [variable.op.name for variable in built.graph.get_collection(collection)]


def keras_model_fn(features, mode):
    hidden = tf_keras.layers.BatchNormalization()(tf_keras.layers.Dense(3)(features))
    return EstimatorSpec(mode, predictions={'y': tf.Variable(2.0, name='scale') * v1.layers.dense(hidden, 1)})


def lone_names(model_fn, mode=ModeKeys.PREDICT):
    with tf.Graph().as_default():
        v1.train.create_global_step()
        tf_keras.backend.reset_uids()
        model_fn(tf.zeros([2, 4]), mode)
        return [variable.op.name for variable in v1.global_variables()]


@pytest.mark.parametrize('build', [on_input, on_receiver])
def test_the_variables_are_those_of_a_lone_graph(build):
    tf_keras.layers.Dense(3)  # whatever the process has counted before
    built = build(keras_model_fn)
    assert names(built) == lone_names(keras_model_fn)
    assert built.global_step.op.name == 'global_step'
    assert built.global_step.dtype == tf.int64


def test_a_placeholder_takes_no_variable_s_name():
    built = on_receiver(
        lambda features, mode: testing.linear_model_fn(features['weights'], None, mode),
        {'weights': tf.TensorSpec([4, 4])},
    )
    assert names(built) == ['global_step', 'weights']


def test_every_variable_is_a_resource_variable_and_the_graph_has_the_seed():
    built = on_input(lambda features, mode: EstimatorSpec(mode, predictions=v1.get_variable('w', [2])), seed=5)
    assert built.graph.seed == 5
    assert [variable.op.type for variable in built.graph.get_collection('variables')] == ['VarHandleOp'] * 2


def recorded_modes(seen):
    def input_fn(mode):
        seen.append(mode)
        return INPUT_FN(mode)

    return input_fn


def test_an_evaluation_set_is_asked_in_eval_and_an_input_fn_in_predict():
    seen = []
    on_input(data=EvalSet(name='valid', input_fn=recorded_modes(seen), steps=2))
    on_input(data=recorded_modes(seen))
    assert seen == [ModeKeys.EVAL, ModeKeys.PREDICT]


def test_an_evaluation_set_brings_its_name_and_its_steps():
    built = on_input(data=EvalSet(name='valid', input_fn=INPUT_FN, steps=2))
    assert (built.data.source.stream, built.data.steps) == ('valid', 2)


def test_model_fn_gets_the_features_alone():
    seen = []

    def model_fn(features, labels, mode):
        seen.append((features.shape.as_list(), labels, mode))
        return testing.linear_model_fn(features, labels, mode)

    on_input(model_fn)
    assert seen == [([None, 4], None, ModeKeys.PREDICT)]


def test_tensors_of_an_input_fn_are_split_the_same_way():
    built = on_input(data=lambda: (tf.constant(FEATURES), tf.constant(LABELS)))
    assert built.data.batch.features.shape == [10, 4]


def test_a_single_tensor_of_predictions_is_called_predictions():
    built = on_input(lambda features, mode: EstimatorSpec(mode, predictions=features))
    assert list(built.predictions) == ['predictions']


def test_a_spec_without_a_prediction_is_refused():
    with pytest.raises(errors.ConfigurationError, match=r'`predictions` \[{}\] of the spec of mode PREDICT is empty'):
        on_input(lambda features, mode: EstimatorSpec(mode, predictions={}, export_outputs={}))


def test_a_trainable_variable_that_the_checkpoint_lacks_is_refused():
    with pytest.raises(errors.ConfigurationError, match='`weights`: trainable, made by prediction but not by training'):
        on_input(saved={'global_step'})


def counting_model_fn(features, mode):
    calls_so_far = v1.get_variable('calls', [], trainable=False, initializer=v1.zeros_initializer())
    return EstimatorSpec(mode, predictions={'y': features + calls_so_far})


def test_any_other_variable_that_the_checkpoint_lacks_becomes_local():
    built = on_input(counting_model_fn, saved={'global_step'})
    assert names(built) == ['global_step']
    assert names(built, v1.GraphKeys.LOCAL_VARIABLES) == ['calls']


def table_model_fn(local_init=None):
    def model_fn(features, mode):
        initializer = tf.lookup.KeyValueTensorInitializer(['a', 'b'], tf.constant([3, 4], tf.int64))
        table = tf.lookup.StaticHashTable(initializer, -1)
        total = v1.get_local_variable('total', initializer=tf.constant(5.0))
        scaffold = v1.train.Scaffold(local_init_op=local_init and local_init(total))
        return EstimatorSpec(mode, predictions={'id': table.lookup(features), 't': total}, scaffold=scaffold)

    return model_fn


@pytest.mark.parametrize(
    ('local_init', 'total'),
    [
        (None, 5.0),
        (lambda total: total.assign(7.0).op, 7.0),
        (lambda total: tf.group(v1.tables_initializer(), total.initializer), 5.0),
    ],
)
def test_init_covers_tables_and_local_variables_and_what_the_scaffold_says(local_init, total):
    built = on_receiver(table_model_fn(local_init), tf.TensorSpec([4], tf.string))
    with built.graph.as_default(), v1.Session() as session:
        session.run(built.init)
        values = session.run(dict(built.predictions), {built.receiver.receiver_tensors['input']: ['b', 'c']})
    assert values['t'] == total
    np.testing.assert_array_equal(values['id'], [4, -1])


def test_init_covers_the_tables_of_the_input_fn_and_of_the_receiver():
    def looked_up(words):
        initializer = tf.lookup.KeyValueTensorInitializer(['a'], tf.constant([1.0]))
        return tf.lookup.StaticHashTable(initializer, 0.0).lookup(words)

    def receiver_fn():
        words = v1.placeholder(tf.string, [None])
        return serving.TensorServingInputReceiver(looked_up(words), words)

    twice = model(lambda features, mode: EstimatorSpec(mode, predictions=2 * features))
    fed = prediction.compile_receiver(twice, receiver_fn, seed=1)
    of_input = prediction.compile_input(twice, lambda: looked_up(tf.constant(['a', 'b'])), seed=1)
    for built, feeds in ((fed, {'framework/serving_input/Placeholder:0': ['a', 'b']}), (of_input, {})):
        with v1.Session(graph=built.graph) as session:
            session.run(built.init)
            np.testing.assert_array_equal(session.run(built.predictions['predictions'], feeds), [2.0, 0.0])


def test_what_is_no_receiver_is_refused():
    with pytest.raises(errors.ConfigurationError, match='serving_input_receiver_fn must return a ServingInputReceiver'):
        prediction.compile_receiver(model(), lambda: {'x': 1}, seed=1)


def test_the_element_spec_of_an_input_fn_is_read_without_touching_the_default_graph(fresh_graph):
    seen = []
    spec = prediction.element_spec(model(), recorded_modes(seen), seed=1, mode=ModeKeys.TRAIN)
    assert spec == (tf.TensorSpec([None, 4]), tf.TensorSpec([None], tf.int64))
    assert seen == [ModeKeys.TRAIN]
    assert not fresh_graph.get_operations()


def test_the_element_spec_of_tensors_is_that_of_their_types():
    spec = prediction.element_spec(model(), EvalSet(input_fn=lambda: {'x': tf.zeros([3, 2])}), seed=1)
    assert spec == {'x': tf.TensorSpec([3, 2])}
