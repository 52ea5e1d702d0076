"""Tiny models and recording doubles, for the tests of experiments and of the framework itself."""

import contextlib
import json
import os
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compat import v1

from framework.reporting import rows, writers
from framework.run_config import InputFn
from framework.spec import EstimatorSpec, ModeKeys


def array_input_fn(features: Any, labels: Any, batch_size: int, *, shuffle: int | None = None) -> InputFn:
    """Returns an input_fn over arrays: for ever in TRAIN, one pass in EVAL with the partial last batch.

    Args:
        features: `[N, ...]`, or a nested structure of such.
        labels: `[N, ...]`.
        batch_size: Examples a batch.
        shuffle: Size of TRAIN's shuffle buffer, which has no seed of its own; None keeps the order.
    """

    def input_fn(mode: str) -> tf.data.Dataset:
        dataset = tf.data.Dataset.from_tensor_slices((features, labels))
        if mode == ModeKeys.TRAIN:
            dataset = (dataset.shuffle(shuffle) if shuffle else dataset).repeat()
        return dataset.batch(batch_size)

    return input_fn


def blobs(examples: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Returns features `[N, 4]` float32 and labels `[N]` int64 of two classes that a line separates but for noise."""
    generator = np.random.RandomState(seed)
    features = generator.randn(examples, 4).astype(np.float32)
    labels = (features.sum(axis=1) + 0.5 * generator.randn(examples) > 0).astype(np.int64)
    return features, labels


def linear_model_fn(features: Any, labels: Any, mode: str, learning_rate: float = 0.1) -> EstimatorSpec:
    """A linear classifier of two classes by `get_variable`, with plain gradient descent and metric `accuracy`."""
    weights = v1.get_variable('weights', [features.shape[-1], 2], initializer=tf.zeros_initializer())
    logits = tf.matmul(features, weights)
    predictions = {'class': tf.argmax(logits, axis=1)}
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions=predictions)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    if mode == ModeKeys.EVAL:
        metrics = {'accuracy': v1.metrics.accuracy(labels, predictions['class'])}
        return EstimatorSpec(mode, predictions=predictions, loss=loss, eval_metric_ops=metrics)
    optimizer = v1.train.GradientDescentOptimizer(learning_rate)
    train_op = optimizer.minimize(loss, global_step=v1.train.get_global_step())
    return EstimatorSpec(mode, loss=loss, train_op=train_op)


def drain(dataset: tf.data.Dataset, limit: int = 100) -> list[Any]:
    """Returns the elements of one pass over a Dataset of the default graph, at most `limit` of them."""
    iterator = v1.data.make_initializable_iterator(dataset)
    element = iterator.get_next()
    elements: list[Any] = []
    with v1.Session() as session, contextlib.suppress(tf.errors.OutOfRangeError):
        session.run(iterator.initializer)
        while len(elements) < limit:
            elements.append(session.run(element))
    return elements


class RecordingWriter(writers.Writer):
    """Keeps every row that it is told, in `rows`, in their order."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def write_start(self, row: rows.StartRow) -> None:
        """Keeps the row."""
        self.rows.append(row)

    def write_step(self, row: rows.StepRow) -> None:
        """Keeps the row."""
        self.rows.append(row)

    def write_summary(self, row: rows.SummaryRow) -> None:
        """Keeps the row."""
        self.rows.append(row)

    def write_pass(self, row: rows.PassRow) -> None:
        """Keeps the row."""
        self.rows.append(row)

    def write_phase(self, row: rows.PhaseRow) -> None:
        """Keeps the row."""
        self.rows.append(row)

    def write_end(self, result: rows.RunResult) -> None:
        """Keeps the result."""
        self.rows.append(result)


class RecordingHook(v1.train.SessionRunHook):
    """Keeps the names of its calls in `calls`, and calls a function after each run.

    Args:
        name: Stands before the call's name.
        calls: The list to append to, perhaps shared by several hooks.
        after_run: Called with the run context after each run.
    """

    def __init__(
        self, name: str = 'hook', calls: list[str] | None = None, after_run: Callable[[Any], None] | None = None
    ):
        self._name = name
        self._after_run = after_run
        self.calls: list[str] = [] if calls is None else calls

    def begin(self) -> None:
        """Keeps the call."""
        self.calls.append(f'{self._name}.begin')

    def after_create_session(self, session: v1.Session, coord: v1.train.Coordinator) -> None:
        """Keeps the call."""
        del session, coord
        self.calls.append(f'{self._name}.after_create_session')

    def before_run(self, run_context: Any) -> None:
        """Keeps the call."""
        del run_context
        self.calls.append(f'{self._name}.before_run')

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Keeps the call."""
        del run_values
        self.calls.append(f'{self._name}.after_run')
        if self._after_run is not None:
            self._after_run(run_context)

    def end(self, session: v1.Session) -> None:
        """Keeps the call."""
        del session
        self.calls.append(f'{self._name}.end')


def checkpoint_values(checkpoint: str) -> Mapping[str, np.ndarray]:
    """Returns every variable of a checkpoint by name."""
    reader = v1.train.load_checkpoint(checkpoint)
    return {name: reader.get_tensor(name) for name in sorted(reader.get_variable_to_shape_map())}


def json_lines(path: str | os.PathLike[str], *volatile: str) -> list[dict[str, Any]]:
    """Returns the lines of `metrics.jsonl` or `timeline.jsonl`, without these of their values."""
    with open(path, encoding='utf-8') as file:
        lines = [json.loads(line) for line in file]
    return [{name: value for name, value in line.items() if name not in volatile} for line in lines]


_VOLATILE = re.compile(r'global_step/sec|run/command|_hparams_/.*')


def event_values(directory: str | os.PathLike[str], everything: bool = False) -> list[tuple[int, str, bytes]]:
    """Returns step, tag and value of every event in a directory's event files.

    Args:
        directory: The directory. Those below it aren't read.
        everything: Whether what differs between equal runs is among them: rates, times of the start and the end, the
            command line.
    """
    return [
        (event.step, value.tag, value.SerializeToString())
        for path in sorted(pathlib.Path(directory).glob('*tfevents*'))
        for event in v1.train.summary_iterator(str(path))
        for value in event.summary.value
        if everything or not _VOLATILE.fullmatch(value.tag)
    ]
