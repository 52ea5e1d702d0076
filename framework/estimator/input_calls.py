"""input_fn as the engine calls it: with the forms of batches that `tf.estimator` took beside Datasets and tensors."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compat import v1

_PLAIN = (np.ndarray, np.generic, bool, int, float, str, bytes)


def with_tensors(input_fn: Callable[..., Any]) -> Callable[..., Any]:
    """Returns an input_fn whose arrays and numbers are tensors, and which leaves out labels that are None.

    Args:
        input_fn: The user's.
    """

    @functools.wraps(input_fn)
    def called(**arguments: Any) -> Any:
        result = input_fn(**arguments)
        if isinstance(result, (tf.data.Dataset, v1.data.Dataset, v1.data.Iterator)):
            return result
        if isinstance(result, (tuple, list)) and len(result) == 2 and result[1] is None:
            result = result[0]
        return tf.nest.map_structure(lambda part: tf.constant(part) if isinstance(part, _PLAIN) else part, result)

    return called
