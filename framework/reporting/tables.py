"""Tables for people, as plain text: they may go to a log, a file or a terminal."""

import io
import math
from collections.abc import Iterable, Mapping, Sequence

from rich import box, console, table

from framework.reporting import rows, values

_WIDTH = 100
_WIDEST = 180  # of a table whose names are to be found again


def parameter_table(parameters: Sequence[rows.ParameterRow]) -> str:
    """Returns a table of the model's variables, with the number of values in each and in all.

    What isn't known before the run is a `?`; a total of what is known ends with `+`.

    Args:
        parameters: The variables, in the order to show.
    """
    read = any(row.streams for row in parameters)
    content = _table('name', 'shape', 'count', 'trainable', *(['read by'] if read else []), right=('count',))
    for row in parameters:
        count = _count(row)
        shown = '?' if count is None else f'{count:,}'
        by = [', '.join(row.streams)] if read else []
        content.add_row(row.name, _shape(row), shown, 'yes' if row.trainable else 'no', *by)
    content.add_section()
    content.add_row('total, trainable', '', _total(row for row in parameters if row.trainable), '')
    content.add_row('total', '', _total(parameters), '')
    return _render(content, widest=_WIDEST)


def stream_table(streams: Sequence[rows.StreamRow]) -> str:
    """Returns a table of streams: where each is computed, its batches, the structure of its elements, its metrics.

    Args:
        streams: The streams, in the order to show.
    """
    content = _table('stream', 'computed in', 'batch', 'batches', 'elements', 'metrics', right=('batch', 'batches'))
    for row in streams:
        batch = '?' if row.batch is None else str(row.batch)
        content.add_row(row.stream, row.place, batch, row.batches, row.structure, ', '.join(row.metrics))
        content.add_section()
    return _render(content)


def result_table(result: rows.RunResult) -> str:
    """Returns the metrics of every stream, and under them why, where and after how long the run ended.

    Args:
        result: How the run ended.
    """
    content = _table('stream', 'metric', 'value', right=('value',))
    for stream, metrics in result.metrics.items():
        for name, text in values.metrics_to_text(metrics).items():
            content.add_row(stream, name, text)
        content.add_section()
    end = table.Table.grid(padding=(0, 2))
    end.add_column()
    end.add_column(overflow='fold')
    end.add_row('stopped', f'{result.stop_reason} ({result.status})')
    end.add_row('step', str(result.global_step))
    if result.best is not None:
        step, value = result.best.kept[0]
        end.add_row('best', f'{result.best.metric} = {values.to_text(value)} at step {step}: {result.best.checkpoint}')
    end.add_row('time', _time(result.timing))
    return _render(content) + '\n' + _render(end)


def _time(timing: Mapping[str, float]) -> str:
    """Returns `28.4 s: start_up 0.8, train 26.0, ...`; without the sum where there is none."""
    parts = ', '.join(f'{kind} {secs:.1f}' for kind, secs in timing.items() if kind != 'total')
    return f'{timing["total"]:.1f} s: {parts}' if 'total' in timing else f'{parts} s'


def warm_start_table(variables: Sequence[rows.WarmStartRow]) -> str:
    """Returns a table of the variables that a warm start loads, and of those that it doesn't, with the reason.

    Args:
        variables: The variables, in the order to show.
    """
    content = _table('variable', 'in the checkpoint', 'shape', 'value', 'why')
    for row in variables:
        content.add_row(row.name, row.source, _shape(row), 'loaded' if row.loaded else 'skipped', row.why)
    content.add_section()
    content.add_row(f'{sum(row.loaded for row in variables)} of {len(variables)} loaded')
    return _render(content)


def text_table(columns: Sequence[str], lines: Iterable[Sequence[str]], right: Sequence[str] = ()) -> str:
    """Returns a table of texts.

    Args:
        columns: The headings.
        lines: Per line a text for each column.
        right: The headings of columns that are aligned at the right.
    """
    content = _table(*columns, right=right)
    for line in lines:
        content.add_row(*line)
    return _render(content)


def _shape(row: rows.ParameterRow | rows.WarmStartRow) -> str:
    if row.shape is None:
        return '?'
    return f'[{", ".join("?" if size is None else str(size) for size in row.shape)}]'


def _count(row: rows.ParameterRow) -> int | None:
    sizes = [size for size in row.shape or () if size is not None]
    return None if row.shape is None or len(sizes) < len(row.shape) else math.prod(sizes)


def _total(parameters: Iterable[rows.ParameterRow]) -> str:
    counts = [_count(row) for row in parameters]
    known = sum(count for count in counts if count is not None)
    return f'{known:,}+' if None in counts else f'{known:,}'


def _table(*columns: str, right: Sequence[str] = ()) -> table.Table:
    content = table.Table(box=box.ASCII)
    for column in columns:
        # Folded, not cut: the end of a variable's name is what tells it from its neighbours.
        content.add_column(column, justify='right' if column in right else 'left', overflow='fold')
    return content


def _render(content: table.Table, widest: int = _WIDTH) -> str:
    # Names may look like rich's markup (`layer[0]`), and a notebook or FORCE_COLOR must not change the text.
    text = io.StringIO()
    out = console.Console(
        file=text, width=widest, color_system=None, force_jupyter=False, markup=False, emoji=False, highlight=False
    )
    out.print(content)
    return '\n'.join(line.rstrip() for line in text.getvalue().splitlines()) + '\n'
