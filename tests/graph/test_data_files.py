"""The files that a stream reads."""

import pytest
import tensorflow as tf

from framework import inputs
from framework.graph import data_files, sources


def _source(input_fn):
    return sources.train_source(input_fn, None, None)


@pytest.fixture
def records(tmp_path):
    paths = [str(tmp_path / f'{name}.tfrecord') for name in 'ab']
    for path in paths:
        with tf.io.TFRecordWriter(path) as writer:
            writer.write(b'')
    return paths


def test_the_files_of_records_are_found(records):
    assert data_files.files_of(_source(lambda: tf.data.TFRecordDataset(records))) == records


def test_the_files_of_our_own_reader_are_found(records):
    spec = {'x': tf.io.FixedLenFeature([], tf.float32)}
    found = _source(lambda mode: inputs.from_tfrecords(records, spec, mode=mode, batch_size=2))
    assert data_files.files_of(found) == records


def test_words_that_are_no_files_are_none(records, tmp_path):
    words = ['cat', str(tmp_path / 'not there'), records[0]]
    assert data_files.files_of(_source(lambda: tf.data.Dataset.from_tensor_slices(words))) == [records[0]]


def test_arrays_are_in_no_file():
    assert data_files.files_of(_source(lambda: tf.data.Dataset.range(3))) == []
