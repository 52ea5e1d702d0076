"""Mutable tables of a later call hold what the first call's hold."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework.graph import collections, tables


def mutable():
    return tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, -1.0, name='table')


def dense():
    return tf.lookup.experimental.DenseHashTable(tf.int64, tf.float32, -1.0, -2, -3, name='table')


@pytest.mark.parametrize('make', [mutable, dense], ids=['mutable', 'dense'])
def test_a_table_takes_what_its_twin_holds_and_forgets_the_rest(make, fresh_graph):
    keys = tf.constant([1, 2, 3], tf.int64)
    first, other = make(), make()
    taken = collections.take(fresh_graph)
    with collections.shown(fresh_graph, collections.EMPTY):
        later, later_other = make(), make()
        copies = tables.copies(taken, collections.take(fresh_graph))
    fill = [first.insert(keys[:2], [10.0, 20.0]), other.insert(keys[2:], [5.0]), later.insert(keys[2:], [7.0])]
    with v1.Session() as session:
        session.run(fill)
        session.run(copies)
        np.testing.assert_array_equal(session.run(later.lookup(keys)), [10.0, 20.0, -1.0])
        np.testing.assert_array_equal(session.run(later_other.lookup(keys)), [-1.0, -1.0, 5.0])
        np.testing.assert_array_equal(session.run(first.lookup(keys)), [10.0, 20.0, -1.0])


def test_a_table_without_a_twin_is_left_alone(fresh_graph):
    mutable()
    assert not tables.copies(collections.EMPTY, collections.take(fresh_graph))
