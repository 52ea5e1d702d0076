"""`numpy_input_fn` and `pandas_input_fn`."""

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from framework import estimator, testing
from framework.estimator.inputs import numpy_input_fn, pandas_input_fn

X = np.arange(10, dtype=np.float32).reshape(5, 2)
Y = np.arange(5)
TABLE = pd.DataFrame({'a': [1, 2, 3], 'b': ['x', 'y', 'z']}, index=[7, 8, 9])


def test_batches_go_on_over_the_ends_of_epochs():
    batches = testing.drain(numpy_input_fn(X, Y, batch_size=4, num_epochs=2, shuffle=False)())
    assert [labels.tolist() for _, labels in batches] == [[0, 1, 2, 3], [4, 0, 1, 2], [3, 4]]
    np.testing.assert_array_equal(batches[1][0], X[[4, 0, 1, 2]])


def test_without_a_number_of_epochs_data_has_no_end():
    dataset = numpy_input_fn(X, batch_size=3, num_epochs=None, shuffle=True)()
    assert len(testing.drain(dataset, limit=9)) == 9


def test_shuffled_epochs_hold_every_example_once():
    batches = testing.drain(numpy_input_fn(X, Y, batch_size=5, num_epochs=2, shuffle=True)())
    assert [sorted(labels.tolist()) for _, labels in batches] == [[0, 1, 2, 3, 4]] * 2
    for features, labels in batches:
        np.testing.assert_array_equal(features, X[labels])


def test_dicts_stay_dicts_and_texts_are_texts():
    input_fn = numpy_input_fn({'b': X, 'a': np.array(list('vwxyz'))}, {'t': Y}, shuffle=False)
    ((features, labels),) = testing.drain(input_fn())
    assert features['a'].tolist() == [b'v', b'w', b'x', b'y', b'z']
    np.testing.assert_array_equal(features['b'], X)
    np.testing.assert_array_equal(labels['t'], Y)


def test_features_alone_come_without_labels():
    np.testing.assert_array_equal(testing.drain(numpy_input_fn(X, shuffle=False)())[0], X)


def test_shapes_are_known():
    assert numpy_input_fn(X, shuffle=False)().element_spec == tf.TensorSpec([None, 2], tf.float32)


def test_pain_28_arrays_are_no_part_of_the_graph():
    large = np.zeros([1000, 1000], np.float32)
    numpy_input_fn(large, shuffle=True)()
    assert tf.compat.v1.get_default_graph().as_graph_def().ByteSize() < 10_000


@pytest.mark.parametrize(
    'arguments, kind, text',
    [
        ({'x': X}, ValueError, 'shuffle must be provided and explicitly set as boolean'),
        ({'x': X, 'shuffle': 1}, ValueError, 'shuffle must be provided and explicitly set as boolean'),
        ({'x': [1], 'shuffle': True}, TypeError, 'x must be a dict or array; got list'),
        ({'x': {}, 'shuffle': True}, ValueError, 'x cannot be an empty dict'),
        ({'x': X[:0], 'shuffle': True}, ValueError, 'x cannot be an empty array'),
        ({'x': X, 'y': {}, 'shuffle': True}, ValueError, 'y cannot be empty dict, use None instead.'),
        ({'x': {'a': X}, 'y': {'a': Y}, 'shuffle': True}, ValueError, '1 duplicate keys are found in both x and y'),
        ({'x': X, 'y': Y[:3], 'shuffle': True}, ValueError, 'Length of tensors in x and y is mismatched.'),
    ],
)
def test_what_does_not_match_is_refused(arguments, kind, text):
    with pytest.raises(kind, match=text):
        numpy_input_fn(**arguments)()


def test_the_columns_of_a_table_are_features():
    input_fn = pandas_input_fn(TABLE, pd.Series([4, 5, 6], index=[7, 8, 9]), batch_size=2, shuffle=False)
    batches = testing.drain(input_fn())
    assert [features['a'].tolist() for features, _ in batches] == [[1, 2], [3]]
    assert [features['b'].tolist() for features, _ in batches] == [[b'x', b'y'], [b'z']]
    assert [labels.tolist() for _, labels in batches] == [[4, 5], [6]]


def test_labels_may_be_a_table():
    labels = pd.DataFrame({'a': [1.0, 2.0, 3.0], 'c': [4, 5, 6]}, index=[7, 8, 9])
    ((_, found),) = testing.drain(pandas_input_fn(TABLE, labels, shuffle=False)())
    assert {name: part.tolist() for name, part in found.items()} == {'a': [1.0, 2.0, 3.0], 'c': [4, 5, 6]}


@pytest.mark.parametrize(
    'arguments, kind, text',
    [
        ({}, ValueError, 'shuffle must be provided'),
        ({'shuffle': True, 'target_column': 1}, TypeError, 'target_column must be a string type'),
        ({'shuffle': True, 'target_column': 'a'}, ValueError, 'Cannot use name a for target column'),
        ({'shuffle': True, 'y': pd.Series([1, 2, 3])}, ValueError, 'Index for x and y are mismatched.'),
    ],
)
def test_tables_that_do_not_match_are_refused(arguments, kind, text):
    with pytest.raises(kind, match=text):
        pandas_input_fn(**{'x': TABLE, 'y': pd.Series([1, 2, 3], index=[7, 8, 9]), **arguments})


def test_an_estimator_keeps_its_place_in_them(make):
    # The rows' numbers are what is saved: the second call goes on where the first one stopped.
    seen = []

    def model_fn(features, labels, mode):
        features = tf.ensure_shape(
            tf.numpy_function(lambda x: seen.append(x[0, 0]) or x, [features], tf.float32), [2, 2]
        )
        return testing.linear_model_fn(features, labels, mode)

    made = make(model_fn, config=estimator.RunConfig(keep_input_position=True, fuse='off'))
    input_fn = numpy_input_fn(X, Y % 2, batch_size=2, num_epochs=None, shuffle=False)
    for _ in range(2):
        made.train(input_fn, steps=2)
    assert seen == [0, 4, 8, 2]


def test_old_code_may_take_the_current_batch(make):
    arrays = numpy_input_fn(X, Y % 2, batch_size=2, shuffle=False)

    def input_fn():
        features, labels = arrays()
        return features * 2, labels

    features, labels = input_fn()
    with tf.compat.v1.Session() as session:
        np.testing.assert_array_equal(session.run([features, labels])[0], X[:2] * 2)
        np.testing.assert_array_equal(session.run([features, labels])[1], [0, 1])
    made = make().train(input_fn)
    assert made.get_variable_value('global_step') == 3
    assert made.evaluate(input_fn)['global_step'] == 3
    named = numpy_input_fn({'a': X}, shuffle=False)()
    assert named['a'].shape.as_list() == [None, 2]
