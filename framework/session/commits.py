"""What a later process goes on from: `model.ckpt-N` and `state-N`, and a commit record that names them, written last.

A step counts once `commits/commit-N.json` exists. In order: passes and lines are written out; the files are named in
`commits/saving.json`, saved and made to last; the best checkpoints get their second names; the record says which files
with which SHA-256, and how long the files are that the run appends to. TensorFlow's `checkpoint` file is written for
other readers, and read only where there are no commits: in a directory that `tf.estimator` wrote.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import math
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from absl import logging
from tensorflow.compat import v1

from framework import errors, run_dir
from framework.session import foreign, integrity, records, state_file
from framework.session.best import BestCheckpoints, BestSteps
from framework.session.journal import Journal
from framework.session.records import Commit, LastPass
from framework.session.side_file import SideFile

__all__ = ['Commit', 'Commits', 'LastPass']

_SECS_PER_HOUR = 3600
_BAD = '.bad'
_TRIES = 20  # to read the newest commit while a training beside this removes it


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
        self._folder = pathlib.Path(directory.commits)
        self._keep = keep
        self._keep_secs = math.inf if keep_every_n_hours is None else keep_every_n_hours * _SECS_PER_HOUR
        self._clock = clock
        self._journal = Journal(directory)
        self.best = BestCheckpoints(directory)

    @property
    def directory(self) -> str:
        """The path of the run directory."""
        return self._directory.path

    # Reading, also beside a training.

    def latest(self) -> Commit | None:
        """Returns the newest commit, or what `tf.estimator` left, or None in a directory without either.

        Raises:
            RunDirectoryError: If the record or the files that it names can't be read.
        """
        for tries_left in reversed(range(_TRIES)):
            paths = self._records()
            try:
                return self._present(records.read(paths[-1]) if paths else self._foreign())
            except errors.RunDirectoryError:
                if not tries_left:  # a training beside this may have removed it meanwhile
                    raise
        return None

    def _present(self, commit: Commit | None) -> Commit | None:
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
            what = 'is a file, and a run needs a directory' if os.path.isfile(self.directory) else 'holds no checkpoint'
            raise errors.RunDirectoryError(
                f'`{self._directory.path}` {what}. Train first, or name another run directory or a checkpoint.'
            )
        return self.path(commit)

    def best_path(self) -> str:
        """Returns the prefix of the best checkpoint's files.

        Raises:
            RunDirectoryError: If there is none.
        """
        commit = self.latest()
        kept = [] if commit is None else _best_of(commit)
        if not kept:
            raise errors.RunDirectoryError(
                f'`{self._directory.path}` holds no best checkpoint. Train with `Experiment.keep_best = @KeepBest()`, '
                'or name another checkpoint.'
            )
        return self.best.path(kept[0])

    def every(self) -> list[Commit]:
        """Returns all commits, oldest first; those that can't be read, or go meanwhile, are left out."""
        found = []
        for path in self._records():
            with contextlib.suppress(errors.RunDirectoryError):
                found.append(records.read(path))
        return found

    def choices(self) -> Iterator[Callable[[], str]]:
        """Yields for each commit a function that returns the prefix of its files, oldest first."""
        return (functools.partial(self.path, commit) for commit in self.every())

    def path(self, commit: Commit) -> str:
        """Returns the full prefix of a commit's checkpoint files."""
        return os.path.join(self._directory.path, commit.checkpoint)

    def side_path(self, commit: Commit) -> str:
        """Returns the full prefix of a commit's side file."""
        return os.path.join(self._directory.path, commit.side_file)

    def _foreign(self) -> Commit | None:
        commit = foreign.commit_of(self._directory.path, self._clock())
        if commit is None:
            self._check_empty()
        return commit

    def _check_empty(self) -> None:
        """Refuses a directory with checkpoints that nothing names: a start from scratch would write over them."""
        unfinished = (self._noted() or {}).get('prefixes', [])
        found = sorted(path.stem for path in pathlib.Path(self._directory.path).glob('model.ckpt-*.index'))
        if unnamed := [name for name in found if name not in unfinished]:
            raise errors.RunDirectoryError(
                f'`{self._directory.path}` holds checkpoints [{unnamed[-1]}.index] but neither `commits/` nor the file '
                '`checkpoint`, which say where to go on. Put one of them back, or start in a new run directory.'
            )

    # Going on, under the lock.

    def resume_point(self) -> Commit | None:
        """Returns the newest commit whose files are as they were written, None in a directory without any.

        Damaged ones before it are set aside, with a message.

        Raises:
            RunDirectoryError: If there are commits and all are damaged.
        """
        faults: dict[pathlib.Path, str] = {}
        for path in reversed(self._records()):
            commit, fault = self._checked(path)
            if commit is not None:
                _set_aside(faults, commit)
                return commit
            faults[path] = fault
            logging.error('The commit of `%s` is damaged: %s.', path.name, fault)
        if faults:
            raise errors.RunDirectoryError(
                f'`{self._directory.path}` holds {len(faults)} commits, and all are damaged: '
                f'{"; ".join(faults.values())}. Put the files back, or start in a new run directory.'
            )
        return self._foreign()

    def _checked(self, path: pathlib.Path) -> tuple[Commit | None, str]:
        try:
            commit = records.read(path)
        except errors.RunDirectoryError as error:
            return None, str(error)
        fault = integrity.fault(self._directory.path, commit.files)
        if fault is None and not os.path.exists(self.path(commit) + '.index'):
            fault = f'`{self.path(commit)}.index` is missing'
        return (commit, '') if fault is None else (None, fault)

    def take_up(self, commit: Commit | None) -> Commit | None:
        """Takes the directory back to a commit: what the process before wrote behind it goes.

        Args:
            commit: What `resume_point` returned.

        Returns:
            The same, without best checkpoints that are gone.
        """
        self._folder.mkdir(exist_ok=True)
        self._remove_unfinished()
        begun = self._folder / 'begun.json'
        if commit is not None and (commit.files or commit.lengths):
            self._journal.cut(commit.lengths)
        elif begun.exists():
            if (lengths := _json(begun)) is not None:
                self._journal.cut(lengths)
        else:  # so that a kill before the first commit leaves nothing twice
            run_dir.write_atomically(begun, json.dumps(self._journal.lengths()) + '\n')
        return None if commit is None else self._repaired(commit)

    def _repaired(self, commit: Commit) -> Commit:
        """Finishes what a killed process left undone behind its record, and undoes what was set aside."""
        every = self.every()
        if every:
            state_file.write(self._directory.path, [one.checkpoint for one in every])
        kept = _best_of(commit)
        for step in kept:
            source = next((one for one in every if one.step == step and one.restored is None), None)
            if not self.best.holds(step) and source is not None:
                self.best.add(step, self.path(source))
        there = [step for step in kept if self.best.holds(step)]
        if there != kept:
            logging.error('Of the best checkpoints, those of the steps %s are gone.', sorted(set(kept) - set(there)))
            state = dict(commit.state['keep_best'])
            state['kept'] = [pair for pair in state['kept'] if pair[0] in there]
            commit = dataclasses.replace(commit, state={**commit.state, 'keep_best': state})
        self.best.write(there, {*there, *(step for one in every for step in _best_of(one))})
        return commit

    def _remove_unfinished(self) -> None:
        """Removes what a save that was killed left, as far as no commit names it."""
        named = {prefix for commit in self.every() for prefix in (commit.checkpoint, commit.side_file)}
        for prefix in (self._noted() or {}).get('prefixes', []):
            if prefix not in named:
                _remove(integrity.remains_of(os.path.join(self._directory.path, prefix)))
        self._note.unlink(missing_ok=True)

    # Saving.

    def save(
        self,
        session: v1.Session,
        saver: v1.train.Saver,
        commit: Commit,
        previous: Commit | None,
        best: BestSteps = BestSteps(),  # noqa: B008 - it is frozen
        side: SideFile | None = None,
        tell: Callable[[str], None] = lambda _: None,
        weights_changed: bool = False,
        finish: Callable[[Commit], Commit] = lambda commit: commit,
    ) -> Commit:
        """Saves the variables, then writes the record, then removes commits beyond the limit.

        Args:
            session: The raw session.
            saver: The model's.
            commit: What to record; what only saving tells is filled in.
            previous: The commit before.
            best: The steps whose checkpoints stay in `best/`.
            side: Saves what is not the model's.
            tell: Called with the digest of the checkpoint when it is saved: what this writes belongs to the commit.
            weights_changed: Whether something else than a train run changed the weights since the commit before. Where
                neither did, its files serve again.
            finish: Called when the files are saved, with what will be recorded; returns what is recorded in its place.

        Returns:
            The commit as recorded.
        """
        self._folder.mkdir(exist_ok=True)
        others = [one for one in self.every() if one.step != commit.step]
        here = (commit.runs, commit.step)
        if previous is not None and (previous.runs, previous.step) == here and not weights_changed:
            commit = _with_files_of(previous, commit)
        else:
            commit = self._save_files(session, saver, commit, side, others)
        commit = self._stamped(commit, previous)
        if commit.step in best.new:
            self.best.add(commit.step, self.path(commit))
        commit = finish(commit)
        tell(commit.files.get(f'{commit.checkpoint}.index', ''))
        commit = dataclasses.replace(commit, lengths=self._journal.lengths())
        run_dir.write_atomically(self._folder / records.file_name(commit.step), records.to_json(commit))
        self._tidy(commit, previous, best, others)
        return commit

    def _save_files(
        self,
        session: v1.Session,
        saver: v1.train.Saver,
        commit: Commit,
        side: SideFile | None,
        others: Sequence[Commit],
    ) -> Commit:
        prefix = self._free_prefix(os.path.basename(self._directory.checkpoint_prefix), commit.step)
        side_prefix = '' if side is None else self._free_prefix('state', commit.step)
        # What is about to come, and what is about to go: a start removes of these what no record names.
        going = [
            name
            for old in self._beyond([*others, commit])
            for name in (old.checkpoint, old.side_file)
            if not old.foreign
        ]
        names = [*filter(None, [prefix, side_prefix, *going])]
        run_dir.write_atomically(self._note, json.dumps({'prefixes': names}) + '\n')
        saver.save(
            session,
            os.path.join(self._directory.path, prefix),
            write_meta_graph=False,
            write_state=False,  # then it deletes nothing, also a user's: that is our business
        )
        files = integrity.digests(self._directory.path, prefix)
        commit = dataclasses.replace(commit, checkpoint=prefix, side_file=side_prefix)
        if side is not None:
            commit = dataclasses.replace(commit, position=side.save(session, self.side_path(commit)))
            files |= integrity.digests(self._directory.path, side_prefix)
        logging.info('Saved step %d into %s.', commit.step, self.path(commit))
        return dataclasses.replace(commit, files=files)

    def _free_prefix(self, name: str, step: int) -> str:
        """Returns the name of a checkpoint that no file bears.

        TensorFlow writes into the files of a name that is taken, which a commit may name, `best/` may share, and a
        reader beside this may have open.
        """
        candidates = itertools.chain([f'{name}-{step}'], (f'{name}-again{i or ""}-{step}' for i in itertools.count()))
        return next(c for c in candidates if not integrity.remains_of(os.path.join(self._directory.path, c)))

    def _stamped(self, commit: Commit, previous: Commit | None) -> Commit:
        """Fills in the time, and whether the commit stays beyond the limit."""
        now = self._clock()
        stayed_at = now if previous is None else previous.stayed_at
        due = now - stayed_at >= self._keep_secs
        return dataclasses.replace(commit, saved_at=now, stays=commit.stays or due, stayed_at=now if due else stayed_at)

    def _tidy(self, commit: Commit, previous: Commit | None, best: BestSteps, others: Sequence[Commit]) -> None:
        left = self._prune([*others, commit])
        if previous is not None and previous.step == commit.step and previous.checkpoint != commit.checkpoint:
            self._remove_files(previous, left)
        state_file.write(self._directory.path, [one.checkpoint for one in left])
        self.best.write(best.kept, {*best.kept, *(step for one in left for step in _best_of(one))})
        self._note.unlink(missing_ok=True)

    @property
    def _note(self) -> pathlib.Path:
        return self._folder / 'saving.json'

    def _noted(self) -> dict[str, Any] | None:
        """Returns what a save that did not end was about to write."""
        return _json(self._note) if self._note.exists() else None

    def _records(self) -> list[pathlib.Path]:
        """Returns the paths of the records, oldest first."""
        found = {path: records.step_of(path) for path in self._folder.glob('commit-*.json')}
        return sorted((path for path, step in found.items() if step is not None), key=lambda path: found[path] or 0)

    def _beyond(self, every: Sequence[Commit]) -> list[Commit]:
        """Returns those of all commits that are beyond the limit."""
        number = len(every) - self._keep if self._keep else 0
        return [commit for commit in every[: max(number, 0)] if not commit.stays]

    def _prune(self, every: Sequence[Commit]) -> list[Commit]:
        """Removes those of all commits that are beyond the limit, and returns those that are left."""
        going = self._beyond(every)
        for commit in going:  # the records go first: what they vouched for may then
            (self._folder / records.file_name(commit.step)).unlink()
        left = [commit for commit in every if commit not in going]
        for commit in going:
            self._remove_files(commit, left)
        return left

    def _remove_files(self, commit: Commit, left: Sequence[Commit]) -> None:
        if commit.foreign or os.path.dirname(commit.checkpoint):
            return  # we save into the run directory itself: this is somebody else's
        named = {'', *(prefix for one in left for prefix in (one.checkpoint, one.side_file))}
        for prefix in {commit.checkpoint, commit.side_file} - named:
            _remove(integrity.remains_of(os.path.join(self._directory.path, prefix)))


def _set_aside(bad: Collection[pathlib.Path], good: Commit) -> None:
    """Renames the records of damaged commits that are newer than one that holds."""
    if not bad:
        return
    for path in bad:
        path.rename(path.with_name(path.name + _BAD))
    logging.error('Going on from the commit before: step %s.', good.step)


def _best_of(commit: Commit) -> list[int]:
    """Returns the steps of the best checkpoints that a commit names, best first."""
    return [int(step) for step, _ in commit.state.get('keep_best', {}).get('kept', [])]


def _with_files_of(previous: Commit, commit: Commit) -> Commit:
    names = ('checkpoint', 'stays', 'foreign', 'files', 'side_file', 'position')
    return dataclasses.replace(commit, **{name: getattr(previous, name) for name in names})


def _json(path: pathlib.Path) -> dict[str, Any] | None:
    """Returns what a file of ours holds, None where it is damaged."""
    try:
        content = json.loads(path.read_text(encoding='utf-8'))
    except ValueError:
        content = None
    if not isinstance(content, dict):
        logging.warning('`%s` is damaged, so nothing is taken back by it.', path)
        return None
    return content


def _remove(paths: Sequence[str]) -> None:
    for path in paths:
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)
