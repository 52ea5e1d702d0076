"""Train runs that XLA compiles: the numbers of others but for rounding."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import Experiment, ModeKeys, RunConfig, errors, testing

STEPS = 30


def experiment(directory, model_fn=testing.linear_model_fn, batch_size=8, ends=False, level='best_effort', **config):
    def input_fn(mode):
        dataset = tf.data.Dataset.from_tensor_slices(testing.blobs(60)).filter(lambda *_: True)
        return (dataset if ends else dataset.repeat()).batch(batch_size)

    return Experiment(
        model_fn=model_fn,
        train_input_fn=input_fn,
        train_steps=STEPS,
        model_dir=str(directory),
        seed=1,
        reproducible=level,
        run_config=RunConfig(log_step_count_steps=10, **config),
    )


@pytest.mark.parametrize('xla', ['step', 'loop'])
def test_compiled_runs_give_the_numbers_of_others_but_for_rounding(tmp_path, xla):
    weights = []
    for path, config in (('plain', {}), ('compiled', {'xla': xla})):
        result = experiment(tmp_path / path, **config).train()
        assert (result.status, result.global_step) == ('done', STEPS)
        weights.append(testing.checkpoint_values(str(tmp_path / path / f'model.ckpt-{STEPS}'))['weights'])
    np.testing.assert_allclose(weights[1], weights[0], rtol=1e-4)


def test_a_compiled_loop_ends_with_data_that_announces_its_end(tmp_path):
    result = experiment(tmp_path, ends=True, batch_size=4, xla='loop').train()
    assert (result.status, result.global_step) == ('exhausted', 15)


def test_a_loss_of_nan_in_a_compiled_loop_is_met_at_its_step(tmp_path):
    def broken(features, labels, mode):
        spec = testing.linear_model_fn(tf.nn.dropout(features, rate=0.2), labels, mode)
        if mode != ModeKeys.TRAIN:
            return spec
        step = v1.train.get_global_step()
        with tf.control_dependencies([spec.train_op]):
            return spec._replace(loss=tf.where(step.read_value() < 14, spec.loss, np.nan))

    with pytest.raises(errors.RunError, match='not finite at step 14'):
        experiment(tmp_path, broken, xla='loop').train()


def test_batches_of_other_sizes_are_explained(tmp_path):
    with pytest.raises(tf.errors.OpError) as caught:
        experiment(tmp_path, ends=True, batch_size=9, xla='loop').train()
    assert 'drop_remainder' in ''.join(caught.value.__notes__)


def test_who_wants_the_same_bits_can_not_have_it(tmp_path):
    with pytest.raises(errors.ConfigurationError, match=r"reproducible.*\['exact'\].*RunConfig\.xla"):
        experiment(tmp_path, level='exact', xla='step').train()


@pytest.mark.parametrize('config', [{'xla': 'loops'}, {'xla': True}, {'xla': 'loop', 'fuse': 'off'}])
def test_settings_that_mean_nothing_are_refused(config):
    with pytest.raises(errors.ConfigurationError, match=r'RunConfig\.xla'):
        RunConfig(**config)
