"""Kill it at any moment, run the same command again, get the same bits: real processes, real SIGKILL."""

import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from framework import run_dir, testing
from framework.session import commits

CHILD = pathlib.Path(__file__).with_name('child.py')
LIMIT_SECS = 90
POINTS = ['before a save', 'inside a save', 'between save and record', 'after an evaluation', 'with a torn record']
KILLS = 5


@contextlib.contextmanager
def _started(directory, fuse, *arguments):
    """A start in a process group of its own, which is gone at the end whatever happens."""
    root = pathlib.Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, str(CHILD), str(directory), fuse, *map(str, arguments)],
        env={**os.environ, 'PYTHONPATH': str(root)},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _finish(directory, fuse):
    with _started(directory, fuse) as process:
        said = process.communicate(timeout=LIMIT_SECS)[1]
        assert process.returncode == 0, said[-3000:]


def _is_beyond_its_commits(directory):
    """Whether the run has told of something that is in no commit."""
    found = commits.Commits(run_dir.RunDir(directory)).every()
    known = found[-1].lengths.get('metrics.jsonl', 0) if found else 0
    return _told(directory) > known


def _told(directory):
    """Returns the size of the lines; a start takes away what is in no commit."""
    with contextlib.suppress(FileNotFoundError):
        return (directory / 'metrics.jsonl').stat().st_size
    return 0


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
    """The directory of a run that was never interrupted, each of whose steps was a run of its own."""
    directory = tmp_path_factory.mktemp('whole')
    _finish(directory, 'off')
    return directory


def assert_same(directory, whole):
    """Every array, every line but its time, every event but rates and wall times."""
    newest = commits.Commits(run_dir.RunDir(directory)).newest_path()
    assert os.path.basename(newest) == 'model.ckpt-90'
    arrays, expected = testing.checkpoint_values(newest), testing.checkpoint_values(str(whole / 'model.ckpt-90'))
    assert arrays.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(arrays[name], value, err_msg=name)
    assert testing.json_lines(directory / 'metrics.jsonl', 'time') == testing.json_lines(
        whole / 'metrics.jsonl', 'time'
    )
    assert testing.json_lines(directory / 'timeline.jsonl', 'secs') == testing.json_lines(
        whole / 'timeline.jsonl', 'secs'
    )
    for name in ('.', 'eval_valid'):
        assert testing.event_values(directory / name) == testing.event_values(whole / name)
    assert (
        json.loads((directory / 'result.json').read_text())['best']['kept']
        == (json.loads((whole / 'result.json').read_text())['best']['kept'])
    )


def test_two_runs_that_nobody_interrupts_are_the_same(whole, tmp_path):
    _finish(tmp_path, 'require')
    assert_same(tmp_path, whole)
    assert (
        len(testing.json_lines(whole / 'metrics.jsonl')) == 90 // 7 + 5
    )  # lines of training; passes at 20, 40, 60, 80, 90


def test_a_run_that_is_killed_at_every_point_is_the_same(whole, tmp_path):
    # Each start goes on where the commits before allow, and dies at the second chance of its point: beyond a commit.
    # Fused and not, by turns.
    for i, point in enumerate(POINTS):
        with _started(tmp_path, 'off' if i % 2 else 'require', point, 2) as process:
            assert process.wait(LIMIT_SECS) == -signal.SIGKILL, process.stderr.read()[-3000:]
        assert _is_beyond_its_commits(tmp_path), point
    _finish(tmp_path, 'off')
    assert_same(tmp_path, whole)


def test_a_run_that_is_killed_at_random_is_the_same(whole, tmp_path):
    generator = random.Random(0)
    kills = 0
    for _ in range(3 * KILLS):
        with _started(tmp_path, 'require') as process:
            end = time.monotonic() + LIMIT_SECS
            told = _told(tmp_path)
            while not (_is_beyond_its_commits(tmp_path) and _told(tmp_path) != told):
                assert time.monotonic() < end
                if process.poll() is not None:
                    break
                time.sleep(0.005)
            time.sleep(generator.uniform(0.0, 0.2))
            process.kill()
            if process.wait() != -signal.SIGKILL:
                break
            kills += _is_beyond_its_commits(tmp_path)
        if kills == KILLS:
            break
    assert kills >= 3, 'the run ended before it could be killed'
    _finish(tmp_path, 'require')
    assert_same(tmp_path, whole)


def test_a_second_process_in_the_directory_is_refused_at_once_and_told_of_the_first(tmp_path):
    with run_dir.RunDir(tmp_path).locked(), _started(tmp_path, 'auto') as process:
        said = process.communicate(timeout=LIMIT_SECS)[1]
    assert f'is in use by process {os.getpid()}' in said


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 8 MiB, where this machine lets us make one."""
    made = subprocess.run(
        ['mount', '-t', 'tmpfs', '-o', 'size=8m', 'tmpfs', str(tmp_path)], capture_output=True, check=False
    )
    if made.returncode != 0:
        pytest.skip('this machine mounts no file systems for us')
    yield tmp_path
    subprocess.run(['umount', '--lazy', str(tmp_path)], check=True)


def _fill(directory, left):
    """Takes all of a small disk but so many bytes."""
    free = os.statvfs(directory).f_bavail * os.statvfs(directory).f_frsize
    (directory / 'filler').write_bytes(b'x' * (free - left))


def test_a_full_disk_is_said_and_the_same_command_goes_on_when_there_is_space(whole, small_disk):
    size = sum(path.stat().st_size for path in whole.glob('*-90.*'))
    curves = sum(path.stat().st_size for path in whole.glob('events*'))
    _fill(small_disk, left=int(2.5 * size) + curves)
    with _started(small_disk / 'run', 'require') as process:
        said = process.communicate(timeout=LIMIT_SECS)[1]
    assert process.returncode == 1 and 'A disk is full' in said and 'the same command goes on' in said, said[-3000:]
    assert commits.Commits(run_dir.RunDir(small_disk / 'run')).every(), 'what was saved before is whole'
    (small_disk / 'filler').unlink()
    _finish(small_disk / 'run', 'require')
    assert_same(small_disk / 'run', whole)
