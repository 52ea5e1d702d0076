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
from framework.graph import collections, movement, sharing, sources, streams, tables
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
        source: What its input_fn returned.
        input: Its current batch.
        spec: What model_fn returned.
        step_after: int64 scalar, the global step once the train op has run.
        collections: What input_fn and model_fn added to the graph's collections.
    """

    source: sources.Source
    input: streams.Input
    spec: spec.EstimatorSpec
    step_after: tf.Tensor
    collections: collections.Snapshot


@dataclasses.dataclass(frozen=True)
class Tower:
    """One evaluation call, shared by all sets of one element structure.

    Attributes:
        name: `tower_<i>`.
        prefix: The name scope of the call, with a slash at its end; empty where it has the names of a lone graph.
        sources: Per set what its input_fn returned.
        input: The current batch.
        spec: What model_fn returned.
        reset: Sets every local variable of the call to its initial value.
        update: Takes the current batch into the metrics.
        values: The metrics by name, `loss` among them.
        variables: The local variables of the call.
        collections: What the call added to the graph's collections.
    """

    name: str
    prefix: str
    sources: Mapping[str, sources.Source]
    input: streams.Input
    spec: spec.EstimatorSpec
    reset: tf.Operation
    update: tf.Operation
    values: Mapping[str, tf.Tensor]
    variables: Sequence[tf.Variable]
    collections: collections.Snapshot

    @property
    def caller(self) -> str:
        """What messages call it."""
        return f'evaluation of {", ".join(self.sources)}'


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
    """

    graph: tf.Graph
    global_step: tf.Variable
    train: TrainStream | None
    towers: Sequence[Tower]
    init: tf.Operation
    apart: Mapping[str, str]

    def tower(self, stream: str) -> Tower:
        """Returns the tower of an evaluation set."""
        return {name: tower for tower in self.towers for name in tower.sources}[stream]


