"""A fresh graph and a clear gin for each test."""

import os

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')

from collections.abc import Iterator

import pytest
import tensorflow as tf

import framework  # noqa: F401  (before TensorFlow: it chooses the Keras)
from framework import config


@pytest.fixture(autouse=True)
def clear_gin() -> Iterator[None]:
    config.clear()
    yield
    config.clear()


@pytest.fixture(autouse=True)
def fresh_graph() -> Iterator[tf.Graph]:
    with tf.Graph().as_default() as graph:
        yield graph
