"""Calls of evaluation: one pass over some data with the weights of a checkpoint, in a graph of its own."""

import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compat import v1

from framework.estimator import log_lines
from framework.estimator.input_calls import with_tensors
from framework.reporting import tensorboard, writers
from framework.reporting.rows import PassRow
from framework.run_config import EvalSet
from framework.session import ends, holding, opening
from framework.session.evaluation import PassInterrupted
from framework.session.signals import StopSignals

_CHECKPOINT_PATH = 'checkpoint_path'
_SIGINT_EXIT = 128 + signal.SIGINT


def evaluate(
    estimator: Any,
    input_fn: Callable[..., Any],
    steps: int | None,
    hooks: Sequence[Any],
    checkpoint_path: str | None,
    name: str | None,
) -> dict[str, Any]:
    """Makes a pass, writes its metrics, and returns them.

    Args:
        estimator: The Estimator.
        input_fn: Returns the data.
        steps: Batches, None for all.
        hooks: The caller's hooks.
        checkpoint_path: The prefix of the checkpoint's files, None for the newest.
        name: The name of the evaluation.
    """
    checkpoint = estimator._checkpoint(checkpoint_path, 'evaluate')
    eval_set = EvalSet(input_fn=with_tensors(input_fn), name=name or None, steps=steps, hooks=tuple(hooks))
    log_lines.evaluation_starts()
    row = _pass(estimator, eval_set, checkpoint)
    log_lines.evaluation_ends()
    metrics = {**row.metrics, log_lines.GLOBAL_STEP: np.int64(row.step)}
    log_lines.saving_dict(row.step, metrics)
    _write_events(estimator.eval_dir(name), row, checkpoint)
    _write_line(estimator, row)
    estimator._memory.add(estimator.eval_dir(name), row.step, metrics)
    return metrics


def _pass(estimator: Any, eval_set: EvalSet, checkpoint: str | None) -> PassRow:
    made: list[PassRow] = []
    with StopSignals() as signals, _interruption(signals), ends.named_ends(), _held(checkpoint) as held:
        saved = None if held is None else opening.saved_names(held)
        graphs = estimator._graphs(estimator.config.tf_random_seed)
        part = graphs.alone(eval_set, saved, None if held else estimator._warm_start_settings)
        part.make_passes(held, signals.came, made.append)
    return made[0]


@contextlib.contextmanager
def _interruption(signals: StopSignals) -> Iterator[None]:
    """Lets the caller know of a signal in the way that Python does."""
    try:
        yield
    except PassInterrupted:
        raise stopped(signals.exit_code) from None


def stopped(exit_code: int) -> BaseException:
    """Returns what a process raises that a signal ends.

    Args:
        exit_code: 128 and the number of the signal.
    """
    return KeyboardInterrupt() if exit_code == _SIGINT_EXIT else SystemExit(exit_code)


@contextlib.contextmanager
def _held(checkpoint: str | None) -> Iterator[str | None]:
    """Yields a name under which a checkpoint stays readable; None for none."""
    if checkpoint is None:
        yield None
        return
    with holding.held(lambda: checkpoint) as held:
        yield held


def _write_events(directory: str, row: PassRow, checkpoint: str | None) -> None:
    writer = tensorboard.EventWriter(lambda stream: directory, files=_CachedFiles())
    writer.write_pass(row)
    if checkpoint:
        v1.logging.info("Saving '%s' summary for global step %d: %s", _CHECKPOINT_PATH, row.step, checkpoint)
        tensor = tf.make_tensor_proto(checkpoint, dtype=tf.string)
        value = v1.Summary.Value(tag=_CHECKPOINT_PATH, tensor=tensor)
        cached_writer(directory).add_summary(v1.Summary(value=[value]), row.step)
    writer.flush()


class _CachedFiles:
    """Event files by TensorFlow's one writer of a directory."""

    def __init__(self) -> None:
        self._writers: dict[str, Any] = {}

    def add(self, directory: str, event: v1.Event) -> None:
        """Hands over an event."""
        self._writers[directory] = cached_writer(directory)
        self._writers[directory].add_event(event)

    def flush(self) -> None:
        """Writes out what is held back."""
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        """Writes out what is held back: the writers are also others'."""
        self.flush()


def cached_writer(directory: str) -> Any:
    """Returns TensorFlow's one writer of a directory, which code around an Estimator writes with as well."""
    with tf.Graph().as_default():  # outside a graph the constructor refuses to work
        return v1.summary.FileWriterCache.get(directory)


def _write_line(estimator: Any, row: PassRow) -> None:
    directory = estimator._directory()
    if directory.can_be_written():
        with contextlib.closing(writers.MetricsWriter(directory.evaluations_file)) as lines:
            lines.write_pass(row)
