"""`metrics.csv`."""

import csv
import math

import numpy as np
import pytest

from framework import run_dir
from framework.reporting import csv_file, rows


@pytest.fixture
def directory(tmp_path):
    return run_dir.RunDir(tmp_path)


def _tell(directory, **metrics):
    writer = csv_file.CsvWriter(directory)
    writer.write_step(rows.StepRow(20, 0.1, 64.0, metrics={'accuracy': np.float32(0.5)}))
    writer.write_pass(rows.PassRow(np.int64(20), 'valid', metrics, 1, 1, 0.1))
    writer.flush()
    writer.close()
    writer.close()


def test_there_is_a_line_a_metric(directory):
    _tell(directory, loss=np.float64(0.1), n=np.int32(3), image=b'x', curve=np.array([1, 2]), a=math.nan)
    with open(directory.csv_file, newline='') as file:
        assert list(csv.reader(file)) == [
            ['step', 'stream', 'metric', 'value'],
            ['20', 'train', 'accuracy', '0.5'],
            ['20', 'train', 'loss', '0.1'],
            ['20', 'valid', 'a', 'NaN'],
            ['20', 'valid', 'curve', '[1, 2]'],
            ['20', 'valid', 'loss', '0.1'],
            ['20', 'valid', 'n', '3'],
        ]


@pytest.mark.parametrize('torn', ['', '20,valid,lo'])
def test_a_file_goes_on_without_another_header_on_a_line_of_its_own(directory, torn):
    _tell(directory, loss=0.5)
    with open(directory.csv_file, 'a') as file:
        file.write(torn)
    _tell(directory, loss=0.25)
    with open(directory.csv_file) as file:
        lines = file.read().splitlines()
    assert lines.count('step,stream,metric,value') == 1
    assert lines[-1] == '20,valid,loss,0.25' and lines[-3] == '20,train,accuracy,0.5'


def test_a_writer_without_rows_leaves_no_file(directory, tmp_path):
    writer = csv_file.CsvWriter(directory)
    writer.flush()
    writer.close()
    assert not list(tmp_path.iterdir())
