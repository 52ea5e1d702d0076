"""Compiles model_fn and input functions into one graph.

The order is fixed, because op seeds and names follow from it: graph seed, global step, training input, training call,
then all evaluation. Evaluation can therefore not change training.
"""

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging
from tensorflow.compat import v1

from framework import errors, spec
from framework.graph import (
    apart,
    building,
    collections,
    fused,
    movement,
    pass_summaries,
    sharing,
    sources,
    streams,
    sums,
    tables,
    train_metrics,
)
from framework.graph.calls import Compiled, Draws, Model, Tower, TrainStream, evaluation_of
from framework.graph.random_ops import exchange
from framework.graph.random_ops.audit import audit
from framework.graph.random_ops.keying import Keying
from framework.run_config import EvalSet
from framework.spec import LOSS_PER_EXAMPLE, ModeKeys

KEYS = v1.GraphKeys
SizesOf = Callable[[Sequence[tf.Tensor]], list[int]]
LOSS = 'loss'  # the metric that every pass has: the mean of the loss over batches, as in tf.estimator


def compile_graph(
    model: Model,
    train_input_fn: Callable[..., Any] | None,
    eval_sets: Sequence[EvalSet],
    *,
    seed: int | None,
    alone: bool = False,
    saved: Collection[str] | None = None,
    require_equal_structures: bool = False,
    restart: bool = False,
    accumulate: bool = False,
    keyed: bool = False,
    ordered_sums: bool = False,
    fuse: bool = False,
    xla: str | None = None,
    loss_per_example: bool = True,
    sizes_of: SizesOf = lambda of: [tf.data.INFINITE_CARDINALITY] * len(of),
) -> Compiled:
    """Builds the graph.

    Args:
        model: model_fn, params and config.
        train_input_fn: None makes an evaluation-only graph, whose first tower has the names of a lone graph.
        eval_sets: The evaluation sets, of different names.
        seed: Seeds the graph, and Python's and NumPy's generators while user code builds; None only where nothing is
            keyed.
        alone: Whether the graph is that of a single evaluation set, run in a session per pass: nothing is set apart.
        saved: The names of the variables in the checkpoints that a graph without training is for.
        require_equal_structures: Whether evaluation elements must have training's structure.
        restart: Whether the training data starts again when it ends.
        accumulate: Whether the metrics of the training call are accumulated while it trains.
        xla: What of fused train runs XLA compiles: `step`, `loop` or None.
        loss_per_example: Whether passes have, beside the metric `loss`, the mean over examples.
        sizes_of: Returns the values of cardinalities; for that a session is needed. By default all data counts as
            endless, so that a run finds its end, and makes what depends on no batch.
        keyed: Whether random ops draw by `Compiled.draws.tick` and by their names, in place of state of the session.
        ordered_sums: Whether tensors are added up two at a time.
        fuse: Whether many train runs, and whole passes, are made in one run of the session where that can be.

    Raises:
        ConfigurationError: If what the user's functions return breaks their contract.
    """
    with building.new_graph(seed) as graph, contextlib.ExitStack() as stack:
        builder = _Builder(graph, model, loss_per_example)
        keys = stack.enter_context(exchange.keyed(graph, seed)) if keyed and seed is not None else None
        if ordered_sums:
            stack.enter_context(sums.in_order())
        train = None
        if train_input_fn is not None:
            train = builder.train_stream(train_input_fn, sizes_of, restart, accumulate)
        before = building.local_variables()
        made = [sources.eval_source(eval_set, model.params, model.config) for eval_set in eval_sets]
        set_apart = {source.stream: apart.CANNOT_RESTART for source in made if not (alone or source.restarts)}
        groups = sources.group_by_structure([source for source in made if source.stream not in set_apart])
        if train is not None:
            sources.compare_with_training(train.source, groups, require_equal_structures)
        sizes = dict(zip((s.stream for s in made), sizes_of([s.cardinality for s in made]), strict=True))
        towers = [builder.tower(i, group, sizes) for i, group in enumerate(groups)]
        if not alone:
            set_apart |= apart.reasons(builder.calls, towers, train)
        if saved is not None:
            sharing.keep_out_of_checkpoint(saved, evaluation_of(s.stream for s in eval_sets))
        collections.show(graph, builder.shown)
        if saved is not None:
            tables.keep_out_of_checkpoint(saved)
        own = [*building.local_variables(before), *(keys.variables if keys else ())]
        init = _evaluation_init(own, towers, made)
        draws = _draws(keys, train)
        towers = pass_summaries.summarised(towers, builder.calls)
        if fuse:
            if train is not None:
                train = fused.fuse_training(train, draws.tick, builder.global_step, xla)
            shared = [not set_apart.keys() & tower.sources.keys() for tower in towers]
            towers = [fused.fuse_pass(t, draws.tick) if s else t for t, s in zip(towers, shared, strict=True)]
    return Compiled(graph, builder.global_step, train, towers, init, set_apart, draws)


