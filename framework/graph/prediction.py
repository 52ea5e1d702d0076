"""Builds the graph of one call of model_fn in PREDICT: on the batches of an input_fn, or on what a receiver is fed.

Nothing stands before a name in it, so it has the variables of the checkpoint that training wrote.
"""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.compat import v1

from framework import errors, serving, spec
from framework.calling import call_by_keyword
from framework.graph import building, collections, movement, sharing, sources, streams, tables
from framework.graph.calls import Model
from framework.run_config import EvalSet, InputFn
from framework.spec import ModeKeys

KEYS = v1.GraphKeys
PREDICTIONS = 'predictions'  # what a single tensor of predictions is called
_CALLER = 'prediction'
_RECEIVER = 'serving'  # names the scope of a receiver's ops


@dataclasses.dataclass(frozen=True)
class Data:
    """The batches to predict for.

    Attributes:
        source: What the input_fn returned.
        batch: Its current batch.
        steps: How many batches its `EvalSet` asks for, None for all.
    """

    source: sources.Source
    batch: streams.Input
    steps: int | None


@dataclasses.dataclass(frozen=True)
class Prediction:
    """The graph of one call in PREDICT.

    Attributes:
        graph: The graph.
        global_step: The global step variable.
        data: The batches of an input_fn; None where a receiver is fed.
        receiver: What is fed; None where there is an input_fn.
        spec: What model_fn returned.
        predictions: The predictions `[B, ...]` by name; a single tensor is called `predictions`.
        init: Initialises what no checkpoint holds: local variables and tables. What the Scaffold initialises itself is
            left to its `local_init_op`, which is a part of this.
    """

    graph: tf.Graph
    global_step: tf.Variable
    data: Data | None
    receiver: serving.InputReceiver | serving.SupervisedInputReceiver | None
    spec: spec.EstimatorSpec
    predictions: Mapping[str, Any]
    init: tf.Operation


def compile_input(
    model: Model, data: EvalSet | InputFn, *, seed: int | None, saved: Collection[str] | None = None
) -> Prediction:
    """Builds the graph of predictions for the batches of an input_fn.

    Args:
        model: model_fn, params and config.
        data: An evaluation set, whose input_fn is called with mode EVAL, or an input_fn, called with mode PREDICT. The
            labels of its elements and the hooks of its passes are left out.
        seed: Seeds the graph, and Python's and NumPy's generators while user code builds. None seeds nothing.
        saved: The names of the variables in the checkpoint that the graph is for; None where they are not known.

    Raises:
        ConfigurationError: If what the user's functions return breaks their contract.
    """
    with building.new_graph(seed) as graph:
        step = building.create_global_step()
        source = _source(model, data)
        batch = streams.make_input(source.stream, [source])
        collections.show(graph, source.collections)
        result, init = _call(model, batch.features, saved)
    steps = data.steps if isinstance(data, EvalSet) else None
    return Prediction(graph, step, Data(source, batch, steps), None, result, _named(result.predictions), init)


def compile_receiver(
    model: Model,
    receiver_fn: serving.ReceiverFn,
    *,
    seed: int | None,
    saved: Collection[str] | None = None,
    mode: str = ModeKeys.PREDICT,
) -> Prediction:
    """Builds the graph of predictions for what is fed.

    Args:
        model: model_fn, params and config.
        receiver_fn: Makes the receiver. Its ops have a name scope of their own, so that no placeholder takes the name
            of a variable.
        seed: Seeds the graph, and Python's and NumPy's generators while user code builds. None seeds nothing.
        saved: The names of the variables in the checkpoint that the graph is for; None where they are not known.
        mode: What model_fn is called for. In another mode than PREDICT it gets the labels that the receiver has, and
            there is nothing to predict: such a graph is there to be exported.

    Raises:
        ConfigurationError: If what the user's functions return breaks their contract.
    """
    with building.new_graph(seed) as graph:
        step = building.create_global_step()
        with v1.name_scope(sources.scope(_RECEIVER)):
            receiver = _checked_receiver(call_by_keyword(receiver_fn, {}, name='serving_input_receiver_fn'), mode)
        result, init = _call(model, receiver.features, saved, mode, getattr(receiver, 'labels', None))
    predictions = _named(result.predictions) if mode == ModeKeys.PREDICT else {}
    return Prediction(graph, step, None, receiver, result, predictions, init)


def element_spec(model: Model, data: EvalSet | InputFn, *, seed: int | None, mode: str = ModeKeys.PREDICT) -> Any:
    """Returns the structure of the elements of an input_fn, which is called in a graph that is thrown away.

    Args:
        model: params and config that the input_fn may ask for.
        data: An evaluation set, called with mode EVAL, or an input_fn.
        seed: What the graph is seeded with.
        mode: What an input_fn is called with.
    """
    with building.new_graph(seed):
        building.create_global_step()
        return _source(model, data, mode).element_spec


def _source(model: Model, data: EvalSet | InputFn, mode: str = ModeKeys.PREDICT) -> sources.Source:
    if isinstance(data, EvalSet):
        return sources.eval_source(data, model.params, model.config)
    return sources.predict_source(data, model.params, model.config, mode)


def _checked_receiver(receiver: Any, mode: str) -> Any:
    if mode != ModeKeys.PREDICT and isinstance(receiver, serving.SupervisedInputReceiver):
        return receiver
    if not isinstance(receiver, serving.InputReceiver):
        raise errors.ConfigurationTypeError(
            f'serving_input_receiver_fn must return a ServingInputReceiver, given: [{type(receiver).__name__}]. '
            'Return a `ServingInputReceiver` for features in a dict, a `TensorServingInputReceiver` for one tensor.'
        )
    return receiver


def _call(
    model: Model, features: Any, saved: Collection[str] | None, mode: str = ModeKeys.PREDICT, labels: Any = None
) -> tuple[spec.EstimatorSpec, tf.Operation]:
    """Calls model_fn in the default graph, and returns its spec and the initialisation of what isn't saved."""
    with sharing.SharedVariables().first_call(_CALLER):
        result = spec.call_model_fn(
            model.model_fn,
            features=features,
            labels=labels,
            mode=mode,
            params=model.params,
            config=model.config,
        )
    if saved is not None:
        sharing.keep_out_of_checkpoint(saved, _CALLER, remedy='')
        tables.keep_out_of_checkpoint(saved)
    with v1.name_scope('framework/'):
        return result, _init(result.scaffold.local_init_op)


def _init(local_init: tf.Operation | None) -> tf.Operation:
    """Returns an op that initialises what no checkpoint holds, with the user's own op where there is one."""
    if local_init is None:
        of_metrics = v1.variables_initializer(building.local_variables(v1.local_variables()))
        return tf.group(v1.train.Scaffold.default_local_init_op(), of_metrics, name='init')
    # Not a second time what the user's op does: of two ops that write the same variable, any may be the last.
    variables = building.local_variables()
    written = {id(variable) for variable in movement.changed([local_init], variables)}
    others = v1.variables_initializer([v for v in variables if id(v) not in written])
    run = {op.name for op in movement.ancestors([local_init])}
    of_tables = [op for op in v1.get_collection(KEYS.TABLE_INITIALIZERS) if op.name not in run]
    return tf.group(local_init, others, *of_tables, name='init')


def _named(predictions: Any) -> dict[str, Any]:
    named = dict(predictions) if isinstance(predictions, Mapping) else {PREDICTIONS: predictions}
    if not named:
        raise errors.ConfigurationError('`predictions` [{}] of the spec of mode PREDICT is empty. Give at least one.')
    return named
