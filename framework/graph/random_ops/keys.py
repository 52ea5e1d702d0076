"""The numbers that a draw depends on: its key, its counter, and the tick that counts runs."""

import dataclasses
import hashlib
import re

import numpy as np
import tensorflow as tf
from tensorflow.compat import v1
from tensorflow.python.ops import gen_stateless_random_ops_v2 as stateless  # hashes in the graph; no public name

SCOPE = 'framework/random/'
PHILOX = 1  # the algorithm of all draws, as TensorFlow's stateless ops number them
_EVALUATION = -(1 << 63)  # evaluation has the negative ticks, training the others
_BATCH_BITS = 24
# What a stream puts before the names of its ops. The name of a set must not decide what it draws.
_OF_TOWER = re.compile(r'^eval/tower_\d+/')
_OF_INPUT = re.compile(r'^framework/.+?_input/')


def evaluation_tick(step: int, batch: int) -> int:
    """Returns the tick of a batch of a pass, which no train run has.

    Args:
        step: The global step of the weights, below 2^39.
        batch: The number of the batch in its pass, from 0, below 2^24. Ticks of one pass follow one another.
    """
    return _EVALUATION + (step << _BATCH_BITS) + batch


def hashed(*parts: int | str) -> int:
    """Returns 64 bits that are the same in every process."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, 'little')


def relative(scope: str) -> str:
    """Returns a name without what its stream puts before it: it is the same in a graph of one call."""
    return _OF_INPUT.sub('framework/input/', _OF_TOWER.sub('', scope))


@dataclasses.dataclass(frozen=True)
class Place:
    """Where in a run a draw is made.

    Attributes:
        position: uint64 `[1]`, another one in each iteration of a loop and each call of a function; None where an op
            runs once.
        counter: uint64 `[2]`, where a draw begins in the numbers of its key: the upper half is the tick, or the number
            of an element, so that the draws of two of them can't overlap.
    """

    position: tf.Tensor | None
    counter: tf.Tensor


@dataclasses.dataclass(frozen=True)
class Draw:
    """What a stateless op draws from.

    Attributes:
        key: uint64 `[1]`.
        counter: uint64 `[2]`.
    """

    key: tf.Tensor
    counter: tf.Tensor

    @property
    def seed(self) -> tf.Tensor:
        """int64 `[2]`, for the ops that take no key and counter."""
        return tf.bitcast(tf.concat([self.key, self.counter[1:]], 0), tf.int64)


def counter_of(number: tf.Tensor) -> tf.Tensor:
    """Returns the counter of a tick or of an element, an int64 scalar."""
    return tf.stack([tf.constant(0, tf.uint64), tf.bitcast(number, tf.uint64)])


def mixed(position: tf.Tensor | None, number: tf.Tensor) -> tf.Tensor:
    """Returns the position of a part of a place, uint64 `[1]`.

    Args:
        position: The position of the place.
        number: Which part: the iteration of a loop, or the element of a Dataset.
    """
    outer = tf.zeros([1], tf.int64) if position is None else tf.bitcast(position, tf.int64)
    key, _ = stateless.stateless_random_get_key_counter(tf.concat([outer, [tf.cast(number, tf.int64)]], 0))
    return key


def make_tick() -> tuple[tf.Tensor, tf.Variable]:
    """Returns the tick of the default graph and the local variable that it reads where a run doesn't feed it."""
    with v1.name_scope(SCOPE):
        unfed = v1.get_variable(
            f'{SCOPE}unfed_tick',
            initializer=np.int64(0),
            trainable=False,
            use_resource=True,
            collections=[v1.GraphKeys.LOCAL_VARIABLES],
        )
        # Not a constant: the optimiser would fold all draws into constants.
        return v1.placeholder_with_default(_value_or_zero(unfed), [], 'tick'), unfed


def _value_or_zero(variable: tf.Variable) -> tf.Tensor:
    """Returns the value, or 0 before it is initialised: initial values are drawn before that of local variables."""
    is_there = v1.is_variable_initialized(variable)
    # Not by `tf.cond`, whose functions have names that hold a count of the process.
    there = tf.raw_ops.Switch(data=variable.handle, pred=is_there).output_true
    value = tf.raw_ops.ReadVariableOp(resource=there, dtype=tf.int64)
    zero = tf.raw_ops.Switch(data=tf.constant(0, tf.int64), pred=is_there).output_false
    return tf.reshape(tf.raw_ops.Merge(inputs=[zero, value]).output, [])
