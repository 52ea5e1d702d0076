"""The batch size of a stream, as far as it can be known before anything is read."""

from typing import Any

import tensorflow as tf

from framework.graph.sources import Source

_BATCHES = ('BatchDataset', 'BatchDatasetV2', 'ParallelBatchDataset', 'PaddedBatchDataset', 'PaddedBatchDatasetV2')
# What leaves batches as they are. A function may not, so nothing is known behind one.
_PASSES_ON = (
    *('CacheDataset', 'CacheDatasetV2', 'FiniteSkipDataset', 'FiniteTakeDataset', 'ModelDataset', 'OptionsDataset'),
    *(
        'PrefetchDataset',
        'RepeatDataset',
        'ShardDataset',
        'ShuffleAndRepeatDatasetV2',
        'ShuffleDataset',
        'ShuffleDatasetV2',
    ),
    *('ShuffleDatasetV3', 'SkipDataset', 'TakeDataset'),
)


def batch_size(source: Source) -> int | None:
    """Returns the examples of a batch, of which the last may have fewer; None where that is not known.

    Args:
        source: What the input_fn of the stream returned.
    """
    specs = [part for part in tf.nest.flatten(source.element_spec) if isinstance(part, tf.TensorSpec)]
    leading = {part.shape[0] if part.shape.rank else None for part in specs}
    if len(leading) == 1 and None not in leading:
        return leading.pop()
    return None if source.dataset is None else _of_dataset(tf.data.experimental.to_variant(source.dataset).op)


def _of_dataset(op: Any) -> int | None:
    while op.type in _PASSES_ON:
        op = op.inputs[0].op
    size = tf.get_static_value(op.inputs[1]) if op.type in _BATCHES else None
    return None if size is None else int(size)
