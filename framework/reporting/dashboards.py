"""What TensorBoard's dashboards read of a run as a whole: the layout of charts, texts.

All are summaries that its plugins define; they are written to the event files as any other.
"""

import re
from collections.abc import Sequence

import tensorflow as tf
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import summary as custom_scalar
from tensorflow.compat import v1

_CATEGORY = 'metrics of training and of every set'
_LONGEST_TEXT = 2**16  # characters


def layout(charts: Sequence[str]) -> v1.Summary:
    """Returns the layout of the dashboard `custom scalars`: a chart a metric, with a line for training and every set.

    Args:
        charts: The names of the metrics.
    """
    category = layout_pb2.Category(title=_CATEGORY)
    for name in charts:
        # A tag is a pattern that has to match from the beginning; the lines are those of all event directories.
        content = layout_pb2.MultilineChartContent(tag=[f'^{re.escape(name)}$'])
        category.chart.add(title=name, multiline=content)
    return custom_scalar.pb(layout_pb2.Layout(category=[category]))


def text(tag: str, content: str) -> v1.Summary:
    """Returns a text, which the dashboard takes for Markdown."""
    summary = v1.Summary()
    summary.value.add(tag=tag, tensor=tf.make_tensor_proto(content, dtype=tf.string))
    summary.value[0].metadata.plugin_data.plugin_name = 'text'
    return summary


def verbatim(content: str) -> str:
    """Returns the Markdown of a text that is shown as it is, its end left out where it is very long."""
    if len(content) > _LONGEST_TEXT:
        content = f'{content[:_LONGEST_TEXT]}\n... {len(content) - _LONGEST_TEXT} more characters'
    # Indented and not fenced: a diff may hold a fence.
    return '\n'.join(f'    {line}' for line in content.splitlines())
