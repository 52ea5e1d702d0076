"""Which commit a start goes on from, and what it finds of the process before."""

import json
import os
import pathlib

import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import errors, run_dir
from framework.reporting import rows, tensorboard, writers
from framework.session import commits
from framework.session.best import BestSteps


class _Run:
    """Commits of a variable that holds its step."""

    def __init__(self, path, session, saver):
        self.directory = run_dir.RunDir(path)
        self.path = pathlib.Path(path)
        self._session = session
        self._saver = saver
        self.last = None
        self.store = commits.Commits(self.directory)

    def save(self, step, best=(), **fields):
        self._session.run('assign', {'value:0': step})
        commit = commits.Commit(step, step - 1, runs=step, **fields)
        kept = [kept for kept, _ in fields.get('state', {}).get('keep_best', {}).get('kept', [])]
        steps = BestSteps(kept, frozenset(best))
        self.last = self.store.save(self._session, self._saver, commit, self.last, steps)
        return self.last

    def start(self):
        """What the next process does first; returns the step that it goes on from."""
        store = commits.Commits(self.directory)
        found = store.resume_point()
        store.take_up(found)
        return None if found is None else found.step


@pytest.fixture
def run(tmp_path):
    step = v1.train.create_global_step()
    step.assign(v1.placeholder(tf.int64, [], 'value'), name='assign')
    saver = v1.train.Saver(max_to_keep=None, sharded=True)
    with v1.Session() as session:
        session.run(step.initializer)
        (tmp_path / 'run').mkdir()
        yield _Run(tmp_path / 'run', session, saver)


# Damage.


