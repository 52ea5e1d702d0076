"""What is read of a checkpoint outside of a session, and the errors of that."""

import tensorflow as tf
from tensorflow.compat import v1

from framework import errors

# What TensorFlow's reader raises at a damaged checkpoint: from C++ some of its errors arrive as Python's own.
READ_ERRORS = (tf.errors.OpError, IndexError, RuntimeError, ValueError)


def global_step(checkpoint: str) -> int:
    """Returns the global step of a checkpoint.

    Raises:
        RunDirectoryError: If it holds none that can be read.
    """
    try:
        return int(v1.train.load_checkpoint(checkpoint).get_tensor('global_step'))
    except READ_ERRORS as error:
        raise errors.RunDirectoryError(
            f'`{checkpoint}` holds no readable `global_step` [{first_line(error)}], so it is no run that '
            'can go on. Start in a new run directory.'
        ) from error


def first_line(error: Exception) -> str:
    """Returns the first line that an error says: TensorFlow's go on with tracebacks."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
