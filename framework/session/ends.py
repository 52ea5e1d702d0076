"""Errors that mean an end, where something else ended: a monitored session takes them for the end of the data."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from framework import errors


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


def unnamed_end(error: tf.errors.OutOfRangeError, where: str) -> errors.RunError:
    """Returns the error for an OutOfRangeError that is not the end of the stream that was read."""
    op = f'`{error.op.name}` [{error.op.type}]' if error.op is not None else 'an op'
    return errors.RunError(
        f'{op} reported the end of its data in {where}, but it is not the iterator of that stream: {error.message}'
    )
