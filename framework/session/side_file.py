"""The side file of a commit, `state-N`: what a run goes on with that is no part of the model.

The place in the training data, the state of random draws, the metrics of training in the middle of a period. The
model's own checkpoint holds what `tf.estimator`'s would.
"""

import contextlib
import logging as std_logging
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from absl import logging
from tensorflow.compat import v1

from framework import errors
from framework.graph import movement
from framework.graph.calls import TrainStream
from framework.session import integrity, opening

SAVED, SKIP, LOST = 'saved', 'skip', ''
_TELL_SECS = 30
# What TensorFlow raises for data whose place it can't save: random ops and Python functions, and what has no such form.
_UNSAVEABLE = (tf.errors.FailedPreconditionError, tf.errors.UnimplementedError)


class SideFile:
    """Saves and restores the side file; made before the graph is finalized.

    Args:
        variables: Local variables of training that belong to a commit.
        train: The training call.
        tables_only: Whether lookup tables are all the state that the data's functions have, so that they may pass.
        replays: Whether the data can be read again from its beginning, element for element.
    """

    def __init__(self, variables: Sequence[tf.Variable], train: TrainStream, tables_only: bool, replays: bool):
        batch = train.input
        self._writers = {v.op.name: opening.VariableWriter(v, f'framework/side/{v.op.name}/') for v in variables}
        self._saver = v1.train.Saver(list(variables), max_to_keep=None) if variables else None
        self._position = None if batch.iterator is None else _position_saver(batch.iterator, tables_only)
        self._next = _next_ops(train)
        self._start = tuple(batch.initializers.values())
        self._how = SKIP if replays and self._next else LOST
        self.fault = None if self._position is not None else 'the input function made its own iterator'
        self._warned = False

    def save(self, session: v1.Session, prefix: str) -> str:
        """Saves everything, and returns how the place in the data is found again.

        Args:
            session: The raw session.
            prefix: The prefix of the files.
        """
        if self._saver is not None:
            _save(self._saver, session, f'{prefix}.variables')
        if self._position is None or self.fault is not None:
            self._warn()
            return self._how
        try:
            _save(self._position, session, f'{prefix}.position')
        except _UNSAVEABLE as error:
            for remains in integrity.remains_of(f'{prefix}.position'):
                os.remove(remains)
            self.fault = _reason(error)
            self._warn()
            return self._how
        return SAVED

    def _warn(self) -> None:
        if not self._warned:
            self._warned = True
            how = {SKIP: 'reads again what was read', LOST: 'begins the data again'}[self._how]
            logging.warning('The place in the training data can not be saved [%s]: a later start %s.', self.fault, how)

    def restore(
        self,
        session: v1.Session,
        prefix: str,
        position: str,
        elements: int,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> int:
        """Restores everything, and returns how many elements of the data are behind its place now.

        Args:
            session: The raw session, in which the iterator was initialised.
            prefix: The prefix of the files; empty where the commit has none.
            position: How the place in the data is found again.
            elements: How many elements were read.
            interrupted: Asked while elements are read again; True ends that.
        """
        if prefix and os.path.exists(f'{prefix}.variables.index'):
            self._restore_variables(session, f'{prefix}.variables')
        if position == SAVED and self._position is not None:
            return elements if self._restore_position(session, f'{prefix}.position') else 0
        if position == SKIP and self._next:
            return self._skip(session, elements, interrupted)
        if elements:
            logging.warning('The training data begins again: the place in it is not known.')
        return 0

    def _restore_variables(self, session: v1.Session, prefix: str) -> None:
        reader = v1.train.load_checkpoint(prefix)
        shapes = reader.get_variable_to_shape_map()
        for name, write in self._writers.items():
            if name in shapes and write.takes(shapes[name]):
                write(session, reader.get_tensor(name))

    def _restore_position(self, session: v1.Session, prefix: str) -> bool:
        try:
            self._position.restore(session, prefix)  # type: ignore[union-attr]
        except (tf.errors.OpError, ValueError) as error:
            # The files are as they were written, so it is the pipeline that is not as it was.
            logging.warning('The training data begins again: its pipeline has changed [%s].', _reason(error))
            for op in self._start:
                session.run(op)
            return False
        return True

    def _skip(self, session: v1.Session, elements: int, interrupted: Callable[[], bool]) -> int:
        if elements:
            logging.info('Reading %d elements of the training data again, to find the place in it.', elements)
        told_at = time.monotonic()
        for done in range(elements):
            if interrupted():
                return done
            try:
                session.run(self._next)
            except tf.errors.OutOfRangeError as error:
                raise errors.RunError(
                    f'The training data ends after {done} elements, and {elements} were read before: it is not the '
                    'same any more. Put it back, or start in a new run directory.'
                ) from error
            if time.monotonic() - told_at >= _TELL_SECS:
                told_at = time.monotonic()
                logging.info('%d of %d elements so far.', done + 1, elements)
        return elements


def _position_saver(iterator: Any, tables_only: bool) -> v1.train.Saver:
    with warnings.catch_warnings(), _quiet():
        warnings.simplefilter('ignore')  # TensorFlow 2 has another way, which a graph has not
        saveable = tf.data.experimental.make_saveable_from_iterator(
            iterator, external_state_policy='ignore' if tables_only else 'fail'
        )
    with v1.name_scope('framework/position/'):
        return v1.train.Saver([saveable], max_to_keep=None)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel(std_logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _save(saver: v1.train.Saver, session: v1.Session, prefix: str) -> None:
    saver.save(session, prefix, write_meta_graph=False, write_state=False)


def _next_ops(train: TrainStream) -> list[tf.Operation]:
    """Returns the ops that take the next element in a train run: an input function may have several iterators."""
    return [
        op
        for op in movement.ancestors([train.step_after, train.spec.loss, train.input.examples])
        if op.name in train.input.ends
    ]


def _reason(error: Exception) -> str:
    """Returns what an error says at its end: the nodes that it names come first."""
    return str(error).split('[[{{')[0].strip().splitlines()[-1][-200:]
