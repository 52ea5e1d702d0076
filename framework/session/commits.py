"""What a later process goes on from: `model.ckpt-N`, and a commit record that names it, written last and atomically.

A step counts once `commits/commit-N.json` exists. TensorFlow's `checkpoint` file is written for other readers, and read
only where there are no commits: in a directory that `tf.estimator` wrote.
"""

import contextlib
import dataclasses
import functools
import glob
import json
import math
import os
import pathlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging
from tensorflow.compat import v1

from framework import errors, run_dir
from framework.reporting import values
from framework.reporting.rows import Metrics
from framework.session import state_file
from framework.session.best import BestCheckpoints

_RECORD = re.compile(r'commit-(\d+)\.json')
_SECS_PER_HOUR = 3600

_FIELD_TYPES: Mapping[str, tuple[type, ...]] = {
    'step': (int,),
    'previous_step': (int,),
    'checkpoint': (str,),
    'exhausted': (bool,),
    'seed': (int, type(None)),
    'runs': (int,),
    'epochs': (int,),
    'epoch_start': (int,),
    'runs_before_epoch': (int,),
    'restored': (int, type(None)),
    'state': (dict,),
    'saved_at': (int, float),
    'stays': (bool,),
    'stayed_at': (int, float),
    'foreign': (bool,),
}

# What TensorFlow's reader raises at a damaged checkpoint: from C++ some of its errors arrive as Python's own.
READ_ERRORS = (tf.errors.OpError, IndexError, RuntimeError, ValueError)


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
        runs_before_epoch: Train runs before the running epoch.
        restored: The step whose weights came back at the end, None where the weights are those of `step`.
        state: What else a run goes on with, by name: the best checkpoints, early stopping.
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
    runs_before_epoch: int = 0
    restored: int | None = None
    state: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    saved_at: float = 0.0
    stays: bool = False
    stayed_at: float = 0.0
    foreign: bool = False


