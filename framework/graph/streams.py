"""The input of one stream: Dataset -> iterator -> features and labels of the current batch.

Training has an iterator of its own. Evaluation sets whose element structure is exactly equal share one iterator that
each pass initialises with its own set, so that the graph doesn't grow with the number of sets.
"""

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging
from tensorflow.compat import v1

from framework import errors, input_functions
from framework.graph import collections, sharing
from framework.run_config import EvalSet
from framework.run_dir import TRAIN
from framework.spec import ModeKeys


@dataclasses.dataclass(frozen=True)
class Source:
    """What an input_fn returned, and the collections that it filled.

    Attributes:
        stream: `train`, or the evaluation set's name.
        dataset: The Dataset of its batches.
        cardinality: int64 scalar: batches in the Dataset, -1 infinite, -2 unknown.
        collections: What the input_fn added to the graph's collections.
    """

    stream: str
    dataset: tf.data.Dataset
    cardinality: tf.Tensor
    collections: collections.Snapshot


@dataclasses.dataclass(frozen=True)
class Input:
    """The current batch of an iterator.

    Attributes:
        initializers: Per stream the op that starts its Dataset from the beginning.
        features: Features `[B, ...]` as model_fn gets them.
        labels: Labels `[B, ...]`, or None.
        examples: int64 scalar, the examples of the batch `B`; 1 for elements without a batch dimension.
        get_next: The ops whose OutOfRangeError is the end of the data.
    """

    initializers: Mapping[str, tf.Operation]
    features: Any
    labels: Any
    examples: tf.Tensor
    get_next: frozenset[str]

    def ended(self, error: tf.errors.OutOfRangeError) -> bool:
        """Whether the error says that this stream's data ended, and not that some other op ran out of something."""
        if error.op is not None:
            return error.op.name in self.get_next
        return any(f'{{{{node {name}}}}}' in error.message for name in self.get_next)


def scope(stream: str) -> str:
    """Returns the name scope of a stream's input ops; a model_fn's scopes must keep the names of a lone graph."""
    return f'framework/{stream}_input/'


def train_source(input_fn: Callable[..., Any], params: Any, config: Any) -> Source:
    """Calls the training input_fn, once."""
    return _source(input_fn, TRAIN, ModeKeys.TRAIN, params, config)


def eval_source(eval_set: EvalSet, params: Any, config: Any) -> Source:
    """Calls the input_fn of an evaluation set, once; its variables stay out of the checkpoint."""
    with sharing.local_variables_only(scope(eval_set.stream), f'the input_fn of {eval_set.stream}'):
        return _source(eval_set.input_fn, eval_set.stream, ModeKeys.EVAL, params, config)


def _source(input_fn: Callable[..., Any], stream: str, mode: str, params: Any, config: Any) -> Source:
    graph = v1.get_default_graph()
    with collections.shown(graph, collections.EMPTY), v1.name_scope(scope(stream)):
        dataset = input_functions.call_input_fn(input_fn, stream=stream, mode=mode, params=params, config=config)
        if mode == ModeKeys.EVAL:
            dataset = _without_autotune(dataset)
        with tf.device('/cpu:0'):
            cardinality = tf.data.experimental.cardinality(dataset)
        return Source(stream, dataset, cardinality, collections.take(graph))


