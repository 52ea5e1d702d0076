"""Vocabularies that changed between a checkpoint and the model.

Says what keeps a matrix from being remapped, and how many entries of its new vocabulary are known.
"""

from typing import Any

import tensorflow as tf
from tensorflow.compat import v1

from framework import errors


def fault(info: v1.train.VocabInfo, shape: tf.TensorShape, saved: tf.TensorShape, dtypes: set[tf.DType]) -> str | None:
    """Returns why a matrix can't be remapped, as the end of a sentence; None if it can.

    Args:
        info: The vocabularies.
        shape: The shape of the whole variable.
        saved: Its shape in the checkpoint.
        dtypes: Its dtype here and there.

    Raises:
        ConfigurationError: If a vocabulary can't be read or is too short.
    """
    if shape.rank != 2 or saved.rank != 2:
        return f'has shape {shape}, in the checkpoint {saved}, and a vocabulary needs two axes'
    if dtypes != {tf.float32}:
        return f'has dtype {" and ".join(sorted(d.name for d in dtypes))}, and a vocabulary needs float32'
    axis = info.axis
    entries = info.new_vocab_size + info.num_oov_buckets
    # Fewer rows are the first ones, as in `v1.train.warm_start`; columns must be complete there.
    if shape[axis] > entries or (axis == 1 and shape[axis] < entries):
        said = f'{info.new_vocab_size} + {info.num_oov_buckets}'
        return f'has {shape[axis]} entries along axis {axis}, its vocabulary {said}'
    if shape[1 - axis] != saved[1 - axis]:
        return f'has size {shape[1 - axis]} along axis {1 - axis}, in the checkpoint {saved[1 - axis]}'
    if max(_positions(info, shape), default=-1) >= saved[axis]:
        return f'has {saved[axis]} entries in the checkpoint, and `{info.old_vocab}` has known ones beyond'
    return None


def known(info: v1.train.VocabInfo, shape: tf.TensorShape) -> str:
    """Returns how many entries of the new vocabulary the old one has, for people."""
    return f'by vocabulary: {len(_positions(info, shape))} of {_needed(info, shape)} entries known'


def static_shapes(info: v1.train.VocabInfo, shape: tf.TensorShape) -> v1.train.VocabInfo:
    """Returns the same vocabularies with a backup initializer that is never asked for a number only known in the run.

    TensorFlow counts the missing values in the run, which constant and variance scaling initializers can't stand.

    Args:
        info: The vocabularies.
        shape: The shape of the whole variable.
    """
    initializer = info.backup_initializer
    if initializer is None:
        return info

    def initial_values(wanted: Any) -> tf.Tensor:
        rows = tf.get_static_value(wanted[0])
        if rows is not None:
            return initializer([int(rows), *wanted[1:]])
        return initializer([shape.num_elements(), *wanted[1:]])[: wanted[0]]

    return info._replace(backup_initializer=initial_values)


def _positions(info: v1.train.VocabInfo, shape: tf.TensorShape) -> list[int]:
    """Returns where the old vocabulary has the entries of the new one that it has."""
    new, old = _entries(info.new_vocab), _entries(info.old_vocab)
    needed = _needed(info, shape)
    if len(new) < needed:
        raise errors.ConfigurationError(
            f'`VocabInfo.new_vocab` [{info.new_vocab}] has {len(new)} lines, and `new_vocab_size` is '
            f'{info.new_vocab_size}. Make it smaller, or name the right file.'
        )
    # TensorFlow limits the old vocabulary along rows only.
    limit = info.old_vocab_size if info.axis == 0 and info.old_vocab_size >= 0 else len(old)
    where = {entry: i for i, entry in enumerate(old[:limit])}
    return [where[entry] for entry in new[:needed] if entry in where]


def _needed(info: v1.train.VocabInfo, shape: tf.TensorShape) -> int:
    return min(info.new_vocab_size, shape[info.axis])


def _entries(path: str) -> list[bytes]:
    try:
        with tf.io.gfile.GFile(path, 'rb') as file:
            content = file.read()
    except tf.errors.OpError as error:
        raise errors.ConfigurationError(
            f'`VocabInfo` [{path}] can not be read ({type(error).__name__}). Name a text file of one entry a line.'
        ) from error
    # As TensorFlow reads lines: at line feeds only, and carriage returns are no part of them.
    return content.replace(b'\r', b'').removesuffix(b'\n').split(b'\n') if content else []
