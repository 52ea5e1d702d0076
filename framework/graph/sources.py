"""What an input_fn returned: a Dataset, or (as code for `tf.estimator` has it) tensors of the current batch."""

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from absl import logging
from tensorflow.compat import v1

from framework import errors, input_functions
from framework.graph import collections, own_iterators, sharing
from framework.run_config import EvalSet
from framework.run_dir import TRAIN
from framework.spec import ModeKeys

PREDICT = 'predict'  # the stream of an input_fn that no evaluation set names
_ENDING = ('IteratorGetNext', 'QueueDequeue')  # types of the ops that report the end of the data begin like this


@dataclasses.dataclass(frozen=True)
class Source:
    """What an input_fn returned, and the collections that it filled.

    Attributes:
        stream: `train`, `predict`, or the evaluation set's name.
        dataset: The Dataset of its batches; None where it returned tensors.
        tensors: The tensors of the current batch; None where it returned a Dataset.
        starts: The ops that start the iterators that it made itself.
        ends: The ops that report the end of the tensors' data.
        restarts: Whether its data can start again in the same session.
        cardinality: int64 scalar: batches in a pass, -1 infinite, -2 unknown.
        collections: What the input_fn added to the graph's collections.
    """

    stream: str
    dataset: tf.data.Dataset | None
    tensors: Any
    starts: tuple[tf.Operation, ...]
    ends: frozenset[str]
    restarts: bool
    cardinality: tf.Tensor
    collections: collections.Snapshot

    @property
    def element_spec(self) -> Any:
        """The structure of an element."""
        if self.dataset is not None:
            return self.dataset.element_spec
        return tf.nest.map_structure(tf.type_spec_from_value, self.tensors)

    @property
    def pipeline(self) -> list[tf.Operation | tf.Tensor]:
        """What the input_fn made, for those who look at what that depends on."""
        return list(self.starts) if self.dataset is None else [tf.data.experimental.to_variant(self.dataset)]


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


def predict_source(input_fn: Callable[..., Any], params: Any, config: Any, mode: str = ModeKeys.PREDICT) -> Source:
    """Calls an input_fn for prediction, once; its variables stay out of the checkpoint."""
    with sharing.local_variables_only(scope(PREDICT), 'the input_fn of a prediction'):
        return _source(input_fn, PREDICT, mode, params, config)


def _source(input_fn: Callable[..., Any], stream: str, mode: str, params: Any, config: Any) -> Source:
    graph = v1.get_default_graph()
    with collections.shown(graph, collections.EMPTY), v1.name_scope(scope(stream)), tf.device('/cpu:0'):
        before = len(graph.get_operations())
        with own_iterators.noted() as own:
            result = input_functions.call_input_fn(input_fn, stream=stream, mode=mode, params=params, config=config)
            if isinstance(result, v1.data.Iterator):
                result = result.get_next()
        made = graph.get_operations()[before:]
        taken = collections.take(graph)
        if isinstance(result, tf.data.Dataset):
            tuned = mode != ModeKeys.EVAL or getattr(config, 'autotune_evaluation', False)
            dataset = result if tuned else _without_autotune(result)
            size = tf.data.experimental.cardinality(dataset)
            return Source(stream, dataset, None, (), frozenset(), True, size, taken)
        ends = frozenset(op.name for op in made if op.type.startswith(_ENDING))
        size = tf.constant(tf.data.UNKNOWN_CARDINALITY if ends else tf.data.INFINITE_CARDINALITY, tf.int64)
        restarts = bool(own.initializers) and not taken.get(v1.GraphKeys.QUEUE_RUNNERS)
        return Source(stream, None, result, own.starts(), ends, restarts, size, taken)


def _without_autotune(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Switches autotuning off unless the user chose: starting an iterator anew waits for the thread that tunes it.

    Measured on 2 cores: 0.2 to 1.2 s in every third pass over 300 images, against 0.02 s.
    """
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # TensorFlow warns of the very state that we ask for
        if dataset.options().autotune.enabled is not None:
            return dataset
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def group_by_structure(sources: Sequence[Source]) -> list[list[Source]]:
    """Groups the evaluation sets that can share an iterator: Datasets whose element_spec is exactly equal."""
    groups: list[list[Source]] = []
    for source in sources:
        for group in groups:
            both = source.dataset is not None and group[0].dataset is not None
            if both and group[0].element_spec == source.element_spec:
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
        if _unbatched(group[0].element_spec) == _unbatched(train.element_spec):
            continue
        text = (
            f'Evaluation of {", ".join(source.stream for source in group)} has elements of another structure than '
            f'training.\n  training:   {train.element_spec}\n  evaluation: {group[0].element_spec}'
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
