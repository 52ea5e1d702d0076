"""The tables of a report: how each run went, and in which bindings they differ."""

import dataclasses
from collections.abc import Sequence

from framework.report.runs import Run
from framework.reporting import values

_ABSENT = ''


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of texts.

    Attributes:
        columns: The headings.
        lines: Per line a text for each column.
        right: The headings of columns that are aligned at the right.
    """

    columns: Sequence[str]
    lines: Sequence[Sequence[str]]
    right: Sequence[str] = ()


def overview(runs: Sequence[Run]) -> Table:
    """Returns a line for each run: its status, steps and time.

    Args:
        runs: The runs.
    """
    lines = [(run.name, run.status, str(run.step), _duration(run.secs), run.started[:19], run.why) for run in runs]
    return Table(('run', 'status', 'step', 'time', 'started', 'why'), lines, ('step', 'time'))


def metrics(runs: Sequence[Run]) -> Table:
    """Returns a line for each metric of each run: its last value, and the best one where its name tells what is better.

    Args:
        runs: The runs.
    """
    lines = []
    for name in _metric_names(runs):
        for run in runs:
            for series in run.metrics():
                if series.name == name and series.values:
                    best = series.best
                    at = ('', '') if best is None else (values.to_text(best[1]), str(best[0]))
                    lines.append((name, run.name, values.to_text(series.last), *at))
    return Table(('metric', 'run', 'last', 'best', 'at step'), lines, ('last', 'best', 'at step'))


def differences(runs: Sequence[Run]) -> Table:
    """Returns a line for each binding in which the runs differ, with its value in each; no column where there is none.

    Args:
        runs: The runs.
    """
    names = dict.fromkeys(name for run in runs for name in run.bindings)
    lines = [
        (name, *(run.bindings.get(name, _ABSENT) for run in runs))
        for name in sorted(names)
        if len({run.bindings.get(name) for run in runs}) > 1
    ]
    return Table(('binding', *(run.name for run in runs)) if lines else (), lines)


def _metric_names(runs: Sequence[Run]) -> list[str]:
    """Returns the names of all metrics, those of sets before those of training."""
    names = dict.fromkeys(series.name for run in runs for series in run.metrics())
    return sorted(names, key=lambda name: name.startswith('train/'))


def _duration(secs: float) -> str:
    minutes, rest = divmod(round(secs), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f'{hours} h {minutes:02} min'
    return f'{minutes} min {rest:02} s' if minutes else f'{secs:.1f} s'
