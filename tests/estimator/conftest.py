"""Estimators of a tiny model."""

import pytest
from tensorflow.compat import v1

from framework import estimator, testing

FEATURES, LABELS = testing.blobs(40)
VALID = testing.blobs(23, seed=1)


def train_fn():
    return testing.array_input_fn(FEATURES, LABELS, 10)('train')


def eval_fn():
    return testing.array_input_fn(*VALID, 10)('eval')


@pytest.fixture
def make(tmp_path):
    """Returns a function that makes an Estimator in one directory."""

    def made(model_fn=testing.linear_model_fn, directory='run', config=None, **changes):
        config = config or estimator.RunConfig(tf_random_seed=1, save_checkpoints_steps=1000)
        return estimator.Estimator(model_fn, str(tmp_path / directory), config, **changes)

    return made


@pytest.fixture
def lines(caplog):
    """Returns what TensorFlow's logger told."""
    caplog.set_level('INFO', logger='tensorflow')
    return lambda: [record.getMessage() for record in caplog.records if record.name == 'tensorflow']


class Seen(v1.train.SessionRunHook):
    """Keeps what a tensor of the newest call of a model_fn in one mode held in each run."""

    def __init__(self, mode):
        self.mode = mode
        self.tensor = None
        self.values = []

    def model_fn(self, features, labels, mode):
        if mode == self.mode:
            self.tensor = features
        return testing.linear_model_fn(features, labels, mode)

    def before_run(self, run_context):
        return v1.train.SessionRunArgs(self.tensor)

    def after_run(self, run_context, run_values):
        self.values.append(run_values.results)
