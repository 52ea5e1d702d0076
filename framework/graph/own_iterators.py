"""Iterators that an input_fn makes itself, as code for `tf.estimator` did: known here, so that they can be started.

A one-shot iterator can't be started again for the next pass, so in its place the user gets one that can.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any
from unittest import mock

import tensorflow as tf
from tensorflow.compat import v1

from framework.graph import movement


@dataclasses.dataclass
class OwnIterators:
    """The initializers of the iterators that were made, by the name of the iterator's op."""

    initializers: dict[str, list[tf.Operation]] = dataclasses.field(default_factory=dict)

    def add(self, initializer: tf.Operation) -> None:
        """Notes an initializer."""
        handle = next(value for value in initializer.inputs if value.dtype == tf.resource)
        self.initializers.setdefault(handle.op.name, []).append(initializer)

    def starts(self) -> tuple[tf.Operation, ...]:
        """Returns the ops that start the iterators, left out those that only the user can start.

        These are iterators with several initializers to choose from, and those whose Dataset is fed.
        """
        single = [ops[0] for ops in self.initializers.values() if len(ops) == 1]
        return tuple(op for op in single if not _is_fed(op))


@contextlib.contextmanager
def noted() -> Iterator[OwnIterators]:
    """Notes the iterators that are made inside."""
    own = OwnIterators()
    # All public ways to an iterator of a graph (`tf.compat.v1.data.make_one_shot_iterator`, the methods of Datasets)
    # meet in these two methods; the public functions may have been imported by name long ago.
    make = v1.data.Dataset._make_initializable_iterator
    make_initializer = v1.data.Iterator.make_initializer

    def initializable(dataset: Any, *args: Any, **kwargs: Any) -> Any:
        iterator = make(dataset, *args, **kwargs)
        own.add(iterator.initializer)
        return iterator

    def of_structure(iterator: Any, *args: Any, **kwargs: Any) -> tf.Operation:
        initializer = make_initializer(iterator, *args, **kwargs)
        own.add(initializer)
        return initializer

    with (
        mock.patch.object(v1.data.Dataset, '_make_one_shot_iterator', initializable),
        mock.patch.object(v1.data.Dataset, '_make_initializable_iterator', initializable),
        mock.patch.object(v1.data.Iterator, 'make_initializer', of_structure),
    ):
        yield own


def _is_fed(op: tf.Operation) -> bool:
    return any(ancestor.type == 'Placeholder' for ancestor in movement.ancestors([op]))
