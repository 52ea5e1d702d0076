"""Opens the monitored session of a run: from a commit, or from the model's own initial values."""

import glob
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compat import v1

from framework import errors, run_config
from framework.graph.calls import Compiled
from framework.session import reading

KEYS = v1.GraphKeys
_SHOWN_MISMATCHES = 5
_GRACE_SECS = 10  # for the threads of queues to end

_OF_A_COMMIT = 'Remove its commit record to go on from the commit before it, or start in a new run directory.'
_OF_THE_CALLER = (
    'Name another one: `--checkpoint` takes a prefix such as `runs/digits/model.ckpt-600`, without `.index`.'
)

_PART = re.compile(r'\.(index|meta|data-\d+-of-\d+)$')


class CheckpointError(errors.RunDirectoryError):
    """A checkpoint can't be restored.

    Attributes:
        fault: Why not, as a sentence.
    """

    def __init__(self, what: str, fault: str, remedy: str):
        super().__init__(f'{what} can not be restored: {fault} {remedy}')
        self.fault = fault


def session_scaffold(compiled: Compiled) -> v1.train.Scaffold:
    """Returns the Scaffold that governs the session: training's, or the first tower's in an evaluation-only graph.

    The user's own object is returned where that is possible, because hooks may hold it. Its initialisation must cover
    evaluation too.
    """
    first = compiled.towers[0] if compiled.train is None else compiled.train
    scaffold = first.spec.scaffold
    give_saver(scaffold)
    if scaffold.local_init_op is None:
        return scaffold
    # The user's own op knows nothing of evaluation's variables, and the session waits until all are initialised.
    return v1.train.Scaffold(local_init_op=tf.group(scaffold.local_init_op, compiled.init), copy_from_scaffold=scaffold)


def give_saver(scaffold: v1.train.Scaffold) -> None:
    """Gives the default graph our saver, unless the user made one.

    Args:
        scaffold: The Scaffold that will govern the session, not finalized yet.
    """
    if scaffold.saver is None and not v1.get_collection(KEYS.SAVERS):
        # Scaffold takes the saver of this collection. Ours deletes nothing: that is the commits' business.
        saver = v1.train.Saver(sharded=True, max_to_keep=None, defer_build=True, save_relative_paths=True)
        v1.add_to_collection(KEYS.SAVERS, saver)


def open_session(
    scaffold: v1.train.Scaffold,
    hooks: Sequence[v1.train.SessionRunHook],
    config: v1.ConfigProto | None,
    checkpoint: str | None,
) -> v1.train.SingularMonitoredSession:
    """Opens a monitored session, which never recovers by itself: a silent recovery would repeat or lose steps.

    Args:
        scaffold: Initialisation and saver; finalizes the graph.
        hooks: The hooks of the session, in their order.
        config: The session's configuration, None for the default.
        checkpoint: The prefix of the checkpoint to restore, the newest commit's; None to initialise.

    Raises:
        CheckpointError: If the checkpoint can't be restored.
    """
    if checkpoint is not None:
        _check_shapes(checkpoint, _OF_A_COMMIT)
    opened = _Opened()
    try:
        return v1.train.SingularMonitoredSession(
            hooks=[opened, *hooks],
            scaffold=scaffold,
            config=config or run_config.default_session_config(),
            checkpoint_filename_with_path=checkpoint,
        )
    except (tf.errors.OpError, ValueError) as error:
        # A truncated file raises OutOfRangeError, which elsewhere means the end of the data.
        fault = _fault(checkpoint) if checkpoint is not None and opened.restoring else None
        if fault is None:
            raise
        raise CheckpointError(f'`{checkpoint}`', fault, _OF_A_COMMIT) from error


def restore(session: v1.Session, saver: v1.train.Saver, checkpoint: str, *, remedy: str = _OF_THE_CALLER) -> None:
    """Restores a checkpoint by a saver of the default graph.

    Args:
        session: The session.
        saver: The saver.
        checkpoint: The prefix of the checkpoint's files.
        remedy: What to do when it can't be restored, as a sentence.

    Raises:
        CheckpointError: If the checkpoint isn't there, is damaged or of another model.
    """
    _check_shapes(checkpoint, remedy)
    try:
        saver.restore(session, checkpoint)
    except (tf.errors.OpError, ValueError) as error:
        fault = _fault(checkpoint)
        if fault is None:
            raise
        raise CheckpointError(f'`{checkpoint}`', fault, remedy) from error


def saved_names(checkpoint: str) -> frozenset[str]:
    """Returns the names of the variables that a checkpoint holds.

    Raises:
        CheckpointError: If the checkpoint isn't there, or is damaged.
    """
    return frozenset(_saved(checkpoint, _OF_THE_CALLER)[0])


def check_ready(session: v1.Session, scaffold: v1.train.Scaffold, caller: str) -> None:
    """Refuses a session in which a restore has left variables without a value.

    Args:
        session: The session.
        scaffold: The finalized Scaffold, whose saver restored.
        caller: What messages call the graph's calls: `prediction`.

    Raises:
        ConfigurationError: If there are such variables.
    """
    names: Any = session.run(scaffold.ready_op)  # nothing where all are, and from an op of the user's
    names = () if names is None else np.ravel(names)
    missing = ', '.join(f'`{name.decode() if isinstance(name, bytes) else name}`' for name in names)
    if missing:
        raise errors.ConfigurationError(
            f'`Scaffold.saver` of {caller} leaves variables without a value: {missing}. Give it every variable of the '
            'model.'
        )


