"""Writes event files, one directory a stream, so that TensorBoard lays evaluation over training; and reads them."""

import collections
import glob
import hashlib
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging
from google.protobuf import message

from framework import run_dir
from framework.reporting import dashboards, event_files, rows, values, writers

_LOSS = 'loss'
_RATE = 'global_step/sec'
_AXIS = 'global_step'
_GRAPH, _LAYOUT = 'graph', 'layout'  # of what a start writes, beside texts
_OWN = re.compile(r'\.\d{19}\.\d+\.run$')


class EventWriter(writers.Writer):
    """Writes summaries, the loss and the rate of training, and the metrics of every pass under their own names.

    What becomes of a metric's value:

    - a number or a bool: a scalar;
    - bytes that hold a `Summary` (images, curves): its values, with the tags `<metric>/<i>`;
    - other bytes and text: a text;
    - an array: a tensor;
    - None: nothing;
    - anything else: nothing, with one warning a metric.

    `global_step`, the axis, isn't written. `loss_per_example` is, whether it is the model's own metric or ours.

    What the run is (its graph, texts, the layout of charts) is written once: a start that goes on writes those texts
    and that layout which have changed.

    A thread writes. What fails there is raised by the next call, as a `RunError`.
    """

    def __init__(
        self,
        directory_of: Callable[[str], str],
        own_tags: Collection[str] = (),
        *,
        known: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
        files: Any = None,
    ):
        """Names the directories.

        Args:
            directory_of: Returns the directory of a stream, for example `RunDir.events_dir`. It is made with the
                stream's first row.
            own_tags: The tags of the model's own summaries of training: a metric of the same name draws no curve.
            known: What `parts` said of the start whose files this one goes on with.
            clock: Returns the time in seconds since the epoch.
            files: Takes the events in place of `EventFiles`, where somebody else's files shall be written to.
        """
        self._directory_of = directory_of
        self._files = event_files.EventFiles() if files is None else files
        self._warned: set[str] = set()
        self._tags = set(own_tags)
        self._known = dict(known or {})
        self._clock = clock

    def write_start(self, row: rows.StartRow) -> None:
        """Writes what the run is, as far as its files don't say so already."""
        said = parts(row)
        new = {name for name, digest in said.items() if self._known.get(name) != digest}
        if row.graph and _GRAPH not in self._known:
            self._files.add(self._directory_of(run_dir.TRAIN), self._event(row.step, graph_def=row.graph))
        if _LAYOUT in new:
            self._add(run_dir.TRAIN, row.step, dashboards.layout(row.charts))
        for name in sorted(new & row.texts.keys()):
            self._add(run_dir.TRAIN, row.step, dashboards.text(f'run/{name}', dashboards.verbatim(row.texts[name])))

    def write_step(self, row: rows.StepRow) -> None:
        """Writes the rate and the metrics, but those whose curve the model's own summaries draw."""
        summary = _scalar(_RATE, row.steps_per_sec)
        for name in sorted(set(row.metrics) - self._tags):
            summary.MergeFrom(self._metric(name, values.plain(row.metrics[name])))
        self._add(run_dir.TRAIN, row.step, summary)

    def write_summary(self, row: rows.SummaryRow) -> None:
        """Writes the summaries, and the loss unless they hold a `loss`."""
        summary = tf.compat.v1.Summary.FromString(row.summary)
        if all(value.tag != _LOSS for value in summary.value):
            summary.MergeFrom(_scalar(_LOSS, row.loss))
        self._add(run_dir.TRAIN, row.step, summary)

    def write_pass(self, row: rows.PassRow) -> None:
        """Writes the metrics and the summaries into the set's directory."""
        summary = tf.compat.v1.Summary.FromString(row.summary)
        for name in sorted(set(row.metrics) - {_AXIS}):
            summary.MergeFrom(self._metric(name, values.plain(row.metrics[name])))
        self._add(row.stream, row.step, summary)

    def flush(self) -> None:
        """Writes out what is held back."""
        self._files.flush()

    def close(self) -> None:
        """Closes all files."""
        self._files.close()

    def _add(self, stream: str, step: int, summary: tf.compat.v1.Summary) -> None:
        self._files.add(self._directory_of(stream), self._event(step, summary=summary))

    def _event(self, step: int, **what: Any) -> tf.compat.v1.Event:
        return tf.compat.v1.Event(wall_time=self._clock(), step=int(step), **what)

    def _metric(self, name: str, value: Any) -> tf.compat.v1.Summary:
        if isinstance(value, bool | int | float):
            return _scalar(name, value)
        if isinstance(value, bytes):
            return _nested(name, value) or dashboards.text(name, value.decode(errors='replace'))
        if isinstance(value, str):
            return dashboards.text(name, value)
        tensor = _tensor(name, value)
        if tensor is None and value is not None:
            self._warn(name, value)
        return tensor or tf.compat.v1.Summary()

    def _warn(self, name: str, value: Any) -> None:
        if name not in self._warned:
            self._warned.add(name)
            logging.warning(
                'Metric `%s` is left out of the event files: TensorBoard has no form for a value of type [%s].',
                name,
                type(value).__name__,
            )