def _without_autotune(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Switches autotuning off unless the user chose: starting an iterator anew waits for the thread that tunes it.

    Measured on 2 cores: 0.2 to 1.2 s in every third pass over 300 images, against 0.02 s.
    """
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # in a graph `options()` knows what was set by `with_options`: that is asked
        chosen = dataset.options().autotune.enabled
    if chosen is not None:
        return dataset
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def train_input(source: Source) -> Input:
    """Returns the current batch of the training stream."""
    return _input(source.stream, [source])


def tower_input(name: str, sources: Sequence[Source]) -> Input:
    """Returns the current batch of the iterator that these sources of equal structure share."""
    return _input(name, sources)


def _input(name: str, sources: Sequence[Source]) -> Input:
    graph = v1.get_default_graph()
    with v1.name_scope(scope(name)), tf.device('/cpu:0'):
        iterator = v1.data.make_initializable_iterator(sources[0].dataset)
        initializers = _initializers(iterator, sources)
        before = {op.name for op in graph.get_operations()}
        element = iterator.get_next()
        made = [op for op in graph.get_operations() if op.name not in before]
        features, labels = input_functions.split_element(element, stream=', '.join(initializers))
        get_next = frozenset(op.name for op in made if op.type.startswith('IteratorGetNext'))
        return Input(initializers, features, labels, _examples(element), get_next)


def _initializers(iterator: Any, sources: Sequence[Source]) -> dict[str, tf.Operation]:
    # `Iterator.make_initializer` does not know every kind of component: not None, optionals and nested Datasets.
    first, *others = sources
    (handle,) = (value for value in iterator.initializer.inputs if value.dtype == tf.resource)
    made = {
        source.stream: tf.raw_ops.MakeIterator(
            dataset=tf.data.experimental.to_variant(source.dataset), iterator=handle, name=f'start_{source.stream}'
        )
        for source in others
    }
    return {first.stream: iterator.initializer, **made}


def _examples(element: Any) -> tf.Tensor:
    """Returns the size of the first dimension of the element's first component that has one."""
    for component in tf.nest.flatten(element):
        if isinstance(component, tf.RaggedTensor):
            return tf.cast(component.nrows(), tf.int64)
        # Other kinds (nested Datasets, optionals, None) have no batch dimension that could be asked for.
        if isinstance(component, (tf.Tensor, tf.SparseTensor)) and component.shape.rank != 0:
            # The 1 is for a component of unknown rank that turns out to be a scalar.
            return tf.concat([tf.shape(component, out_type=tf.int64), [1]], axis=0)[0]
    return tf.constant(1, tf.int64)


def group_by_structure(sources: Sequence[Source]) -> list[list[Source]]:
    """Groups the evaluation sets that can share an iterator: those whose element_spec is exactly equal."""
    groups: list[list[Source]] = []
    for source in sources:
        for group in groups:
            if group[0].dataset.element_spec == source.dataset.element_spec:
                group.append(source)
                break
        else:
            groups.append([source])
    return groups


def compare_with_training(train: Source, groups: Sequence[Sequence[Source]], require_equal: bool) -> None:
    """Warns of evaluation structures that differ from training's in more than the batch dimension.

    Raises:
        ConfigurationError: In place of the warning, when `require_equal`.
    """
    for group in groups:
        if _unbatched(group[0].dataset.element_spec) == _unbatched(train.dataset.element_spec):
            continue
        text = (
            f'Evaluation of {", ".join(source.stream for source in group)} has elements of another structure than '
            f'training.\n  training:   {train.dataset.element_spec}\n  evaluation: {group[0].dataset.element_spec}'
        )
        if require_equal:
            raise errors.ConfigurationError(
                f'{text}\n`Experiment.require_equal_structures` [True] refuses that: make the input functions agree.'
            )
        logging.warning('%s', text)


def _unbatched(element_spec: Any) -> Any:
    """Returns the structure with the first dimension of every component unknown."""

    def free(spec: Any) -> Any:
        if not isinstance(spec, (tf.TensorSpec, tf.SparseTensorSpec, tf.RaggedTensorSpec)) or not spec.shape.rank:
            return spec
        shape = [None, *spec.shape[1:]]
        if isinstance(spec, tf.RaggedTensorSpec):
            return tf.RaggedTensorSpec(shape, spec.dtype, spec.ragged_rank, spec.row_splits_dtype)
        return type(spec)(shape, spec.dtype)

    return tf.nest.map_structure(free, element_spec)
