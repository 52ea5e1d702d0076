"""Repeated data of another order in each epoch, whose iterator can't be saved exactly.

Each epoch's order follows from how many epochs there were, which the iterator of the shuffle saves. Most Datasets drop
their input's iterator when they have read it to its end. That lasts until the next epoch begins, which is later where
something in between has read ahead: what is saved then goes on with another order. Measured with TensorFlow 2.21.
"""

from collections.abc import Iterable, Iterator

import tensorflow as tf

# Those that keep their input's iterator at its end.
KEEPS_STATE = frozenset(
    {
        *('MapDataset', 'ParallelMapDataset', 'ParallelMapDatasetV2', 'ScanDataset', 'CacheDataset', 'CacheDatasetV2'),
        *('SkipDataset', 'OptionsDataset', 'InterleaveDataset', 'ParallelInterleaveDatasetV4', 'PrefetchDataset'),
        *('ParallelInterleaveDatasetV2', 'ParallelInterleaveDatasetV3', 'ModelDataset', 'RepeatDataset'),
    }
)
# TensorFlow makes maps and batches parallel by itself.
_READS_AHEAD = ('Parallel', 'Prefetch', 'Shuffle', 'Interleave', 'Map', 'Batch')


def is_reshuffle(op: tf.Operation) -> bool:
    """Whether the op is a Dataset that is another one in each epoch."""
    if op.type.startswith('ShuffleDataset'):
        return bool(op.get_attr('reshuffle_each_iteration'))
    return op.type == 'RandomDatasetV2'


def lost_orders(ops: Iterable[tf.Operation]) -> Iterator[tf.Operation]:
    """Yields the Datasets of another order in each epoch whose state may be lost in a save.

    Args:
        ops: All that the iterators depend on.
    """
    for repeat in (op for op in ops if op.type == 'RepeatDataset' and tf.get_static_value(op.inputs[1]) != 1):
        yield from _lost_below(repeat)


def _lost_below(repeat: tf.Operation) -> Iterator[tf.Operation]:
    stack = [(value.op, False, False) for value in repeat.inputs if value.dtype == tf.variant]
    seen: set[tuple[str, bool, bool]] = set()
    while stack:
        op, is_ahead, is_lost = stack.pop()
        if (op.name, is_ahead, is_lost) in seen or 'Dataset' not in op.type:
            continue
        seen.add((op.name, is_ahead, is_lost))
        if is_lost and is_reshuffle(op):
            yield op
        is_ahead = is_ahead or op.type.startswith(_READS_AHEAD)
        is_lost = is_lost or (is_ahead and op.type not in KEEPS_STATE)
        stack.extend((value.op, is_ahead, is_lost) for value in op.inputs if value.dtype == tf.variant)
