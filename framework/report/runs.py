"""What is known of a run, whether it ended, still runs or was killed."""

import dataclasses
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from framework import config, errors, policies, run_dir
from framework.reporting import history

RUNNING = 'running'
CRASHED = 'crashed'
_CHILDREN = ('trials', '')  # where a directory of many runs has them
_MARKS = ('result_file', 'metrics_file', 'provenance_file', 'commits')  # of which a run directory has at least one


@dataclasses.dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        name: What it is called in the report: the end of its path that no other run has.
        path: Its directory.
        status: How it ended, see `framework.RunResult`; `running`, or `crashed` where it neither ended nor runs.
        why: The reason, '' where there is none.
        step: The last global step that anything is known of.
        secs: Seconds that its phases took, in all of its processes.
        started: When its last process started, '' where nobody knows.
        bindings: Its gin bindings, as text by name.
        curves: Per stream its steps and metrics, as in `framework.RunResult.history`.
    """

    name: str
    path: str
    status: str
    why: str
    step: int
    secs: float
    started: str
    bindings: Mapping[str, str]
    curves: Mapping[str, Mapping[str, Sequence[Any]]]

    def metrics(self) -> Iterator['Series']:
        """Yields the metrics over the run, those of training first."""
        for stream, columns in self.curves.items():
            for metric, values in columns.items():
                if metric != 'step':
                    yield Series(stream, metric, *_numbers(columns['step'], values))


@dataclasses.dataclass(frozen=True)
class Series:
    """A metric of a stream over the steps.

    Attributes:
        stream: `train` or the name of a set.
        metric: The metric's name.
        steps: The steps at which it has a value.
        values: The values, which may be NaN or infinite.
    """

    stream: str
    metric: str
    steps: Sequence[int]
    values: Sequence[float]

    @property
    def name(self) -> str:
        """The name as policies have it: `valid/accuracy`."""
        return f'{self.stream}/{self.metric}'

    @property
    def last(self) -> float:
        """The last value."""
        return self.values[-1]

    @property
    def best(self) -> tuple[int, float] | None:
        """The step and value of the best; None where the name does not tell what is better, or all are NaN."""
        direction = policies.better_direction(self.name)
        known = [(step, value) for step, value in zip(self.steps, self.values, strict=True) if not math.isnan(value)]
        if direction is None or not known:
            return None
        return (max if direction == 'max' else min)(known, key=lambda each: each[1])


def find(paths: Sequence[str]) -> list[Run]:
    """Returns the runs in directories, each once, in the order of the paths and of their names.

    Args:
        paths: Run directories, or directories that hold run directories, as `D/trials/0007` or `D/a`.

    Raises:
        RunDirectoryError: If there is no run, or one can't be read.
    """
    found = list(dict.fromkeys(os.path.abspath(each) for path in paths for each in _run_directories(path)))
    names = _short_names(found)
    return [_read(path, name) for path, name in zip(found, names, strict=True)]


def _run_directories(path: str) -> list[str]:
    if not os.path.isdir(path):
        what = 'a file' if os.path.exists(path) else 'not there'
        raise errors.RunDirectoryError(f'`{path}` is {what}, and a report needs run directories.')
    if _is_run(path):
        return [path]
    for child in _CHILDREN:
        inside = os.path.join(path, child)
        if os.path.isdir(inside):
            runs = [each.path for each in sorted(os.scandir(inside), key=lambda each: each.name) if each.is_dir()]
            if runs := [each for each in runs if _is_run(each)]:
                return runs
    raise errors.RunDirectoryError(
        f'`{path}` is no run directory and holds none: it has neither `metrics.jsonl` nor `result.json`.'
    )


def _is_run(path: str) -> bool:
    directory = run_dir.RunDir(path)
    return any(os.path.exists(getattr(directory, mark)) for mark in _MARKS)


def _short_names(paths: Sequence[str]) -> list[str]:
    """Returns the shortest ends of paths that tell them apart."""
    parts = [path.strip(os.sep).split(os.sep) for path in paths]
    length = 1
    while len({tuple(each[-length:]) for each in parts}) < len(parts):
        length += 1
    return ['/'.join(each[-length:]) for each in parts]


def _read(path: str, name: str) -> Run:
    directory = run_dir.RunDir(path)
    result = _json(directory.result_file)
    phases = list(history.json_lines(directory.timeline_file))
    curves = history.HistoryWriter(directory.metrics_file).history()
    step = max([0, *(phase.get('step') or 0 for phase in phases), *(s for c in curves.values() for s in c['step'])])
    holder = directory.holder()
    if holder is not None:
        status, why = RUNNING, holder
    elif result:
        status, why, step = result.get('status', '?'), result.get('stop_reason', ''), result.get('global_step', step)
    else:
        status, why = CRASHED, 'it left no result, and no process holds it'
    started = _json(directory.provenance_file).get('start_time', '')
    secs = math.fsum(phase.get('secs') or 0.0 for phase in phases)
    return Run(name, path, status, why, step, secs, started, config.bindings_in(_text(directory.config_file)), curves)


def _json(path: str) -> dict[str, Any]:
    try:
        content = json.loads(_text(path) or '{}')
    except ValueError as error:
        raise errors.RunDirectoryError(f"`{path}` can't be read as JSON [{error}].") from error
    return content if isinstance(content, dict) else {}


def _text(path: str) -> str:
    """Returns the text of a file, '' where there is none."""
    try:
        with open(path, encoding='utf-8', errors='replace') as file:
            return file.read()
    except FileNotFoundError:
        return ''
    except OSError as error:
        raise errors.RunDirectoryError(f"`{path}` can't be read [{error}].") from error


def _numbers(steps: Sequence[int], values: Sequence[Any]) -> tuple[list[int], list[float]]:
    """Returns the steps and values that are single numbers; metrics may be tensors or texts as well."""
    pairs = [
        (step, float(value))
        for step, value in zip(steps, values, strict=True)
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    return [step for step, _ in pairs], [value for _, value in pairs]
