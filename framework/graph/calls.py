"""The calls of model_fn that one graph holds, and the graph."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from framework import spec
from framework.graph import collections, sources, streams, train_metrics
from framework.graph.random_ops.audit import Finding


def evaluation_of(streams: Iterable[str]) -> str:
    """Returns what messages call the evaluation of some sets."""
    return f'evaluation of {", ".join(streams)}'


@dataclasses.dataclass(frozen=True)
class Model:
    """What the user wrote, as far as the graph needs it."""

    model_fn: Callable[..., Any]
    params: Any
    config: Any


@dataclasses.dataclass(frozen=True)
class FusedTraining:
    """Many train runs in one run of the session.

    Attributes:
        limit: int64 scalar to be fed: at most so many are made. Fewer where a batch is the last of its epoch, and where
            the loss is not finite, which is that of the last one then.
        start: int64 scalar to be fed: the tick of the first.
        runs: int64 scalar, how many were made.
        step: int64 scalar, the global step afterwards.
        examples: int64 scalar, the examples of all batches.
        losses: `[runs]`, the loss of each.
        last: bool scalar, whether the last batch announced itself as the last of its epoch.
        compiles_each_number: Whether each number of runs is a program that XLA compiles, in which a loss that is not
            finite ends nothing.
    """

    limit: tf.Tensor
    start: tf.Tensor
    runs: tf.Tensor
    step: tf.Tensor
    examples: tf.Tensor
    losses: tf.Tensor
    last: tf.Tensor
    compiles_each_number: bool = False


@dataclasses.dataclass(frozen=True)
class FusedPass:
    """Many batches of a pass in one run of the session, up to all.

    Attributes:
        limit: int64 scalar to be fed: at most so many batches, no more than there are. Fewer where one is the last.
        start: int64 scalar to be fed: the tick of the first.
        batches: int64 scalar, how many were read.
        examples: int64 scalar, the examples of all of them.
        last: bool scalar, whether the last batch announced itself as the last of the data.
        values: The metrics by name, as they are afterwards.
    """

    limit: tf.Tensor
    start: tf.Tensor
    batches: tf.Tensor
    examples: tf.Tensor
    last: tf.Tensor
    values: Mapping[str, tf.Tensor]


@dataclasses.dataclass(frozen=True)
class TrainStream:
    """The training call.

    Attributes:
        source: What its input_fn returned.
        input: Its current batch.
        spec: What model_fn returned.
        step_after: int64 scalar, the global step once the train op has run.
        metrics: Its metrics over a log period, None where it has none.
        collections: What input_fn and model_fn added to the graph's collections.
        fused: Many train runs in one, None where that can't be, or was not asked for.
        unfused: Why it can't be, as sentences; empty where it can, or was not asked for.
    """

    source: sources.Source
    input: streams.Input
    spec: spec.EstimatorSpec
    step_after: tf.Tensor
    metrics: train_metrics.TrainMetrics | None
    collections: collections.Snapshot
    fused: FusedTraining | None = None
    unfused: Sequence[str] = ()

    @property
    def updates(self) -> list[tf.Operation]:
        """What a train run makes beside its train op."""
        return [] if self.metrics is None else [self.metrics.update]


@dataclasses.dataclass(frozen=True)
class Tower:
    """One evaluation call, shared by all sets of one element structure.

    Attributes:
        name: `tower_<i>`.
        prefix: The name scope of the call, with a slash at its end; empty where it has the names of a lone graph.
        sources: Per set what its input_fn returned.
        input: The current batch.
        spec: What model_fn returned.
        local_init: What its Scaffold says should be run before a pass, None where it says nothing.
        reset: Sets every local variable of the call to its initial value.
        update: Takes the current batch into the metrics.
        values: The metrics by name, `loss` among them.
        variables: The local variables of the call.
        collections: What the call added to the graph's collections.
        summary: The merged summaries that the call collected, but scalars; None where there are none.
        fused: Many batches in one run, None where that can't be, or was not asked for.
        unfused: Why it can't be, as sentences; empty where it can, or was not asked for.
    """

    name: str
    prefix: str
    sources: Mapping[str, sources.Source]
    input: streams.Input
    spec: spec.EstimatorSpec
    local_init: tf.Operation | None
    reset: tf.Operation
    update: tf.Operation
    values: Mapping[str, tf.Tensor]
    variables: Sequence[tf.Variable]
    collections: collections.Snapshot
    summary: tf.Tensor | None = None
    fused: FusedPass | None = None
    unfused: Sequence[str] = ()

    @property
    def caller(self) -> str:
        """What messages call it."""
        return evaluation_of(self.sources)


@dataclasses.dataclass(frozen=True)
class Draws:
    """The random draws of a graph.

    Attributes:
        tick: int64 scalar to be fed with every run: in training the count of train runs, in a pass
            `random_ops.keys.evaluation_tick`. None where no op draws by a tick.
        state: The variables whose values later draws depend on. There are none: all follows from the tick.
        findings: What training depends on and is not sure to do the same again after a resume.
    """

    tick: tf.Tensor | None = None
    state: Sequence[tf.Variable] = ()
    findings: Sequence[Finding] = ()


@dataclasses.dataclass(frozen=True)
class Compiled:
    """The one graph.

    Attributes:
        graph: The graph; it shows the collections of the training call.
        global_step: The global step variable.
        train: The training call, None in an evaluation-only graph.
        towers: The evaluation calls.
        init: Initialises what belongs to evaluation alone: its local variables and lookup tables.
        apart: Per evaluation set that can't be evaluated in this graph the reason, as the end of a sentence.
        draws: Its random draws, those of a graph that is not keyed being unknown.
    """

    graph: tf.Graph
    global_step: tf.Variable
    train: TrainStream | None
    towers: Sequence[Tower]
    init: tf.Operation
    apart: Mapping[str, str]
    draws: Draws = Draws()

    @property
    def saved_names(self) -> frozenset[str]:
        """The names under which a checkpoint holds variables and tables: slices have that of the whole."""
        keys = tf.compat.v1.GraphKeys
        variables = self.graph.get_collection(keys.GLOBAL_VARIABLES)
        tables = [part.name for saveable in self.graph.get_collection(keys.SAVEABLE_OBJECTS) for part in saveable.specs]
        return frozenset([*(variable.op.name.split('/part_')[0] for variable in variables), *tables])

    def tower(self, stream: str) -> Tower:
        """Returns the tower of an evaluation set."""
        return {name: tower for tower in self.towers for name in tower.sources}[stream]
