"""TensorBoard itself, on a run of digits, in a browser that looks at its charts."""

import contextlib
import pathlib
import re
import subprocess
import sys

import pytest
from absl import flags

from framework import config, main
from tests import browser

GIN_FILE = pathlib.Path(__file__).parents[1] / 'gin_configs' / 'digits' / 'smoke.gin'
# Per chart of the page its title, and how many lines are drawn in colours of their own.
CHARTS = """(() => {
  const inside = (node, found) => {
    found.push(node);
    for (const child of [...(node.shadowRoot ? node.shadowRoot.children : []), ...node.children]) inside(child, found);
    return found;
  };
  const cards = inside(document.body, []).filter(e => e.localName == 'tf-custom-scalar-multi-line-chart-card');
  return Object.fromEntries(cards.map(card => {
    const lines = inside(card, []).filter(e => e.matches('path.line') && /L/.test(e.getAttribute('d') || ''));
    return [card.title, new Set(lines.map(line => line.getAttribute('stroke'))).size];
  }));
})()"""


@pytest.fixture(scope='module')
def digits(tmp_path_factory):
    """The directory above that of a finished run."""
    directory = tmp_path_factory.mktemp('runs')
    config.clear()
    values = flags.FlagValues()
    main.define_flags(values)
    values(['main', f'--gin_file={GIN_FILE}', f'--model_dir={directory}/digits'])
    assert main.run(values) == 0
    return directory


@contextlib.contextmanager
def tensorboard(logdir):
    """Yields the address of a TensorBoard on loopback, at a port that was free."""
    command = [sys.executable, '-m', 'tensorboard.main', f'--logdir={logdir}', '--host=127.0.0.1', '--port=0']
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            said = (re.search(r'http://127\.0\.0\.1:\d+/', line) for line in process.stderr)
            yield next(filter(None, said))[0]
        finally:
            process.terminate()


@pytest.mark.slow
@pytest.mark.parametrize('name', ['', 'digits'], ids=['runs', 'run'])
def test_the_page_of_custom_scalars_draws_a_chart_a_metric_with_the_lines_of_training_and_both_sets(
    digits, tmp_path, name
):
    binary = browser.find()
    if binary is None:
        pytest.skip(f'no browser here: none of {", ".join(browser.NAMES)}')
    expected = {'accuracy': 2, 'loss': 3, 'loss_per_example': 2}  # training has a loss only
    with tensorboard(digits / name) as address:
        page = browser.Page(binary, tmp_path / 'profile', f'{address}#custom_scalars')
        try:
            assert page.wait_for(CHARTS, expected) == expected
            page.screenshot(tmp_path / 'page.png')
        finally:
            page.close()
    assert (tmp_path / 'page.png').stat().st_size > 10_000
