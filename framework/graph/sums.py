"""Sums of three and more tensors, added up in the order in which they were written, whatever the threads do.

TensorFlow's `AddN` begins with an input whose memory it may take over, and which of its inputs others still read then
is a matter of threads: `a + b + c` is `(b + c) + a` in some runs. With two tensors there is no other order.
"""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import tensorflow as tf
from tensorflow.compat import v1
from tensorflow.python.ops import gen_math_ops  # where `tf.add_n` and the sums of gradients are built

from framework import run_config


@contextlib.contextmanager
def in_order() -> Iterator[None]:
    """Builds every sum of many tensors as sums of two.

    Only for the thread whose turn it is to build, as `building.new_graph` sees to: what is exchanged here belongs to
    the process.
    """
    with mock.patch.object(gen_math_ops, 'add_n', functools.partial(_add_n, gen_math_ops.add_n)):
        yield


def _add_n(original: Any, inputs: Sequence[Any], name: str | None = None) -> Any:
    if len(inputs) < 3 or tf.as_dtype(inputs[0].dtype) == tf.variant:  # lists of tensors, which are added in order
        return original(inputs, name=name)
    with v1.name_scope(name, 'AddN') as scope:
        *first, last = inputs
        return tf.add(functools.reduce(tf.add, first), last, name=scope)


def session_config(given: v1.ConfigProto | None) -> v1.ConfigProto:
    """Returns a configuration of sessions that leave sums of two as they are, and don't make an `AddN` of them.

    Args:
        given: The configuration otherwise, None for the default.
    """
    config = run_config.default_session_config()
    if given is not None:
        config.CopyFrom(given)
    rewrite = config.graph_options.rewrite_options
    rewrite.arithmetic_optimization = rewrite.OFF
    return config
