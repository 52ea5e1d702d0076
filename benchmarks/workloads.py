"""The models that benchmarks of draws run: with dropout, and training data that is shuffled."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from benchmarks import networks
from framework import EstimatorSpec, ModeKeys


def mlp() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns model_fn and input_fn of 10-64-1, in batches of 32."""
    return _drawing(networks.WORKLOADS['mlp'])


def conv() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns model_fn and input_fn of a convolutional net on images of 28x28, in batches of 64."""
    return _drawing(networks.conv((32, 64), 256))


WORKLOADS = {'mlp': mlp, 'conv': conv}


def _drawing(workload: networks.Workload) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def input_fn(mode: str) -> tf.data.Dataset:
        dataset = workload.examples()
        if mode == ModeKeys.TRAIN:
            dataset = dataset.shuffle(1000).repeat()
        return dataset.batch(workload.batch_size)

    return networks.make_model_fn(workload, EstimatorSpec, drops=True), input_fn