class Commits:
    """The commits of one run directory.

    Args:
        directory: The run directory.
        keep: How many stay; None or 0 keeps all.
        keep_every_n_hours: One commit every so many hours stays beyond `keep`; None: none.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        directory: run_dir.RunDir,
        *,
        keep: int | None = 5,
        keep_every_n_hours: float | None = 10000.0,
        clock: Callable[[], float] = time.time,
    ):
        self._directory = directory
        self._keep = keep
        self._keep_secs = math.inf if keep_every_n_hours is None else keep_every_n_hours * _SECS_PER_HOUR
        self._clock = clock
        self.best = BestCheckpoints(directory)

    @property
    def directory(self) -> str:
        """The path of the run directory."""
        return self._directory.path

    def latest(self) -> Commit | None:
        """Returns the newest commit, or what `tf.estimator` left, or None in a directory without either.

        Raises:
            RunDirectoryError: If the record or the files that it names can't be read.
        """
        records = self._records()
        commit = _read(records[-1]) if records else self._foreign()
        if commit is not None and not os.path.exists(self.path(commit) + '.index'):
            raise errors.RunDirectoryError(
                f'`{self.path(commit)}.index` is missing, which the newest commit [step {commit.step}] names. Put the '
                'file back, or start in a new run directory.'
            )
        return commit

    def newest_path(self) -> str:
        """Returns the prefix of the newest commit's checkpoint files.

        Raises:
            RunDirectoryError: If there is none.
        """
        commit = self.latest()
        if commit is None:
            raise errors.RunDirectoryError(
                f'`{self._directory.path}` holds no checkpoint. Train first, or name another run directory or a '
                'checkpoint.'
            )
        return self.path(commit)

    def best_path(self) -> str:
        """Returns the prefix of the best checkpoint's files.

        Raises:
            RunDirectoryError: If there is none.
        """
        commit = self.latest()
        kept = [] if commit is None else commit.state.get('keep_best', {}).get('kept', [])
        if not kept:
            raise errors.RunDirectoryError(
                f'`{self._directory.path}` holds no best checkpoint. Train with `Experiment.keep_best = @KeepBest()`, '
                'or name another checkpoint.'
            )
        return self.best.path(int(kept[0][0]))

    def every(self) -> list[Commit]:
        """Returns all commits, oldest first; those that can't be read, or go meanwhile, are left out."""
        found = []
        for path in self._records():
            with contextlib.suppress(errors.RunDirectoryError):
                found.append(_read(path))
        return found

    def choices(self) -> Iterator[Callable[[], str]]:
        """Yields for each commit a function that returns the prefix of its files, oldest first."""
        return (functools.partial(self.path, commit) for commit in self.every())

    def path(self, commit: Commit) -> str:
        """Returns the full prefix of a commit's checkpoint files."""
        return os.path.join(self._directory.path, commit.checkpoint)

    def save(
        self,
        session: v1.Session,
        saver: v1.train.Saver,
        commit: Commit,
        previous: Commit | None,
        best: Sequence[int] = (),
    ) -> Commit:
        """Saves the variables, then writes the record, then removes commits beyond the limit.

        Args:
            session: The raw session.
            saver: The model's.
            commit: What to record; what only saving tells is filled in.
            previous: The commit before. Its files serve again where it is of the same train run.
            best: The steps whose checkpoints stay in `best/`, best first; the others there are in it already.

        Returns:
            The commit as recorded.
        """
        if previous is not None and (commit.runs, commit.restored) == (previous.runs, previous.restored):
            commit = dataclasses.replace(
                commit, checkpoint=previous.checkpoint, stays=previous.stays, foreign=previous.foreign
            )
        else:
            commit = dataclasses.replace(commit, checkpoint=self._save_variables(session, saver, commit))
        commit = self._stamped(commit, previous)
        if commit.step in best and not self.best.holds(commit.step):
            self.best.add(commit.step, self.path(commit))
        pathlib.Path(self._directory.commits).mkdir(exist_ok=True)
        run_dir.write_atomically(self._record_path(commit.step), _to_json(commit))
        if previous is not None and previous.step == commit.step and previous.checkpoint != commit.checkpoint:
            self._remove_files(previous)
        self._write_state(self._prune())
        if best:
            self.best.write(best)
        return commit

    def _save_variables(self, session: v1.Session, saver: v1.train.Saver, commit: Commit) -> str:
        # Under another name where the weights are not those of the step: the former files are named by a commit.
        step = commit.step
        name = self._directory.checkpoint_prefix
        prefix = saver.save(
            session,
            name if commit.restored is None else f'{name}-restored',
            global_step=step,
            write_meta_graph=False,
            write_state=False,  # then it deletes nothing, also a user's: that is our business
        )
        logging.info('Saved step %d into %s.', step, prefix)
        return os.path.basename(prefix)

    def _stamped(self, commit: Commit, previous: Commit | None) -> Commit:
        """Fills in the time, and whether the commit stays beyond the limit."""
        now = self._clock()
        stayed_at = now if previous is None else previous.stayed_at
        due = now - stayed_at >= self._keep_secs
        return dataclasses.replace(commit, saved_at=now, stays=commit.stays or due, stayed_at=now if due else stayed_at)

    def _record_path(self, step: int) -> pathlib.Path:
        return pathlib.Path(self._directory.commits) / f'commit-{step}.json'

    def _records(self) -> list[pathlib.Path]:
        """Returns the paths of the records, oldest first."""
        directory = pathlib.Path(self._directory.commits)
        found = [path for path in directory.glob('commit-*.json') if _RECORD.fullmatch(path.name)]
        return sorted(found, key=_step)

    def _foreign(self) -> Commit | None:
        """Returns the checkpoint that TensorFlow's own file names, of a run before there were commits."""
        if not os.path.exists(os.path.join(self._directory.path, 'checkpoint')):
            self._check_empty()
            return None
        try:
            checkpoint = v1.train.latest_checkpoint(self._directory.path)
        except ValueError:  # of an empty file, or of one that is no text
            checkpoint = None
        if checkpoint is None:
            raise errors.RunDirectoryError(
                f'`{self._directory.path}/checkpoint` names no checkpoint that is there. Put the files back, mend its '
                'paths, or start in a new run directory.'
            )
        prefix = self._prefix_within(checkpoint)
        step = global_step(checkpoint)
        logging.info('No commits in %s: going on from the checkpoint of step %d.', self._directory.path, step)
        return Commit(step, step, prefix, stayed_at=self._clock(), foreign=True)

    def _check_empty(self) -> None:
        """Refuses a directory with checkpoints that nothing names: a start from scratch would write over them."""
        found = sorted(pathlib.Path(self._directory.path).glob('model.ckpt-*.index'))
        if found:
            raise errors.RunDirectoryError(
                f'`{self._directory.path}` holds checkpoints [{found[-1].name}] but neither `commits/` nor the file '
                '`checkpoint`, which say where to go on. Put one of them back, or start in a new run directory.'
            )

    def _prefix_within(self, checkpoint: str) -> str:
        """Returns a prefix relative to the run directory, which may be spelled by way of links."""
        folder, name = os.path.split(checkpoint)
        relative = os.path.relpath(os.path.realpath(folder), os.path.realpath(self._directory.path))
        if relative.split(os.sep)[0] == os.pardir:
            raise errors.RunDirectoryError(
                f'`{self._directory.path}/checkpoint` names `{checkpoint}`, which lies outside the run directory and '
                f"may be another run's. Copy `{checkpoint}.*` into the run directory and write `model_checkpoint_path: "
                f'"{name}"` into its file `checkpoint`, or start in a new run directory.'
            )
        return os.path.normpath(os.path.join(relative, name))

    def _prune(self) -> list[Commit]:
        """Removes what is beyond the limit, and returns the commits that are left, oldest first."""
        records = self._records()
        beyond = len(records) - self._keep if self._keep else 0
        left = []
        for i, path in enumerate(records):
            try:
                commit = _read(path)
            except errors.RunDirectoryError as error:  # an old record is no reason to end a run that just saved
                logging.warning('%s', error)
                continue
            if i < beyond and not commit.stays:
                self._remove(path, commit)
            else:
                left.append(commit)
        return left

    def _remove(self, path: pathlib.Path, commit: Commit) -> None:
        path.unlink()  # the record goes first: what it vouched for may then go
        self._remove_files(commit)

    def _remove_files(self, commit: Commit) -> None:
        if commit.foreign or os.path.dirname(commit.checkpoint):
            return  # we save into the run directory itself: this is somebody else's
        for name in glob.glob(glob.escape(self.path(commit)) + '.*'):
            os.remove(name)

    def _write_state(self, commits: Sequence[Commit]) -> None:
        state_file.write(self._directory.path, [commit.checkpoint for commit in commits])


