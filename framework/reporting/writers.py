"""The interface of everything that tells about a run, and the writers of its JSON files."""

import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, BinaryIO, Protocol

from framework import run_dir
from framework.reporting import rows, values


class Writer:
    """Is told what happens in a run, and passes it on to people or files; `Experiment.writers` are some of your own.

    Every method does nothing here: override those that you need. They are called from one thread, in the order of
    the run. Steps never decrease, but several rows may share one: a step's summaries, its log line and the passes
    over each set. A writer opens its files at its first row, so that a writer without rows leaves nothing behind.
    After `close` a writer may not be used.

    An error that a method raises ends the run. A run that was killed goes on from its newest commit, and tells again
    what came after that: see `StartRow.step`.

    Attributes:
        wants_progress: Whether `write_progress` is called.
    """

    wants_progress = False

    def write_start(self, row: rows.StartRow) -> None:
        """Is told what the run is, before anything else."""

    def write_step(self, row: rows.StepRow) -> None:
        """Is told the loss and the rate at the end of a log period of training."""

    def write_progress(self, row: rows.ProgressRow) -> None:
        """Is told where the run is, several times a second."""

    def write_summary(self, row: rows.SummaryRow) -> None:
        """Is told the summaries and the loss of one train run."""

    def write_pass(self, row: rows.PassRow) -> None:
        """Is told the metrics of a finished pass over one evaluation set."""

    def write_phase(self, row: rows.PhaseRow) -> None:
        """Is told how long a phase of the run took."""

    def write_end(self, result: rows.RunResult) -> None:
        """Is told how the run ended, also one that failed; after anything else."""

    def flush(self) -> None:
        """Puts everything told so far where a reader of the files finds it, before a commit counts on it."""

    def close(self) -> None:
        """Flushes and lets go of files; calling it again does nothing."""


class Writers(Writer):
    """Tells several writers, in their order."""

    def __init__(self, writers: Sequence[Writer]):
        self._writers = tuple(writers)
        self.wants_progress = any(writer.wants_progress for writer in writers)

    def write_start(self, row: rows.StartRow) -> None:
        """Tells all."""
        for writer in self._writers:
            writer.write_start(row)

    def write_step(self, row: rows.StepRow) -> None:
        """Tells all."""
        for writer in self._writers:
            writer.write_step(row)

    def write_progress(self, row: rows.ProgressRow) -> None:
        """Tells those who want to know."""
        for writer in self._writers:
            if writer.wants_progress:
                writer.write_progress(row)

    def write_summary(self, row: rows.SummaryRow) -> None:
        """Tells all."""
        for writer in self._writers:
            writer.write_summary(row)

    def write_pass(self, row: rows.PassRow) -> None:
        """Tells all."""
        for writer in self._writers:
            writer.write_pass(row)

    def write_phase(self, row: rows.PhaseRow) -> None:
        """Tells all."""
        for writer in self._writers:
            writer.write_phase(row)

    def write_end(self, result: rows.RunResult) -> None:
        """Tells all."""
        for writer in self._writers:
            writer.write_end(result)

    def flush(self) -> None:
        """Flushes all."""
        for writer in self._writers:
            writer.flush()

    def close(self) -> None:
        """Closes all, even if some fail."""
        close_all(self._writers)


class _Closable(Protocol):
    def close(self) -> None: ...


def close_all(files: Iterable[_Closable]) -> None:
    """Closes all, even if some fail; then raises the first error, with the others as its notes."""
    failures: list[Exception] = []
    for file in files:
        try:
            file.close()
        except Exception as error:
            failures.append(error)
    if failures:
        for other in failures[1:]:
            failures[0].add_note(f'Closing the next one failed as well: {other!r}')
        raise failures[0]


