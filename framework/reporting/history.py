"""The metrics of a run over time, as plain lists."""

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from framework import run_dir
from framework.reporting import rows, values, writers


class HistoryWriter(writers.Writer):
    """Keeps what `metrics.jsonl` keeps, in memory; begins with what that file holds of earlier processes.

    Args:
        path: The file, which need not exist; None to begin with nothing.
        up_to: The global step that the run goes on from: what the file holds of later ones comes again. None: all.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, up_to: int | None = None):
        self._lines: dict[tuple[str, int], Mapping[str, Any]] = {}
        for line in [] if path is None else json_lines(path):
            if up_to is None or line['step'] <= up_to:
                self._lines[line['stream'], line['step']] = values.metrics_from_json(line['metrics'])

    def write_step(self, row: rows.StepRow) -> None:
        """Keeps the loss, the rate and the metrics."""
        self._keep(run_dir.TRAIN, row.step, writers.step_metrics(row))

    def write_pass(self, row: rows.PassRow) -> None:
        """Keeps the metrics."""
        self._keep(row.stream, row.step, row.metrics)

    def history(self) -> dict[str, dict[str, list[Any]]]:
        """Returns `RunResult.history`."""
        found: dict[str, dict[str, list[Any]]] = {}
        for stream in dict.fromkeys(stream for stream, _ in self._lines):
            lines = {step: metrics for (of, step), metrics in self._lines.items() if of == stream}
            names = dict.fromkeys(name for metrics in lines.values() for name in metrics)
            found[stream] = {'step': list(lines)} | {n: [metrics.get(n) for metrics in lines.values()] for n in names}
        return found

    def _keep(self, stream: str, step: int, metrics: rows.Metrics) -> None:
        kept = {name: values.plain(value) for name, value in metrics.items() if not values.is_binary(value)}
        self._lines.pop((stream, step), None)
        self._lines[stream, int(step)] = {k: v.tolist() if hasattr(v, 'tolist') else v for k, v in kept.items()}


def json_lines(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """Yields the objects of a file that has one a line: none where there is no file, and not what is half written.

    Args:
        path: `metrics.jsonl` or `timeline.jsonl`.
    """
    if not os.path.exists(path):
        return
    with open(path, encoding='utf-8', errors='replace') as file:
        for line in file:
            try:
                content = json.loads(line)
            except ValueError:  # a killed process left half of it
                continue
            if isinstance(content, dict):  # half of a number is one
                yield content
