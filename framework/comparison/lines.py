"""What two runs wrote line by line: `metrics.jsonl`, a stream at a time, and `timeline.jsonl`."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from framework.comparison.parts import ABSENT, Difference, Part, short, text_of
from framework.run_dir import RunDir

_RATE = '_per_sec'
_MOST_NAMES = 3
_TELLING = ('phase', 'step', 'stream', 'loss')


def compare(a: RunDir, b: RunDir) -> list[Part]:
    """Compares what two runs wrote, seconds and rates left out."""
    first, second = ([_phase(row) for row in rows(run.timeline_file)] for run in (a, b))
    timeline = _sequence('timeline.jsonl', first, second, of_values=False)
    return [*_metrics(rows(a.metrics_file), rows(b.metrics_file)), timeline]


def rows(path: str) -> list[dict[str, Any]]:
    """Returns the objects in a file, a line each; the half of one that a killed process left is none."""
    found = []
    for line in text_of(path).splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and isinstance(row.get('step'), int):
            found.append(row)
    return found


def _metrics(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]) -> Iterator[Part]:
    for stream in dict.fromkeys(str(row.get('stream')) for row in (*a, *b)):
        first, second = ([_measured(row) for row in told if str(row.get('stream')) == stream] for told in (a, b))
        yield _sequence(f'metrics.jsonl, {stream}', first, second, of_values=True)


def _measured(row: Mapping[str, Any]) -> dict[str, Any]:
    metrics = dict(row.get('metrics') or {})
    return {'step': row['step'], **{name: value for name, value in metrics.items() if not name.endswith(_RATE)}}


def _phase(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != 'secs' and value is not None}


def _sequence(name: str, a: Sequence[dict[str, Any]], b: Sequence[dict[str, Any]], of_values: bool) -> Part:
    """Compares rows one by one up to the first that differ."""
    equal_to = None
    found: list[Difference] = []
    for number, (left, right) in enumerate(itertools.zip_longest(a, b), start=1):
        found = _difference(number, left, right)
        if found:
            break
        equal_to = left['step'] if of_values else None
    compared = ' / '.join(dict.fromkeys(f'{len(told)} lines' for told in (a, b)))
    return Part(name, found, compared, of_values, equal_to)


def _difference(number: int, a: dict[str, Any] | None, b: dict[str, Any] | None) -> list[Difference]:
    if a is None or b is None:
        left, right = (ABSENT if row is None else _line(row) for row in (a, b))
        return [Difference(f'line {number}', left, right, (a or b or {})['step'])]
    # A digest that only one of them has: the other is of a version that wrote none.
    names = [name for name in {**a, **b} if a.get(name) != b.get(name) and (name != 'digest' or {name} <= a.keys() & b)]
    if not names:
        return []
    left, right = (', '.join(short(row.get(name, ABSENT)) for name in names[:_MOST_NAMES]) for row in (a, b))
    more = f' and {len(names) - _MOST_NAMES} more' if len(names) > _MOST_NAMES else ''
    what = f'line {number}, {", ".join(names[:_MOST_NAMES])}{more}'
    return [Difference(what, left, right, min(a['step'], b['step']))]


def _line(row: Mapping[str, Any]) -> str:
    return ' '.join(f'{name} {short(row[name])}' for name in _TELLING if name in row)
