"""The batch size is told where it is known, and never guessed."""

import pytest
import tensorflow as tf

from framework.graph import sources
from framework.graph.batch_size import batch_size


@pytest.mark.parametrize(
    ('make', 'expected'),
    [
        (lambda d: d.batch(4), 4),
        (lambda d: d.batch(4, drop_remainder=True).map(lambda x: x), 4),
        (lambda d: d.map(lambda x: x).batch(4).repeat().shuffle(5).take(3).skip(1).prefetch(1).cache(), 4),
        (lambda d: d.batch(4, num_parallel_calls=2), 4),
        (lambda d: d.padded_batch(3, padded_shapes=[]), 3),
        (lambda d: d.batch(4).batch(2), 2),
        (lambda d: d.batch(4).map(lambda x: x[:1]), None),
        (lambda d: d.batch(4).unbatch(), None),
        (lambda d: d, None),
        (lambda d: tf.data.Dataset.zip((d.batch(4), d.batch(4))), None),
    ],
)
def test_the_batch_size_of_a_dataset(make, expected):
    assert batch_size(_source(make)) == expected


def test_the_batch_size_of_tensors():
    assert batch_size(_source(lambda _: (tf.zeros([5, 2]), tf.zeros([5])))) == 5
    assert batch_size(_source(lambda _: (tf.zeros([5, 2]), tf.zeros([])))) is None


def _source(make):
    return sources.train_source(lambda: make(tf.data.Dataset.range(10)), None, None)
