"""Writes the metrics of a run as comma-separated values."""

import csv
import io
import os
from typing import Any, TextIO

from framework import run_dir
from framework.reporting import rows, values, writers

_COLUMNS = ('step', 'stream', 'metric', 'value')


class CsvWriter(writers.Writer):
    """Writes `metrics.csv`: a line for each metric of each log period and pass, `step,stream,metric,value`.

    It is one of `Experiment.writers`: `[@CsvWriter]` in gin. Values are as in `metrics.jsonl`: floats are exact, those
    that are not finite are `NaN`, `Infinity` and `-Infinity`; arrays are written as lists, bytes are left out. A run
    that goes on from a commit takes the file back to it.

    Args:
        directory: The run directory.
    """

    def __init__(self, directory: run_dir.RunDir):
        self._path = directory.csv_file
        self._file: TextIO | None = None
        self._lines: Any = None

    def write_step(self, row: rows.StepRow) -> None:
        """Appends a line for each metric."""
        self._append(row.step, run_dir.TRAIN, writers.step_metrics(row))

    def write_pass(self, row: rows.PassRow) -> None:
        """Appends a line for each metric."""
        self._append(row.step, row.stream, row.metrics)

    def flush(self) -> None:
        """Makes the lines last."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _append(self, step: int, stream: str, metrics: rows.Metrics) -> None:
        if self._file is None:
            file = writers.open_at_line_start(self._path)
            is_new = file.tell() == 0
            self._file = io.TextIOWrapper(file, encoding='utf-8', newline='')
            self._lines = csv.writer(self._file, lineterminator='\n')
            if is_new:
                self._lines.writerow(_COLUMNS)
        for name, value in sorted(values.metrics_to_json(metrics).items()):
            self._lines.writerow((int(step), stream, name, value))
        self._file.flush()