class _Builder:
    """Makes the calls of one graph, which share their variables."""

    def __init__(self, graph: tf.Graph, model: Model, loss_per_example: bool):
        self._graph = graph
        self._model = model
        self._loss_per_example = loss_per_example
        self._shared = sharing.SharedVariables()
        self._first: collections.Snapshot | None = None  # the collections of the first call of model_fn
        self._weight_losses: Sequence[tf.Tensor] = ()
        self._made: dict[str, frozenset[str]] = {}
        self._train_scaffold: v1.train.Scaffold | None = None
        self.global_step = building.create_global_step()

    @property
    def shown(self) -> collections.Snapshot:
        """The collections that the finished graph shows: those of the first call, as a graph of one call would."""
        return self._first or collections.EMPTY

    @property
    def calls(self) -> apart.Calls:
        """What the calls made, for finding those that depend on one another."""
        weights = frozenset(op.name for op in movement.ancestors(self._weight_losses))
        return apart.Calls(self._made, weights)

    def train_stream(
        self, input_fn: Callable[..., Any], sizes_of: SizesOf, restart: bool, accumulate: bool
    ) -> TrainStream:
        before = len(self._graph.get_operations())
        source = sources.train_source(input_fn, self._model.params, self._model.config)
        (size,) = sizes_of([source.cardinality])
        batch = streams.make_train_input(source, size, restart)
        with collections.shown(self._graph, source.collections):
            result = self._call(batch, ModeKeys.TRAIN, '', 'training')
            with v1.name_scope('framework/train/'):
                metrics = result.eval_metric_ops if accumulate else {}
                accumulated = train_metrics.accumulated(metrics, batch, result.train_op)
            taken = collections.take(self._graph)
        self._note_first(taken)
        self._note_ops('training', before)
        self._train_scaffold = result.scaffold
        # The step is read after the train op in the same run: a second run would cost a round trip per step.
        with v1.name_scope('framework/train/'), tf.control_dependencies([result.train_op]):
            step_after = tf.identity(self.global_step.read_value(), name='step_after')
        return TrainStream(source, batch, result, step_after, accumulated, taken)

    def tower(self, index: int, group: Sequence[sources.Source], sizes: Mapping[str, int]) -> Tower:
        name = f'tower_{index}'
        prefix = f'eval/{name}/' if self._first else ''
        ops_before = len(self._graph.get_operations())
        batch = streams.make_tower_input(name, group, [sizes[source.stream] for source in group])
        caller = evaluation_of(source.stream for source in group)
        before = building.local_variables()
        with collections.shown(self._graph, collections.EMPTY if self._first else group[0].collections):
            result = self._call(batch, ModeKeys.EVAL, prefix, caller)
            with v1.name_scope(f'framework/{name}/'):
                metrics = _metrics(result, batch.examples if self._loss_per_example else None)
                own = building.local_variables(before)
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
            local_init=None if result.scaffold is self._train_scaffold else result.scaffold.local_init_op,
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
        self._made[caller] = frozenset(op.name for op in self._graph.get_operations()[before:])

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


def _metrics(result: spec.EstimatorSpec, examples: tf.Tensor | None) -> dict[str, tuple[tf.Tensor, Any]]:
    """Returns the metrics in order of their names, so that equal models give equal graphs."""
    of_examples = {}
    if examples is not None:
        weights = tf.cast(examples, tf.float32)
        of_examples = {LOSS_PER_EXAMPLE: v1.metrics.mean(result.loss, weights, name=LOSS_PER_EXAMPLE)}
    metrics = {
        **of_examples,
        **result.eval_metric_ops,
        LOSS: v1.metrics.mean(result.loss, name=LOSS),
    }
    return {name: metrics[name] for name in sorted(metrics)}


def _evaluation_init(variables: Sequence[Any], towers: Sequence[Tower], made: Sequence[sources.Source]) -> tf.Operation:
    """Initialises evaluation's tables too: the session's own initialisation sees training's collections only."""
    calls = [*(tower.collections for tower in towers), *(source.collections for source in made)]
    tables = [op for call in calls for op in call.get(KEYS.TABLE_INITIALIZERS)]
    resets = [tower.reset for tower in towers]
    with v1.name_scope('framework/'):
        return tf.group(v1.variables_initializer(list(variables)), *resets, *tables, name='evaluation_init')


def _draws(keys: Keying | None, train: TrainStream | None) -> Draws:
    if keys is None:
        return Draws()
    roots: list[Any] = []
    if train is not None:
        roots = [train.step_after, train.spec.loss, *train.updates, *train.input.initializers.values()]
    return Draws(keys.tick if keys.uses_tick else None, (), tuple(audit(v1.get_default_graph(), roots)))


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
        if ignored and scaffold is not compiled.train.spec.scaffold and not apart.has_own_saver(tower, compiled.train):
            logging.warning('Scaffold of evaluation: %s ignored; training governs the session.', ', '.join(ignored))
