"""Draws in the functions of Datasets: each element has a number and a seed, which iterators save and restore.

A function is traced once. If it draws, it is traced again over pairs of (number and seed, element), so its Python side
effects happen twice.
"""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compat import v1

# The public methods of both classes of Datasets meet in these functions.
from tensorflow.python.data.ops import filter_op, flat_map_op, interleave_op, map_op, scan_op, take_while_op

from framework.graph.random_ops import read_ahead
from framework.graph.random_ops.keying import Keying

ELEMENTS = 'random_elements'  # the name scope of what is zipped to a Dataset whose function draws
_SEEDS = 2**31 - 1
_HASHED_VALUES = 16
_WITHOUT_BYTES = (tf.variant, tf.resource)
Build = Callable[..., tf.data.Dataset]
_map = map_op._map_v2
_scan_original = scan_op._scan


def builders(keying: Keying) -> Iterator[tuple[Any, str, Build]]:
    """Yields the functions that build Datasets with their replacements, each as (module, name, replacement)."""
    for module, name in (
        (map_op, '_map_v2'),
        (map_op, '_map_v1'),
        (flat_map_op, '_flat_map'),
        (interleave_op, '_interleave'),
    ):
        yield module, name, _replaced(keying, getattr(module, name), _over_pairs)
    for module, name in ((filter_op, '_filter'), (take_while_op, '_take_while')):
        yield module, name, _replaced(keying, getattr(module, name), _selected)
    yield scan_op, '_scan', _scan(keying, scan_op._scan)


def _replaced(keying: Keying, original: Build, drawing: Callable[..., tf.data.Dataset]) -> Build:
    def build(input_dataset: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> tf.data.Dataset:
        def made(data: Any, of_element: Callable[..., Any]) -> tf.data.Dataset:
            return original(data, of_element, *args, **kwargs)

        return _built(keying, made, drawing, input_dataset, function)

    return build


def _scan(keying: Keying, original: Build) -> Build:
    def build(input_dataset: Any, initial_state: Any, scan_func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        def made(data: Any, of_element: Callable[..., Any]) -> tf.data.Dataset:
            return original(data, initial_state, of_element, *args, **kwargs)

        return _built(keying, made, _scanned, input_dataset, scan_func)

    return build


def _built(
    keying: Keying,
    made: Build,
    drawing: Callable[..., tf.data.Dataset],
    data: tf.data.Dataset,
    function: Callable[..., Any],
) -> tf.data.Dataset:
    if not keying.is_building():
        return made(data, function)
    with keying.places.trial() as trial:
        plain = made(data, function)
    if not trial.drew:
        return plain
    with v1.name_scope(ELEMENTS) as scope, warnings.catch_warnings():
        warnings.filterwarnings('ignore', message='Seed .* from outer graph')  # no draw of ours uses it
        path = keying.places.path(scope)
        pairs = _numbered(data) if _is_reshuffled(data) else _seeded(data, keying.key(path) % _SEEDS)

        @tf.autograph.experimental.do_not_convert
        def note(number: tf.Tensor, seed: tf.Tensor) -> None:
            keying.places.note_element(path, number, seed)

        return drawing(made, pairs, function, note, type(data.element_spec) is tuple)


def _numbered(data: tf.data.Dataset) -> tf.data.Dataset:
    """Returns ((number, seed), element) for data in another order in each epoch.

    The seed follows from the elements so far, so another order gives other seeds; a number alone would give every
    epoch the same draws in the same places.
    """

    def next_seed(before: tuple[tf.Tensor, tf.Tensor], element: Any) -> Any:
        number, seed = before[0], _mixed(before[1], element)
        return (number + 1, seed), ((number, seed), element)

    return _scan_original(data, (np.int64(0), np.int64(0)), next_seed)


def _mixed(seed: tf.Tensor, element: Any) -> tf.Tensor:
    """Returns a seed that depends on the one before and on the first values of an element."""
    parts = tf.nest.flatten(element, expand_composites=True)
    values = [tf.reshape(part, [-1])[:_HASHED_VALUES] for part in parts if part.dtype not in _WITHOUT_BYTES]
    text = tf.strings.join([tf.as_string(seed), *(tf.io.serialize_tensor(value) for value in values)])
    return tf.strings.to_hash_bucket_fast(text, tf.int64.max)


def _seeded(data: tf.data.Dataset, seed: int) -> tf.data.Dataset:
    """Returns ((number, seed), element), with new seeds in each epoch."""
    # In a function new seeds per repetition would be lost in a save, so there a repetition draws the same again.
    is_outermost = not hasattr(v1.get_default_graph(), 'outer_graph')
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # an iterator that is started anew draws the same again: as it should
        seeds = tf.data.Dataset.random(seed, rerandomize_each_iteration=is_outermost or None)
    return tf.data.Dataset.zip((tf.data.Dataset.zip((tf.data.Dataset.range(tf.int64.max), seeds)), data))


def _is_reshuffled(data: tf.data.Dataset) -> bool:
    """Whether the order of the data is another one in each epoch, and its state outlives the end of an epoch.

    A zip forgets the state of its inputs, a shuffle's too, when it has read them to their end. See `read_ahead`.
    """
    op = tf.data.experimental.to_variant(data).op
    while op.type in read_ahead.KEEPS_STATE and not read_ahead.is_reshuffle(op):
        op = op.inputs[0].op
    return read_ahead.is_reshuffle(op)


# The functions that TensorFlow traces. AutoGraph converts them, to come to the user's, so they hold nothing but calls.


def _over_pairs(made: Build, pairs: Any, function: Callable[..., Any], note: Callable[..., None], unpack: bool) -> Any:
    def of_tuple(draw: Any, element: Any) -> Any:
        note(*draw)
        return function(*element)

    def of_value(draw: Any, element: Any) -> Any:
        note(*draw)
        return function(element)

    return made(pairs, of_tuple if unpack else of_value)


def _selected(made: Build, pairs: Any, function: Callable[..., Any], note: Callable[..., None], unpack: bool) -> Any:
    return _map(_over_pairs(made, pairs, function, note, unpack), lambda _, element: element)


def _scanned(made: Build, pairs: Any, function: Callable[..., Any], note: Callable[..., None], _: bool) -> Any:
    def of_pair(state: Any, pair: Any) -> Any:
        note(*pair[0])
        return function(state, pair[1])

    return made(pairs, of_pair)
