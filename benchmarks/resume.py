"""What it costs that a run can be killed at any moment: commits, and draws that follow from the count of runs.

    python -m benchmarks.resume --rounds=20 --json=resume.json

CPU seconds, because they are steadier than wall time; each round measures all sides, one after the other, and the
figures are medians over the rounds. Ratios are those of the two sides of one round.
"""

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from absl import app, flags, logging
from tensorflow.compat import v1

import framework  # noqa: F401  (before TensorFlow: it chooses the Keras)
from benchmarks import workloads
from framework import run_dir
from framework.graph import compiled
from framework.graph.calls import Compiled
from framework.run_config import default_session_config
from framework.session import commits
from framework.session.side_file import SideFile

_STEPS = {'mlp': 500, 'conv': 20}
_COMMIT_EVERY = 100  # steps, for the share of commits
_ROUNDS = flags.DEFINE_integer('rounds', 20, 'Rounds of measurement.')
_JSON = flags.DEFINE_string('json', None, 'Where the figures go; None: only to the terminal.')


class _Side:
    """A graph and its session, ready for steps."""

    def __init__(self, name: str, keyed: bool):
        model_fn, input_fn = workloads.WORKLOADS[name]()
        model = compiled.Model(model_fn, None, None)
        self.built: Compiled = compiled.compile_graph(model, input_fn, [], seed=1, keyed=keyed)
        self._runs = 0
        with self.built.graph.as_default():
            train = self.built.train
            assert train is not None
            self._fetches = [train.spec.train_op, train.spec.loss, train.step_after]
            self.side_file = SideFile([], train, False, replays=True)
            self.saver = v1.train.Saver(sharded=True, max_to_keep=None)
            init = [v1.global_variables_initializer(), v1.local_variables_initializer()]
            self.session = v1.Session(config=default_session_config())
            self.session.run(init)
            self.session.run(list(train.input.initializers.values()))
        self._tick = self.built.draws.tick

    def steps(self, number: int) -> int:
        """Makes steps and returns the global step."""
        step = 0
        for _ in range(number):
            feeds = None if self._tick is None else {self._tick: self._runs}
            step = int(self.session.run(self._fetches, feed_dict=feeds)[2])
            self._runs += 1
        return step


def _cpu_secs(action: Callable[[], Any]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def _draws(name: str, rounds: int) -> dict[str, Any]:
    """Returns the cost of keyed draws as a ratio of the CPU seconds of equally many steps."""
    sides = {keyed: _Side(name, keyed) for keyed in (False, True)}
    for side in sides.values():
        side.steps(_STEPS[name])
    ratios = []
    for i in range(rounds):
        order = (False, True) if i % 2 else (True, False)
        secs = {keyed: _cpu_secs(lambda keyed=keyed: sides[keyed].steps(_STEPS[name])) for keyed in order}
        ratios.append(secs[True] / secs[False])
    done = {side.steps(1) for side in sides.values()}
    assert done == {(rounds + 1) * _STEPS[name] + 1}, done  # both made all of their steps
    return {'ratio_cpu': statistics.median(ratios), 'quartiles': statistics.quantiles(ratios, n=4)}


def _commit(name: str, rounds: int) -> dict[str, Any]:
    """Returns the CPU milliseconds of a commit, its share of the steps between two, and what of it the place costs.

    The place in the data is saved by TensorFlow, element by element of what the pipeline holds: a shuffle buffer costs.
    """
    side = _Side(name, keyed=True)
    side.steps(_STEPS[name])
    costs: list[float] = []
    shares: list[float] = []
    of_place: list[float] = []
    with tempfile.TemporaryDirectory() as directory, side.built.graph.as_default():
        store = commits.Commits(run_dir.RunDir(directory))
        store.take_up(None)
        last: commits.Commit | None = None
        for _ in range(rounds):
            of_steps: list[float] = []
            step = 0

            def train() -> None:
                nonlocal step
                step = side.steps(_STEPS[name])

            of_steps.append(_cpu_secs(train))
            record = commits.Commit(step, step - 1, runs=step)

            def save(record: commits.Commit = record) -> None:
                nonlocal last
                last = store.save(side.session, side.saver, record, last, side=side.side_file)

            costs.append(_cpu_secs(save))
            shares.append(costs[-1] / (of_steps[0] / _STEPS[name] * _COMMIT_EVERY))
            of_place.append(_cpu_secs(lambda: side.side_file.save(side.session, os.path.join(directory, 'again'))))
        assert last is not None and store.resume_point() == last  # it was a commit that holds
    return {
        'cpu_ms': 1000 * statistics.median(costs),
        'cpu_ms_of_place': 1000 * statistics.median(of_place),
        'share_of_100_steps': statistics.median(shares),
    }


def main(argv: Sequence[str]) -> None:
    """Measures and prints."""
    del argv
    logging.set_verbosity(logging.ERROR)
    rounds = _ROUNDS.value
    figures = {
        name: {'rounds': rounds, 'commit': _commit(name, rounds), 'keyed_draws': _draws(name, rounds)}
        for name in workloads.WORKLOADS
    }
    text = json.dumps(figures, indent=2)
    print(text)  # noqa: T201
    if _JSON.value:
        run_dir.write_atomically(_JSON.value, text + '\n')


if __name__ == '__main__':
    app.run(main)
