"""The forms of a metric's value: a plain Python one, JSON, and a short text for people."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from framework.reporting import rows

_LONGEST_LIST = 6
_LONGEST_TEXT = 60
_NOT_FINITE = _NAN, _INFINITY, _MINUS_INFINITY = 'NaN', 'Infinity', '-Infinity'


def plain(value: rows.MetricValue) -> Any:
    """Returns a numpy scalar or an array of rank 0 as bool, int, float, str or bytes; anything else as it is.

    Args:
        value: What a metric's tensor held. Floats keep their exact value, whatever their width.
    """
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return plain(value[()])
    if not isinstance(value, np.generic) or isinstance(value, np.complexfloating):
        return value
    if isinstance(value, np.bool_ | np.integer | np.str_ | np.bytes_):
        return value.item()
    try:
        return float(value)  # also bfloat16, which numpy doesn't count among its floats
    except (TypeError, ValueError):
        return value


def is_binary(value: rows.MetricValue) -> bool:
    """Returns whether the value is bytes or an array of them: serialized summaries, nothing for people."""
    value = plain(value)
    return isinstance(value, bytes) or (isinstance(value, np.ndarray) and value.dtype.kind in 'SO')


def to_json(value: rows.MetricValue) -> Any:
    """Returns the value in the types of JSON.

    Floats stay exact. JSON has no number for those that aren't finite, and null would hide that there was a value:
    they become `"NaN"`, `"Infinity"` and `"-Infinity"`, which `float()` reads back. What JSON can't hold becomes its
    text.

    Args:
        value: A value that isn't binary.
    """
    value = plain(value)
    if isinstance(value, np.ndarray):
        value = list(value)
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return _NAN if math.isnan(value) else _INFINITY if value > 0 else _MINUS_INFINITY
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def from_json(value: Any) -> Any:
    """Returns what `to_json` wrote, with the floats that aren't finite as floats again.

    Args:
        value: What the JSON reader returned. A text that reads `NaN`, `Infinity` or `-Infinity` becomes a float, too.
    """
    if isinstance(value, list):
        return [from_json(item) for item in value]
    return float(value) if isinstance(value, str) and value in _NOT_FINITE else value


def metrics_to_json(metrics: rows.Metrics) -> dict[str, Any]:
    """Returns the metrics in the types of JSON, binary ones left out."""
    return {name: to_json(value) for name, value in metrics.items() if not is_binary(value)}


def metrics_from_json(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Returns metrics as `metrics_to_json` was given them, in plain Python types."""
    return {name: from_json(value) for name, value in metrics.items()}


def to_text(value: rows.MetricValue) -> str:
    """Returns a value as one short piece of text, for example `0.9612`, `1.250e-07` or `float32[10, 10]`."""
    value = plain(value)
    if isinstance(value, float):
        return f'{value:.4f}' if value == 0 or 1e-3 <= abs(value) < 1e6 else f'{value:.3e}'
    if isinstance(value, np.ndarray):
        return _array_text(value)
    text = ' '.join(str(value).split())
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 3] + '...'


def _array_text(array: np.ndarray) -> str:
    if array.ndim == 1 and array.size <= _LONGEST_LIST:
        return '[' + ', '.join(to_text(item) for item in array) + ']'
    return f'{array.dtype}{list(array.shape)}'


def metrics_to_text(metrics: rows.Metrics) -> dict[str, str]:
    """Returns the metrics as short texts, sorted by name, binary ones left out."""
    return {name: to_text(metrics[name]) for name in sorted(metrics) if not is_binary(metrics[name])}
