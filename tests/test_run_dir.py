"""The run directory: names, lock, atomic writes."""

import os
import subprocess
import sys

import pytest
from tensorflow.compat import v1

from framework import errors, run_dir

# The lock as another program sees it: a flock on `lock`, and who holds it in `lock.pid`.
_HOLDER = """
import os, sys, filelock
lock = filelock.FileLock(os.path.join(sys.argv[1], 'lock'))
lock.acquire()
with open(os.path.join(sys.argv[1], 'lock.pid'), 'w') as file:
    file.write(str(os.getpid()))
print('held', flush=True)
sys.stdin.read()
"""


def test_files_lie_where_the_design_says():
    directory = run_dir.RunDir('runs/digits')
    paths = {
        directory.checkpoint_prefix: 'model.ckpt',
        directory.commits: 'commits',
        directory.metrics_file: 'metrics.jsonl',
        directory.timeline_file: 'timeline.jsonl',
        directory.result_file: 'result.json',
        directory.config_file: 'config.gin',
        directory.operative_config_file: 'operative_config.gin',
        directory.provenance_file: 'provenance.json',
    }
    assert list(paths) == [f'runs/digits/{name}' for name in paths.values()]


@pytest.mark.parametrize(
    ('stream', 'expected'),
    [('train', 'runs/digits'), ('eval', 'runs/digits/eval'), ('valid', 'runs/digits/eval_valid')],
)
def test_event_files_lie_where_estimator_put_them(stream, expected):
    assert run_dir.RunDir('runs/digits').events_dir(stream) == expected


def test_naming_files_touches_nothing(tmp_path):
    directory = run_dir.RunDir(tmp_path / 'new')
    assert directory.commits and directory.events_dir('valid')
    assert not os.path.exists(directory.path)


def test_an_address_is_no_run_directory():
    with pytest.raises(errors.RunDirectoryError, match=r'`model_dir` \[gs://bucket/run\] is an address'):
        run_dir.RunDir('gs://bucket/run')


@pytest.mark.parametrize('name', ['lr[0.1]', 'a]', 'a*', 'a?', 'a\\b'])
def test_a_path_that_tensorflow_takes_for_a_pattern_is_refused(name):
    text = (
        r'`model_dir` \[.*\] holds .*, which TensorFlow takes for a pattern .* Choose a path without any of \[ \] \* '
    )
    with pytest.raises(errors.RunDirectoryError, match=text):
        run_dir.RunDir(os.path.join('runs', name, 'digits'))


@pytest.mark.parametrize('name', ['a{b,c}', 'lr=0.1, batch 4', '~a', 'größe'])
def test_a_checkpoint_in_a_path_that_is_accepted_can_be_restored(tmp_path, name):
    directory = run_dir.RunDir(tmp_path / name)
    v1.get_variable('count', initializer=3.0)
    saver = v1.train.Saver()
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        saver.restore(session, saver.save(session, directory.checkpoint_prefix))


def test_a_second_process_is_refused_until_the_first_one_dies(tmp_path):
    command = [sys.executable, '-c', _HOLDER, str(tmp_path)]
    directory = run_dir.RunDir(tmp_path)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b'held\n'
            with (
                pytest.raises(errors.RunDirectoryError, match=f'is in use by process {process.pid}:.*`model_dir`'),
                directory.locked(),
            ):
                pass
        finally:
            process.kill()
            process.wait()
    with directory.locked():
        pass


def test_the_refusal_names_the_process_that_trains(tmp_path):
    directory = run_dir.RunDir(tmp_path / 'new')
    refusal = pytest.raises(errors.RunDirectoryError, match=f'in use by process {os.getpid()} on ')
    with directory.locked(), refusal as caught, directory.locked():
        pass
    assert caught.value.exit_code == 3


def test_a_refused_process_leaves_the_lock_with_its_holder(tmp_path):
    directory = run_dir.RunDir(tmp_path)
    with directory.locked():
        for _ in range(2):
            with (
                pytest.raises(errors.RunDirectoryError, match=f'in use by process {os.getpid()} '),
                run_dir.RunDir(tmp_path).locked(),
            ):
                pass


def test_the_lock_is_free_after_an_error_in_the_run(tmp_path):
    directory = run_dir.RunDir(tmp_path)
    with pytest.raises(OSError, match='the disk is full'), directory.locked():
        raise OSError('the disk is full')
    with directory.locked():
        pass


def test_a_file_in_place_of_the_directory_is_refused(tmp_path):
    (tmp_path / 'run').write_text('')
    with (
        pytest.raises(errors.RunDirectoryError, match='run` is a file, and a run needs a directory'),
        run_dir.RunDir(tmp_path / 'run').locked(),
    ):
        pass


def test_a_directory_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / 'file').write_text('')
    with (
        pytest.raises(errors.RunDirectoryError, match=r"run` can't be created or written \[.*Not a directory"),
        run_dir.RunDir(tmp_path / 'file' / 'run').locked(),
    ):
        pass


def test_a_directory_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    def refuse(path, content):
        raise PermissionError(13, 'Permission denied', path)

    with monkeypatch.context() as patch:
        patch.setattr(run_dir, '_write', refuse)
        with (
            pytest.raises(errors.RunDirectoryError, match=r"can't be created or written \[.*Permission denied"),
            run_dir.RunDir(tmp_path).locked(),
        ):
            pass
    with run_dir.RunDir(tmp_path).locked():
        pass


@pytest.mark.parametrize('content', ['step 1, é\r\n', b'\x00\xff'])
def test_atomic_writes_replace_the_content_exactly(tmp_path, content):
    path = tmp_path / 'result.json'
    path.write_text('old')
    run_dir.write_atomically(path, content)
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert os.listdir(tmp_path) == ['result.json']


def test_a_failed_atomic_write_keeps_the_old_content_and_no_rest(tmp_path, monkeypatch):
    path = tmp_path / 'result.json'
    path.write_text('old')

    def fail(source, target):
        raise OSError('no space left')

    monkeypatch.setattr(os, 'replace', fail)
    with pytest.raises(OSError, match='no space left'):
        run_dir.write_atomically(path, 'new')
    assert path.read_text() == 'old'
    assert os.listdir(tmp_path) == ['result.json']


@pytest.mark.parametrize('name', ['valid', 'test-2', 'a.b_C', '0'])
def test_ordinary_stream_names_are_accepted(name):
    run_dir.check_stream_name(name)


@pytest.mark.parametrize('name', ['', 'a/b', 'a b', 'é', 'a\n', '../up'])
def test_stream_names_that_break_paths_are_refused(name):
    with pytest.raises(errors.ConfigurationError, match=r'letters, digits, `_`, `-` and `\.` only'):
        run_dir.check_stream_name(name)


@pytest.mark.parametrize('name', ['train', 'eval'])
def test_reserved_stream_names_are_refused(name):
    with pytest.raises(errors.ConfigurationError, match=rf'must not be \[{name}\], which the framework uses itself'):
        run_dir.check_stream_name(name)


def test_stream_names_are_strings():
    with pytest.raises(TypeError, match=r'must be a string, not \[3\]'):
        run_dir.check_stream_name(3)
