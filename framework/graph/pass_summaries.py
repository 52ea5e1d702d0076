"""The summaries that model_fn collected when it was called for evaluation."""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf
from absl import logging
from tensorflow.compat import v1

from framework.graph import apart
from framework.graph.calls import Tower


def summarised(towers: Sequence[Tower], calls: apart.Calls) -> list[Tower]:
    """Returns the evaluation calls with their summaries merged, scalars left out: that of a batch is no metric.

    Args:
        towers: The calls, in the default graph; nothing follows whose seed depends on how many ops there are.
        calls: What all calls made.
    """
    return [dataclasses.replace(tower, summary=_merged(tower, calls)) for tower in towers]


def _merged(tower: Tower, calls: apart.Calls) -> tf.Tensor | None:
    collected = tower.collections.get(v1.GraphKeys.SUMMARIES)
    kept = [summary for summary in collected if summary.op.type != 'ScalarSummary']
    if kept and apart.touches_others(calls, tower, kept) is not None:
        kept = [summary for summary in kept if _is_harmless(summary, tower, calls)]
    if not kept:
        return None
    with v1.name_scope(f'framework/{tower.name}/'):
        return v1.summary.merge(kept, collections=[], name='summary')


def _is_harmless(summary: tf.Tensor, tower: Tower, calls: apart.Calls) -> bool:
    reason = apart.touches_others(calls, tower, [summary])
    if reason is not None:
        logging.warning('The summary `%s` of %s is left out: %s.', summary.op.name, tower.caller, reason)
    return reason is None
