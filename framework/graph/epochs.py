"""Training data whose end is known with its last batch.

A train run that finds no batch any more makes what does not depend on one all the same: it counts a step, decays a
rate. So no run may find the end: either the number of batches is known, or each batch comes with whether it is the
last, for which one more is read ahead. Data that starts again does so by repeating, and not by initialising its
iterator anew: a shuffle with a graph seed would draw the same order in every epoch.
"""

from typing import Any

import tensorflow as tf


def can_announce(structure: Any) -> bool:
    """Whether elements of a structure can come with whether they are the last.

    Args:
        structure: The `element_spec` of a Dataset.
    """
    return all(isinstance(part, tf.TensorSpec) for part in tf.nest.flatten(structure, expand_composites=True))


def announced(dataset: tf.data.Dataset, repeat: bool) -> tf.data.Dataset:
    """Returns a Dataset of pairs: an element as an optional, and whether it is the last one of its epoch.

    A Dataset without elements gives an empty optional.

    Args:
        dataset: A Dataset of tensors, dense, sparse or ragged.
        repeat: Whether it starts again for ever.
    """
    structure = dataset.element_spec

    def value(*parts: Any) -> tf.Tensor:
        # `map` hands the parts of a tuple over one by one, and anything else as it is.
        element = parts if isinstance(structure, tuple) else parts[0]
        components = tf.nest.flatten(element, expand_composites=True)
        # The structure says of a None that it has no components.
        return tf.raw_ops.OptionalFromValue(components=[part for part in components if part is not None])

    def with_last(before: tf.Tensor, now: tf.Tensor) -> tuple[tf.Tensor, tuple[tf.Tensor, tf.Tensor]]:
        return now, (before, tf.logical_not(_has_value(now)))

    # Optionals as plain tensors, because `scan` keeps no others.
    end = tf.data.Dataset.from_tensors(0).map(lambda _: tf.raw_ops.OptionalNone())
    marked = dataset.map(value).concatenate(end)
    pairs = (marked.repeat() if repeat else marked).scan(tf.raw_ops.OptionalNone(), with_last)
    return pairs.filter(lambda before, last: tf.logical_or(_has_value(before), last))


def element_of(optional: tf.Tensor, structure: Any) -> Any:
    """Returns the element of a pair; an empty one is an InvalidArgumentError of its op, of type `OptionalGetValue`.

    Args:
        optional: The first part of the pair.
        structure: The `element_spec` of the Dataset.
    """
    parts = tf.nest.flatten(structure, expand_composites=True)
    values = tf.raw_ops.OptionalGetValue(
        optional=optional,
        output_types=[part.dtype for part in parts],
        output_shapes=[part.shape for part in parts],
    )
    return tf.nest.pack_sequence_as(structure, values, expand_composites=True)


def _has_value(optional: tf.Tensor) -> tf.Tensor:
    return tf.raw_ops.OptionalHasValue(optional=optional)
