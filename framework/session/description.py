"""What an experiment's graph holds, as text for people."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow.compat import v1

from framework.graph.calls import Compiled, TrainStream
from framework.reporting import tables
from framework.reporting.rows import ParameterRow, StreamRow
from framework.session.detached import DetachedEvaluation
from framework.session.schedule import Schedule


def describe(built: Compiled, apart: Mapping[str, DetachedEvaluation], schedule: Schedule) -> str:
    """Returns the schedule, the streams with their structures and metrics, and the variables.

    Args:
        built: The graph of training.
        apart: The sets that have a graph of their own.
        schedule: What comes when.
    """
    ops = f'{len(built.graph.get_operations()):,} ops in the graph of training.'
    parts = [str(schedule), tables.stream_table(streams(built, apart)), tables.parameter_table(parameters(built)), ops]
    return '\n'.join(parts) + '\n'


def streams(built: Compiled, apart: Mapping[str, DetachedEvaluation]) -> list[StreamRow]:
    """Returns the streams: training, then the evaluation sets by graph and tower."""
    rows = [] if built.train is None else [_of_training(built.train)]
    for tower in built.towers:
        for stream, source in tower.sources.items():
            rows.append(StreamRow(stream, tower.name, _structure(source.element_spec), tuple(tower.values)))
    for stream, part in apart.items():
        rows.append(
            StreamRow(stream, 'a graph of its own', _structure(part.element_spec(stream)), tuple(part.metrics(stream)))
        )
    return rows


def _of_training(train: TrainStream) -> StreamRow:
    metrics = ('loss', *(() if train.metrics is None else train.metrics.values))
    return StreamRow(train.source.stream, 'training', _structure(train.source.element_spec), metrics)


def _structure(element_spec: Any) -> str:
    return str(tf.nest.map_structure(_short, element_spec)).replace("'[", '[').replace("]'", ']')


def _short(part: Any) -> str:
    if not isinstance(part, tf.TensorSpec | tf.SparseTensorSpec | tf.RaggedTensorSpec):
        return type(part).__name__
    kind = type(part).__name__.removesuffix('TensorSpec').removesuffix('Spec').lower()
    sizes = '?' if part.shape.rank is None else ', '.join('?' if n is None else str(n) for n in part.shape)
    return f'[{" ".join(filter(None, [kind, part.dtype.name]))} {sizes}]' if sizes else f'[{part.dtype.name}]'


def parameters(built: Compiled) -> list[ParameterRow]:
    """Returns the model's variables; those named below a trainable one are its optimizer's and left out."""
    with built.graph.as_default():
        trainable = {variable.op.name for variable in v1.trainable_variables()}
        variables = v1.global_variables()
    rows = []
    for variable in variables:
        name = variable.op.name
        if name in trainable or not any(name.startswith(f'{owner}/') for owner in trainable):
            shape = None if variable.shape.rank is None else tuple(variable.shape.as_list())
            rows.append(ParameterRow(name, shape, variable.dtype.base_dtype.name, name in trainable))
    return rows
