"""Predictions written to a file, unless a signal comes first."""

import contextlib
import os
from collections.abc import Iterator

from absl import logging

from framework.reporting import predictions
from framework.reporting.rows import RunResult
from framework.session.prediction import Batches
from framework.session.signals import StopSignals


class _Interrupted(Exception):  # noqa: N818 - a signal, not an error
    """A signal came before the last batch: the file stays as it was."""


def write(output: str | os.PathLike[str], batches: Batches, step: int) -> RunResult:
    """Writes predictions to a file, which is there, whole, at the end.

    Args:
        output: The file; its suffix says the form.
        batches: What `predict` returned; closed at the end.
        step: The global step of the weights.

    Returns:
        How it ended: `done` or `interrupted`.
    """
    with StopSignals() as signals, contextlib.closing(batches):
        try:
            count = predictions.write(output, _until_signal(batches, signals))
        except _Interrupted:
            reason = f'{signals.sentence}; `{os.fspath(output)}` was not written'
            return RunResult('interrupted', reason, step, exit_code=signals.exit_code)
    reason = f'wrote predictions for {count} examples to `{os.fspath(output)}`'
    logging.info('Done: %s.', reason)
    return RunResult('done', reason, step)


def _until_signal(batches: Batches, signals: StopSignals) -> Iterator[dict[str, object]]:
    for batch in batches:
        if signals.came():
            raise _Interrupted
        yield batch
