"""A picture for each metric: training and all sets of all runs over the steps."""

import dataclasses
import io
import math
import re
from collections.abc import Iterable, Sequence

from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from framework.report.runs import Run, Series
from framework.run_dir import TRAIN

_INCHES = (8.0, 4.5)
_DOTS_PER_INCH = 110
_IN_LEGEND = 20  # lines beyond which a legend hides the picture
_STYLES = ('-', '-.', ':')
_MARKER_UP_TO = 30  # points, between which a line alone hides where passes were
_COLORS = colormaps['tab10'].colors  # type: ignore[attr-defined]


@dataclasses.dataclass(frozen=True)
class Chart:
    """A picture.

    Attributes:
        metric: The metric's name, without a stream.
        file_name: A name for its file, which no other chart of the report has.
        png: The picture.
        note: What the picture can't show, '' where it shows all.
    """

    metric: str
    file_name: str
    png: bytes
    note: str


def draw(runs: Sequence[Run]) -> list[Chart]:
    """Returns a chart for each metric that has a value.

    Args:
        runs: The runs, each in a colour; the streams of a run differ by the style of their lines.
    """
    found = [(number, run, series) for number, run in enumerate(runs) for series in run.metrics() if series.values]
    charts: list[Chart] = []
    for metric in dict.fromkeys(series.metric for *_, series in found):
        lines = [each for each in found if each[2].metric == metric]
        name = _file_name(metric, {chart.file_name for chart in charts})
        charts.append(Chart(metric, name, _png(metric, lines), _note([series for *_, series in lines])))
    return charts


def _png(metric: str, lines: Sequence[tuple[int, Run, Series]]) -> bytes:
    figure = Figure(figsize=_INCHES, dpi=_DOTS_PER_INCH, layout='constrained')
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    sets = list(dict.fromkeys(series.stream for *_, series in lines if series.stream != TRAIN))
    several = len({number for number, *_ in lines}) > 1
    for number, run, series in lines:
        style = '--' if series.stream == TRAIN else _STYLES[sets.index(series.stream) % len(_STYLES)]
        # One run: a colour for each stream. Several: a colour for each run.
        color = number if several else 0 if series.stream == TRAIN else 1 + sets.index(series.stream)
        values = [value if math.isfinite(value) else math.nan for value in series.values]
        axes.plot(
            series.steps,
            values,
            linestyle=style,
            color=_COLORS[color % len(_COLORS)],
            marker='.' if len(values) <= _MARKER_UP_TO else '',
            label=f'{run.name} {series.stream}' if several else series.stream,
        )
    axes.set_title(_plain(metric))
    axes.set_xlabel('step')
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    if len(lines) <= _IN_LEGEND:
        # A label with an underscore at its start would be left out.
        handles, labels = axes.get_lines(), [line.get_label() for line in axes.get_lines()]
        axes.legend(handles, [_plain(str(label)) for label in labels], fontsize='small')
    content = io.BytesIO()
    figure.savefig(content, format='png')
    return content.getvalue()


def _plain(text: str) -> str:
    """Returns a text that matplotlib takes for no formula."""
    return text.replace('$', r'\$')


def _note(lines: Iterable[Series]) -> str:
    lost = {series.name: sum(not math.isfinite(value) for value in series.values) for series in lines}
    told = ', '.join(f'{count} of {name}' for name, count in lost.items() if count)
    return f'Not finite, and left out: {told}.' if told else ''


def _file_name(metric: str, taken: set[str]) -> str:
    stem = re.sub(r'[^A-Za-z0-9_.-]+', '_', metric).strip('.')[:100] or 'metric'
    name, number = f'{stem}.png', 2
    while name in taken:
        name, number = f'{stem}_{number}.png', number + 1
    return name