class Queues:
    """The threads that fill the queues of the default graph, if it has any.

    Args:
        session: The session that they run in.
    """

    def __init__(self, session: v1.Session):
        self.coordinator = v1.train.Coordinator()
        has_queues = v1.get_collection(KEYS.QUEUE_RUNNERS)
        self._threads = v1.train.start_queue_runners(session, self.coordinator) if has_queues else []

    def close(self) -> None:
        """Ends the threads."""
        self.coordinator.request_stop()
        self.coordinator.join(self._threads, stop_grace_period_secs=_GRACE_SECS, ignore_live_threads=True)


class VariableWriter:
    """Assigns a variable; made before the graph is finalized.

    Args:
        variable: The variable.
        scope: The absolute name scope of its ops, with a slash at its end.
    """

    def __init__(self, variable: tf.Variable, scope: str):
        self._shape = variable.shape
        with v1.name_scope(scope):
            self._value = v1.placeholder(variable.dtype.base_dtype, variable.shape)
            self._assign = v1.assign(variable, self._value)

    def takes(self, shape: Sequence[int]) -> bool:
        """Whether a value of this shape can be assigned."""
        return bool(self._shape.is_compatible_with(shape))

    def __call__(self, session: v1.Session, value: Any) -> None:
        """Assigns a value."""
        session.run(self._assign, {self._value: value})


class _Opened(v1.train.SessionRunHook):
    """The first hook: knows how far the opening is, so that no checkpoint is blamed for the errors of hooks."""

    _ready = False

    @property
    def restoring(self) -> bool:
        """Whether all hooks have begun, which the finalized graph tells, and the session isn't ready yet."""
        return v1.get_default_graph().finalized and not self._ready

    def after_create_session(self, session: v1.Session, coord: v1.train.Coordinator) -> None:
        """Is called once the session is ready."""
        del session, coord
        self._ready = True


def _check_shapes(checkpoint: str, remedy: str) -> None:
    """Refuses values of another shape than their variable's: TensorFlow would assign them without a word."""
    shapes, dtypes = _saved(checkpoint, remedy)
    kept = [variable for variable in v1.global_variables() if variable.op.name in shapes]
    if lines := _mismatches(kept, shapes, dtypes):
        raise CheckpointError(f'`{checkpoint}`', _of_another_model(lines), remedy)


def _saved(checkpoint: str, remedy: str) -> tuple[Mapping[str, Sequence[int]], Mapping[str, tf.DType]]:
    """Returns the shapes and the dtypes of what a checkpoint holds."""
    if not _exists(checkpoint):
        raise CheckpointError(f'`{checkpoint}`', 'there is no such checkpoint.', remedy)
    try:
        reader = v1.train.load_checkpoint(checkpoint)
        return reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    except reading.READ_ERRORS as error:
        raise CheckpointError(f'`{checkpoint}`', _damaged(error), remedy) from error


def _exists(checkpoint: str) -> bool:
    # The oldest checkpoints are one file or several shards, and have no index. A file that was named instead of its
    # prefix is none of them.
    if os.path.isfile(checkpoint):
        return _PART.search(checkpoint) is None
    return os.path.isfile(f'{checkpoint}.index') or bool(glob.glob(f'{glob.escape(checkpoint)}-?????-of-?????'))


def _fault(checkpoint: str) -> str | None:
    """Returns what is wrong with a checkpoint as a sentence, None if it holds every variable of the graph."""
    try:
        reader = v1.train.load_checkpoint(checkpoint)
        shapes = reader.get_variable_to_shape_map()
        for name in shapes:
            reader.get_tensor(name)
    except reading.READ_ERRORS as error:
        return _damaged(error)
    lines = _mismatches(v1.global_variables(), shapes, reader.get_variable_to_dtype_map())
    return _of_another_model(lines) if lines else None


def _damaged(error: Exception) -> str:
    return f'its files are damaged [{reading.first_line(error)}].'


def _of_another_model(lines: Sequence[str]) -> str:
    return f'it is of another model [{"; ".join(lines)}].'


def _mismatches(
    variables: Sequence[tf.Variable], shapes: Mapping[str, Sequence[int]], dtypes: Mapping[str, tf.DType]
) -> list[str]:
    lines = []
    for variable in variables:
        name = variable.op.name
        if name not in shapes:
            lines.append(f'`{name}` is missing')
        elif not variable.shape.is_compatible_with(shapes[name]):
            lines.append(f'`{name}` has shape {tf.TensorShape(shapes[name])}, the model {variable.shape}')
        elif variable.dtype.base_dtype != dtypes[name]:
            lines.append(f'`{name}` has dtype {dtypes[name].name}, the model {variable.dtype.base_dtype.name}')
    shown = lines[:_SHOWN_MISMATCHES]
    return [*shown, f'and {len(lines) - len(shown)} more'] if len(lines) > len(shown) else lines
