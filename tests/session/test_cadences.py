"""Hooks in a fused run: each sees what it would have seen of single runs, and takes no batch more."""

import json
import math
import time

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import errors, testing
from framework.experiment import Experiment
from framework.reporting import tensorboard
from framework.run_config import RunConfig
from framework.spec import EstimatorSpec, ModeKeys

STEPS = 40
NAN_AT = 13


def model_fn(features, labels, mode, params):
    # Hooks of TensorFlow read the global step beside the train op: before it, where that has to wait for its batch.
    wait = [tf.py_function(lambda: time.sleep(0.005), [], [])] if params.get('slow') else []
    with tf.control_dependencies(wait):
        features = tf.identity(features)
    spec = testing.linear_model_fn(features, labels, mode)
    if mode != ModeKeys.TRAIN:
        return spec
    v1.summary.scalar('norm', tf.norm(features))
    loss = spec.loss
    if params.get('nan'):
        step = v1.train.get_global_step()
        with tf.control_dependencies([spec.train_op]):
            loss = tf.where(step.read_value() < NAN_AT, loss, math.nan)
    hooks = params['hooks'](loss)
    return EstimatorSpec(mode, loss=loss, train_op=spec.train_op, training_hooks=hooks)


def train(directory, fuse, make_hooks, **params):
    """Trains, and returns the result and the final weights."""
    experiment = Experiment(
        model_fn=model_fn,
        params={'hooks': make_hooks, **params},
        train_input_fn=testing.array_input_fn(*testing.blobs(64), 8, shuffle=64),
        train_steps=STEPS,
        model_dir=str(directory / fuse),
        seed=1,
        run_config=RunConfig(fuse=fuse, save_summary_steps=1000, log_step_count_steps=1000),
    )
    result = experiment.train()
    newest = tf.train.latest_checkpoint(str(directory / fuse))
    return (result.status, result.global_step, result.metrics), testing.checkpoint_values(newest)


def both(tmp_path, make_hooks, **params):
    """Returns what `make_hooks` was told in both ways, after a check that training came out the same."""
    told = {}

    def of(fuse):
        told[fuse] = []
        return lambda loss: make_hooks(loss, told[fuse], tmp_path / f'{fuse}_hooks')

    single, fused = (train(tmp_path, fuse, of(fuse), **params) for fuse in ('off', 'require'))
    assert repr(fused[0]) == repr(single[0])
    assert {name: value.tobytes() for name, value in fused[1].items()} == {
        name: value.tobytes() for name, value in single[1].items()
    }
    return told['off'], told['require'], single[0]


def test_a_hook_that_logs_logs_the_same_values(tmp_path):
    def hooks(loss, told, _):
        return [v1.train.LoggingTensorHook({'loss': loss}, every_n_iter=7, formatter=told.append)]

    single, fused, _ = both(tmp_path, hooks)
    assert len(single) == 1 + STEPS // 7
    assert fused == single


def test_a_hook_that_stops_at_a_step_stops_there(tmp_path):
    _, _, result = both(tmp_path, lambda *_: [v1.train.StopAtStepHook(last_step=23)])
    assert result[:2] == ('stopped', 23)
    assert both(tmp_path / 'count', lambda *_: [v1.train.StopAtStepHook(num_steps=9)])[2][1] == 9


def test_a_hook_that_saves_elsewhere_saves_at_the_same_steps(tmp_path):
    def hooks(loss, told, directory):
        class Listener(v1.train.CheckpointSaverListener):
            def after_save(self, session, global_step_value):
                told.append(int(global_step_value))

        saver = v1.train.Saver()
        return [v1.train.CheckpointSaverHook(str(directory), save_steps=6, saver=saver, listeners=[Listener()])]

    single, fused, _ = both(tmp_path, hooks)
    assert fused == single == [0, 6, 12, 18, 24, 30, 36, 40]


def test_a_hook_that_saves_summaries_saves_those_of_the_same_steps(tmp_path):
    def hooks(loss, told, directory):
        summary = v1.summary.scalar('loss_of_hook', loss, collections=[])
        return [v1.train.SummarySaverHook(save_steps=6, output_dir=str(directory), summary_op=summary)]

    both(tmp_path, hooks, slow=True)
    single, fused = (tensorboard.read_scalars(tmp_path / f'{fuse}_hooks') for fuse in ('off', 'require'))
    assert fused == single and list(single) == ['loss_of_hook']
    assert [step for step, _ in single['loss_of_hook']] == [1, 7, 13, 19, 25, 31, 37]


def test_a_hook_that_counts_steps_counts_them_at_the_same_steps(tmp_path):
    both(tmp_path, lambda _, told, to: [v1.train.StepCounterHook(every_n_steps=6, output_dir=str(to))], slow=True)
    single, fused = (tensorboard.read_scalars(tmp_path / f'{fuse}_hooks') for fuse in ('off', 'require'))
    steps = [[step for step, _ in of['global_step/sec']] for of in (single, fused)]
    assert steps[0] == steps[1] == [7, 13, 19, 25, 31, 37]


