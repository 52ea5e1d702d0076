"""Receivers: what is fed, and what model_fn gets of it."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import errors, serving


def placeholder(dtype=tf.float32):
    return v1.placeholder(dtype, [None, 2])


def shapes(tensors):
    return {name: (tensor.dtype.name, tensor.shape.as_list()) for name, tensor in tensors.items()}


def test_a_single_tensor_is_wrapped_in_dicts_of_fixed_names():
    tensor = placeholder()
    receiver = serving.ServingInputReceiver(tensor, tensor, {'other': tensor})
    assert receiver.features == {'feature': tensor}
    assert receiver.receiver_tensors == {'input': tensor}
    assert receiver.receiver_tensors_alternatives == {'other': {'input': tensor}}


def test_dicts_stay_as_they_are_and_features_may_have_ints_as_keys():
    tensor = placeholder()
    receiver = serving.ServingInputReceiver({'x': tensor, 1: tensor}, {'in': tensor})
    features, fed, alternatives = receiver
    assert (features, fed, alternatives) == ({'x': tensor, 1: tensor}, {'in': tensor}, None)


def test_the_dict_of_alternatives_that_was_given_does_not_change():
    tensor = placeholder()
    given = {'other': tensor}
    serving.ServingInputReceiver(tensor, tensor, given)
    assert given == {'other': tensor}


def test_a_tensor_receiver_hands_on_the_tensor_itself():
    tensor = placeholder()
    receiver = serving.TensorServingInputReceiver(tensor, tensor)
    assert receiver.features is tensor
    assert receiver.receiver_tensors == {'input': tensor}


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (lambda t: (None, t), 'features must be defined'),
        (lambda t: (t, None), 'receiver_tensors must be defined'),
        (lambda t: ({'x': 3.0}, t), 'feature x must be a Tensor, SparseTensor, or RaggedTensor'),
        (lambda t: ({2.5: t}, t), 'feature keys must be strings or ints: 2.5'),
        (lambda t: (t, {1: t}), 'receiver_tensor keys must be strings: 1'),
        (lambda t: (t, t, [t]), 'receiver_tensors_alternatives must be a dict'),
        (lambda t: (t, t, {'a': {1: t}}), 'receiver_tensors_alternative keys must be strings: 1'),
    ],
)
def test_what_is_no_receiver_is_refused(arguments, message):
    with pytest.raises(errors.ConfigurationError, match=message):
        serving.ServingInputReceiver(*arguments(placeholder()))


def test_a_tensor_receiver_of_a_dict_names_the_other_receiver():
    with pytest.raises(ValueError, match='Return a `ServingInputReceiver`'):
        serving.TensorServingInputReceiver({'x': placeholder()}, placeholder())


def test_raw_placeholders_have_the_types_of_the_tensors_and_any_batch_size():
    features = {'a': tf.zeros([5, 3]), 'b': tf.constant(['x']), 'c': tf.constant(1.0)}
    receiver = serving.build_raw_serving_input_receiver_fn(features)()
    assert shapes(receiver.features) == {
        'a': ('float32', [None, 3]),
        'b': ('string', [None]),
        'c': ('float32', [None]),
    }
    assert receiver.receiver_tensors == receiver.features


def test_raw_placeholders_have_the_batch_size_that_is_asked_for():
    receiver = serving.build_raw_serving_input_receiver_fn({'a': tf.zeros([5, 3])}, default_batch_size=2)()
    assert receiver.features['a'].shape == [2, 3]


def test_a_raw_receiver_of_one_tensor_says_what_to_do():
    with pytest.raises(errors.ConfigurationError, match=r'`features` .* must be a dict of string to Tensor'):
        serving.build_raw_serving_input_receiver_fn(placeholder())


def test_a_parsing_receiver_is_fed_serialized_examples():
    receiver = serving.build_parsing_serving_input_receiver_fn({'x': tf.io.FixedLenFeature([2], tf.float32)})()
    assert receiver.receiver_tensors['examples'].op.name == 'input_example_tensor'
    feature = tf.train.Feature(float_list=tf.train.FloatList(value=[1.0, 2.5]))
    example = tf.train.Example(features=tf.train.Features(feature={'x': feature})).SerializeToString()
    with v1.Session() as session:
        parsed = session.run(receiver.features['x'], {receiver.receiver_tensors['examples']: [example]})
    np.testing.assert_array_equal(parsed, [[1.0, 2.5]])


def test_the_receiver_of_a_spec_takes_the_features_in_batches_of_any_size():
    spec = (
        {'a': tf.TensorSpec([8, 3]), 'deep': {'b': tf.TensorSpec([8], tf.string), 'c': tf.TensorSpec([], tf.int64)}},
        tf.TensorSpec([8], tf.int64),
    )
    receiver = serving.receiver_of_spec(spec)
    assert shapes(receiver.receiver_tensors) == {
        'a': ('float32', [None, 3]),
        'deep/b': ('string', [None]),
        'deep/c': ('int64', []),
    }
    assert receiver.features['deep']['b'] is receiver.receiver_tensors['deep/b']
    assert receiver.receiver_tensors['deep/b'].op.name == 'deep/b'


def test_the_receiver_of_a_spec_of_one_tensor_is_fed_input():
    receiver = serving.receiver_of_spec(tf.TensorSpec([4, 2]))
    assert receiver.features is receiver.receiver_tensors['input']


def test_tuples_of_features_are_fed_by_their_places():
    spec = ((tf.TensorSpec([4]), tf.TensorSpec([4], tf.int32)), tf.TensorSpec([4]))
    receiver = serving.receiver_of_spec(spec)
    assert list(receiver.receiver_tensors) == ['0', '1']
    assert isinstance(receiver.features, tuple)


def test_names_that_no_op_can_have_are_still_the_names_that_are_fed():
    receiver = serving.receiver_of_spec({'_größe (cm)': tf.TensorSpec([4])})
    assert list(receiver.receiver_tensors) == ['_größe (cm)']


def test_sparse_and_ragged_features_are_fed_as_such():
    spec = {
        'sparse': tf.SparseTensorSpec([4, 9], tf.float32),
        'ragged': tf.RaggedTensorSpec([4, None], tf.int64, 1, tf.int32),
    }
    receiver = serving.receiver_of_spec(spec)
    assert receiver.features['sparse'].shape.as_list() == [None, 9]
    assert receiver.features['ragged'].row_splits.dtype == tf.int32
    sums = [tf.sparse.reduce_sum(receiver.features['sparse']), tf.reduce_sum(receiver.features['ragged'], axis=1)]
    feeds = {
        receiver.receiver_tensors['sparse']: v1.SparseTensorValue([[0, 1], [1, 8]], [1.5, 2.0], [2, 9]),
        receiver.receiver_tensors['ragged']: v1.ragged.constant_value([[1, 2], [3]], dtype=np.int64),
    }
    with v1.Session() as session:
        total, rows = session.run(sums, feeds)
    assert total == 3.5
    np.testing.assert_array_equal(rows, [3, 3])


def test_a_feature_that_can_not_be_fed_is_named():
    with pytest.raises(errors.ConfigurationError, match=r'Feature `d` .* can not be fed'):
        serving.receiver_of_spec({'d': tf.data.DatasetSpec(tf.TensorSpec([]))})


def test_two_features_of_one_name_are_refused():
    spec = {'a': {'b': tf.TensorSpec([4])}, 'a/b': tf.TensorSpec([4])}
    with pytest.raises(errors.ConfigurationError, match=r'Two features have the name \[a/b\]'):
        serving.receiver_of_spec(spec)
