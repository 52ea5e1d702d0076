"""The current batch of a stream, and what starts it.

Training has an iterator of its own. Evaluation sets whose element structure is exactly equal share one iterator that
each pass initialises with its own set, so that the graph doesn't grow with the number of sets.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compat import v1

from framework import errors, input_functions
from framework.graph import epochs, movement
from framework.graph.sources import Source, scope
from framework.graph.subgraph import original_name


@dataclasses.dataclass(frozen=True)
class Input:
    """The current batch.

    Attributes:
        initializers: Per stream the op that starts its data from the beginning.
        features: Features `[B, ...]` as model_fn gets them.
        labels: Labels `[B, ...]`, or None.
        examples: int64 scalar, the examples of the batch `B`; 1 for elements without a batch dimension.
        ends: The ops whose OutOfRangeError is the end of the data.
        iterator: The iterator that we made; None where an input_fn made its own.
        sizes: Per stream its batches, until the end or in an epoch; None where there is no end. A stream that is left
            out is one of which nobody knows.
        last: bool scalar, whether the batch is the last one; None where the size tells, or nobody.
        empties: The ops whose InvalidArgumentError says that there is no batch at all.
    """

    initializers: Mapping[str, tf.Operation]
    features: Any
    labels: Any
    examples: tf.Tensor
    ends: frozenset[str]
    iterator: Any = None
    sizes: Mapping[str, int | None] = dataclasses.field(default_factory=dict)
    last: tf.Tensor | None = None
    empties: frozenset[str] = frozenset()

    @property
    def announcement(self) -> list[tf.Tensor]:
        """Whether the batch is the last one, where it says so; nothing where it doesn't."""
        return [] if self.last is None else [self.last]

    def is_read_by(self, value: tf.Tensor) -> bool:
        """Whether a value depends on the batch, so that it can't be read without taking another one."""
        return any(op.name in self.ends for op in movement.ancestors([value]))

    @property
    def knows_end(self) -> bool:
        """Whether the end of the data is known before a run that finds no batch any more."""
        return self.last is not None or self.initializers.keys() <= self.sizes.keys()

    def ended(self, error: tf.errors.OutOfRangeError) -> bool:
        """Whether the error says that this stream's data ended, and not that some other op ran out of something."""
        return _is_of(error, self.ends)

    def is_empty(self, error: tf.errors.InvalidArgumentError) -> bool:
        """Whether the error says that an epoch has no batch, and not that some op was given what it can't take."""
        return _is_of(error, self.empties)


def _is_of(error: tf.errors.OpError, names: frozenset[str]) -> bool:
    if error.op is not None and error.op.name in names:
        return True
    if original_name(error) in names:
        return True
    return error.op is None and any(f'{{{{node {name}}}}}' in error.message for name in names)


def make_train_input(source: Source, size: int, restart: bool) -> Input:
    """Returns the current batch of training.

    Args:
        source: The training data.
        size: Its batches, -1 for data without end, -2 where nobody knows.
        restart: Whether it starts again when it ends.

    Raises:
        ConfigurationError: If it can't start again.
    """
    if restart:
        _check_restarts(source)
    if _needs_announcing([source], [size]):
        return _announced_input(source.stream, [source], restart)
    if restart and source.dataset is not None and size >= 0:
        source = dataclasses.replace(source, dataset=source.dataset.repeat())
    return dataclasses.replace(make_input(source.stream, [source]), sizes=_known([source], [size]))


def make_tower_input(name: str, sources: Sequence[Source], sizes: Sequence[int]) -> Input:
    """Returns the current batch of evaluation sets of equal structure.

    Args:
        name: What the name scope of the ops is called.
        sources: The sets.
        sizes: The batches of each, -1 for data without end, -2 where nobody knows.
    """
    announce = _needs_announcing(sources, sizes)
    batch = _announced_input(name, sources, False) if announce else make_input(name, sources)
    return dataclasses.replace(batch, sizes=_known(sources, sizes))


