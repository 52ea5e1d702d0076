"""Checkpoints that somebody names by a path: finds their files, and reads what they hold."""

import dataclasses
import os
from collections.abc import Mapping, Sequence

import tensorflow as tf
from tensorflow.compat import v1
from tensorflow.core.protobuf import trackable_object_graph_pb2

from framework import errors
from framework.session import reading

_OBJECT_GRAPH = '_CHECKPOINTABLE_OBJECT_GRAPH'
_STATE = 'checkpoint'
_SHOWN = 5
_KINDS = (
    "Name the prefix of a checkpoint's files such as `runs/digits/model.ckpt-600`, a directory with a file "
    '`checkpoint`, or a SavedModel.'
)


@dataclasses.dataclass(frozen=True)
class Saved:
    """What a checkpoint holds.

    Attributes:
        shapes: By key the shape.
        dtypes: By key the dtype.
        keys: By the name of a variable its key, where they differ: in what `tf.train.Checkpoint` and
            `tf.saved_model.save` wrote.
    """

    shapes: Mapping[str, Sequence[int]]
    dtypes: Mapping[str, tf.DType]
    keys: Mapping[str, str]

    @property
    def names(self) -> list[str]:
        """What a variable in it may be called."""
        return list(self.keys or self.shapes)

    def key(self, name: str) -> str:
        """Returns the key of a variable, which need not be there."""
        return self.keys.get(name, name)


def resolve(path: str, *, setting: str = 'warm_start_from') -> str:
    """Returns the prefix of the checkpoint's files that a path means.

    Args:
        path: The prefix itself, a directory with a file `checkpoint`, whose newest it is, or a directory with a
            SavedModel.
        setting: What messages call the setting that named it.

    Raises:
        ConfigurationError: If there is none.
    """
    for prefix in (path, _variables(path)):
        if _exists(prefix):
            return prefix
    if not tf.io.gfile.isdir(path):
        siblings = _candidates(os.path.dirname(path.rstrip('/')) or os.curdir)
        remedy = errors.nearest(path, siblings) if siblings else _KINDS
        raise _not_found(setting, path, 'there is no such checkpoint or directory', remedy)
    newest = _newest(path)
    if newest is not None:
        return newest
    named = tf.io.gfile.exists(os.path.join(path, _STATE))
    fault = 'names no checkpoint that is there' if named else 'is missing, and so is a SavedModel'
    raise _not_found(setting, path, f"the directory's file `{_STATE}` {fault}", _choice(_candidates(path)))


def read(prefix: str) -> Saved:
    """Returns what a checkpoint holds; values are not read.

    Args:
        prefix: The prefix of its files.

    Raises:
        RunDirectoryError: If its files are damaged.
    """
    try:
        reader = v1.train.load_checkpoint(prefix)
        shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
        keys = _object_keys(reader.get_tensor(_OBJECT_GRAPH)) if _OBJECT_GRAPH in shapes else {}
    except reading.READ_ERRORS as error:
        raise damaged(prefix, error) from error
    return Saved(shapes, dtypes, keys)


def damaged(prefix: str, error: Exception) -> errors.RunDirectoryError:
    """Returns the error about a checkpoint whose files can't be read."""
    return errors.RunDirectoryError(
        f'`{prefix}` can not be read: its files are damaged [{reading.first_line(error)}]. Name another checkpoint.'
    )


def _variables(directory: str) -> str:
    return os.path.join(directory, 'variables', 'variables')


def _exists(prefix: str) -> bool:
    return tf.io.gfile.exists(f'{prefix}.index')


def _newest(directory: str) -> str | None:
    try:
        return v1.train.latest_checkpoint(directory)
    except (ValueError, tf.errors.OpError):  # the file is empty, or no text
        return None


def _not_found(setting: str, path: str, fault: str, remedy: str) -> errors.ConfigurationError:
    return errors.ConfigurationError(f'`{setting}` [{path}]: {fault}. {remedy}')


def _choice(candidates: Sequence[str]) -> str:
    shown = [f'`{candidate}`' for candidate in sorted(candidates)[:_SHOWN]]
    more = f' and {len(candidates) - len(shown)} more' if len(candidates) > len(shown) else ''
    return f'In it are {", ".join(shown)}{more}. Name one of them.' if shown else _KINDS


def _candidates(directory: str) -> list[str]:
    """Returns what may be named in a directory."""
    if not tf.io.gfile.isdir(directory):
        return []
    # Remote file systems list directories with a slash.
    below = [os.path.normpath(os.path.join(directory, name)) for name in tf.io.gfile.listdir(directory)]
    prefixes = [path.removesuffix('.index') for path in below if path.endswith('.index')]
    return prefixes + [path for path in below if _exists(_variables(path)) or _newest(path)]


def _object_keys(serialized: bytes) -> dict[str, str]:
    """Returns the keys of variables by name, as an object-based checkpoint records them.

    The message is part of the file format; TensorFlow exports no reader of it.
    """
    graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(serialized)
    attributes = [attribute for node in graph.nodes for attribute in node.attributes]
    return {attribute.full_name: attribute.checkpoint_key for attribute in attributes if attribute.full_name}
