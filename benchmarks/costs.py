"""What alternation costs beside its rounds: start-up, memory, and a pass for itself.

    python -m benchmarks.costs --json=costs.json --old_python=old/bin/python

Every figure comes from a fresh process. Start-up is from the end of the imports to the end of the first round. A pass
is looked at twice: in a small graph and in larger ones, and beside other evaluation sets of the same data.
"""

import json
import pathlib
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import app, flags, logging

import framework  # noqa: F401  (before TensorFlow: it chooses the Keras)
from benchmarks import networks
from benchmarks.contenders import chosen, ours
from framework import run_dir
from framework.reporting import rows, writers

_STARTED = ('mlp', 'deep')
_ROUNDS_IN_MEMORY = (20, 200)
_BLOCKS = (1, 16, 64)
_SETS = (1, 2, 4, 8)
_PASSES = 12  # of which the first two are not measured
_CONTENDERS = flags.DEFINE_list('contenders', ['per_step', 'floor'], 'Whose start-up is measured.')
_OURS = flags.DEFINE_list('ours', ['per_step'], 'Whose memory and passes are measured.')
_OLD_PYTHON = flags.DEFINE_string('old_python', None, 'As for `benchmarks.alternation`.')
_JSON = flags.DEFINE_string('json', None, 'Where the figures go; None: only to the terminal.')
_ONE = flags.DEFINE_list('one', None, 'Measures this only: kind, contender, size. For the fresh processes.')


def _start_up(name: str, workload: str) -> dict[str, float]:
    """Returns the cost of the first round."""
    _, cost = chosen.contender(name, workload, 1, _OLD_PYTHON.value).measured_round()
    return {'cpu_secs': cost.cpu_secs, 'wall_secs': cost.wall_secs}


def _memory(name: str, workload: str) -> dict[str, float]:
    """Returns the resident megabytes after some rounds and after many."""
    contender = chosen.contender(name, workload, _ROUNDS_IN_MEMORY[-1])
    resident = {}
    for number in range(1, _ROUNDS_IN_MEMORY[-1] + 1):
        contender.round()
        if number in _ROUNDS_IN_MEMORY:
            resident[f'mb_at_{number}'] = _resident_mb()
    return resident


def _resident_mb() -> float:
    pages = int(pathlib.Path('/proc/self/statm').read_text(encoding='ascii').split()[1])
    return pages * resource.getpagesize() / 2**20


def _pass_by_size(name: str, blocks: str) -> dict[str, float]:
    """Returns what a pass of 10 batches costs in a graph of so many blocks."""
    return _passes(name, networks.deep(int(blocks)), 1)


def _pass_by_sets(name: str, sets: str) -> dict[str, float]:
    """Returns what a pass costs beside others over the same data."""
    return _passes(name, networks.WORKLOADS['mlp'], int(sets))


def _passes(name: str, workload: networks.Workload, sets: int) -> dict[str, float]:
    clock = _PassClock()
    names = [f'set_{i}' for i in range(sets)]
    start = time.perf_counter()
    ours.run(workload, _PASSES, ours.run_config(name, workload.steps), clock, names)
    measured = clock.cpu_secs[2 * sets :]
    return {'cpu_ms': 1000 * statistics.median(measured), 'total_secs': time.perf_counter() - start}


class _PassClock(writers.Writer):
    """Takes the CPU seconds of every pass: from the end of the phase before to its own end."""

    def __init__(self) -> None:
        self.cpu_secs: list[float] = []
        self._since = 0.0

    def write_phase(self, row: rows.PhaseRow) -> None:
        """Begins with the next phase."""
        self._since = time.process_time()

    def write_pass(self, row: rows.PassRow) -> None:
        """Notes a pass."""
        self.cpu_secs.append(time.process_time() - self._since)


_KINDS: Mapping[str, Callable[[str, str], dict[str, float]]] = {
    'start_up': _start_up,
    'memory': _memory,
    'pass_by_blocks': _pass_by_size,
    'pass_by_sets': _pass_by_sets,
}


def _in_fresh_process(kind: str, name: str, size: str) -> dict[str, float]:
    command = [sys.executable, '-m', 'benchmarks.costs', f'--one={kind},{name},{size}']
    if _OLD_PYTHON.value:
        command.append(f'--old_python={_OLD_PYTHON.value}')
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    figures = json.loads(answer)
    print(f'{kind:16}{name:22}{size:>8}  {_text(figures)}', flush=True)  # noqa: T201
    return figures


def _text(figures: Mapping[str, float]) -> str:
    return ', '.join(f'{name} {value:.2f}' for name, value in figures.items())


def main(argv: Sequence[str]) -> None:
    """Measures and prints."""
    del argv
    logging.set_verbosity(logging.ERROR)
    if _ONE.value:
        kind, name, size = _ONE.value
        print(json.dumps(_KINDS[kind](name, size)))  # noqa: T201
        return
    plan: dict[str, tuple[list[str], Sequence[Any]]] = {
        'start_up': (_CONTENDERS.value, _STARTED),
        'memory': (_OURS.value, ('mlp',)),
        'pass_by_blocks': (_OURS.value, _BLOCKS),
        'pass_by_sets': (_OURS.value, _SETS),
    }
    results = {
        kind: {name: {str(size): _in_fresh_process(kind, name, str(size)) for size in sizes} for name in names}
        for kind, (names, sizes) in plan.items()
    }
    if _JSON.value:
        run_dir.write_atomically(_JSON.value, json.dumps(results, indent=2) + '\n')


if __name__ == '__main__':
    app.run(main)
