"""Tables as plain text."""

import dataclasses
import re

import numpy as np

from framework.reporting import rows, tables

_RESULT = rows.RunResult(
    status='done',
    stop_reason='Reached step 600.',
    global_step=600,
    metrics={'train': {'loss': 0.5}, 'valid': {'loss': np.float32(0.25), 'accuracy': 0.75, 'image': b'x'}},
    timing={'train': 1.25, 'total': 3.0},
)


def _cells(text):
    """Returns the cells of every row, in order."""
    return [[cell.strip() for cell in line.strip('|').split('|')] for line in text.splitlines() if '--' not in line]


def test_parameters_are_counted_each_and_in_all():
    parameters = [
        rows.ParameterRow('dense/kernel', (64, 32), 'float32', trainable=True),
        rows.ParameterRow('bias', (), 'float32', trainable=True),
        rows.ParameterRow('global_step', (1,), 'int64', trainable=False),
    ]
    assert _cells(tables.parameter_table(parameters)) == [
        ['name', 'shape', 'count', 'trainable'],
        ['dense/kernel', '[64, 32]', '2,048', 'yes'],
        ['bias', '[]', '1', 'yes'],
        ['global_step', '[1]', '1', 'no'],
        ['total, trainable', '', '2,049', ''],
        ['total', '', '2,050', ''],
    ]


def test_parameters_tell_who_reads_them_where_that_was_asked():
    parameters = [
        rows.ParameterRow('kernel', (2,), 'float32', trainable=True, streams=('train', 'valid')),
        rows.ParameterRow('global_step', (), 'int64', trainable=False),
    ]
    assert _cells(tables.parameter_table(parameters))[:3] == [
        ['name', 'shape', 'count', 'trainable', 'read by'],
        ['kernel', '[2]', '2', 'yes', 'train, valid'],
        ['global_step', '[]', '1', 'no', ''],
    ]


def test_the_end_tells_the_best_step():
    best = rows.Best('valid/accuracy', 'max', ((40, 0.75),), 'best/model.ckpt-40')
    text = tables.result_table(dataclasses.replace(_RESULT, best=best))
    assert re.search(r'^best +valid/accuracy = 0.7500 at step 40: best/model.ckpt-40$', text, re.MULTILINE)


def test_sizes_that_are_not_known_are_question_marks_and_totals_count_the_rest():
    parameters = [
        rows.ParameterRow('kernel', (64, 32), 'float32', trainable=True),
        rows.ParameterRow('queue', (None, 6), 'float32', trainable=False),
        rows.ParameterRow('anything', None, 'float32', trainable=False),
    ]
    assert _cells(tables.parameter_table(parameters))[1:] == [
        ['kernel', '[64, 32]', '2,048', 'yes'],
        ['queue', '[?, 6]', '?', 'no'],
        ['anything', '?', '?', 'no'],
        ['total, trainable', '', '2,048', ''],
        ['total', '', '2,048+', ''],
    ]


def test_a_model_without_parameters_has_a_table():
    assert ['total', '', '0', ''] in _cells(tables.parameter_table([]))


def test_long_names_are_folded_and_not_cut():
    name = '/'.join(f'block_{i}' for i in range(40)) + '/kernel'
    text = tables.parameter_table([rows.ParameterRow(name, (3, 3, 512, 512), 'float32', trainable=True)])
    assert ''.join(row[0] for row in _cells(text)[1:-2]) == name
    assert max(len(line) for line in text.splitlines()) <= 180


def test_long_lists_are_shown_whole():
    parameters = [rows.ParameterRow(f'v{i}', (2,), 'float32', trainable=True) for i in range(2000)]
    cells = _cells(tables.parameter_table(parameters))
    assert [row[0] for row in cells[1:-2]] == [f'v{i}' for i in range(2000)]


def test_names_are_no_markup_and_text_has_no_colours(monkeypatch):
    monkeypatch.setenv('FORCE_COLOR', '1')
    monkeypatch.setenv('COLUMNS', '20')
    text = tables.parameter_table([rows.ParameterRow('layer[bold]/:smile:/[0]', (2,), 'float32', trainable=True)])
    assert 'layer[bold]/:smile:/[0]' in text and '\x1b' not in text
    assert text.isascii()


def test_the_result_tells_metrics_then_how_it_ended():
    text = tables.result_table(_RESULT)
    table, end = text.split('\n\n')
    assert _cells(table) == [
        ['stream', 'metric', 'value'],
        ['train', 'loss', '0.5000'],
        ['valid', 'accuracy', '0.7500'],
        ['valid', 'loss', '0.2500'],
    ]
    assert [re.split(r'\s{2,}', line) for line in end.splitlines()] == [
        ['stopped', 'Reached step 600. (done)'],
        ['step', '600'],
        ['time', '3.0 s: train 1.2'],
    ]


def test_a_long_reason_is_told_in_full():
    reason = 'The loss was not finite. ' * 20
    text = tables.result_table(rows.RunResult('failed', reason, 3))
    assert ' '.join(text.split()).count('The loss was not finite.') == 20


def test_a_warm_start_says_of_every_variable_whence_its_value_comes_or_why_not():
    variables = [
        rows.WarmStartRow('dense/kernel', 'old/kernel', (64, 32), loaded=True),
        rows.WarmStartRow('layer[0]', 'layer[0]', (3,), loaded=False, why='is not in the checkpoint'),
    ]
    assert _cells(tables.warm_start_table(variables)) == [
        ['variable', 'in the checkpoint', 'shape', 'value', 'why'],
        ['dense/kernel', 'old/kernel', '[64, 32]', 'loaded', ''],
        ['layer[0]', 'layer[0]', '[3]', 'skipped', 'is not in the checkpoint'],
        ['1 of 2 loaded', '', '', '', ''],
    ]
