"""Profiles: what is traced, and that it changes nothing."""

import json

import numpy as np
import pytest
import tensorflow as tf
from absl import logging
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from framework import Experiment, RunConfig, errors, testing

STEPS = 12


def train(directory, profile_steps=None, fuse='off', steps=STEPS, hooks=(), **settings):
    return Experiment(
        model_fn=testing.linear_model_fn,
        train_input_fn=testing.array_input_fn(*testing.blobs(20), 4),
        train_steps=steps,
        seed=1,
        model_dir=str(directory),
        train_hooks=hooks,
        profile_steps=profile_steps,
        run_config=RunConfig(save_checkpoints_steps=4, fuse=fuse, **settings),
    ).train()


def traced(directory):
    """Returns the step and the name of every marked run, and the names of all that was traced."""
    (path,) = (directory / 'plugins' / 'profile').glob('*/*.xplane.pb')
    space = xplane_pb2.XSpace.FromString(path.read_bytes())
    marks, names = [], set()
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                names.add(name)
                if name == 'train':
                    stats = {plane.stat_metadata[stat.metadata_id].name: stat for stat in event.stats}
                    marks.append(stats['step_num'].int64_value or stats['step_num'].uint64_value)
    return marks, names


def test_the_steps_of_the_range_are_traced_and_no_others(tmp_path):
    train(tmp_path, '3:6')
    marks, names = traced(tmp_path)
    assert marks == [3, 4, 5]
    assert any('MatMul' in name for name in names)


def test_in_fused_runs_the_range_is_one_of_them(tmp_path, monkeypatch):
    runs = []
    original = tf.compat.v1.Session.run

    def run(self, fetches, feed_dict=None, *args, **kwargs):
        if isinstance(fetches, dict) and 'losses' in fetches:
            runs.append(next(value for tensor, value in feed_dict.items() if 'limit' in tensor.name))
        return original(self, fetches, feed_dict, *args, **kwargs)

    monkeypatch.setattr(tf.compat.v1.Session, 'run', run)
    train(tmp_path, '6:8', 'require', save_summary_steps=None)
    marks, names = traced(tmp_path)
    assert marks == [6] and any('MatMul' in name for name in names)
    assert 2 in runs and max(runs) <= 4


@pytest.mark.parametrize('fuse', ['off', 'require'])
def test_a_profile_leaves_the_bits_as_they_are(tmp_path, fuse):
    for name, steps in (('plain', None), ('profiled', '3:9')):
        train(tmp_path / name, steps, fuse)
    plain, profiled = (
        testing.checkpoint_values(str(tmp_path / n / f'model.ckpt-{STEPS}')) for n in ('plain', 'profiled')
    )
    for name, value in plain.items():
        np.testing.assert_array_equal(profiled[name], value, err_msg=name)
    assert testing.event_values(tmp_path / 'plain') == testing.event_values(tmp_path / 'profiled')


def test_a_run_that_ends_inside_the_range_leaves_what_was_traced(tmp_path):
    train(tmp_path, '10:100')
    assert traced(tmp_path)[0] == [10, 11]


def test_a_run_that_fails_inside_the_range_leaves_the_profiler_free(tmp_path):
    hook = testing.RecordingHook(after_run=lambda context: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train(tmp_path / 'a', '0:5', hooks=[hook])
    train(tmp_path / 'b', '0:2')
    assert traced(tmp_path / 'b')[0] == [0, 1]


def test_a_start_behind_the_range_says_that_there_is_no_profile(tmp_path, monkeypatch):
    train(tmp_path)
    warnings = []
    monkeypatch.setattr(logging, 'warning', lambda text, *args: warnings.append(text % args))
    train(tmp_path, '3:6', steps=STEPS + 2)
    assert [text for text in warnings if 'profile' in text] == [
        f'There is no profile of the steps 3 to 6: the run is at step {STEPS}.'
    ]
    assert not (tmp_path / 'plugins').exists()


def test_a_process_that_is_profiled_already_is_refused_in_a_sentence(tmp_path):
    tf.profiler.experimental.start(str(tmp_path / 'other'))
    try:
        with pytest.raises(errors.RunError, match='something else profiles this process already'):
            train(tmp_path / 'run', '3:6')
    finally:
        tf.profiler.experimental.stop()
    assert json.loads((tmp_path / 'run' / 'result.json').read_text())['status'] == 'failed'


@pytest.mark.parametrize('given', ['3', '6:3', '3:3', 'a:b', '-1:4', (3, 6), ''])
def test_slips_are_refused(tmp_path, given):
    with pytest.raises(
        errors.ConfigurationError, match=r'`Experiment.profile_steps` \[.*\] must be the steps after which'
    ):
        train(tmp_path, given)
