"""Training data whose end is known with its last batch."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework.graph import epochs


def _read(make, count, repeat=True):
    """Returns the first elements of the announced Dataset, None behind the last of each epoch."""
    found = []
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(1)
        dataset = make()
        iterator = v1.data.make_initializable_iterator(epochs.announced(dataset, repeat))
        optional, last = iterator.get_next()
        fetches = (epochs.element_of(optional, dataset.element_spec), last)
        session.run(iterator.initializer)
        while len(found) < count:
            element, is_last = session.run(fetches)
            found += [element, None] if is_last else [element]
    return found


def _epochs(found):
    """Returns the elements of each epoch that ended."""
    ends = [i for i, element in enumerate(found) if element is None]
    return [found[start + 1 : end] for start, end in zip([-1, *ends], ends, strict=False)]


def test_every_epoch_has_every_element_once_and_then_an_end():
    found = _read(lambda: tf.data.Dataset.range(5), 18)
    assert _epochs(found) == [[0, 1, 2, 3, 4]] * 3


def test_every_epoch_is_shuffled_anew_as_repeat_would():
    def shuffled():
        return tf.data.Dataset.range(20).shuffle(20)

    found = [[int(element) for element in epoch] for epoch in _epochs(_read(shuffled, 63))]
    assert len(found) == 3 and all(sorted(epoch) == list(range(20)) for epoch in found)
    assert found[0] != found[1] != found[2]
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(1)
        plain = v1.data.make_one_shot_iterator(shuffled().repeat(3)).get_next()
        assert [int(session.run(plain)) for _ in range(60)] == [element for epoch in found for element in epoch]


@pytest.mark.parametrize(
    'element',
    [
        {'a': np.float32(1.5), 'b': {'c': np.int64(2)}},
        (np.float32(1.5), np.int64(2)),
        ({'a': np.float32(1.5)}, (np.int64(2), b'text')),
        np.ones([2, 3], np.float32),
    ],
)
def test_any_structure_keeps_its_form(element):
    def make():
        return tf.data.Dataset.from_tensors(element)

    first, end, again = _read(make, 3)[:3]
    assert end is None
    tf.nest.assert_same_structure(first, element)
    for read in (first, again):
        for value, expected in zip(tf.nest.flatten(read), tf.nest.flatten(element), strict=True):
            np.testing.assert_array_equal(value, expected)


def test_sparse_and_ragged_elements_keep_their_form():
    def make():
        return tf.data.Dataset.range(1, 3).map(
            lambda n: {'sparse': tf.sparse.from_dense([[n]]), 'ragged': tf.RaggedTensor.from_row_lengths([n], [1])}
        )

    one, two, end = _read(make, 3)
    assert one['sparse'].values.tolist() == [1] and two['ragged'].to_list() == [[2]] and end is None


def test_static_shapes_stay():
    with tf.Graph().as_default():
        dataset = tf.data.Dataset.from_tensor_slices(np.zeros([7, 3], np.float32)).batch(2, drop_remainder=True)
        optional, _ = v1.data.make_initializable_iterator(epochs.announced(dataset, True)).get_next()
        assert epochs.element_of(optional, dataset.element_spec).shape.as_list() == [2, 3]


def test_data_that_do_not_start_again_end_behind_the_last_element():
    assert _read(lambda: tf.data.Dataset.range(3), 4, repeat=False) == [0, 1, 2, None]
    with pytest.raises(tf.errors.OutOfRangeError):
        _read(lambda: tf.data.Dataset.range(3), 5, repeat=False)


@pytest.mark.parametrize('repeat', [True, False])
def test_data_without_elements_give_an_empty_optional(repeat):
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        _read(lambda: tf.data.Dataset.range(0), 1, repeat)
    assert raised.value.op.type == 'OptionalGetValue'


def test_elements_of_tensors_can_be_announced_and_those_of_nothing_can_not():
    assert epochs.can_announce({'a': tf.SparseTensorSpec([None, 3]), 'b': tf.RaggedTensorSpec([None, None])})
    assert not epochs.can_announce((tf.TensorSpec([]), None))


def test_the_place_in_the_data_is_saved_between_any_two_elements(tmp_path):
    def make():
        return tf.data.Dataset.range(5).shuffle(5).map(lambda x: (x, x + 1)).batch(2)

    whole = [element for element in _read(make, 16) if element is not None]
    for place in range(1, 7):
        with tf.Graph().as_default(), v1.Session() as session:
            v1.set_random_seed(1)
            dataset = make()
            iterator = v1.data.make_initializable_iterator(epochs.announced(dataset, True))
            element = epochs.element_of(iterator.get_next()[0], dataset.element_spec)
            saver = v1.train.Saver([tf.data.experimental.make_saveable_from_iterator(iterator, 'fail')])
            session.run(iterator.initializer)
            for _ in range(place):
                session.run(element)
            saver.save(session, str(tmp_path / 'place'))
            session.run(iterator.initializer)
            saver.restore(session, str(tmp_path / 'place'))
            for expected in whole[place : place + 4]:
                np.testing.assert_array_equal(session.run(element), expected)
