"""The log lines of progress, word for word."""

import logging

import numpy as np
import pytest

from framework.reporting import progress, rows


@pytest.fixture
def told(caplog):
    caplog.set_level(logging.INFO, logger='absl')
    return caplog


def test_a_log_period_tells_the_loss_the_rate_and_the_time_left(told):
    progress.ConsoleWriter().write_step(rows.StepRow(step=200, loss=0.12341, steps_per_sec=153.2, train_steps=600))
    assert told.messages == ['step 200/600: loss = 0.1234, 153.2 steps/s, ETA 0:00:03']


def test_a_run_without_a_known_end_has_no_time_left(told):
    progress.ConsoleWriter().write_step(rows.StepRow(step=200, loss=1e-7, steps_per_sec=0.0214))
    assert told.messages == ['step 200: loss = 1.000e-07, 0.0214 steps/s']


def test_a_long_run_tells_its_days(told):
    progress.ConsoleWriter().write_step(rows.StepRow(step=0, loss=np.float32(2), steps_per_sec=1.0, train_steps=90061))
    assert told.messages == ['step 0/90061: loss = 2.0000, 1 steps/s, ETA 1 day, 1:01:01']


def test_a_pass_tells_its_metrics_sorted_and_short(told):
    metrics = {'loss': 0.1432, 'accuracy': np.float32(0.9612), 'image': b'x', 'matrix': np.zeros((9, 9), np.int64)}
    progress.ConsoleWriter().write_pass(rows.PassRow(200, 'valid', metrics, batches=12, examples=360, secs=0.2101))
    assert told.messages == [
        'step 200: valid: accuracy = 0.9612, loss = 0.1432, matrix = int64[9, 9] (12 batches, 360 examples, 0.21 s)'
    ]


def test_one_batch_is_no_batches(told):
    progress.ConsoleWriter().write_pass(rows.PassRow(1, 'eval', {'loss': 1.0}, batches=1, examples=1, secs=0.0))
    assert told.messages == ['step 1: eval: loss = 1.0000 (1 batch, 1 example, 0.00 s)']


def test_summaries_and_phases_are_not_told(told):
    writer = progress.ConsoleWriter()
    writer.write_summary(rows.SummaryRow(step=1, loss=0.5))
    writer.write_phase(rows.PhaseRow(phase='commit', step=1, secs=0.1))
    writer.flush()
    writer.close()
    assert told.messages == []


def test_the_users_handlers_and_level_stay(capsys):
    logger = logging.getLogger('absl')
    before = (list(logger.handlers), logger.level, list(logging.getLogger().handlers))
    progress.ConsoleWriter().write_step(rows.StepRow(step=1, loss=0.5, steps_per_sec=1.0))
    assert (list(logger.handlers), logger.level, list(logging.getLogger().handlers)) == before
    assert capsys.readouterr().out == ''
