"""Event files: what is written where, and what is read back."""

import dataclasses
import glob
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf
from absl import logging

from framework import errors, run_dir
from framework.reporting import rows, tensorboard


@pytest.fixture
def directory(tmp_path):
    return run_dir.RunDir(tmp_path / 'run')


@pytest.fixture
def writer(directory):
    writer = tensorboard.EventWriter(directory.events_dir)
    yield writer
    writer.close()


def _pass(step=20, stream='valid', **metrics):
    return rows.PassRow(step=step, stream=stream, metrics=metrics, batches=1, examples=1, secs=0.1)


def _summary(**scalars):
    values = [tf.compat.v1.Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
    return tf.compat.v1.Summary(value=values)


def _values(directory):
    """Returns the values of all events by tag."""
    paths = sorted(glob.glob(os.path.join(directory, '*tfevents*')))
    events = [event for path in paths for event in tf.compat.v1.train.summary_iterator(path)]
    return {value.tag: value for event in events for value in event.summary.value}


def test_training_and_passes_go_where_tensorboard_overlays_them(directory, writer):
    writer.write_summary(rows.SummaryRow(step=20, loss=0.5))
    writer.write_step(rows.StepRow(step=20, loss=0.5, steps_per_sec=64.0))
    writer.write_pass(_pass(loss=0.25, accuracy=0.75))
    writer.write_pass(_pass(stream='eval', loss=0.125))
    writer.flush()
    assert tensorboard.read_scalars(directory.path) == {'loss': [(20, 0.5)], 'global_step/sec': [(20, 64.0)]}
    valid = {'accuracy': [(20, 0.75)], 'loss': [(20, 0.25)]}
    assert tensorboard.read_scalars(directory.events_dir('valid')) == valid
    assert tensorboard.read_scalars(directory.events_dir('eval')) == {'loss': [(20, 0.125)]}


def test_files_are_made_with_the_first_row_of_their_stream(directory, writer):
    assert not os.path.exists(directory.path)
    writer.write_pass(_pass(loss=0.25))
    writer.flush()
    assert os.listdir(directory.path) == ['eval_valid']


def test_the_models_summaries_are_written_at_their_step(directory, writer):
    writer.write_summary(rows.SummaryRow(step=7, loss=0.5, summary=_summary(rate=0.25).SerializeToString()))
    writer.flush()
    assert tensorboard.read_scalars(directory.path) == {'rate': [(7, 0.25)], 'loss': [(7, 0.5)]}


def test_a_loss_among_the_models_summaries_is_the_only_one(directory, writer):
    writer.write_summary(rows.SummaryRow(step=7, loss=0.5, summary=_summary(loss=0.25).SerializeToString()))
    writer.flush()
    assert tensorboard.read_scalars(directory.path) == {'loss': [(7, 0.25)]}


@pytest.mark.parametrize(
    ('value', 'expected'),
    [
        (0.5, 0.5),
        (np.float32(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (np.float16(0.5), 0.5),
        (3, 3.0),
        (np.int32(3), 3.0),
        (np.int64(3), 3.0),
        (True, 1.0),
        (np.bool_(True), 1.0),
        (np.array(0.5, np.float32), 0.5),
    ],
)
def test_numbers_are_scalars(directory, writer, value, expected):
    writer.write_pass(_pass(metric=value))
    writer.flush()
    assert tensorboard.read_scalars(directory.events_dir('valid')) == {'metric': [(20, expected)]}


def test_summaries_inside_metrics_are_written_under_the_metrics_name(directory, writer):
    writer.write_pass(_pass(images=_summary(a=1.0, b=2.0).SerializeToString()))
    writer.flush()
    assert tensorboard.read_scalars(directory.events_dir('valid')) == {'images/0': [(20, 1.0)], 'images/1': [(20, 2.0)]}


@pytest.mark.parametrize('value', ['worst: 7', b'worst: 7', np.array(b'worst: 7', object), b'\x18\x01'])
def test_texts_are_texts_even_when_their_bytes_are_a_proto(directory, writer, value):
    writer.write_pass(_pass(note=value))
    writer.flush()
    written = _values(directory.events_dir('valid'))['note']
    assert written.metadata.plugin_data.plugin_name == 'text'
    text = value.item() if isinstance(value, np.ndarray) else value
    assert tf.make_ndarray(written.tensor).item() == (text.encode() if isinstance(text, str) else text)


def test_bytes_that_are_no_utf_8_are_written(directory, writer):
    writer.write_pass(_pass(note=b'\xff'))
    writer.flush()
    written = _values(directory.events_dir('valid'))['note']
    assert tf.make_ndarray(written.tensor).item().decode() == '�'


def test_the_axis_is_no_curve_and_loss_per_example_is_one(directory, writer):
    writer.write_pass(_pass(global_step=20, loss_per_example=0.5))
    writer.flush()
    assert tensorboard.read_scalars(directory.events_dir('valid')) == {'loss_per_example': [(20, 0.5)]}


def test_arrays_are_tensors(directory, writer):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    writer.write_pass(_pass(confusion=array))
    writer.flush()
    np.testing.assert_array_equal(tf.make_ndarray(_values(directory.events_dir('valid'))['confusion'].tensor), array)


def test_the_step_none_and_an_empty_summary_are_not_written(directory, writer):
    writer.write_pass(_pass(global_step=20, nothing=None, images=b'', loss=0.5))
    writer.flush()
    assert list(_values(directory.events_dir('valid'))) == ['loss']


def test_other_types_are_skipped_with_one_warning(directory, writer, monkeypatch):
    warnings = []
    monkeypatch.setattr(logging, 'warning', lambda text, *args: warnings.append(text % args))
    for step in (1, 2):
        writer.write_pass(_pass(step, odd={'a': 1}, dates=np.array(['2020-01-01'], 'datetime64[D]'), loss=0.5))
    writer.flush()
    assert list(_values(directory.events_dir('valid'))) == ['loss']
    assert len(warnings) == 2
    assert 'Metric `dates` is left out' in warnings[0] and '`odd`' in warnings[1] and '[dict]' in warnings[1]


def test_a_run_started_again_within_a_second_keeps_the_events(directory):
    for step in (1, 2, 3):
        writer = tensorboard.EventWriter(directory.events_dir)
        writer.write_pass(_pass(step, loss=0.5))
        writer.close()
        writer.close()
    assert tensorboard.read_scalars(directory.events_dir('valid')) == {'loss': [(1, 0.5), (2, 0.5), (3, 0.5)]}


def test_a_file_that_ends_in_the_middle_of_a_record_is_read_up_to_there(directory, writer):
    writer.write_pass(_pass(1, loss=0.5))
    writer.write_pass(_pass(2, loss=0.25))
    writer.close()
    (path,) = glob.glob(os.path.join(directory.events_dir('valid'), '*'))
    os.truncate(path, os.path.getsize(path) - 3)
    assert tensorboard.read_scalars(directory.events_dir('valid')) == {'loss': [(1, 0.5)]}


def test_a_directory_without_events_has_no_scalars(tmp_path):
    assert tensorboard.read_scalars(tmp_path) == {}


_START = rows.StartRow(step=0, texts={'command': 'a', 'configuration': 'b'}, charts=['loss'], graph=b'graph')
_LAYOUT = 'custom_scalars__config__'


def _said(directory):
    """Returns step and tag of every event, `graph` for the graph."""
    paths = sorted(glob.glob(os.path.join(directory, '*tfevents*')))
    events = [event for path in paths for event in tf.compat.v1.train.summary_iterator(path)]
    found = [(event.step, 'graph') for event in events if event.graph_def]
    return found + [(event.step, value.tag) for event in events for value in event.summary.value]


def test_a_start_says_what_the_run_is(directory, writer):
    writer.write_start(_START)
    writer.flush()
    assert _said(directory.path) == [(0, 'graph'), (0, _LAYOUT), (0, 'run/command'), (0, 'run/configuration')]
    assert tf.make_ndarray(_values(directory.path)['run/command'].tensor).item() == b'    a'


@pytest.mark.parametrize(
    ('change', 'said'),
    [
        ({}, []),
        ({'graph': b'other'}, []),
        ({'charts': ['accuracy', 'loss']}, [_LAYOUT]),
        ({'texts': {'command': 'c', 'configuration': 'b'}}, ['run/command']),
        ({'texts': {'configuration': 'b', 'git_diff': 'd'}}, ['run/git_diff']),
    ],
)
def test_a_start_that_goes_on_says_what_has_changed(directory, change, said):
    writer = tensorboard.EventWriter(directory.events_dir, known=tensorboard.parts(_START))
    writer.write_start(dataclasses.replace(_START, step=7, **change))
    writer.close()
    assert _said(directory.path) == [(7, tag) for tag in said]


def test_what_goes_wrong_in_the_thread_is_raised_by_the_next_flush(directory, writer):
    writer.write_pass(_pass(loss=0.5))
    writer.flush()
    shutil.rmtree(directory.path)
    with pytest.raises(errors.RunError, match='was removed while the run wrote to it'):
        writer.flush()
