"""Writes what TensorBoard's dashboard of hyperparameters shows of a run."""

import time
from collections.abc import Callable

from tensorboard.plugins.hparams import api_pb2, summary
from tensorflow.compat import v1

from framework.reporting import event_files, rows, values, writers

_LONGEST_VALUE = 500  # characters
# An interrupted run is neither done nor failed: the same command goes on.
_STATUS = {'failed': api_pb2.STATUS_FAILURE, 'interrupted': api_pb2.STATUS_UNKNOWN}


class HparamsWriter(writers.Writer):
    """Writes hyperparameters, the metrics of every set as `<set>/<metric>`, and how the run ended.

    That is an event file in a directory of its own: the dashboard finds no metrics of a run that is TensorBoard's
    `logdir` itself, and would take all curves of training for metrics. It shows the hyperparameters of the first start.

    Args:
        directory: The directory.
        begun: Whether the files of the run have its hyperparameters already.
        clock: Returns the time in seconds since the epoch.
    """

    def __init__(self, directory: str, *, begun: bool = False, clock: Callable[[], float] = time.time):
        self._directory = directory
        self._begun = begun
        self._clock = clock
        self._files = event_files.EventFiles()

    def write_start(self, row: rows.StartRow) -> None:
        """Writes the hyperparameters."""
        if not self._begun:
            short = {name: v[:_LONGEST_VALUE] if isinstance(v, str) else v for name, v in row.hparams.items()}
            self._add(row.step, summary.session_start_pb(short, start_time_secs=self._clock()))

    def write_pass(self, row: rows.PassRow) -> None:
        """Writes the metrics that are numbers."""
        metrics = {name: values.plain(value) for name, value in row.metrics.items() if name != 'global_step'}
        numbers = {name: metrics[name] for name in sorted(metrics) if isinstance(metrics[name], bool | int | float)}
        content = v1.Summary()
        for name, number in numbers.items():
            content.value.add(tag=f'{row.stream}/{name}', simple_value=number)
        self._add(row.step, content)

    def write_end(self, result: rows.RunResult) -> None:
        """Writes how the run ended; a start that goes on takes that back."""
        status = _STATUS.get(result.status, api_pb2.STATUS_SUCCESS)
        self._add(result.global_step, summary.session_end_pb(status, end_time_secs=self._clock()))

    def flush(self) -> None:
        """Writes out what is held back."""
        self._files.flush()

    def close(self) -> None:
        """Closes the file."""
        self._files.close()

    def _add(self, step: int, content: v1.Summary) -> None:
        self._files.add(self._directory, v1.Event(wall_time=self._clock(), step=int(step), summary=content))
