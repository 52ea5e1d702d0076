"""The layout of charts and texts; tests/test_tensorboard.py has the dashboards read them."""

from tensorboard.plugins.custom_scalar import layout_pb2

from framework.reporting import dashboards


def test_a_chart_matches_the_tag_of_its_metric_and_no_other():
    (value,) = dashboards.layout(['a.b', 'loss']).value
    layout = layout_pb2.Layout.FromString(value.tensor.string_val[0])
    (category,) = layout.category
    assert [(chart.title, list(chart.multiline.tag)) for chart in category.chart] == [
        ('a.b', [r'^a\.b$']),
        ('loss', ['^loss$']),
    ]


def test_a_text_is_shown_as_it_is_whatever_it_holds():
    assert dashboards.verbatim('a\n```\n# b') == '    a\n    ```\n    # b'


def test_a_long_text_is_cut_and_says_so():
    shown = dashboards.verbatim('x' * (2**16 + 7))
    assert shown == f'    {"x" * 2**16}\n    ... 7 more characters'
