"""The writers' interface, `metrics.jsonl`, `timeline.jsonl` and `result.json`."""

import json
from unittest import mock

import numpy as np
import pytest

from framework.reporting import rows, writers

_START = rows.StartRow(step=0)
_STEP = rows.StepRow(step=20, loss=0.5, steps_per_sec=100.0, train_steps=600)
_SUMMARY = rows.SummaryRow(step=20, loss=0.5)
_PASS = rows.PassRow(step=20, stream='valid', metrics={'loss': 0.25}, batches=12, examples=360, secs=0.2)
_PHASE = rows.PhaseRow(phase='train', step=20, secs=0.5, stream='train', steps=20, examples=640)
_END = rows.RunResult('done', 'why', 20)

_PROGRESS = rows.ProgressRow('train', 3, 10)


def _tell(writer):
    writer.write_start(_START)
    writer.write_step(_STEP)
    writer.write_summary(_SUMMARY)
    writer.write_pass(_PASS)
    writer.write_phase(_PHASE)
    writer.write_end(_END)
    writer.flush()
    writer.close()


def _lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_writers_want_to_know_where_the_run_is_if_one_of_them_does():
    class Wants(writers.Writer):
        wants_progress = True

    assert writers.Writers([writers.Writer(), Wants()]).wants_progress
    assert not writers.Writers([writers.Writer()]).wants_progress


def test_a_writer_does_nothing_by_itself():
    _tell(writers.Writer())


def test_every_writer_is_told_everything_in_order():
    doubles = [mock.create_autospec(writers.Writer, instance=True, wants_progress=wants) for wants in (True, False)]
    everyone = writers.Writers(doubles)
    everyone.write_progress(_PROGRESS)
    _tell(everyone)
    for double in doubles:
        assert double.mock_calls == [
            *([mock.call.write_progress(_PROGRESS)] if double.wants_progress else []),
            mock.call.write_start(_START),
            mock.call.write_step(_STEP),
            mock.call.write_summary(_SUMMARY),
            mock.call.write_pass(_PASS),
            mock.call.write_phase(_PHASE),
            mock.call.write_end(_END),
            mock.call.flush(),
            mock.call.close(),
        ]


def test_all_writers_are_closed_and_the_first_error_is_raised():
    doubles = [mock.create_autospec(writers.Writer, instance=True) for _ in range(3)]
    doubles[0].close.side_effect = OSError('first')
    doubles[1].close.side_effect = OSError('second')
    with pytest.raises(OSError, match='first') as caught:
        writers.Writers(doubles).close()
    assert 'second' in ''.join(caught.value.__notes__)
    for double in doubles:
        double.close.assert_called_once_with()


def test_metrics_hold_a_line_per_log_period_and_pass(tmp_path):
    ticks = iter([10.5, 11.0])
    _tell(writers.MetricsWriter(tmp_path / 'm.jsonl', clock=lambda: next(ticks)))
    assert _lines(tmp_path / 'm.jsonl') == [
        {'step': 20, 'stream': 'train', 'metrics': {'loss': 0.5}, 'time': 10.5},
        {'step': 20, 'stream': 'valid', 'metrics': {'loss': 0.25}, 'time': 11.0},
    ]


def test_metrics_of_every_type_are_json(tmp_path):
    metrics = {'auc': np.float32(0.1), 'n': np.int64(3), 'nan': np.nan, 'curve': np.array([1, 2]), 'image': b'\xff'}
    writer = writers.MetricsWriter(tmp_path / 'm.jsonl')
    writer.write_pass(rows.PassRow(np.int64(1), 'valid', metrics, 1, 1, 0.1))
    writer.close()
    (line,) = _lines(tmp_path / 'm.jsonl')
    assert line['metrics'] == {'auc': float(np.float32(0.1)), 'n': 3, 'nan': 'NaN', 'curve': [1, 2]}


def test_the_timeline_holds_a_line_per_phase(tmp_path):
    _tell(writers.TimelineWriter(tmp_path / 't.jsonl'))
    expected = {'phase': 'train', 'step': 20, 'secs': 0.5, 'stream': 'train', 'steps': 20, 'examples': 640}
    assert _lines(tmp_path / 't.jsonl') == [expected]


def test_a_writer_without_rows_leaves_no_file(tmp_path):
    writer = writers.TimelineWriter(tmp_path / 't.jsonl')
    writer.flush()
    writer.close()
    writer.close()
    assert not (tmp_path / 't.jsonl').exists()


def test_a_reader_beside_the_run_sees_every_line_at_once(tmp_path):
    writer = writers.TimelineWriter(tmp_path / 't.jsonl')
    for count in (1, 2):
        writer.write_phase(_PHASE)
        assert len(_lines(tmp_path / 't.jsonl')) == count
    writer.close()


@pytest.mark.parametrize(('before', 'kept'), [('', []), ('{}\n', ['{}']), ('{}\n{"ste', ['{}', '{"ste'])])
def test_lines_start_on_a_line_of_their_own_after_a_kill(tmp_path, before, kept):
    path = tmp_path / 't.jsonl'
    path.write_text(before)
    writer = writers.TimelineWriter(path)
    writer.write_phase(_PHASE)
    writer.close()
    *first, last = path.read_text().splitlines()
    assert first == kept and json.loads(last)['phase'] == 'train'


def test_a_file_that_is_cut_before_the_first_row_continues_at_the_cut(tmp_path):
    path = tmp_path / 't.jsonl'
    path.write_text('{}\n{"torn')
    writer = writers.TimelineWriter(path)
    path.write_text('{}\n')
    writer.write_phase(_PHASE)
    writer.close()
    assert len(_lines(path)) == 2


def test_the_result_is_json_of_fixed_form():
    result = rows.RunResult(
        status='done',
        stop_reason='Reached step 600.',
        global_step=np.int64(600),
        metrics={'train': {'loss': np.float32(0.5)}, 'valid': {'loss': np.inf, 'image': b'x'}},
        timing={'train': 1.5},
    )
    text = writers.result_json(result)
    assert text.endswith('}\n')
    assert json.loads(text) == {
        'status': 'done',
        'stop_reason': 'Reached step 600.',
        'global_step': 600,
        'metrics': {'train': {'loss': 0.5}, 'valid': {'loss': 'Infinity'}},
        'best': None,
        'timing': {'train': 1.5},
    }