def _truncate(path):
    os.truncate(path, path.stat().st_size // 2)


def _flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _empty(path):
    path.write_bytes(b'')


def _remove(path):
    path.unlink()


DAMAGES = [_truncate, _flip_a_bit, _empty, _remove]
FILES = ['model.ckpt-3.data-00000-of-00001', 'model.ckpt-3.index', 'commits/commit-3.json']


@pytest.mark.parametrize('damage', DAMAGES)
@pytest.mark.parametrize('name', FILES)
def test_a_damaged_commit_is_set_aside_for_the_one_before(run, caplog, name, damage):
    for step in (1, 2, 3):
        run.save(step)
    damage(run.path / name)
    assert run.start() == 2
    if (name, damage) != (FILES[2], _remove):  # of a record that is gone nobody knows
        assert 'commit-3.json` is damaged' in caplog.text and 'before: step 2' in caplog.text
        assert (run.path / 'commits' / 'commit-3.json.bad').exists()
    assert run.start() == 2


@pytest.mark.parametrize('name', FILES[:2])
def test_a_run_whose_commits_are_all_damaged_never_begins_again_silently(run, name):
    run.save(3)
    _truncate(run.path / name)
    with pytest.raises(
        errors.RunDirectoryError, match=r'holds 1 commits, and all are damaged: .*is not as it was writ'
    ):
        run.start()
    assert (run.path / 'commits' / 'commit-3.json').exists()


def test_a_run_goes_on_over_the_files_of_a_commit_that_was_set_aside(run):
    run.save(1)
    run.last = run.save(2)
    _truncate(run.path / 'model.ckpt-2.index')
    assert run.start() == 1
    run.last = None
    run.save(2)
    assert run.start() == 2


# What a kill leaves.


def _die_at(monkeypatch, name):
    """Ends the process, so to say, when this file is about to be written."""
    write = run_dir.write_atomically

    def die(path, content):
        if os.fspath(path).endswith(name):
            raise KeyboardInterrupt
        write(path, content)

    monkeypatch.setattr(run_dir, 'write_atomically', die)


@pytest.mark.parametrize('before', [[], [1]])
def test_what_a_save_left_that_was_killed_before_its_record_is_removed(run, monkeypatch, before):
    assert run.start() is None
    for step in before:
        run.save(step)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        _die_at(patch, 'commit-2.json')
        run.save(2)
    (run.path / 'model.ckpt-2_temp').mkdir()
    assert (run.path / 'model.ckpt-2.index').exists()
    assert run.start() == (before[-1] if before else None)
    assert not list(run.path.glob('model.ckpt-2*')) and not (run.path / 'commits' / 'saving.json').exists()


def test_a_checkpoint_that_no_save_of_ours_wrote_stays(run, monkeypatch):
    run.save(1)
    for name in ('model.ckpt-7.index', 'mine-2.index', 'events.out.tfevents.1.host'):
        (run.path / name).write_text('of the user')
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        _die_at(patch, 'commit-2.json')
        run.save(2)
    run.start()
    for name in ('model.ckpt-7.index', 'mine-2.index', 'events.out.tfevents.1.host'):
        assert (run.path / name).read_text() == 'of the user'


# Lines and curves.


class _Telling:
    def __init__(self, run):
        self.writer = writers.Writers(
            [
                writers.MetricsWriter(run.directory.metrics_file),
                writers.TimelineWriter(run.directory.timeline_file),
                tensorboard.EventWriter(run.directory.events_dir),
            ]
        )

    def at(self, step):
        self.writer.write_step(rows.StepRow(step, 1.0, 1.0))
        self.writer.write_pass(rows.PassRow(step, 'valid', {'loss': 1.0}, 1, 1, 0.1))
        self.writer.write_phase(rows.PhaseRow('train', step, 0.1))
        self.writer.flush()


def _told(run):
    """Returns the steps in every file."""
    files = [run.path / 'metrics.jsonl', run.path / 'timeline.jsonl']
    found = [[json.loads(line)['step'] for line in path.read_text().splitlines()] for path in files if path.exists()]
    scalars = [tensorboard.read_scalars(run.path), tensorboard.read_scalars(run.path / 'eval_valid')]
    return found, [[step for step, _ in points] for of in scalars for points in of.values()]


def test_what_was_told_after_the_commit_is_cut_off(run):
    assert run.start() is None
    telling = _Telling(run)
    telling.at(1)
    run.save(1)
    expected = _told(run)
    telling.at(2)
    telling.writer.close()
    second = _Telling(run)  # a start that was killed before its first commit
    second.at(2)
    second.writer.close()
    assert run.start() == 1
    assert _told(run) == expected


def test_what_was_told_before_the_first_commit_is_cut_off(run):
    run.start()
    telling = _Telling(run)
    telling.at(0)
    telling.writer.close()
    assert run.start() is None
    assert _told(run) == ([], [])


def test_what_lay_there_before_the_run_began_stays(run):
    # A run without commits, for example, whose curves the next one goes on with.
    telling = _Telling(run)
    telling.at(1)
    telling.writer.close()
    run.start()
    run.start()
    assert _told(run)[0] == [[1, 1], [1]]


def test_a_users_own_event_files_are_neither_cut_nor_removed(run):
    run.start()
    with v1.summary.FileWriter(str(run.path)) as writer:
        writer.add_summary(v1.Summary(value=[v1.Summary.Value(tag='mine', simple_value=1.0)]), 1)
    run.save(1)
    with v1.summary.FileWriter(str(run.path), filename_suffix='.mine') as writer:
        writer.add_summary(v1.Summary(value=[v1.Summary.Value(tag='mine', simple_value=1.0)]), 2)
    run.start()
    assert len(tensorboard.read_scalars(run.path)['mine']) == 2


def test_lines_that_are_missing_are_said_and_end_nothing(run, caplog):
    run.start()
    telling = _Telling(run)
    telling.at(1)
    run.save(1)
    telling.writer.close()
    (run.path / 'metrics.jsonl').write_text('')
    assert run.start() == 1
    assert 'is shorter than it was [0 of' in caplog.text


# The best checkpoints.


def _best(*steps):
    return {'keep_best': {'metric': 'valid/score', 'mode': 'max', 'kept': [[step, float(step)] for step in steps]}}


def test_the_best_of_a_commit_that_was_set_aside_give_way_to_those_of_the_one_before(run):
    run.save(1, state=_best(1), best=[1])
    run.save(2, state=_best(2), best=[2])
    _truncate(run.path / 'model.ckpt-2.index')
    assert run.start() == 1
    assert run.store.best_path() == str(run.path / 'best' / 'model.ckpt-1')
    assert v1.train.latest_checkpoint(str(run.path / 'best')) == run.store.best_path()
    assert v1.train.latest_checkpoint(str(run.path)) == str(run.path / 'model.ckpt-1')


def test_what_a_kill_left_undone_behind_the_record_is_done_by_the_next_start(run, monkeypatch):
    run.start()
    run.store = commits.Commits(run.directory, keep=1)
    run.save(1, state=_best(1), best=[1])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(commits.Commits, '_prune', _interrupt)
        run.save(2, state=_best(2), best=[2])
    assert run.start() == 2
    assert v1.train.latest_checkpoint(str(run.path)) == str(run.path / 'model.ckpt-2')
    assert v1.train.latest_checkpoint(str(run.path / 'best')) == str(run.path / 'best' / 'model.ckpt-2')


def _interrupt(*_):
    raise KeyboardInterrupt


def test_best_checkpoints_that_are_gone_are_named_no_more(run, caplog):
    run.store = commits.Commits(run.directory, keep=1)
    run.save(1, state=_best(1), best=[1])
    run.save(2, state=_best(2, 1), best=[2])
    for path in (run.path / 'best').glob('model.ckpt-1.*'):
        path.unlink()
    store = commits.Commits(run.directory, keep=1)
    assert store.take_up(store.resume_point()).state['keep_best']['kept'] == [[2, 2.0]]
    assert 'those of the steps [1] are gone' in caplog.text


def test_lines_of_a_run_that_began_with_a_foreign_checkpoint_stay(run):
    run.save(1)
    for path in (run.path / 'commits').iterdir():
        path.unlink()
    found = run.store.resume_point()
    assert found.foreign
    run.store.take_up(found)
    telling = _Telling(run)
    telling.at(1)
    run.last = found
    run.last = run.store.save(run._session, run._saver, commits.Commit(1, 1, runs=0), found)
    telling.writer.close()
    expected = _told(run)
    assert run.start() == 1 and _told(run) == expected
