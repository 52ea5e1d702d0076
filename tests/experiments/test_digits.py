"""The digits experiment through the binary: in seconds, and (slow) the figure that its README promises."""

import json
import pathlib
import time

import numpy as np
import pytest
from absl import flags

from framework import config, main

GIN = pathlib.Path(__file__).parents[2] / 'gin_configs' / 'digits'


def run(gin_file: str, directory: pathlib.Path, *bindings: str) -> list[dict]:
    """Runs the binary in this process and returns the lines of `metrics.jsonl`."""
    config.clear()
    values = flags.FlagValues()
    main.define_flags(values)
    given = [f'--gin_param={binding}' for binding in bindings]
    values(['main', f'--gin_file={GIN / gin_file}', f'--model_dir={directory}', *given])
    assert main.run(values) == 0
    return [json.loads(line) for line in (directory / 'metrics.jsonl').read_text().splitlines()]


def test_smoke_gin_runs_all_of_it_in_seconds(tmp_path):
    rows = run('smoke.gin', tmp_path)
    assert [(row['step'], row['stream']) for row in rows if row['stream'] != 'train'] == [
        *((3, 'valid'), (3, 'test'), (6, 'valid'), (6, 'test'))
    ]


@pytest.mark.slow
def test_mean_test_accuracy_of_three_seeds_is_at_least_98_percent(tmp_path):
    chosen, seconds = [], []
    for seed in (1, 2, 3):
        start = time.monotonic()
        rows = run('base.gin', tmp_path / str(seed), f'Experiment.seed = {seed}')
        seconds.append(time.monotonic() - start)
        accuracy = {
            stream: {row['step']: row['metrics']['accuracy'] for row in rows if row['stream'] == stream}
            for stream in ('valid', 'test')
        }
        best = max(accuracy['valid'], key=accuracy['valid'].get)  # the first of equals: the steps are in order
        chosen.append(accuracy['test'][best])
    assert np.mean(chosen) >= 0.98, chosen
    assert max(seconds) < 180, seconds
