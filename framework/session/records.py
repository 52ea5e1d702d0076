"""What a commit record holds, and its form in JSON."""

import dataclasses
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from framework import errors
from framework.reporting import values
from framework.reporting.rows import Metrics

_NAME = re.compile(r'commit-(\d+)\.json')
_TYPES: Mapping[str, tuple[type, ...]] = {
    'step': (int,),
    'previous_step': (int,),
    'checkpoint': (str,),
    'exhausted': (bool,),
    'seed': (int, type(None)),
    'runs': (int,),
    'epochs': (int,),
    'epoch_start': (int,),
    'restored': (int, type(None)),
    'state': (dict,),
    'files': (dict,),
    'lengths': (dict,),
    'identity': (dict,),
    'side_file': (str,),
    'position': (str,),
    'elements': (int,),
    'saved_at': (int, float),
    'stays': (bool,),
    'stayed_at': (int, float),
    'foreign': (bool,),
}


@dataclasses.dataclass(frozen=True)
class LastPass:
    """The newest pass over a set: the step of its weights, and its metrics."""

    step: int
    metrics: Metrics


@dataclasses.dataclass(frozen=True)
class Commit:
    """One point to go on from.

    Attributes:
        step: The global step.
        previous_step: The global step before the newest train run.
        checkpoint: The prefix of the checkpoint's files, relative to the run directory.
        passes: The newest pass of every evaluation set.
        exhausted: Whether the training data had ended.
        seed: The run's seed, None when unknown.
        runs: Train runs from the beginning: a run may move the global step by any number, also by none.
        epochs: How often the training data has ended and begun again.
        epoch_start: The global step at which the running epoch began.
        restored: The step whose weights came back at the end, None where the weights are those of `step`.
        state: What else a run goes on with, by name: the best checkpoints, early stopping.
        files: The files of the checkpoint and the side file, by name, with the SHA-256 of each.
        lengths: The files that a run appends to, by name, with the bytes that belong to this commit.
        identity: What must be the same for the same bits to come, by name.
        side_file: The prefix of the side file's files; empty without one.
        position: How the place in the training data is found again: `saved` in the side file, by `skip`ping what was
            read, or `` not at all.
        elements: How many elements of the training data were read since it began.
        saved_at: Seconds since the epoch.
        stays: Whether it stays beyond the limit, as one every so many hours does.
        stayed_at: When the newest commit that stays was saved; the first commit's time before any.
        foreign: Whether another program wrote the checkpoint, which is then never removed.
    """

    step: int
    previous_step: int
    checkpoint: str = ''
    passes: Mapping[str, LastPass] = dataclasses.field(default_factory=dict)
    exhausted: bool = False
    seed: int | None = None
    runs: int = 0
    epochs: int = 0
    epoch_start: int = 0
    restored: int | None = None
    state: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    lengths: Mapping[str, int] = dataclasses.field(default_factory=dict)
    identity: Mapping[str, str] = dataclasses.field(default_factory=dict)
    side_file: str = ''
    position: str = ''
    elements: int = 0
    saved_at: float = 0.0
    stays: bool = False
    stayed_at: float = 0.0
    foreign: bool = False


def file_name(step: int) -> str:
    """Returns the name of the record of a step."""
    return f'commit-{step}.json'


def step_of(path: pathlib.Path) -> int | None:
    """Returns the step of a record by its name, None for a file that is no record."""
    match = _NAME.fullmatch(path.name)
    return int(match.group(1)) if match else None


def to_json(commit: Commit) -> str:
    """Returns the text of a record."""
    record = {field.name: getattr(commit, field.name) for field in dataclasses.fields(commit)}
    record['passes'] = {
        name: {'step': last.step, 'metrics': values.metrics_to_json(last.metrics)}
        for name, last in commit.passes.items()
    }
    return json.dumps(record, allow_nan=False) + '\n'


def read(path: pathlib.Path) -> Commit:
    """Reads a record.

    Raises:
        RunDirectoryError: If it is damaged.
    """
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding='utf-8'))
        record['passes'] = {
            name: LastPass(last['step'], values.metrics_from_json(last['metrics']))
            for name, last in record['passes'].items()
        }
        commit = Commit(**record)
        _check(commit, step_of(path))
        return commit
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise errors.RunDirectoryError(
            f'`{path}` is damaged [{error}]. Remove it to go on from the commit before it.'
        ) from error


def _check(commit: Commit, step: int | None) -> None:
    """Raises a `ValueError` for a record whose values are of other types than we write, or of another step."""
    for name, types in _TYPES.items():
        _check_type(name, getattr(commit, name), types)
    for stream, last in commit.passes.items():
        _check_type(f'passes.{stream}.step', last.step, (int,))
    if commit.step != step:
        raise ValueError(f'`step` is {commit.step}, and its name says {step}')
    if not commit.checkpoint:
        raise ValueError('`checkpoint` is empty')


def _check_type(name: str, value: Any, types: tuple[type, ...]) -> None:
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise ValueError(f'`{name}` is {value!r}')
