"""Files of predictions."""

import base64
import json

import numpy as np
import pytest

from framework import errors
from framework.reporting import predictions

BATCHES = [
    {'p': np.float32([[0.1, np.nan], [1, 2]]), 'id': np.int64([1, 2]), 's': np.array([b'a', b'\xc3\xa9'], object)},
    {'p': np.float32([[3, 4]]), 'id': np.int64([3]), 's': np.array([b'c'], object)},
]


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding='utf-8').splitlines()]


def test_a_line_is_an_example_with_exact_values(tmp_path):
    assert predictions.write(tmp_path / 'p.jsonl', BATCHES) == 3
    assert lines(tmp_path / 'p.jsonl') == [
        {'p': [float(np.float32(0.1)), 'NaN'], 'id': 1, 's': 'a'},
        {'p': [1.0, 2.0], 'id': 2, 's': 'é'},
        {'p': [3.0, 4.0], 'id': 3, 's': 'c'},
    ]


def test_bytes_that_are_no_text_are_base64(tmp_path):
    values = [b'\xff\x00', b'\xfe']
    predictions.write(tmp_path / 'p.jsonl', [{'s': np.array([values], object)}])
    (line,) = lines(tmp_path / 'p.jsonl')
    assert [base64.b64decode(value) for value in line['s']] == values


def test_arrays_are_those_of_all_batches(tmp_path):
    assert predictions.write(tmp_path / 'p.npz', BATCHES) == 3
    with np.load(tmp_path / 'p.npz') as arrays:
        assert arrays['p'].dtype == np.float32
        np.testing.assert_array_equal(arrays['p'], np.concatenate([batch['p'] for batch in BATCHES]))
        assert arrays['id'].tolist() == [1, 2, 3]
        assert arrays['s'].tolist() == [b'a', b'\xc3\xa9', b'c']


def test_a_prediction_may_have_any_name(tmp_path):
    predictions.write(tmp_path / 'p.npz', [{'file': np.zeros(2), 'head/class': np.ones(2)}])
    with np.load(tmp_path / 'p.npz') as arrays:
        assert sorted(arrays) == ['file', 'head/class']


def test_examples_of_different_shapes_fit_lines_but_no_array(tmp_path):
    batches = [{'p': np.zeros([1, 2])}, {'p': np.zeros([1, 3])}]
    with pytest.raises(errors.ConfigurationError, match=r'`p` has examples of different shapes .*Write `\.jsonl`'):
        predictions.write(tmp_path / 'p.npz', batches)
    assert not list(tmp_path.iterdir())
    assert predictions.write(tmp_path / 'p.jsonl', batches) == 2


def test_bytes_that_numpy_would_cut_are_refused(tmp_path):
    with pytest.raises(errors.ConfigurationError, match='end in zeros'):
        predictions.write(tmp_path / 'p.npz', [{'s': np.array([b'a\x00'], object)}])


@pytest.mark.parametrize('suffix', ['jsonl', 'npz'])
def test_an_interruption_leaves_the_former_file_and_nothing_else(tmp_path, suffix):
    def interrupted():
        yield BATCHES[0]
        raise KeyboardInterrupt

    path = tmp_path / f'p.{suffix}'
    path.write_text('former')
    with pytest.raises(KeyboardInterrupt):
        predictions.write(path, interrupted())
    assert path.read_text() == 'former'
    assert list(tmp_path.iterdir()) == [path]


def test_another_suffix_is_refused_before_anything_runs(tmp_path):
    def batches():
        raise AssertionError
        yield

    for check in (predictions.check_output, lambda path: predictions.write(path, batches())):
        with pytest.raises(errors.ConfigurationError, match=r'must end in `\.jsonl` .* or `\.npz`'):
            check(tmp_path / 'p.csv')


def test_a_missing_directory_is_refused(tmp_path):
    with pytest.raises(errors.ConfigurationError, match='must be a file in a directory that exists'):
        predictions.check_output(tmp_path / 'missing' / 'p.npz')


def test_a_batch_is_split_along_its_first_axis():
    assert [example['id'] for example in predictions.split(BATCHES[0])] == [1, 2]


@pytest.mark.parametrize(
    ('batch', 'message'),
    [
        ({'a': np.zeros(2), 'b': np.zeros(3)}, 'Batch length of predictions should be same. `b`'),
        ({'a': np.zeros(2), 'b': np.float32(1)}, r'Prediction `b` \[shape \(\)\] has no first axis'),
        ({'a': (1, 2)}, r'Prediction `a` \[tuple\] is no array'),
    ],
)
def test_what_has_no_examples_is_refused(batch, message):
    with pytest.raises(errors.ConfigurationError, match=message):
        list(predictions.split(batch))
