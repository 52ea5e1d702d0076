"""The event file of hyperparameters; tests/test_tensorboard.py has the dashboard read it."""

import glob

import numpy as np
import pytest
from tensorboard.plugins.hparams import api_pb2, metadata
from tensorflow.compat import v1

from framework.reporting import hparams, rows

START = rows.StartRow(step=0, hparams={'a.rate': 0.5, 'a.units': 3, 'a.wide': True, 'a.name': 'x' * 600})


@pytest.fixture
def make(tmp_path):
    return lambda **given: hparams.HparamsWriter(str(tmp_path / 'hparams'), clock=lambda: 12.5, **given)


def _values(tmp_path):
    (path,) = glob.glob(str(tmp_path / 'hparams' / '*'))
    return [(event.step, value) for event in v1.train.summary_iterator(path) for value in event.summary.value]


def test_the_session_has_the_hyperparameters_and_its_time(make, tmp_path):
    writer = make()
    writer.write_start(START)
    writer.close()
    ((step, value),) = _values(tmp_path)
    info = metadata.parse_session_start_info_plugin_data(value.metadata.plugin_data.content)
    found = info.hparams
    assert (step, info.start_time_secs) == (0, 12.5)
    assert (found['a.rate'].number_value, found['a.units'].number_value, found['a.wide'].bool_value) == (0.5, 3, True)
    assert found['a.name'].string_value == 'x' * 500


def test_a_start_that_goes_on_writes_no_session_again(make, tmp_path):
    writer = make(begun=True)
    writer.write_start(START)
    writer.write_pass(rows.PassRow(3, 'valid', {'loss': 0.5}, 1, 1, 0.1))
    writer.close()
    assert [(step, value.tag) for step, value in _values(tmp_path)] == [(3, 'valid/loss')]


def test_metrics_that_are_numbers_bear_the_name_of_their_set(make, tmp_path):
    writer = make()
    metrics = {'loss': np.float32(0.5), 'hits': np.int64(3), 'map': np.zeros(2), 'note': b'x', 'global_step': 7}
    writer.write_pass(rows.PassRow(7, 'valid', metrics, 1, 1, 0.1))
    writer.close()
    found = [(step, value.tag, value.simple_value) for step, value in _values(tmp_path)]
    assert found == [(7, 'valid/hits', 3.0), (7, 'valid/loss', 0.5)]


@pytest.mark.parametrize(
    ('status', 'expected'),
    [
        ('done', api_pb2.STATUS_SUCCESS),
        ('exhausted', api_pb2.STATUS_SUCCESS),
        ('stopped', api_pb2.STATUS_SUCCESS),
        ('failed', api_pb2.STATUS_FAILURE),
        ('interrupted', api_pb2.STATUS_UNKNOWN),
    ],
)
def test_the_end_is_told(make, tmp_path, status, expected):
    writer = make()
    writer.write_end(rows.RunResult(status, 'why', 9))
    writer.close()
    ((step, value),) = _values(tmp_path)
    info = metadata.parse_session_end_info_plugin_data(value.metadata.plugin_data.content)
    assert (step, info.status, info.end_time_secs) == (9, expected, 12.5)
