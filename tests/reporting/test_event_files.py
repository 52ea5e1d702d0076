"""Event files: what is written, and what happens to errors in the thread that writes."""

import glob
import os
import shutil

import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import errors
from framework.reporting import event_files


@pytest.fixture
def files():
    files = event_files.EventFiles()
    yield files
    files.close()


def _event(step):
    return v1.Event(step=step, summary=v1.Summary(value=[v1.Summary.Value(tag='x', simple_value=step)]))


def _path(directory):
    (path,) = glob.glob(os.path.join(directory, '*'))
    return path


def _steps(directory):
    return [event.step for event in v1.train.summary_iterator(_path(directory)) if event.summary.value]


def test_all_events_are_in_the_files_after_a_flush(files, tmp_path):
    for step in range(500):
        files.add(str(tmp_path / 'a' / 'b'), _event(step))
    files.add(str(tmp_path / 'c'), _event(7))
    files.flush()
    assert _steps(tmp_path / 'a' / 'b') == list(range(500))
    assert _steps(tmp_path / 'c') == [7]


def test_files_begin_with_the_version_that_readers_expect(files, tmp_path):
    files.add(str(tmp_path), _event(1))
    files.flush()
    first = next(v1.train.summary_iterator(_path(tmp_path)))
    assert first.file_version == 'brain.Event:2'


def test_without_events_nothing_is_made(tmp_path, files):
    files.flush()
    files.close()
    assert not os.listdir(tmp_path)


def test_closing_writes_what_is_left_and_may_be_repeated(files, tmp_path):
    files.add(str(tmp_path), _event(1))
    files.close()
    files.close()
    assert _steps(tmp_path) == [1]


def test_a_reader_sees_events_without_a_flush(files, tmp_path, monkeypatch):
    monkeypatch.setattr(event_files, '_FLUSH_SECS', 0.0)
    files.add(str(tmp_path), _event(1))
    files._jobs.join()
    files.add(str(tmp_path), _event(2))  # by now the thread has found nothing to do once, or does so soon
    while _steps(tmp_path) != [1, 2]:
        pass


def test_a_removed_directory_is_said_by_the_next_flush_and_by_every_call_after_it(files, tmp_path):
    directory = tmp_path / 'a'
    files.add(str(directory), _event(1))
    files.flush()
    shutil.rmtree(directory)
    files.add(str(directory), _event(2))
    with pytest.raises(errors.RunError, match=r'^`.*\.run` was removed while the run wrote .*start it again'):
        files.flush()
    with pytest.raises(errors.RunError, match='was removed'):
        files.add(str(directory), _event(3))
    files.close()  # it was said


def test_an_error_that_nobody_saw_is_raised_by_closing(files, tmp_path):
    files.add(str(tmp_path / 'a'), _event(1))
    files.flush()
    shutil.rmtree(tmp_path / 'a')
    with pytest.raises(errors.RunError, match='was removed'):
        files.close()
    files.close()


def test_a_full_disk_ends_the_next_call_and_nothing_is_written_behind_the_lost_event(files, tmp_path, monkeypatch):
    monkeypatch.setattr(event_files.tf.io, 'TFRecordWriter', lambda path, make=tf.io.TFRecordWriter: make('/dev/full'))
    files.add(str(tmp_path), _event(1))
    with pytest.raises(errors.RunError, match=r'Events can not be written to `.*` \[.*No space left on device'):
        files.flush()


def test_a_directory_that_can_not_be_made_is_said_at_once(files, tmp_path):
    (tmp_path / 'file').touch()
    with pytest.raises(errors.RunError, match=r'Events can not be written to `.*file/a/events.*` \[.*Not a directory'):
        files.add(str(tmp_path / 'file' / 'a'), _event(1))
