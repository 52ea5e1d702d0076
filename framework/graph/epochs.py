"""Training data that starts again when it ends, and says so.

Not by initialising its iterator anew: a shuffle with a graph seed would draw the same order in every epoch. Repeating
draws anew, and between two epochs stands an element without a value.
"""

from typing import Any

import tensorflow as tf


def repeated(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the Dataset, repeated for ever, as optionals: an empty one at the end of every epoch.

    Args:
        dataset: Any Dataset. One without elements gives nothing but empty optionals.
    """
    structure = dataset.element_spec

    def value(*parts: Any) -> tf.experimental.Optional:
        # `map` hands the parts of a tuple over one by one, and anything else as it is.
        return tf.experimental.Optional.from_value(parts if isinstance(structure, tuple) else parts[0])

    def nothing(_: Any) -> tf.experimental.Optional:
        return tf.experimental.Optional.empty(structure)

    end = tf.data.Dataset.from_tensors(0).map(nothing)
    return dataset.map(value).concatenate(end).repeat()
