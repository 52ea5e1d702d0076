"""The README's Python runs as it stands."""

import pathlib
import re

import pytest
from tensorflow.compat import v1

from framework import main

README = (pathlib.Path(__file__).parents[1] / 'README.md').read_text()
EXAMPLE, OWN_MAIN = re.findall(r'```python\n(.*?)```', README, re.DOTALL)


def test_the_example_has_20_lines_and_learns(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert len([line for line in EXAMPLE.splitlines() if line]) <= 20
    exec(compile(EXAMPLE, 'README.md', 'exec'), {})
    assert "'accuracy'" in capsys.readouterr().out
    assert v1.train.latest_checkpoint('runs/line').endswith('model.ckpt-600')


def test_the_main_of_ones_own_has_at_most_15_lines():
    lines = [line for line in OWN_MAIN.splitlines() if line]
    assert len(lines) <= 15
    compile(OWN_MAIN, 'README.md', 'exec')


def test_the_docstring_of_the_binary_shows_the_same_main():
    assert main.__doc__.split('\n\n', 1)[1] == OWN_MAIN


@pytest.mark.parametrize('path', sorted(set(re.findall(r'\]\(([^):]+)\)', README))))
def test_links_lead_somewhere(path):
    assert (pathlib.Path(__file__).parents[1] / path).exists()
