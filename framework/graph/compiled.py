"""Compiles model_fn and input functions into one graph.

The order is fixed, because op seeds and names follow from it: graph seed, global step, training input, training call,
then all evaluation. Evaluation can therefore not change training.
"""

import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging
from tensorflow.compat import v1

from framework import errors, spec
from framework.graph import collections, movement, sharing, streams, tables
from framework.run_config import EvalSet
from framework.spec import LOSS_PER_EXAMPLE, ModeKeys

KEYS = v1.GraphKeys
LOSS = 'loss'  # the metric that every pass has: the mean of the loss over batches, as in tf.estimator


@dataclasses.dataclass(frozen=True)
class Model:
    """What the user wrote, as far as the graph needs it."""

    model_fn: Callable[..., Any]
    params: Any
    config: Any


@dataclasses.dataclass(frozen=True)
class TrainStream:
    """The training call.

    Attributes:
        source: The Dataset of its input_fn.
        input: Its current batch.
        spec: What model_fn returned.
        step_after: int64 scalar, the global step once the train op has run.
        collections: What input_fn and model_fn added to the graph's collections.
    """

    source: streams.Source
    input: streams.Input
    spec: spec.EstimatorSpec
    step_after: tf.Tensor
    collections: collections.Snapshot


@dataclasses.dataclass(frozen=True)
class Tower:
    """One evaluation call, shared by all sets of one element structure.

    Attributes:
        name: `tower_<i>`.
        sources: Per set the Dataset of its input_fn.
        input: The current batch.
        spec: What model_fn returned.
        reset: Sets every local variable of the call to its initial value.
        update: Takes the current batch into the metrics.
        values: The metrics by name, `loss` among them.
        collections: What the call added to the graph's collections.
    """

    name: str
    sources: Mapping[str, streams.Source]
    input: streams.Input
    spec: spec.EstimatorSpec
    reset: tf.Operation
    update: tf.Operation
    values: Mapping[str, tf.Tensor]
    collections: collections.Snapshot


@dataclasses.dataclass(frozen=True)
class Compiled:
    """The one graph.

    Attributes:
        graph: The graph; it shows the collections of the training call.
        global_step: The global step variable.
        train: The training call, None in an evaluation-only graph.
        towers: The evaluation calls.
        init: Initialises what belongs to evaluation alone: its local variables and lookup tables.
    """

    graph: tf.Graph
    global_step: tf.Variable
    train: TrainStream | None
    towers: Sequence[Tower]
    init: tf.Operation

    def tower(self, stream: str) -> Tower:
        """Returns the tower of an evaluation set."""
        return {name: tower for tower in self.towers for name in tower.sources}[stream]


def compile_graph(
    model: Model,
    train_input_fn: Callable[..., Any] | None,
    eval_sets: Sequence[EvalSet],
    *,
    seed: int,
    require_equal_structures: bool = False,
) -> Compiled:
    """Builds the graph.

    Args:
        model: model_fn, params and config.
        train_input_fn: None makes an evaluation-only graph, whose first tower has the names of a lone graph.
        eval_sets: The evaluation sets, of different names.
        seed: Seeds the graph, and Python's and NumPy's generators while user code builds.
        require_equal_structures: Whether evaluation elements must have training's structure.

    Raises:
        ConfigurationError: If what the user's functions return breaks their contract.
    """
    graph = tf.Graph()
    with graph.as_default(), _seeded(seed):
        v1.set_random_seed(seed)
        builder = _Builder(graph, model)
        train = None if train_input_fn is None else builder.train_stream(train_input_fn)
        before = _local_variables()
        sources = [streams.eval_source(eval_set, model.params, model.config) for eval_set in eval_sets]
        groups = streams.group_by_structure(sources)
        if train is not None:
            streams.compare_with_training(train.source, groups, require_equal_structures)
        towers = [builder.tower(i, group) for i, group in enumerate(groups)]
        collections.show(graph, builder.shown)
        init = _evaluation_init(_local_variables(before), towers, sources)
    return Compiled(graph, builder.global_step, train, towers, init)


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seeds Python's and NumPy's global generators: tf_keras initialisers draw their seeds from Python's."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)