def compile_graph(
    model: Model,
    train_input_fn: Callable[..., Any] | None,
    eval_sets: Sequence[EvalSet],
    *,
    seed: int,
    alone: bool = False,
    require_equal_structures: bool = False,
) -> Compiled:
    """Builds the graph.

    Args:
        model: model_fn, params and config.
        train_input_fn: None makes an evaluation-only graph, whose first tower has the names of a lone graph.
        eval_sets: The evaluation sets, of different names.
        seed: Seeds the graph, and Python's and NumPy's generators while user code builds.
        alone: Whether the graph is that of a single evaluation set, run in a session per pass: nothing is set apart.
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
        made = [sources.eval_source(eval_set, model.params, model.config) for eval_set in eval_sets]
        apart = {source.stream: _CANNOT_RESTART for source in made if not (alone or source.restarts)}
        groups = sources.group_by_structure([source for source in made if source.stream not in apart])
        if train is not None:
            sources.compare_with_training(train.source, groups, require_equal_structures)
        towers = [builder.tower(i, group) for i, group in enumerate(groups)]
        if not alone:
            apart |= builder.apart(towers, train)
        collections.show(graph, builder.shown)
        init = _evaluation_init(_local_variables(before), towers, made)
    return Compiled(graph, builder.global_step, train, towers, init, apart)


_CANNOT_RESTART = 'its input_fn returns tensors whose data can not start again in a session'
_OWN_SAVER = 'its Scaffold has a saver of its own, which says how a checkpoint becomes its variables'


def _has_own_saver(tower: Tower, train: TrainStream | None) -> bool:
    scaffold = tower.spec.scaffold
    own = scaffold.saver is not None and (train is None or scaffold is not train.spec.scaffold)
    return own or bool(tower.collections.get(KEYS.SAVERS))


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
        self._weight_losses: Sequence[tf.Tensor] = ()
        self._made: dict[str, set[str]] = {}  # the names of the ops of each call, its input's included
        with v1.variable_scope(v1.get_variable_scope(), use_resource=True):
            self.global_step = v1.train.create_global_step(graph)

    @property
    def shown(self) -> collections.Snapshot:
        """The collections that the finished graph shows: those of the first call, as a graph of one call would."""
        return self._first or collections.EMPTY

    def train_stream(self, input_fn: Callable[..., Any]) -> TrainStream:
        before = len(self._graph.get_operations())
        source = sources.train_source(input_fn, self._model.params, self._model.config)
        batch = streams.make_input(source.stream, [source])
        with collections.shown(self._graph, source.collections):
            result = self._call(batch, ModeKeys.TRAIN, '', 'training')
            taken = collections.take(self._graph)
        self._note_first(taken)
        self._note_ops('training', before)
        # The step is read after the train op in the same run: a second run would cost a round trip per step.
        with v1.name_scope('framework/train/'), tf.control_dependencies([result.train_op]):
            step_after = tf.identity(self.global_step.read_value(), name='step_after')
        return TrainStream(source, batch, result, step_after, taken)

    def tower(self, index: int, group: Sequence[sources.Source]) -> Tower:
        name = f'tower_{index}'
        prefix = f'eval/{name}/' if self._first else ''
        ops_before = len(self._graph.get_operations())
        batch = streams.make_input(name, group)
        caller = f'evaluation of {", ".join(source.stream for source in group)}'
        before = _local_variables()
        with collections.shown(self._graph, collections.EMPTY if self._first else group[0].collections):
            result = self._call(batch, ModeKeys.EVAL, prefix, caller)
            with v1.name_scope(f'framework/{name}/'):
                metrics = _metrics(result, batch.examples)
                own = _local_variables(before)
                reset = tf.group(v1.variables_initializer(own), *self._table_copies(), name='reset')
                update = tf.group(*(update for _, update in metrics.values()), name='update')
            taken = collections.take(self._graph)
        self._note_first(taken)
        self._note_ops(caller, ops_before)
        return Tower(
            name=name,
            prefix=prefix,
            sources={source.stream: source for source in group},
            input=batch,
            spec=result,
            reset=reset,
            update=update,
            values={key: value for key, (value, _) in metrics.items()},
            variables=own,
            collections=taken,
        )

    def _note_first(self, taken: collections.Snapshot) -> None:
        if self._first is None:
            self._first = taken
            self._weight_losses = collections.batch_free_regularization(taken)

    def _note_ops(self, caller: str, before: int) -> None:
        self._made[caller] = {op.name for op in self._graph.get_operations()[before:]}

    def apart(self, towers: Sequence[Tower], train: TrainStream | None) -> dict[str, str]:
        """Returns the sets whose evaluation isn't that of a lone graph, or would change training, with the reason."""
        reasons: dict[str, str] = {}
        for tower in towers:
            reason = _OWN_SAVER if _has_own_saver(tower, train) else self._entanglement(tower)
            reasons |= {stream: reason for stream in tower.sources if reason}
        return reasons

    def _entanglement(self, tower: Tower) -> str | None:
        fetches = [tower.update, *tower.values.values()]
        own = {id(variable) for variable in tower.variables}
        others = [v for v in [*v1.global_variables(), *_local_variables()] if id(v) not in own]
        written = movement.changed(fetches, others)
        if written:
            return f'it writes `{written[0].op.name}`, which is not its own'
        allowed = {op.name for op in movement.ancestors(self._weight_losses)}
        for caller, made in self._made.items():
            for op in movement.ancestors(fetches) if tower.caller != caller else ():
                if op.name in made and op.name not in allowed and not _is_shared(op):
                    return f'it reads `{op.name}`, which {caller} made'
        return None

    def _table_copies(self) -> list[tf.Operation]:
        return [] if self._first is None else tables.copies(self._first, collections.take(self._graph))

    def _call(self, batch: streams.Input, mode: str, prefix: str, caller: str) -> spec.EstimatorSpec:
        shared = self._shared
        first = self._first is None
        with shared.first_call(caller) if first else shared.later_call(prefix, caller, self._weight_losses):
            return spec.call_model_fn(
                self._model.model_fn,
                features=batch.features,
                labels=batch.labels,
                mode=mode,
                params=self._model.params,
                config=self._model.config,
            )


def _is_shared(op: tf.Operation) -> bool:
    """Whether a call may use the op of another: a variable or table, its current value, Keras's learning phase."""
    while op.type in ('ReadVariableOp', 'Identity'):
        op = op.inputs[0].op
    return _is_handle(op) or 'keras_learning_phase' in op.name


def _is_handle(op: tf.Operation) -> bool:
    of_resource = all(value.dtype == tf.resource for value in op.outputs) and not op.type.startswith('Iterator')
    return not op.inputs and (of_resource or op.type in ('Variable', 'VariableV2'))


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


def _evaluation_init(variables: Sequence[Any], towers: Sequence[Tower], made: Sequence[sources.Source]) -> tf.Operation:
    """Initialises evaluation's tables too: the session's own initialisation sees training's collections only."""
    calls = [*(tower.collections for tower in towers), *(source.collections for source in made)]
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
        weights = movement.changed([result.train_op], trainable)
        step = movement.changed([result.train_op], [compiled.global_step])
    faults = []
    if trainable and not weights:
        faults.append(
            f'`train_op` [{result.train_op.name}] changes none of the {len(trainable)} trainable variables. Return '
            'what `optimizer.minimize(loss, global_step=...)` of a `tf.compat.v1.train` optimizer returns.'
        )
    if not step:
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
    """Warns of what is ignored in evaluation's Scaffold: training's governs the session."""
    if compiled.train is None:
        return
    for tower in compiled.towers:
        scaffold = tower.spec.scaffold
        ignored = [name for name in _OF_THE_SESSION if getattr(scaffold, name) is not None]
        if ignored and scaffold is not compiled.train.spec.scaffold and not _has_own_saver(tower, compiled.train):
            logging.warning('Scaffold of evaluation: %s ignored; training governs the session.', ', '.join(ignored))
