"""Sums of many tensors have one order, whatever the threads do."""

import contextlib
import functools
import operator

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import run_config
from framework.graph import sums

VALUES = np.random.RandomState(0).normal(size=[4, 1000]).astype(np.float32) * [[0.1], [1], [10], [100]]


def total(held, way):
    """The sum of four tensors, of which those held are read by others until the sum is made."""
    with tf.Graph().as_default(), way:
        given = [v1.placeholder(tf.float32, [1000]) for _ in VALUES]
        terms = [1.7 * each for each in given]
        result = tf.add_n(terms)
        with tf.control_dependencies([result]):
            readers = [tf.add(terms[i], 1.0) for i in held]
        with v1.Session(config=sums.session_config(None)) as session:
            return session.run([result, *readers], dict(zip(given, VALUES, strict=True)))[0]


@pytest.mark.parametrize('held', [[], [0], [1], [0, 1], [0, 1, 2], [0, 1, 2, 3]])
def test_a_sum_has_the_same_bits_whoever_reads_its_terms(held):
    expected = functools.reduce(operator.add, np.float32(1.7) * VALUES.astype(np.float32))
    np.testing.assert_array_equal(total(held, sums.in_order()), expected)


def test_tensorflow_alone_adds_in_an_order_that_depends_on_who_reads():
    assert (total([], contextlib.nullcontext()) != total([0, 1], contextlib.nullcontext())).any()


def gradient():
    x = tf.random.uniform([1000])
    return tf.gradients([tf.sin(x), tf.square(x), tf.exp(x), tf.tanh(x)], x)[0]


def in_a_row():
    a, b, c, d = (tf.random.uniform([1000]) for _ in VALUES)
    return tf.sin(a) + tf.sin(b) + tf.sin(c) + tf.sin(d)


@pytest.mark.parametrize('build', [gradient, in_a_row])
def test_no_sum_of_many_runs(build):
    def ops_run(way, config):
        with tf.Graph().as_default(), way, v1.Session(config=config) as session:
            result, metadata = build(), v1.RunMetadata()
            session.run(result, options=v1.RunOptions(output_partition_graphs=True), run_metadata=metadata)
        return {node.op for graph in metadata.partition_graphs for node in graph.node}

    assert 'AddN' in ops_run(contextlib.nullcontext(), run_config.default_session_config())
    assert 'AddN' not in ops_run(sums.in_order(), sums.session_config(run_config.default_session_config()))


def test_a_sum_keeps_its_name_its_shape_and_what_else_the_session_was_told():
    with sums.in_order():
        a, b, c = (v1.placeholder(tf.float32, [None, 3]) for _ in range(3))
        assert tf.add_n([a, b, c], name='all').name == 'all:0'
        assert tf.add_n([a, b, c]).name == 'AddN:0'
        assert tf.add_n([a, b]).op.type == 'AddN'
        assert tf.add_n([a, b, c]).shape.as_list() == [None, 3]
    assert sums.session_config(v1.ConfigProto(inter_op_parallelism_threads=3)).inter_op_parallelism_threads == 3
    assert not sums.session_config(v1.ConfigProto()).allow_soft_placement


def test_lists_of_tensors_are_added_as_ever():
    scalar = tf.constant([], tf.int32)
    with sums.in_order():
        values = [tf.constant([k, 2 * k]) for k in (1, 10, 100)]
        lists = [tf.raw_ops.TensorListFromTensor(tensor=each, element_shape=scalar) for each in values]
        added = tf.raw_ops.TensorListStack(input_handle=tf.add_n(lists), element_shape=scalar, element_dtype=tf.int32)
    with v1.Session() as session:
        assert session.run(added).tolist() == [111, 222]