def global_step(checkpoint: str) -> int:
    """Returns the global step of a checkpoint.

    Raises:
        RunDirectoryError: If it holds none that can be read.
    """
    try:
        return int(v1.train.load_checkpoint(checkpoint).get_tensor('global_step'))
    except READ_ERRORS as error:
        raise errors.RunDirectoryError(
            f'`{checkpoint}` holds no readable `global_step` [{first_line(error)}], so it is no run that '
            'can go on. Start in a new run directory.'
        ) from error


def first_line(error: Exception) -> str:
    """Returns the first line that an error says: TensorFlow's go on with tracebacks."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _to_json(commit: Commit) -> str:
    record = dataclasses.asdict(commit)
    record['passes'] = {
        name: {'step': last.step, 'metrics': values.metrics_to_json(last.metrics)}
        for name, last in commit.passes.items()
    }
    return json.dumps(record, allow_nan=False) + '\n'


def _step(path: pathlib.Path) -> int:
    match = _RECORD.fullmatch(path.name)
    return int(match.group(1)) if match else -1


def _check(commit: Commit, step: int) -> None:
    """Raises a `ValueError` for a record whose values are of other types than we write, or of another step."""
    for name, types in _FIELD_TYPES.items():
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


def _read(path: pathlib.Path) -> Commit:
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding='utf-8'))
        record['passes'] = {
            name: LastPass(last['step'], values.metrics_from_json(last['metrics']))
            for name, last in record['passes'].items()
        }
        commit = Commit(**record)
        _check(commit, _step(path))
        return commit
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise errors.RunDirectoryError(
            f'`{path}` is damaged [{error}]. Remove it to go on from the commit before it.'
        ) from error
