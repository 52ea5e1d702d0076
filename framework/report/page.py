"""The report as one page of HTML, which needs no other file and no network."""

import base64
from collections.abc import Sequence

import jinja2

from framework.report.charts import Chart
from framework.report.tables import Table

_TEMPLATE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
body { font: 15px/1.4 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #222; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { border-bottom: 1px solid #ddd; padding: .25rem .75rem; text-align: left; vertical-align: top; }
td.right, th.right { text-align: right; font-variant-numeric: tabular-nums; }
td { overflow-wrap: anywhere; }
figure { margin: 1.5rem 0; }
img { max-width: 100%; }
</style>
</head>
<body>
<h1>{{ title }}</h1>
{% for heading, table in tables %}
<h2>{{ heading }}</h2>
{% if table.lines %}
<div class="wide"><table>
<thead><tr>{% for column in table.columns %}<th{% if column in table.right %} class="right"{% endif %}>{{ column }}</th>
{%- endfor %}</tr></thead>
<tbody>
{% for line in table.lines %}
<tr>{% for text in line %}<td{% if table.columns[loop.index0] in table.right %} class="right"{% endif %}>{{ text }}</td>
{%- endfor %}</tr>
{% endfor %}
</tbody>
</table></div>
{% else %}
<p>None.</p>
{% endif %}
{% endfor %}
<h2>Curves</h2>
{% for chart in charts %}
<figure>
<img alt="{{ chart.metric }} over steps" src="data:image/png;base64,{{ encoded(chart) }}">
{% if chart.note %}<figcaption>{{ chart.note }}</figcaption>{% endif %}
</figure>
{% else %}
<p>There are no metrics yet.</p>
{% endfor %}
</body>
</html>
"""


def render(title: str, tables: Sequence[tuple[str, Table]], charts: Sequence[Chart]) -> str:
    """Returns the page.

    Args:
        title: Its title.
        tables: The tables with their headings.
        charts: The charts.
    """
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(_TEMPLATE).render(title=title, tables=tables, charts=charts, encoded=_encoded)


def _encoded(chart: Chart) -> str:
    return base64.b64encode(chart.png).decode('ascii')