class _Builder:
    """Makes the calls of one graph, which share their variables."""

    def __init__(self, graph: tf.Graph, model: Model):
        self._graph = graph
        self._model = model
        self._shared = sharing.SharedVariables()
        self._first: collections.Snapshot | None = None  # the collections of the first call of model_fn
        self._weight_losses = collections.EMPTY
        with v1.variable_scope(v1.get_variable_scope(), use_resource=True):
            self.global_step = v1.train.create_global_step(graph)

    @property
    def shown(self) -> collections.Snapshot:
        """The collections that the finished graph shows: those of the first call, as a graph of one call would."""
        return self._first or collections.EMPTY

    def train_stream(self, input_fn: Callable[..., Any]) -> TrainStream:
        source = streams.train_source(input_fn, self._model.params, self._model.config)
        batch = streams.train_input(source)
        with collections.shown(self._graph, source.collections):
            result = self._call(batch, ModeKeys.TRAIN, '', 'training')
            taken = collections.take(self._graph)
        self._note_first(taken)
        # The step is read after the train op in the same run: a second run would cost a round trip per step.
        with v1.name_scope('framework/train/'), tf.control_dependencies([result.train_op]):
            step_after = tf.identity(self.global_step.read_value(), name='step_after')
        return TrainStream(source, batch, result, step_after, taken)

    def tower(self, index: int, sources: Sequence[streams.Source]) -> Tower:
        name = f'tower_{index}'
        batch = streams.tower_input(name, sources)
        caller = f'evaluation of {", ".join(source.stream for source in sources)}'
        before = _local_variables()
        with collections.shown(self._graph, self._weight_losses):
            result = self._call(batch, ModeKeys.EVAL, f'eval/{name}/', caller)
            with v1.name_scope(f'framework/{name}/'):
                metrics = _metrics(result, batch.examples)
                own = v1.variables_initializer(_local_variables(before))
                reset = tf.group(own, *self._table_copies(), name='reset')
                update = tf.group(*(update for _, update in metrics.values()), name='update')
            taken = collections.take(self._graph)
        self._note_first(taken)
        values = {key: value for key, (value, _) in metrics.items()}
        return Tower(name, {s.stream: s for s in sources}, batch, result, reset, update, values, taken)

    def _note_first(self, taken: collections.Snapshot) -> None:
        if self._first is None:
            self._first = taken
            self._weight_losses = collections.batch_free_regularization(taken)

    def _table_copies(self) -> list[tf.Operation]:
        return [] if self._first is None else tables.copies(self._first, collections.take(self._graph))

    def _call(self, batch: streams.Input, mode: str, prefix: str, caller: str) -> spec.EstimatorSpec:
        with self._shared.first_call(caller) if self._first is None else self._shared.later_call(prefix, caller):
            return spec.call_model_fn(
                self._model.model_fn,
                features=batch.features,
                labels=batch.labels,
                mode=mode,
                params=self._model.params,
                config=self._model.config,
            )


def _metrics(result: spec.EstimatorSpec, examples: tf.Tensor) -> dict[str, tuple[tf.Tensor, Any]]:
    """Returns the metrics in order of their names, so that equal models give equal graphs."""
    metrics = {
        LOSS_PER_EXAMPLE: v1.metrics.mean(result.loss, tf.cast(examples, tf.float32), name=LOSS_PER_EXAMPLE),
        **result.eval_metric_ops,
        LOSS: v1.metrics.mean(result.loss, name=LOSS),
    }
    return {name: metrics[name] for name in sorted(metrics)}


def _local_variables(without: Sequence[Any] = ()) -> list[Any]:
    """Returns the local variables and those of metrics, each once."""
    left_out = {id(variable) for variable in without}
    found = {id(variable): variable for variable in [*v1.local_variables(), *v1.get_collection(KEYS.METRIC_VARIABLES)]}
    return [variable for key, variable in found.items() if key not in left_out]


def _evaluation_init(
    variables: Sequence[Any], towers: Sequence[Tower], sources: Sequence[streams.Source]
) -> tf.Operation:
    """Initialises evaluation's tables too: the session's own initialisation sees training's collections only."""
    calls = [*(tower.collections for tower in towers), *(source.collections for source in sources)]
    tables = [op for call in calls for op in call.get(KEYS.TABLE_INITIALIZERS)]
    resets = [tower.reset for tower in towers]
    with v1.name_scope('framework/'):
        return tf.group(v1.variables_initializer(list(variables)), *resets, *tables, name='evaluation_init')


def check_train_op(compiled: Compiled, hooked: bool) -> None:
    """Refuses a train op that moves no weight, or not the global step.

    Args:
        compiled: A graph with a training call.
        hooked: Whether the caller has hooks. Hooks may do the training, as some GANs have it: then this only warns.

    Raises:
        ConfigurationError: If the train op can't change any trainable variable, or can't change the global step.
    """
    if compiled.train is None:
        return
    result = compiled.train.spec
    with compiled.graph.as_default():
        trainable = v1.trainable_variables()
    faults = []
    if trainable and not movement.changed(result.train_op, trainable):
        faults.append(
            f'`train_op` [{result.train_op.name}] changes none of the {len(trainable)} trainable variables. Return '
            'what `optimizer.minimize(loss, global_step=...)` of a `tf.compat.v1.train` optimizer returns.'
        )
    if not movement.changed(result.train_op, [compiled.global_step]):
        faults.append(
            f'`train_op` [{result.train_op.name}] does not move `global_step`. Pass '
            '`global_step=tf.compat.v1.train.get_global_step()` to the optimizer, or group an `assign_add(1)` with it.'
        )
    if faults and not (hooked or result.training_hooks or result.training_chief_hooks):
        raise errors.ConfigurationError(' '.join(faults))
    for fault in faults:
        logging.warning('%s (Unless a hook does it.)', fault)


_OF_THE_SESSION = ('init_op', 'init_fn', 'ready_op', 'ready_for_local_init_op', 'summary_op')


def check_scaffolds(compiled: Compiled) -> None:
    """Refuses an evaluation Scaffold that would be silently ignored; training's Scaffold governs the session.

    Raises:
        ConfigurationError: If evaluation has a Saver of its own, for example one that maps moving averages.
    """
    if compiled.train is None:
        return
    for tower in compiled.towers:
        scaffold = tower.spec.scaffold
        if scaffold is None or scaffold is compiled.train.spec.scaffold:
            continue
        if scaffold.saver is not None:
            raise errors.ConfigurationError(
                f'`EstimatorSpec.scaffold` of evaluation ({", ".join(tower.sources)}) has a `saver` '
                f'[{type(scaffold.saver).__name__}]: nothing is restored for a pass in the one graph, so it would be '
                'ignored. To evaluate moving averages, read them by a custom getter in EVAL.'
            )
        ignored = [name for name in _OF_THE_SESSION if getattr(scaffold, name) is not None]
        if ignored:
            logging.warning('Scaffold of evaluation: %s ignored; training governs the session.', ', '.join(ignored))
