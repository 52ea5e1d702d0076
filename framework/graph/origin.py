"""Which line of the user's code an op comes from."""

import os

import tensorflow as tf

_OURS = os.path.join(os.path.dirname(os.path.dirname(__file__)), '')


def made_at(op: tf.Operation) -> str:
    """Returns `file:line` of the innermost code that is neither TensorFlow's nor ours; empty where there is none."""
    frames = [f for f in op.traceback or () if not _is_library(f.filename)]
    return f'{frames[-1].filename}:{frames[-1].lineno}' if frames else ''


def _is_library(filename: str) -> bool:
    of_tensorflow = f'{os.sep}tensorflow{os.sep}' in filename or f'{os.sep}tf_keras{os.sep}' in filename
    return of_tensorflow or filename.startswith((_OURS, '<')) or 'site-packages' in filename
