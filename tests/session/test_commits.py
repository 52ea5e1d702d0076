"""Commits: records that vouch for files."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import errors, run_dir, testing
from framework.session import commits

HOUR = 3600


class _Run:
    """A model of one variable that is its global step, in a session, saving into a directory."""

    def __init__(self, path, session, clock, saver):
        self.directory = run_dir.RunDir(path)
        self.session = session
        self.saver = saver
        self._clock = clock
        self.last = None
        self.open()

    def open(self, **settings):
        """What a new process does: only the files know the past."""
        self.commits = commits.Commits(self.directory, clock=self._clock, **settings)
        self.last = self.commits.latest()

    def save(self, step, runs=None, **fields):
        self.session.run('assign', {'value:0': step})
        commit = commits.Commit(step, step - 1, runs=step if runs is None else runs, **fields)
        self.last = self.commits.save(self.session, self.saver, commit, self.last)
        return self.last

    def path(self, name):
        return os.path.join(self.directory.path, name)

    @property
    def steps(self):
        return sorted(int(name.split('-')[1].split('.')[0]) for name in os.listdir(self.directory.commits))

    @property
    def files(self):
        """Steps of the checkpoints whose files are there."""
        names = os.listdir(self.directory.path)
        return sorted({int(name.split('-')[1].split('.')[0]) for name in names if name.startswith('model.ckpt-')})


@pytest.fixture
def run(tmp_path, clock):
    step = v1.train.create_global_step()
    step.assign(v1.placeholder(tf.int64, [], 'value'), name='assign')
    saver = v1.train.Saver(max_to_keep=1)  # a user's, which would delete what commits name
    clock.advance(1_700_000_000)
    with v1.Session() as session:
        session.run(step.initializer)
        yield _Run(str(tmp_path / 'run'), session, clock, saver)


@pytest.fixture(autouse=True)
def directory(tmp_path):
    (tmp_path / 'run').mkdir()


# Records.


def test_a_directory_without_anything_has_no_commit(run):
    assert run.commits.latest() is None


def test_a_commit_is_read_as_it_was_saved(run, clock):
    passes = {'valid': commits.LastPass(2, {'accuracy': np.float32(0.1), 'loss': np.float64(0.5), 'n': np.int64(3)})}
    saved = run.save(3, passes=passes, exhausted=True, seed=7, runs=9)
    run.open()
    assert run.last == saved
    assert run.last.passes['valid'].metrics['accuracy'] == float(np.float32(0.1))
    expected = commits.Commit(
        3, 2, 'model.ckpt-3', passes, True, 7, 9, files=saved.files, saved_at=clock(), stayed_at=clock()
    )
    assert sorted(saved.files) == ['model.ckpt-3.data-00000-of-00001', 'model.ckpt-3.index']
    assert saved == expected


def test_metrics_that_are_not_finite_survive(run):
    run.save(1, passes={'valid': commits.LastPass(1, {'loss': np.float32('nan')})})
    run.open()
    assert np.isnan(run.last.passes['valid'].metrics['loss'])


def test_the_newest_commit_is_the_one_of_the_largest_step(run):
    for step in (2, 10, 9):
        run.save(step)
    run.open()
    assert run.last.step == 10
    assert run.commits.newest_path() == run.path('model.ckpt-10')


def test_the_record_is_written_last(run, monkeypatch):
    def die(path, content):
        if 'commit-' in os.fspath(path):
            assert os.path.exists(run.path('model.ckpt-5.index'))
            raise KeyboardInterrupt
        write(path, content)

    run.save(1)
    write = run_dir.write_atomically
    monkeypatch.setattr(run_dir, 'write_atomically', die)
    with pytest.raises(KeyboardInterrupt):
        run.save(5)
    run.open()
    assert run.last.step == 1
    assert v1.train.latest_checkpoint(run.directory.path) == run.path('model.ckpt-1')


def test_a_commit_holds_the_values_of_its_step(run):
    for step in (1, 2):
        run.save(step)
    assert [testing.checkpoint_values(run.path(f'model.ckpt-{step}')) for step in (1, 2)] == [
        {'global_step': 1},
        {'global_step': 2},
    ]


def test_a_second_commit_of_the_same_runs_keeps_the_files(run):
    run.save(4)
    before = os.stat(run.path('model.ckpt-4.index'))
    again = run.save(4, passes={'valid': commits.LastPass(4, {'loss': 1.0})})
    assert again.checkpoint == 'model.ckpt-4'
    assert os.stat(run.path('model.ckpt-4.index')) == before
    run.open()
    assert run.last.passes['valid'].step == 4


def test_runs_that_did_not_move_the_step_are_saved_anew(run):
    run.save(4, runs=8)
    os.remove(run.path('model.ckpt-4.index'))
    run.save(4, runs=9)
    run.open()
    assert (run.last.step, run.last.runs) == (4, 9)


# Damage.


@pytest.mark.parametrize(
    'text',
    ['', '{', '[]', '{"step": 5}', '{"step": 5, "previous_step": 4, "passes": {}, "unknown": 1}', '{"passes": 3}'],
)
def test_a_damaged_record_is_an_error_that_names_it(run, text):
    run.save(5)
    record = run.path('commits/commit-5.json')
    with open(record, 'w', encoding='utf-8') as file:
        file.write(text)
    with pytest.raises(
        errors.RunDirectoryError, match=r'commit-5\.json` is damaged .*Remove it to go on from the'
    ) as e:
        run.open()
    assert e.value.exit_code == 3


def test_a_damaged_record_can_be_removed_to_go_on_from_the_commit_before(run):
    run.save(4)
    run.save(5)
    os.remove(run.path('commits/commit-5.json'))
    run.open()
    assert run.last.step == 4


def test_a_damaged_old_record_does_not_end_a_run_that_just_saved(run):
    for step in (1, 2):
        run.save(step)
    with open(run.path('commits/commit-1.json'), 'w', encoding='utf-8'):
        pass
    run.save(3)
    run.open()
    assert run.last.step == 3


def test_missing_files_are_an_error_that_names_them(run):
    run.save(5)
    os.remove(run.path('model.ckpt-5.index'))
    with pytest.raises(
        errors.RunDirectoryError, match=r'model\.ckpt-5\.index` is missing, which the newest commit \[step 5\]'
    ):
        run.open()


def test_other_files_among_the_records_are_left_alone(run):
    run.save(5)
    for name in ('commit-6.json.123.tmp', 'commit-x.json', 'notes.txt'):
        with open(run.path(f'commits/{name}'), 'w', encoding='utf-8'):
            pass
    run.open()
    assert run.last.step == 5


def test_newest_path_of_an_empty_directory_says_what_to_do(run):
    with pytest.raises(errors.RunDirectoryError, match=r'holds no checkpoint\. Train first'):
        run.commits.newest_path()


# Retention.


def test_the_last_commits_stay(run):
    run.open(keep=3)
    for step in range(6):
        run.save(step)
    assert run.steps == run.files == [3, 4, 5]


def test_the_limit_counts_over_restarts(run):
    for step in range(6):
        run.open(keep=3)
        run.save(step)
    assert run.steps == run.files == [3, 4, 5]


def test_a_lowered_limit_removes_what_is_beyond_it(run):
    run.open(keep=5)
    for step in range(5):
        run.save(step)
    run.open(keep=2)
    run.save(5)
    assert run.steps == run.files == [4, 5]


@pytest.mark.parametrize('keep', [None, 0])
def test_no_limit_keeps_all(run, keep):
    run.open(keep=keep)
    for step in range(8):
        run.save(step)
    assert run.steps == run.files == list(range(8))


def test_one_commit_every_n_hours_stays_beyond_the_limit(run, clock):
    # hours   0  1  2  3  4  5  6  7       one stays at 3 and 6, the newest two anyway
    run.open(keep=2, keep_every_n_hours=3)
    for step in range(8):
        run.save(step)
        clock.advance(HOUR)
    assert run.steps == run.files == [3, 6, 7]
    run.save(8)
    assert run.steps == run.files == [3, 6, 7, 8]


def test_the_hours_count_over_restarts(run, clock):
    for step in range(8):
        run.open(keep=1, keep_every_n_hours=3)
        run.save(step)
        clock.advance(HOUR)
    assert run.steps == run.files == [3, 6, 7]


def test_a_commit_that_stays_does_so_when_its_step_is_committed_again(run, clock):
    run.open(keep=1, keep_every_n_hours=3)
    run.save(1)
    clock.advance(3 * HOUR)
    assert run.save(2).stays
    assert run.save(2, passes={'valid': commits.LastPass(2, {})}).stays
    run.save(3)
    assert run.steps == [2, 3]


def test_without_hours_none_stays(run, clock):
    run.open(keep=1, keep_every_n_hours=None)
    for step in range(3):
        run.save(step)
        clock.advance(10**9)
    assert run.steps == [2]


def test_only_files_that_a_commit_names_are_removed(run):
    run.open(keep=1)
    for name in ('model.ckpt-1x.index', 'model.ckpt-10.index', 'mine.txt'):
        with open(run.path(name), 'w', encoding='utf-8'):
            pass
    run.save(1)
    run.save(2)
    left = set(os.listdir(run.directory.path))
    assert {'model.ckpt-1x.index', 'model.ckpt-10.index', 'mine.txt', 'model.ckpt-2.index'} <= left
    assert 'model.ckpt-1.index' not in left


# TensorFlow's own file.


def test_tensorflow_finds_the_checkpoints_after_the_directory_moved(run, tmp_path):
    run.open(keep=2)
    for step in (1, 2, 3):
        run.save(step)
    with open(run.path('checkpoint'), encoding='utf-8') as file:
        assert str(tmp_path) not in file.read()
    moved = str(tmp_path / 'moved')
    os.rename(run.directory.path, moved)
    assert tf.train.latest_checkpoint(moved) == os.path.join(moved, 'model.ckpt-3')
    state = tf.train.get_checkpoint_state(moved)
    assert list(state.all_model_checkpoint_paths) == [os.path.join(moved, f'model.ckpt-{step}') for step in (2, 3)]
    assert commits.Commits(run_dir.RunDir(moved)).newest_path() == os.path.join(moved, 'model.ckpt-3')


def test_a_relative_run_directory_names_the_same_files(run, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    run.directory = run_dir.RunDir('run')
    run.open()
    run.save(1)
    assert tf.train.latest_checkpoint(str(tmp_path / 'run')) == str(tmp_path / 'run' / 'model.ckpt-1')


def _foreign(run, name='model.ckpt'):
    """Saves as tf.estimator did: without commits."""
    run.session.run('assign', {'value:0': 100})
    return v1.train.Saver(save_relative_paths=True).save(run.session, run.path(name), global_step=100)


def test_a_directory_of_estimator_is_gone_on_from(run, clock):
    path = _foreign(run)
    run.open()
    assert run.last == commits.Commit(100, 100, 'model.ckpt-100', stayed_at=clock(), foreign=True)
    assert run.commits.newest_path() == path


def test_the_first_commit_after_estimators_is_pruned_as_any(run):
    _foreign(run)
    run.open(keep=1)
    for step in (101, 102):
        run.save(step)
    assert run.steps == [102]


def test_passes_over_estimators_checkpoint_are_committed_with_its_files(run):
    _foreign(run)
    run.open()
    saved = run.save(100, runs=0, passes={'valid': commits.LastPass(100, {'loss': 1.0})})
    assert saved.checkpoint == 'model.ckpt-100'
    run.open()
    assert run.last == saved


def test_files_that_our_commits_did_not_write_are_never_removed(run):
    path = _foreign(run)
    run.open(keep=1)
    run.save(100, runs=0, passes={'valid': commits.LastPass(100, {'loss': 1.0})})  # of our record, with their files
    for step in (101, 102):
        run.open(keep=1)
        run.save(step)
    assert run.steps == [102]
    assert run.files == [100, 102]
    assert os.path.exists(f'{path}.index')


@pytest.mark.parametrize('named', ['absolute', 'relative'])
def test_a_checkpoint_of_another_run_is_refused_with_its_remedy(run, tmp_path, named):
    (tmp_path / 'other').mkdir()
    path = _foreign(run, '../other/model.ckpt')
    shown = os.path.realpath(path) if named == 'absolute' else '../other/model.ckpt-100'
    with open(run.path('checkpoint'), 'w', encoding='utf-8') as file:
        file.write(f'model_checkpoint_path: "{shown}"\n')
    text = (
        r'/checkpoint` names `.*other/model\.ckpt-100`, which lies outside .* Copy `.*\.\*` .*"model\.ckpt-100"` into'
    )
    with pytest.raises(errors.RunDirectoryError, match=text):
        run.open()


def test_a_run_directory_behind_a_link_holds_its_own_checkpoints(run, tmp_path):
    _foreign(run)
    with open(run.path('checkpoint'), 'w', encoding='utf-8') as file:
        file.write(f'model_checkpoint_path: "{os.path.realpath(run.path("model.ckpt-100"))}"\n')
    os.symlink(run.directory.path, tmp_path / 'link')
    assert commits.Commits(run_dir.RunDir(tmp_path / 'link')).latest().checkpoint == 'model.ckpt-100'


def test_a_record_that_names_files_outside_its_directory_takes_only_itself_away(run, tmp_path):
    (tmp_path / 'other').mkdir()
    _foreign(run, '../other/model.ckpt')
    run.save(1)
    with open(run.path('commits/commit-1.json'), encoding='utf-8') as file:
        record = {**json.load(file), 'checkpoint': '../other/model.ckpt-100'}
    with open(run.path('commits/commit-1.json'), 'w', encoding='utf-8') as file:
        json.dump(record, file)
    run.open(keep=1)
    run.save(2)
    assert run.steps == [2]
    assert (tmp_path / 'other' / 'model.ckpt-100.index').exists()


def test_commits_win_over_tensorflows_file(run):
    run.save(7)
    _foreign(run)
    run.open()
    assert run.last.step == 7


def test_a_file_that_names_checkpoints_that_are_gone_is_an_error_and_no_new_start(run):
    path = _foreign(run)
    os.remove(f'{path}.index')
    with pytest.raises(errors.RunDirectoryError, match=r'checkpoint` names no checkpoint that is there'):
        run.open()


def test_a_checkpoint_without_a_global_step_is_an_error(run):
    other = v1.get_variable('other', [], initializer=tf.zeros_initializer())
    run.session.run(other.initializer)
    v1.train.Saver([other]).save(run.session, run.path('model.ckpt'))
    with pytest.raises(errors.RunDirectoryError, match='holds no readable `global_step`'):
        run.open()


def test_a_record_is_json_that_others_can_read(run):
    run.save(3)
    with open(run.path('commits/commit-3.json'), encoding='utf-8') as file:
        record = json.load(file)
    assert (record['step'], record['checkpoint']) == (3, 'model.ckpt-3')