def _needs_announcing(sources: Sequence[Source], sizes: Sequence[int]) -> bool:
    """Whether batches must come with whether they are the last, and can: where nobody knows their number."""
    is_unknown = tf.data.UNKNOWN_CARDINALITY in sizes and sources[0].dataset is not None
    return is_unknown and epochs.can_announce(sources[0].element_spec)


def _known(sources: Sequence[Source], sizes: Sequence[int]) -> dict[str, int | None]:
    pairs = zip(sources, sizes, strict=True)
    return {
        source.stream: size if size >= 0 else None for source, size in pairs if size >= tf.data.INFINITE_CARDINALITY
    }


def _check_restarts(source: Source) -> None:
    if source.dataset is None:
        raise errors.ConfigurationError(
            "`Experiment.on_train_end` ['restart'] needs a Dataset, and `Experiment.train_input_fn` returned tensors, "
            'whose data can not start again in another order. Return the Dataset itself.'
        )
    if not epochs.can_announce(source.element_spec):
        raise errors.ConfigurationError(
            "`Experiment.on_train_end` ['restart'] needs elements of tensors, and those of "
            f'`Experiment.train_input_fn` are [{source.element_spec}].'
        )


def _announced_input(name: str, sources: Sequence[Source], repeat: bool) -> Input:
    structure = sources[0].element_spec
    with v1.name_scope(scope(name)), tf.device('/cpu:0'):
        sources = [dataclasses.replace(s, dataset=epochs.announced(s.dataset, repeat)) for s in sources]
        iterator = v1.data.make_initializable_iterator(sources[0].dataset)
        starts = _initializers(iterator, sources)
        (optional, last), ends = _noted('IteratorGetNext', iterator.get_next)
        element, empties = _noted('OptionalGetValue', lambda: epochs.element_of(optional, structure))
        features, labels = input_functions.split_element(element, stream=', '.join(starts))
        return Input(starts, features, labels, _examples(element), ends, iterator, last=last, empties=empties)


def make_input(name: str, sources: Sequence[Source]) -> Input:
    """Returns the current batch of one source, or of several Datasets of equal structure that share an iterator.

    Args:
        name: What the name scope of the ops is called.
        sources: One source, or several with Datasets.
    """
    iterator = None
    with v1.name_scope(scope(name)), tf.device('/cpu:0'):
        if sources[0].dataset is None:
            (source,) = sources
            element, ends = source.tensors, source.ends
            initializers = {source.stream: tf.group(*source.starts, name='start')}
        else:
            iterator = v1.data.make_initializable_iterator(sources[0].dataset)
            initializers = _initializers(iterator, sources)
            element, ends = _noted('IteratorGetNext', iterator.get_next)
        features, labels = input_functions.split_element(element, stream=', '.join(initializers))
        return Input(initializers, features, labels, _examples(element), ends, iterator=iterator)


def _noted(op_type: str, get: Callable[[], Any]) -> tuple[Any, frozenset[str]]:
    """Returns the element that a function gets, and the op of this type that it made, which reports an end."""
    graph = v1.get_default_graph()
    before = len(graph.get_operations())
    element = get()
    made = graph.get_operations()[before:]
    return element, frozenset(op.name for op in made if op.type.startswith(op_type))


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
    """Returns the size of the batch: the first dimension of a component.

    Of the first component whose first dimension the graph doesn't know, for that is the batch; where all are known, of
    the first that has one.
    """
    parts = [part for part in tf.nest.flatten(element) if isinstance(part, _BATCHED) and part.shape.rank != 0]
    unknown = [part for part in parts if part.shape.rank is None or part.shape[0] is None]
    # Other kinds (nested Datasets, optionals, None) have no batch dimension that could be asked for.
    if not parts:
        return tf.constant(1, tf.int64)
    part = (unknown or parts)[0]
    if isinstance(part, tf.RaggedTensor):
        return tf.cast(part.nrows(), tf.int64)
    # The 1 is for a component of unknown rank that turns out to be a scalar.
    return tf.concat([tf.shape(part, out_type=tf.int64), [1]], axis=0)[0]


_BATCHED = (tf.Tensor, tf.SparseTensor, tf.RaggedTensor)