def parts(row: rows.StartRow) -> dict[str, str]:
    """Returns what a start writes of the run, by name a digest, to be kept with the lengths of the files."""
    named = {_GRAPH: '', _LAYOUT: ' '.join(row.charts), **row.texts}
    return {name: hashlib.sha256(content.encode()).hexdigest()[:16] for name, content in named.items()}


def own_files(directory: str | os.PathLike[str]) -> list[str]:
    """Returns the event files in a directory that an `EventWriter` made, and no other writer."""
    found = glob.glob(os.path.join(glob.escape(os.fspath(directory)), '*tfevents*.run'))
    return sorted(path for path in found if _OWN.search(path))


def _scalar(tag: str, value: float) -> tf.compat.v1.Summary:
    return _summary(tag=tag, simple_value=float(value))


def _nested(tag: str, serialized: bytes) -> tf.compat.v1.Summary | None:
    """Returns the summary that a metric holds, or None when the bytes are something else."""
    try:
        summary = tf.compat.v1.Summary.FromString(serialized)
    except message.DecodeError:
        return None
    for i, value in enumerate(summary.value):
        value.tag = f'{tag}/{i}'
    # Short texts can be valid protos too, but then they hold unknown fields and no value. No bytes are no summary.
    return summary if summary.value or not serialized else None


def _tensor(tag: str, value: Any) -> tf.compat.v1.Summary | None:
    """Returns the summary of an array, or None when it isn't one that TensorFlow knows."""
    if not isinstance(value, np.ndarray):
        return None
    try:
        return _summary(tag=tag, tensor=tf.make_tensor_proto(value))
    except (TypeError, ValueError):
        return None


def _summary(**value: Any) -> tf.compat.v1.Summary:
    return tf.compat.v1.Summary(value=[tf.compat.v1.Summary.Value(**value)])


def read_scalars(directory: str | os.PathLike[str]) -> dict[str, list[tuple[int, float]]]:
    """Returns the scalars in a directory's event files: by tag the pairs of step and value, in the order written.

    Values have the precision of float32, in which event files keep them.

    Args:
        directory: The directory of one stream. Directories below it aren't read.
    """
    scalars: dict[str, list[tuple[int, float]]] = collections.defaultdict(list)
    for path in sorted(glob.glob(os.path.join(glob.escape(os.fspath(directory)), '*tfevents*'))):
        for event in _events(path):
            for value in event.summary.value:
                if value.HasField('simple_value'):
                    scalars[value.tag].append((event.step, value.simple_value))
    return dict(scalars)


def _events(path: str) -> Iterator[Any]:
    try:
        yield from tf.compat.v1.train.summary_iterator(path)
    except tf.errors.DataLossError:
        logging.warning('Event file `%s` ends in the middle of a record; the events before it were read.', path)
