"""The forms of a metric's value."""

import json
import math

import ml_dtypes
import numpy as np
import pytest

from framework.reporting import values


@pytest.mark.parametrize(
    ('value', 'expected'),
    [
        (0.1, 0.1),
        (np.float32(0.1), 0.10000000149011612),
        (np.array(0.1, np.float64), 0.1),
        (ml_dtypes.bfloat16(1.5), 1.5),
        (np.int64(2**62 + 1), 2**62 + 1),
        (np.bool_(True), True),
        (np.str_('a'), 'a'),
        (np.bytes_(b'a'), b'a'),
    ],
)
def test_numpy_scalars_become_plain_ones_of_the_same_value(value, expected):
    plain = values.plain(value)
    assert plain == expected and type(plain) is type(expected)


@pytest.mark.parametrize('value', [0.1, 1 / 3, 5e-324, 1.7976931348623157e308, -0.0, 2**70, True, 'é', None])
def test_json_gives_back_the_same_value(value):
    assert repr(json.loads(json.dumps(values.to_json(value)))) == repr(value)


def test_values_that_are_not_finite_become_strings_that_float_reads():
    written = values.to_json(np.array([np.nan, np.inf, -np.inf], np.float32))
    assert written == ['NaN', 'Infinity', '-Infinity']
    np.testing.assert_array_equal([float(text) for text in written], [np.nan, np.inf, -np.inf])


def test_what_json_gave_back_is_a_float_again():
    given = {'a': math.nan, 'b': [math.inf, [-math.inf, 1.5]], 'c': 'text', 'd': None, 'e': 3, 'f': True}
    back = values.metrics_from_json(json.loads(json.dumps(values.metrics_to_json(given))))
    assert repr(back) == repr(given)


def test_arrays_become_nested_lists():
    assert values.to_json(np.array([[1, 2], [3, 4]])) == [[1, 2], [3, 4]]
    assert values.to_json(np.zeros((0, 2))) == []


def test_what_json_cannot_hold_becomes_its_text():
    assert values.to_json(np.complex64(1j)) == '1j'


def test_binary_metrics_are_left_out():
    metrics = {'b': b'x', 'a': np.array([b'x'], object), 's': np.array(b'x', object), 'loss': 1.0}
    assert values.metrics_to_json(metrics) == {'loss': 1.0}
    assert values.metrics_to_text(metrics) == {'loss': '1.0000'}


@pytest.mark.parametrize(
    ('value', 'expected'),
    [
        (0.96123, '0.9612'),
        (0.0, '0.0000'),
        (1.25e-7, '1.250e-07'),
        (-12345678.0, '-1.235e+07'),
        (float('nan'), 'nan'),
        (np.int64(12), '12'),
        (np.array([0.5, 1.0]), '[0.5000, 1.0000]'),
        (np.zeros((10, 10), np.float32), 'float32[10, 10]'),
        ('two\nlines', 'two lines'),
        ('x' * 100, 'x' * 57 + '...'),
    ],
)
def test_texts_are_short(value, expected):
    assert values.to_text(value) == expected