def test_a_hook_that_profiles_profiles_the_same_steps(tmp_path):
    both(tmp_path, lambda _, told, to: [v1.train.ProfilerHook(save_steps=12, output_dir=str(to))], slow=True)
    single, fused = (
        sorted(path.name for path in (tmp_path / f'{fuse}_hooks').glob('timeline*')) for fuse in ('off', 'require')
    )
    assert fused == single and single


@pytest.mark.parametrize('hook', [lambda: v1.train.GlobalStepWaiterHook(0), lambda: v1.train.FinalOpsHook([])])
def test_other_hooks_of_tensorflow_let_runs_be_fused(tmp_path, hook):
    both(tmp_path, lambda *_: [hook()])


@pytest.mark.parametrize('fails', [True, False])
def test_a_hook_that_waits_for_a_loss_of_nan_sees_it_at_the_same_step(tmp_path, fails):
    def hooks(loss, told, _):
        return [v1.train.NanTensorHook(loss, fail_on_nan_loss=fails)]

    if not fails:
        assert both(tmp_path, hooks, nan=True)[2][:2] == ('stopped', NAN_AT)
        return
    steps = []
    for fuse in ('off', 'require'):
        with pytest.raises(v1.train.NanLossDuringTrainingError):
            train(tmp_path, fuse, lambda loss: hooks(loss, None, None), nan=True)
        steps.append((tmp_path / fuse / 'result.json').read_text())
    assert steps[0] == steps[1]


@pytest.mark.parametrize('on_nan', ['raise', 'stop', 'ignore'])
def test_a_loss_of_nan_is_met_at_the_same_step(tmp_path, on_nan):
    told = []
    for fuse in ('off', 'require'):
        experiment = Experiment(
            model_fn=model_fn,
            params={'hooks': lambda _: [], 'nan': True},
            train_input_fn=testing.array_input_fn(*testing.blobs(64), 8),
            train_steps=20,
            model_dir=str(tmp_path / fuse),
            seed=1,
            on_nan=on_nan,
            run_config=RunConfig(fuse=fuse),
        )
        if on_nan == 'raise':
            with pytest.raises(errors.RunError, match=f'not finite at step {NAN_AT}'):
                experiment.train()
        else:
            told.append(experiment.train())
    lines = [(tmp_path / fuse / 'timeline.jsonl').read_text().splitlines() for fuse in ('off', 'require')]
    counted = [[(r['steps'], r['examples']) for r in map(json.loads, of) if r['phase'] == 'train'] for of in lines]
    assert counted[0] == counted[1]
    if told:
        assert told[0].stop_reason == told[1].stop_reason
        assert told[0].global_step == told[1].global_step == (20 if on_nan == 'ignore' else NAN_AT)


class Counting(v1.train.SessionRunHook):
    """Keeps the loss of each run that it sees, which it fetches by itself."""

    def __init__(self, loss, told):
        self._loss, self._told = loss, told

    def before_run(self, run_context):
        return v1.train.SessionRunArgs([self._loss, v1.train.get_global_step()])

    def after_run(self, run_context, run_values):
        self._told.append(np.asarray(run_values.results[0]).item())


class EveryTenth(Counting):
    def next_wanted_step(self, global_step):
        return global_step - global_step % 10 + 10 if global_step < 30 else None


def test_a_hook_that_nobody_knows_sees_every_step(tmp_path, caplog):
    caplog.set_level('INFO')
    told = []
    result, _ = train(tmp_path, 'auto', lambda loss: [Counting(loss, told)])
    assert len(told) == STEPS == result[1]
    assert 'Training is per step: `Counting` has to see every train run' in caplog.text
    with pytest.raises(errors.ConfigurationError, match=r'`Counting` has to see .* `next_wanted_step'):
        train(tmp_path, 'require', lambda loss: [Counting(loss, told)])


def test_a_hook_that_says_what_it_has_to_see_sees_that(tmp_path):
    single, fused, _ = both(tmp_path, lambda loss, told, _: [EveryTenth(loss, told)])
    assert len(single) == STEPS
    assert {single[9], single[19], single[29]} <= set(fused)  # and others: all that were made one by one
    assert len(fused) < STEPS // 2


def test_a_subclass_of_a_known_hook_is_not_known(tmp_path):
    class Mine(v1.train.LoggingTensorHook):
        pass

    with pytest.raises(errors.ConfigurationError, match='`Mine` has to see every train run'):
        train(tmp_path, 'require', lambda loss: [Mine({'loss': loss}, every_n_iter=10)])


def test_a_hook_that_is_called_twice_a_run_sees_every_run(tmp_path):
    def hooks(loss):
        logging = v1.train.LoggingTensorHook({'loss': loss}, every_n_iter=10)
        return [logging, logging]

    with pytest.raises(errors.ConfigurationError, match='`LoggingTensorHook` has to see every train run'):
        train(tmp_path, 'require', hooks)


class MovingTheStep(EveryTenth):
    def after_run(self, run_context, run_values):
        super().after_run(run_context, run_values)
        if run_context.session.run('global_step/Read/ReadVariableOp:0') == 10:
            v1.train.get_global_step(run_context.session.graph).load(17, run_context.session)


def test_a_hook_that_moves_the_global_step_ends_the_run_at_the_step_to_reach(tmp_path):
    result, _ = train(tmp_path, 'require', lambda loss: [MovingTheStep(loss, [])])
    assert result[1] == STEPS
