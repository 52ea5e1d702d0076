"""Errors of runs that need a word more.

Some mean an end where something else ended: a monitored session takes them for the end of the data. And those of fused
runs name the copy of an op, not the line that made it.
"""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from framework import errors
from framework.graph.origin import made_at
from framework.graph.subgraph import original_of


@contextlib.contextmanager
def named_ends() -> Iterator[None]:
    """Turns what a monitored session would swallow into an error."""
    try:
        with named_stop('a hook or a function of the run'):
            yield
    except tf.errors.OutOfRangeError as error:
        raise unnamed_end(error, 'the run') from error


@contextlib.contextmanager
def named_stop(where: str) -> Iterator[None]:
    """Turns a StopIteration into an error, which also a generator lets out.

    Args:
        where: What it escaped from, for the message.
    """
    try:
        yield
    except StopIteration as error:
        raise errors.RunError(f'StopIteration escaped from {where}: {error!r}') from error


@contextlib.contextmanager
def explained(graph: tf.Graph) -> Iterator[None]:
    """Notes at an error of a fused run which line of the user's code made the op that failed.

    Args:
        graph: The graph.
    """
    try:
        yield
    except tf.errors.OpError as error:
        op = original_of(graph, error)
        if op is not None and (place := made_at(op)):
            error.add_note(f'`{op.name}` [{op.type}] was made at {place}.')
        raise


def unnamed_end(error: tf.errors.OutOfRangeError, where: str) -> errors.RunError:
    """Returns the error for an OutOfRangeError that is not the end of the stream that was read."""
    op = f'`{error.op.name}` [{error.op.type}]' if error.op is not None else 'an op'
    return errors.RunError(
        f'{op} reported the end of its data in {where}, but it is not the iterator of that stream: {error.message}'
    )
