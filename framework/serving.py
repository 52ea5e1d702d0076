"""Receivers: how a served model is fed, and what model_fn gets from that.

A receiver holds the placeholders that a caller feeds, and the features that model_fn is called with. They are made in
the default graph, so export takes functions that make them.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Self

import tensorflow as tf
from tensorflow.compat import v1

from framework import errors, input_functions

SINGLE_FEATURE = 'feature'  # what a feature without a name is called
SINGLE_LABEL = 'label'  # what a label without a name is called
SINGLE_RECEIVER = 'input'  # what a placeholder without a name is called

_TENSORS = (tf.Tensor, tf.SparseTensor, tf.RaggedTensor)
_NO_STRUCTURE = (tf.SparseTensor, v1.SparseTensorValue)  # tuples, but one value each


class InputReceiver(NamedTuple):
    """What model_fn gets, and what is fed for that; unchecked, the features in any structure.

    Attributes:
        features: Features `[B, ...]` as model_fn gets them.
        receiver_tensors: Name to the tensor that is fed.
        receiver_tensors_alternatives: Name to further groups of tensors that can be fed in place of the default ones,
            each a dict; every group makes signatures of its own. None for none.
    """

    features: Any
    receiver_tensors: Any
    receiver_tensors_alternatives: Any = None


class ServingInputReceiver(InputReceiver):
    """Features in a dict, and what is fed for them.

    A single tensor becomes a dict: of `feature` among the features, of `input` among what is fed. Where model_fn takes
    one tensor and no dict, return a `TensorServingInputReceiver`.
    """

    __slots__ = ()

    def __new__(cls, features: Any, receiver_tensors: Any, receiver_tensors_alternatives: Any = None) -> Self:
        """Checks the names and the tensors.

        Raises:
            ConfigurationError: Something is missing, has a wrong key, or is no tensor.
        """
        return super().__new__(
            cls,
            _checked_tensors(features, 'feature', SINGLE_FEATURE),
            _checked_tensors(receiver_tensors, 'receiver_tensor', SINGLE_RECEIVER),
            _checked_alternatives(receiver_tensors_alternatives),
        )


class TensorServingInputReceiver(InputReceiver):
    """One tensor as it is, and what is fed for it.

    Where model_fn takes a dict of features, return a `ServingInputReceiver`.
    """

    __slots__ = ()

    def __new__(cls, features: Any, receiver_tensors: Any, receiver_tensors_alternatives: Any = None) -> Self:
        """Checks the names and the tensors.

        Raises:
            ConfigurationError: Something is missing, has a wrong key, or is no tensor.
        """
        if isinstance(features, Mapping):
            raise errors.ConfigurationError(
                f'features must be a Tensor, SparseTensor, or RaggedTensor, given: [a dict of {list(features)}]. '
                'Return a `ServingInputReceiver`, which takes a dict.'
            )
        wrapped = ServingInputReceiver(features, receiver_tensors, receiver_tensors_alternatives)
        return super().__new__(cls, features, wrapped.receiver_tensors, wrapped.receiver_tensors_alternatives)


class _Supervised(NamedTuple):
    features: Any
    labels: Any
    receiver_tensors: Any


class SupervisedInputReceiver(_Supervised):
    """Features and labels, each a tensor or a dict, and what is fed for them: for graphs that train or evaluate."""

    __slots__ = ()

    def __new__(cls, features: Any, labels: Any, receiver_tensors: Any) -> Self:
        """Checks the names and the tensors.

        Raises:
            ConfigurationError: Something is missing, has a wrong key, or is no tensor.
        """
        _checked_tensors(features, 'feature', SINGLE_FEATURE)
        _checked_tensors(labels, 'label', SINGLE_LABEL)
        fed = _checked_tensors(receiver_tensors, 'receiver_tensor', SINGLE_RECEIVER)
        return super().__new__(cls, features, labels, fed)


ReceiverFn = Callable[[], InputReceiver]


def _checked_tensors(tensors: Any, field: str, single: str) -> dict[Any, Any]:
    if tensors is None:
        raise errors.ConfigurationError(f'{field}s must be defined. Give a tensor, or a dict of tensors.')
    named = dict(tensors) if isinstance(tensors, Mapping) else {single: tensors}
    for name, tensor in named.items():
        _check_key(name, field)
        if not isinstance(tensor, _TENSORS):
            raise errors.ConfigurationError(
                f'{field} {name} must be a Tensor, SparseTensor, or RaggedTensor, given: [{tensor!r}]. Make it by '
                '`tf.compat.v1.placeholder`, or from one.'
            )
    return named


def _check_key(name: object, field: str) -> None:
    if isinstance(name, str):
        return
    if field not in ('feature', 'label'):
        raise errors.ConfigurationError(f'{field} keys must be strings: {name!r}. A signature names its inputs.')
    if not isinstance(name, int):
        raise errors.ConfigurationError(f'{field} keys must be strings or ints: {name!r}.')


def _checked_alternatives(alternatives: Any) -> dict[str, dict[str, Any]] | None:
    if alternatives is None:
        return None
    if not isinstance(alternatives, Mapping):
        raise errors.ConfigurationError(
            f'receiver_tensors_alternatives must be a dict: {alternatives!r}. Its keys name the signatures.'
        )
    return {
        name: _checked_tensors(tensors, 'receiver_tensors_alternative', SINGLE_RECEIVER)
        for name, tensors in alternatives.items()
    }


# Functions that make receivers.


def build_raw_serving_input_receiver_fn(
    features: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """Returns a serving_input_receiver_fn that is fed each feature as it is.

    Args:
        features: Name to a tensor of the shape and dtype to expect, its first dimension left out of account.
        default_batch_size: Examples in a batch; None for any number.

    Raises:
        ConfigurationError: If `features` is no dict.
    """
    if not isinstance(features, Mapping):
        raise errors.ConfigurationError(
            f'`features` [{features!r}] must be a dict of string to Tensor. Where model_fn takes one tensor, write a '
            'function that returns a `TensorServingInputReceiver`.'
        )

    def serving_input_receiver_fn() -> ServingInputReceiver:
        specs = {name: _of_batches(tf.type_spec_from_value(tensor)) for name, tensor in features.items()}
        fed = {name: _placeholder(name, spec, default_batch_size) for name, spec in specs.items()}
        return ServingInputReceiver(fed, fed)

    return serving_input_receiver_fn


def build_raw_supervised_input_receiver_fn(
    features: Any, labels: Any, default_batch_size: int | None = None
) -> Callable[[], SupervisedInputReceiver]:
    """Returns an input_receiver_fn of a graph that trains or evaluates, fed features and labels as they are.

    Args:
        features: A tensor of the shape and dtype to expect, its first dimension left out of account, or a dict of such.
        labels: The same.
        default_batch_size: Examples in a batch; None for any number.

    Raises:
        ConfigurationError: If a feature and a label have the same name.
    """
    named = features if isinstance(features, Mapping) else {SINGLE_RECEIVER: features}
    named_labels = labels if isinstance(labels, Mapping) else {SINGLE_LABEL: labels}
    if twice := sorted(named.keys() & named_labels.keys()):
        raise errors.ConfigurationError(
            f'Features and labels must have distinct keys. Found overlapping keys: {twice}. Rename one.'
        )

    def supervised_input_receiver_fn() -> SupervisedInputReceiver:
        specs = {name: _of_batches(tf.type_spec_from_value(part)) for name, part in {**named, **named_labels}.items()}
        fed = {name: _placeholder(name, spec, default_batch_size) for name, spec in specs.items()}
        parts = [{name: fed[name] for name in names} for names in (named, named_labels)]
        given = [
            part if isinstance(whole, Mapping) else next(iter(part.values()))
            for part, whole in zip(parts, (features, labels), strict=True)
        ]
        return SupervisedInputReceiver(given[0], given[1], fed)

    return supervised_input_receiver_fn


def _of_batches(spec: Any) -> Any:
    # A scalar stands for one example, as in tf.estimator.
    return tf.TensorSpec([None], spec.dtype) if isinstance(spec, tf.TensorSpec) and spec.shape.rank == 0 else spec


def build_parsing_serving_input_receiver_fn(
    feature_spec: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """Returns a serving_input_receiver_fn that is fed serialized `tf.train.Example`s, as the input `examples`.

    Args:
        feature_spec: Name to what `tf.io.parse_example` parses.
        default_batch_size: Examples in a batch; None for any number.
    """

    def serving_input_receiver_fn() -> ServingInputReceiver:
        serialized = v1.placeholder(tf.string, [default_batch_size], name='input_example_tensor')
        return ServingInputReceiver(tf.io.parse_example(serialized, dict(feature_spec)), {'examples': serialized})

    return serving_input_receiver_fn


def receiver_of_spec(element_spec: Any) -> InputReceiver:
    """Returns a receiver that is fed features as an input_fn's batches hold them, in batches of any size.

    Args:
        element_spec: The structure of an element of the Dataset: of features, or of features and labels, which are
            left out. Nested features are fed by their keys, joined by `/`.

    Raises:
        ConfigurationError: If a feature is of a kind that can't be fed, or two have the same name.
    """
    specs, _ = input_functions.split_element(element_spec, stream='prediction')
    fed = {name: _placeholder(name, spec) for name, spec in flat_names(specs, (tuple, list)).items()}
    features = [_as_fed(spec, part) for spec, part in zip(tf.nest.flatten(specs), fed.values(), strict=True)]
    return InputReceiver(tf.nest.pack_sequence_as(specs, features), fed)


def flat_names(structure: Any, sequences: tuple[type, ...] = (tuple,)) -> dict[str, Any]:
    """Returns the leaves of nested features by their keys, joined by `/`; a lone one is called `input`.

    Args:
        structure: Dicts and tuples of leaves, or one leaf.
        sequences: What is a structure beside dicts.

    Raises:
        ConfigurationError: If two have the same name.
    """
    named: dict[str, Any] = {}
    for name, leaf in _leaves(structure, sequences, ()):
        if name in named:
            raise errors.ConfigurationError(f'Two features have the name [{name}]. Rename one: nested keys are joined.')
        named[name] = leaf
    return named


def _leaves(structure: Any, sequences: tuple[type, ...], keys: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    """Yields names and leaves, in the order of `tf.nest`."""
    if isinstance(structure, Mapping):
        for key in sorted(structure):
            yield from _leaves(structure[key], sequences, (*keys, key))
    elif _is_sequence(structure, sequences):
        for index, part in enumerate(structure):
            yield from _leaves(part, sequences, (*keys, index))
    else:
        yield '/'.join(map(str, keys)) or SINGLE_RECEIVER, structure


def _is_sequence(structure: Any, sequences: tuple[type, ...]) -> bool:
    return isinstance(structure, sequences) and not isinstance(structure, _NO_STRUCTURE)


def _placeholder(name: str, spec: Any, batch_size: int | None = None) -> Any:
    op_name = re.sub(r'[^A-Za-z0-9_.\\/-]', '_', str(name)).lstrip('_/\\-') or SINGLE_RECEIVER
    if isinstance(spec, tf.TensorSpec) or (isinstance(spec, tf.RaggedTensorSpec) and not spec.ragged_rank):
        return v1.placeholder(spec.dtype, _batched(spec.shape, batch_size), name=op_name)
    if isinstance(spec, tf.SparseTensorSpec):
        shape = _batched(spec.shape, batch_size)
        return v1.sparse_placeholder(spec.dtype, None if shape.rank is None else shape.as_list(), name=op_name)
    if isinstance(spec, tf.RaggedTensorSpec):
        inner = spec.shape[spec.ragged_rank + 1 :]
        return v1.ragged.placeholder(spec.dtype, spec.ragged_rank, inner.as_list(), name=op_name)
    raise errors.ConfigurationError(
        f'Feature `{name}` [{spec!r}] can not be fed: only dense, sparse and ragged tensors can. Write a '
        'serving_input_receiver_fn that makes it from what can be fed.'
    )


def _batched(shape: tf.TensorShape, batch_size: int | None) -> tf.TensorShape:
    return shape if not shape.rank else tf.TensorShape([batch_size, *shape[1:]])


def _as_fed(spec: Any, fed: Any) -> Any:
    # What is fed has row splits of int64, whatever the Dataset has.
    return fed.with_row_splits_dtype(spec.row_splits_dtype) if isinstance(fed, tf.RaggedTensor) else fed
