"""Input functions that make their iterators themselves, as code for `tf.estimator` did."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import EvalSet
from framework.graph import own_iterators, sources, streams
from framework.run_dir import TRAIN

NUMBERS = np.arange(7, dtype=np.float32)


def dataset():
    return tf.data.Dataset.from_tensor_slices((NUMBERS, 10 * NUMBERS)).batch(3)


def one_shot():
    return v1.data.make_one_shot_iterator(dataset()).get_next()


def one_shot_method():
    return v1.data.Dataset.from_tensor_slices((NUMBERS, 10 * NUMBERS)).batch(3).make_one_shot_iterator().get_next()


def initializable():
    iterator = v1.data.make_initializable_iterator(dataset())
    v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
    return iterator.get_next()


def of_structure():
    made = dataset()
    iterator = v1.data.Iterator.from_structure(v1.data.get_output_types(made), v1.data.get_output_shapes(made))
    iterator.make_initializer(made)
    return iterator.get_next()


def two_iterators():
    features = v1.data.make_one_shot_iterator(tf.data.Dataset.from_tensor_slices(NUMBERS).batch(3)).get_next()
    labels = v1.data.make_one_shot_iterator(tf.data.Dataset.from_tensor_slices(10 * NUMBERS).batch(3)).get_next()
    return features, tf.identity(labels)


def the_iterator_itself():
    return v1.data.make_one_shot_iterator(dataset())


WAYS = [one_shot, one_shot_method, initializable, of_structure, two_iterators, the_iterator_itself]


@pytest.mark.parametrize('train', [True, False], ids=['train', 'evaluation'])
@pytest.mark.parametrize('way', WAYS, ids=lambda way: way.__name__)
def test_the_data_of_an_own_iterator_starts_again_and_its_end_is_known(way, train):
    if train:
        source = sources.train_source(way, None, None)
    else:
        source = sources.eval_source(EvalSet(name='valid', input_fn=way), None, None)
    assert source.restarts
    batch = streams.make_input(source.stream, [source])
    with v1.Session() as session:
        session.run(v1.tables_initializer())
        for _ in range(2):
            session.run(batch.initializers[TRAIN if train else 'valid'])
            features, labels, counts = [], [], []
            with pytest.raises(tf.errors.OutOfRangeError) as caught:
                while True:
                    values = session.run([batch.features, batch.labels, batch.examples])
                    for kept, value in zip((features, labels, counts), values, strict=True):
                        kept.append(value)
            assert batch.ended(caught.value)
            np.testing.assert_array_equal(np.concatenate(features), NUMBERS)
            np.testing.assert_array_equal(np.concatenate(labels), 10 * NUMBERS)
            assert counts == [3, 3, 1]


def test_iterators_outside_stay_as_they_are():
    before = v1.data.Dataset._make_one_shot_iterator
    with own_iterators.noted() as own:
        pass
    assert v1.data.Dataset._make_one_shot_iterator is before
    assert not own.initializers


def test_an_iterator_with_several_initializers_is_left_to_the_user():
    def input_fn():
        iterator = v1.data.Iterator.from_structure(tf.float32, tf.TensorShape([None]))
        for numbers in (NUMBERS, 2 * NUMBERS):
            iterator.make_initializer(tf.data.Dataset.from_tensor_slices(numbers).batch(3))
        return iterator.get_next()

    assert not sources.train_source(input_fn, None, None).starts


def test_an_iterator_whose_dataset_is_fed_is_left_to_the_user():
    def input_fn():
        fed = v1.placeholder(tf.float32, [None])
        return v1.data.make_initializable_iterator(tf.data.Dataset.from_tensor_slices(fed).batch(3)).get_next()

    source = sources.train_source(input_fn, None, None)
    assert not source.starts
    assert source.restarts


def test_bare_tensors_can_not_start_again_and_never_end():
    source = sources.train_source(lambda: (tf.constant([1.0]), tf.constant([2.0])), None, None)
    assert not source.restarts
    with v1.Session() as session:
        assert session.run(source.cardinality) == tf.data.INFINITE_CARDINALITY


def test_tensors_of_a_queue_can_not_start_again():
    def input_fn():
        return v1.train.batch([v1.train.limit_epochs(tf.constant(NUMBERS), 1)], 3, enqueue_many=True)

    source = sources.train_source(input_fn, None, None)
    assert not source.restarts
    assert source.ends
