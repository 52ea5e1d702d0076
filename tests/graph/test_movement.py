"""What an op may change, for every way in which an op changes a variable."""

import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework.graph import movement


def assign(variable, other):
    return variable.assign_add(1.0)


def optimizer(variable, other):
    return v1.train.AdamOptimizer().minimize(tf.square(variable), var_list=[variable])


def behind_control_dependencies(variable, other):
    with tf.control_dependencies([variable.assign(2.0)]):
        return tf.no_op()


def group(variable, other):
    return tf.group(tf.no_op(), variable.assign_sub(other))


def branch(variable, other):
    return tf.cond(other > 0, lambda: variable.assign_add(1.0), lambda: tf.identity(other))


def old_branch(variable, other):
    return v1.cond(other > 0, lambda: variable.assign_add(1.0), lambda: tf.identity(other))


def loop(variable, other):
    return tf.while_loop(lambda i: i < 2, lambda i: [i + tf.cast(variable.assign_add(1.0) > 0, tf.int32)], [0])[0]


def function(variable, other):
    return tf.function(lambda: variable.assign_add(1.0))()


def scatter(variable, other):
    return variable.assign(tf.tensor_scatter_nd_update(tf.reshape(variable, [1]), [[0]], [3.0])[0])


WAYS = [assign, optimizer, behind_control_dependencies, group, branch, old_branch, loop, function, scatter]


@pytest.mark.parametrize('way', WAYS, ids=lambda way: way.__name__)
def test_a_change_is_found(way):
    variable, other = tf.Variable(1.0, name='changed'), tf.Variable(1.0, name='read')
    found = movement.changed([way(variable, other)], [variable])
    assert found == [variable] or found[0] is variable


def function_that_reads(variable, other):
    return tf.function(lambda: variable.assign_add(other))()


def branch_that_reads(variable, other):
    return tf.cond(variable > 0, lambda: variable.assign_add(other), lambda: tf.identity(other))


def loop_that_reads(variable, other):
    def body(i):
        inner = tf.function(lambda: other * 2.0)()
        return [i + tf.cast(variable.assign_add(inner) > 0, tf.int32)]

    return tf.while_loop(lambda i: i < tf.cast(other, tf.int32), body, [0])[0]


READERS = [assign, optimizer, group, scatter, function_that_reads, branch_that_reads, loop_that_reads]


@pytest.mark.parametrize('way', READERS, ids=lambda way: way.__name__)
def test_a_variable_that_is_only_read_is_not_found(way):
    variable, other = tf.Variable(1.0, name='changed'), tf.Variable(1.0, name='read')
    assert not movement.changed([way(variable, other)], [other])


def test_a_change_that_nothing_waits_for_is_not_found():
    variable = tf.Variable(1.0)
    variable.assign_add(1.0)
    assert not movement.changed([tf.square(variable)], [variable])


def test_an_old_variable_is_found():
    variable = v1.Variable(1.0, use_resource=False)
    other = v1.Variable(1.0, use_resource=False)
    assert len(movement.changed([variable.assign_add(other)], [variable, other])) == 1
