"""What an experiment's graph holds, as text for people."""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compat import v1

from framework.graph import movement
from framework.graph.batch_size import batch_size
from framework.graph.calls import Compiled, TrainStream
from framework.graph.sources import Source
from framework.graph.streams import Input
from framework.reporting import tables
from framework.reporting.rows import ParameterRow, StreamRow
from framework.session.detached import DetachedEvaluation
from framework.session.schedule import Schedule

_TRAINING = 'training'
_UNKNOWN = 'unknown'


def describe(
    built: Compiled, apart: Mapping[str, DetachedEvaluation], schedule: Schedule, unused: Sequence[str] | None = None
) -> str:
    """Returns what a run will be: streams, variables, schedule, what can't come again, what is fused, what is unused.

    Args:
        built: The graph of training.
        apart: The sets that have a graph of their own.
        schedule: What comes when.
        unused: The gin bindings that nothing used. None at the start of a run, whose log has had a line about them,
            about findings of the audit, and about what is not fused: these are left out.
    """
    of_streams = streams(built, apart)
    findings = [f'  {finding}' for finding in built.draws.findings if not finding.allowed]
    remarks = [f'Schedule: {schedule}']
    if not findings:
        remarks.append('Audit: nothing stands in the way of the same bits after a kill.')
    remarks += [_way(row) for row in of_streams if row.unfused == ()]
    if unused is not None:
        if findings:
            remarks += ['Audit: not sure to come again to the bit after a kill:', *findings]
        remarks += [_way(row) for row in of_streams if row.unfused]
        remarks.append(f'Unused bindings: {", ".join(unused) or "none"}.')
    remarks.append(f'{len(built.graph.get_operations()):,} ops in the graph of training.')
    tables_of_run = tables.stream_table(of_streams) + tables.parameter_table(parameters(built, read=True))
    return '\n'.join([*remarks, tables_of_run])


def _way(row: StreamRow) -> str:
    runs = 'steps' if row.place == _TRAINING else 'batches'
    if not row.unfused:
        return f'{row.stream}: many {runs} in one run of the session.'
    return f'{row.stream}: each of the {runs} is a run of the session: {"; ".join(row.unfused)}.'


def streams(built: Compiled, apart: Mapping[str, DetachedEvaluation]) -> list[StreamRow]:
    """Returns the streams: training, then the evaluation sets by graph and tower."""
    rows = [] if built.train is None else [_of_training(built.train)]
    for tower in built.towers:
        ways = tuple(tower.unfused) if tower.unfused or tower.fused else None
        for source in tower.sources.values():
            rows.append(_row(source, tower.input, tower.name, tuple(tower.values), ways))
    for stream, part in apart.items():
        rows.append(
            StreamRow(stream, 'a graph of its own', _structure(part.element_spec(stream)), tuple(part.metrics(stream)))
        )
    return rows


def _of_training(train: TrainStream) -> StreamRow:
    metrics = ('loss', *(() if train.metrics is None else train.metrics.values))
    ways = tuple(train.unfused) if train.unfused or train.fused else None
    return _row(train.source, train.input, _TRAINING, metrics, ways)


def _row(source: Source, batch: Input, place: str, metrics: tuple[str, ...], ways: tuple[str, ...] | None) -> StreamRow:
    size = batch.sizes.get(source.stream, _UNKNOWN)
    batches = 'endless' if size is None else str(size)
    return StreamRow(
        source.stream, place, _structure(source.element_spec), metrics, batch_size(source), batches, unfused=ways
    )


def _structure(element_spec: Any) -> str:
    return str(tf.nest.map_structure(_short, element_spec)).replace("'[", '[').replace("]'", ']')


def _short(part: Any) -> str:
    if not isinstance(part, tf.TensorSpec | tf.SparseTensorSpec | tf.RaggedTensorSpec):
        return type(part).__name__
    kind = type(part).__name__.removesuffix('TensorSpec').removesuffix('Spec').lower()
    sizes = '?' if part.shape.rank is None else ', '.join('?' if n is None else str(n) for n in part.shape)
    return f'[{" ".join(filter(None, [kind, part.dtype.name]))} {sizes}]' if sizes else f'[{part.dtype.name}]'


def parameters(built: Compiled, read: bool = False) -> list[ParameterRow]:
    """Returns the model's variables; those named below a trainable one are its optimizer's and left out.

    Args:
        built: The graph of training.
        read: Whether each tells which streams read it, for which the graph is walked.
    """
    readers = _readers(built) if read else {}
    with built.graph.as_default():
        trainable = {variable.op.name for variable in v1.trainable_variables()}
        variables = v1.global_variables()
    rows = []
    for variable in variables:
        name = variable.op.name
        if name in trainable or not any(name.startswith(f'{owner}/') for owner in trainable):
            shape = None if variable.shape.rank is None else tuple(variable.shape.as_list())
            by = tuple(stream for stream, ops in readers.items() if name in ops)
            rows.append(ParameterRow(name, shape, variable.dtype.base_dtype.name, name in trainable, by))
    return rows


def _readers(built: Compiled) -> dict[str, set[str]]:
    """Returns per stream the names of the ops that its loss depends on."""
    losses = {} if built.train is None else {built.train.source.stream: built.train.spec.loss}
    losses |= {stream: tower.spec.loss for tower in built.towers for stream in tower.sources}
    of_loss = {loss.name: {op.name for op in movement.ancestors([loss])} for loss in losses.values()}
    return {stream: of_loss[loss.name] for stream, loss in losses.items()}
