"""The stateless twin of each classic random op: the same distribution, dtypes and gradients, from a key and a counter.

The seeds that a user gives to single ops are ignored: the name of an op sets its draws apart already.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_image_ops, gen_random_ops  # where TensorFlow's own Python looks the ops up
from tensorflow.python.ops import gen_stateless_random_ops as seeded_ops  # these twins have no public function
from tensorflow.python.ops import gen_stateless_random_ops_v2 as keyed_ops

from framework.graph.random_ops.keys import PHILOX, Draw

Twin = Callable[..., tf.Tensor]


def _of_shape(op: Callable[..., tf.Tensor]) -> Twin:
    def twin(draw: Draw, *, shape: Any, dtype: Any, **_: Any) -> tf.Tensor:
        return op(shape, draw.key, draw.counter, PHILOX, dtype=dtype)

    return twin


def _uniform_int(draw: Draw, *, shape: Any, minval: Any, maxval: Any, **_: Any) -> tf.Tensor:
    return keyed_ops.stateless_random_uniform_int_v2(shape, draw.key, draw.counter, PHILOX, minval, maxval)


def _shuffle(draw: Draw, *, value: Any, **_: Any) -> tf.Tensor:
    return keyed_ops.stateless_shuffle(value, draw.key, draw.counter, PHILOX)


def _gamma(draw: Draw, *, shape: Any, alpha: Any, **_: Any) -> tf.Tensor:
    alpha = tf.convert_to_tensor(alpha)
    full = _appended(shape, alpha)
    return keyed_ops.stateless_random_gamma_v3(full, draw.key, draw.counter, PHILOX, alpha)


def _poisson(draw: Draw, *, shape: Any, rate: Any, dtype: Any = tf.int64, **_: Any) -> tf.Tensor:
    rate = tf.convert_to_tensor(rate)
    return seeded_ops.stateless_random_poisson(_appended(shape, rate), draw.seed, rate, dtype=dtype)


def _multinomial(draw: Draw, *, logits: Any, num_samples: Any, output_dtype: Any = tf.int64, **_: Any) -> tf.Tensor:
    return seeded_ops.stateless_multinomial(logits, num_samples, draw.seed, output_dtype=output_dtype)


def _parameterized_truncated_normal(
    draw: Draw, *, shape: Any, means: Any, stdevs: Any, minvals: Any, maxvals: Any, **_: Any
) -> tf.Tensor:
    # The classic op has parameters per row, its twin per column.
    shape = tf.convert_to_tensor(shape)
    columns = tf.concat([shape[1:], shape[:1]], 0)
    values = seeded_ops.stateless_parameterized_truncated_normal(columns, draw.seed, means, stdevs, minvals, maxvals)
    last = tf.rank(values) - 1
    return tf.transpose(values, tf.concat([[last], tf.range(last)], 0))


def _distorted_box(draw: Draw, **given: Any) -> Any:
    kept = {name: value for name, value in given.items() if name not in ('seed', 'seed2')}
    return gen_image_ops.stateless_sample_distorted_bounding_box(seed=draw.seed, **kept)


def _appended(shape: Any, parameters: tf.Tensor) -> tf.Tensor:
    """Returns the shape of a draw of this shape for each of the parameters."""
    return tf.concat([tf.cast(shape, tf.int32), tf.shape(parameters)], 0)


# By the module and the name of the function that builds the classic op.
TWINS: dict[tuple[Any, str], Twin] = {
    (gen_random_ops, 'random_uniform'): _of_shape(keyed_ops.stateless_random_uniform_v2),
    (gen_random_ops, 'random_uniform_int'): _uniform_int,
    (gen_random_ops, 'random_standard_normal'): _of_shape(keyed_ops.stateless_random_normal_v2),
    (gen_random_ops, 'truncated_normal'): _of_shape(keyed_ops.stateless_truncated_normal_v2),
    (gen_random_ops, 'parameterized_truncated_normal'): _parameterized_truncated_normal,
    (gen_random_ops, 'random_shuffle'): _shuffle,
    (gen_random_ops, 'multinomial'): _multinomial,
    (gen_random_ops, 'random_gamma'): _gamma,
    (gen_random_ops, 'random_poisson_v2'): _poisson,
    (gen_image_ops, 'sample_distorted_bounding_box_v2'): _distorted_box,
}
