"""The lines of the log that code around `tf.estimator` looks for, by TensorFlow's own logger."""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tensorflow.compat import v1

from framework.reporting import rows, values, writers

GLOBAL_STEP = 'global_step'


class LogLines(writers.Writer):
    """Tells the rate of training and the metrics of passes."""

    def write_step(self, row: rows.StepRow) -> None:
        """Logs `global_step/sec: 153.2`; a hook logs the loss."""
        v1.logging.info('global_step/sec: %g', row.steps_per_sec)

    def write_pass(self, row: rows.PassRow) -> None:
        """Logs `Saving dict for global step 200: accuracy = 0.9, global_step = 200, loss = 0.1`."""
        saving_dict(row.step, {**row.metrics, GLOBAL_STEP: row.step})


def saving_dict(step: int, metrics: Mapping[str, Any]) -> None:
    """Logs the metrics of an evaluation, without those that are serialized summaries."""
    # By `str`, which shows the digits of the value's own width.
    texts = {name: str(metrics[name]) for name in sorted(metrics) if not values.is_binary(metrics[name])}
    shown = ', '.join(f'{name} = {text}' for name, text in texts.items())
    v1.logging.info('Saving dict for global step %d: %s', step, shown)


def evaluation_starts() -> None:
    """Logs when an evaluation starts."""
    v1.logging.info('Starting evaluation at %s', time.strftime('%Y-%m-%dT%H:%M:%S', time.localtime()))


def evaluation_ends() -> None:
    """Logs when an evaluation ends."""
    v1.logging.info('Finished evaluation at %s', time.strftime('%Y-%m-%d-%H:%M:%S', time.localtime()))


def tell_once() -> None:
    """Sees to it that a line of TensorFlow's logger is printed once.

    TensorFlow gives its logger a handler where the root logger has none. As soon as that has one (absl's first line
    gives it one), the same line would be printed by both.
    """
    for handler in v1.get_logger().handlers:
        if type(handler) is logging.StreamHandler:  # TensorFlow's own; those of users are left alone
            handler.addFilter(_is_not_told_by_root)


def _is_not_told_by_root(record: logging.LogRecord) -> bool:
    return not (logging.getLogger().handlers and logging.getLogger(record.name).propagate)


class SavingLines(v1.train.CheckpointSaverListener):
    """Calls the listeners of the user around a save, with the lines that name it.

    Args:
        prefix: The prefix of checkpoints, which a step extends.
        listeners: The listeners.
    """

    def __init__(self, prefix: str, listeners: Sequence[v1.train.CheckpointSaverListener]):
        self._prefix = prefix
        self._listeners = tuple(listeners)

    def begin(self) -> None:
        """See `CheckpointSaverListener`."""
        for listener in self._listeners:
            listener.begin()

    def before_save(self, session: v1.Session, global_step_value: int) -> None:
        """See `CheckpointSaverListener`."""
        v1.logging.info('Calling checkpoint listeners before saving checkpoint %d...', global_step_value)
        for listener in self._listeners:
            listener.before_save(session, global_step_value)
        v1.logging.info('Saving checkpoints for %d into %s.', global_step_value, self._prefix)

    def after_save(self, session: v1.Session, global_step_value: int) -> bool:
        """See `CheckpointSaverListener`."""
        v1.logging.info('Calling checkpoint listeners after saving checkpoint %d...', global_step_value)
        asks = [listener.after_save(session, global_step_value) for listener in self._listeners]
        return any(asks)

    def end(self, session: v1.Session, global_step_value: int) -> None:
        """See `CheckpointSaverListener`."""
        for listener in self._listeners:
            listener.end(session, global_step_value)
