"""The numbers of `tf.estimator` of TensorFlow 2.15, as `benchmarks/reference/record.py` recorded them."""

import json
import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest
from tensorflow.compat import v1

from benchmarks.reference import model
from framework import estimator

RECORDED = pathlib.Path(__file__).parent / 'recorded'
NUMBERS = json.loads((RECORDED / 'training.json').read_text())
TOLERANCE = 1e-5
OLD_PYTHON = os.environ.get('OLD_PYTHON')  # of the environment that `benchmarks.old_environment` makes


def going_on_from(step, directory):
    """Returns an Estimator whose directory holds a checkpoint that 2.15 wrote."""
    directory.mkdir()
    for path in (RECORDED / 'checkpoint').glob(f'model.ckpt-{step}.*'):
        shutil.copy(path, directory)
    (directory / 'checkpoint').write_text(f'model_checkpoint_path: "model.ckpt-{step}"\n')
    config = estimator.RunConfig(tf_random_seed=1, save_checkpoints_steps=1000)
    return estimator.Estimator(model.model_fn_of(estimator), str(directory), config)


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """Returns the Estimator after 200 steps from 2.15's first checkpoint, and the loss of each."""
    made = going_on_from(0, tmp_path_factory.mktemp('reference') / 'run')
    return made, model.losses(made, model.STEPS)


def test_losses_are_those_of_2_15(trained):
    np.testing.assert_allclose(trained[1], NUMBERS['losses'], rtol=TOLERANCE)


def test_metrics_are_those_of_2_15(trained):
    metrics = model.metrics(trained[0])
    assert metrics.keys() == NUMBERS['metrics'].keys()
    np.testing.assert_allclose([*metrics.values()], [*NUMBERS['metrics'].values()], rtol=TOLERANCE)


def test_predictions_are_those_of_2_15(trained):
    scores = [prediction['scores'] for prediction in trained[0].predict(model.eval_input_fn)]
    np.testing.assert_allclose(scores[:8], NUMBERS['scores'], rtol=1e-4)


def test_variables_have_the_names_and_shapes_of_2_15(trained):
    found = {name: list(shape) for name, shape in v1.train.list_variables(trained[0].model_dir)}
    assert found == NUMBERS['variables']


def test_a_checkpoint_of_2_15_is_evaluated_and_trained_on(tmp_path):
    made = going_on_from(model.STEPS, tmp_path / 'run')
    metrics = model.metrics(made)
    np.testing.assert_allclose([*metrics.values()], [*NUMBERS['metrics'].values()], rtol=TOLERANCE)
    made.train(model.train_input_fn, steps=10)
    assert made.get_variable_value('global_step') == model.STEPS + 10


@pytest.mark.skipif(OLD_PYTHON is None, reason='OLD_PYTHON names no environment with TensorFlow 2.15')
def test_2_15_evaluates_and_trains_on_a_checkpoint_of_ours(trained):
    command = [OLD_PYTHON, '-m', 'benchmarks.reference.go_on', trained[0].model_dir]
    root = pathlib.Path(__file__).parents[2]
    metrics = model.metrics(trained[0])
    environment = {name: value for name, value in os.environ.items() if name != 'TF_USE_LEGACY_KERAS'}
    told = subprocess.run(command, cwd=root, env=environment, check=True, capture_output=True, text=True).stdout
    found = json.loads(told.splitlines()[-1])
    np.testing.assert_allclose([*found['metrics'].values()], [*metrics.values()], rtol=TOLERANCE)
    assert found['step'] == model.STEPS + 10