class MetricsWriter(Writer):
    """Writes `metrics.jsonl`: a line per log period of training and one per pass.

    A line is `{"step": int, "stream": str, "metrics": {name: value}, "time": seconds since the epoch}`. The metrics of
    `train` are `loss` and those of the training call. `values.to_json` says how values are written;
    bytes are left out.
    """

    def __init__(self, path: str | os.PathLike[str], clock: Callable[[], float] = time.time):
        """Names the file and the clock.

        Args:
            path: The file, which is appended to; its directory must exist at the first row.
            clock: Returns the time in seconds since the epoch.
        """
        self._lines = _Lines(path)
        self._clock = clock

    def write_step(self, row: rows.StepRow) -> None:
        """Appends a line."""
        self._append(row.step, run_dir.TRAIN, step_metrics(row))

    def write_pass(self, row: rows.PassRow) -> None:
        """Appends a line."""
        self._append(row.step, row.stream, row.metrics)

    def flush(self) -> None:
        """Makes the lines last."""
        self._lines.sync()

    def close(self) -> None:
        """Closes the file."""
        self._lines.close()

    def _append(self, step: int, stream: str, metrics: rows.Metrics) -> None:
        self._lines.append(
            {
                'step': int(step),
                'stream': stream,
                'metrics': values.metrics_to_json(metrics),
                'time': self._clock(),
            }
        )


class TimelineWriter(Writer):
    """Writes `timeline.jsonl`: a line per phase, with the fields of `PhaseRow`; commits alone have a digest."""

    def __init__(self, path: str | os.PathLike[str]):
        """Names the file, which is appended to.

        Args:
            path: The file; its directory must exist at the first row.
        """
        self._lines = _Lines(path)

    def write_phase(self, row: rows.PhaseRow) -> None:
        """Appends a line."""
        line = {name: values.to_json(value) for name, value in dataclasses.asdict(row).items()}
        if row.digest is None:
            del line['digest']
        self._lines.append(line)

    def flush(self) -> None:
        """Makes the lines last."""
        self._lines.sync()

    def close(self) -> None:
        """Closes the file."""
        self._lines.close()


class _Lines:
    """Appends JSON objects to a file, each as one whole line that a reader beside the run sees at once."""

    def __init__(self, path: str | os.PathLike[str]):
        self._path = path
        self._file: BinaryIO | None = None

    def append(self, line: Mapping[str, Any]) -> None:
        if self._file is None:
            self._file = open_at_line_start(self._path)
        self._file.write(json.dumps(line, allow_nan=False).encode() + b'\n')
        self._file.flush()

    def sync(self) -> None:
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def open_at_line_start(path: str | os.PathLike[str]) -> BinaryIO:
    """Opens a file for appending, on a new line where a killed process left half of one."""
    file = open(path, 'ab+')  # noqa: SIM115 - it stays open until the run ends
    if file.tell() > 0:
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b'\n':
            file.write(b'\n')
    return file


def step_metrics(row: rows.StepRow) -> rows.Metrics:
    """Returns what is told of a log period as metrics: the loss of its last run, and the metrics of training.

    Not the rate: two equal runs have the same metrics.
    """
    return {'loss': row.loss, **row.metrics}


def result_json(result: rows.RunResult) -> str:
    """Returns the text of `result.json`: values are written as in `metrics.jsonl`.

    Args:
        result: How the run ended.
    """
    content = {
        'status': result.status,
        'stop_reason': result.stop_reason,
        'global_step': int(result.global_step),
        'metrics': {stream: values.metrics_to_json(metrics) for stream, metrics in result.metrics.items()},
        'best': None if result.best is None else _best_json(result.best),
        'timing': values.metrics_to_json(result.timing),
    }
    return json.dumps(content, indent=2, allow_nan=False) + '\n'


def _best_json(best: rows.Best) -> dict[str, Any]:
    kept = [{'step': step, 'value': values.to_json(value)} for step, value in best.kept]
    return {'metric': best.metric, 'mode': best.mode, **kept[0], 'checkpoint': best.checkpoint, 'kept': kept}
