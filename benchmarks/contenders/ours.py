"""This framework: its loop, with the writers that a run has and one more, which ends the round."""

import contextlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks import networks
from benchmarks.contenders.rounds import Contender, Figures, HandOver, InTurns
from framework import EstimatorSpec, EvalSet, RunConfig
from framework.graph.calls import Model
from framework.reporting import rows, writers
from framework.run_dir import RunDir
from framework.session import telling
from framework.session.commits import Commits
from framework.session.evaluation import Evaluation
from framework.session.graphs import Graphs
from framework.session.loop import Loop, Settings
from framework.session.schedule import Schedule

_NO_FACTS: Mapping[str, Any] = {'argv': [], 'git_diff': None}

# How the fields of RunConfig differ between our contenders.
_WAYS: Mapping[str, Mapping[str, Any]] = {
    'per_step': {'fuse': 'off'},
    'fused': {'fuse': 'require'},
    'fused_xla': {'fuse': 'require', 'xla': 'loop'},
}
_SEED = 1
_SET = 'valid'


def contender(name: str, workload: networks.Workload, rounds: int) -> Contender:
    """Returns one of our contenders: `fused_saving` is `fused` with a commit a round.

    Args:
        name: Its name.
        workload: What it trains.
        rounds: How many rounds it will be asked for.
    """
    way = name.removesuffix('_saving')
    config = run_config(way, workload.steps, saves=way != name)
    return InTurns(lambda hand_over: run(workload, rounds, config, _EndOfRound(hand_over)))


def run_config(way: str, steps: int, saves: bool = False) -> RunConfig:
    """Returns the configuration of a run.

    Args:
        way: `per_step`, `fused` or `fused_xla`.
        steps: Steps a round, of which the last is told.
        saves: Whether there is a commit a round.
    """
    return RunConfig(
        save_checkpoints_steps=steps if saves else None,
        save_checkpoints_secs=None,
        save_summary_steps=None,
        save_summary_secs=None,
        log_step_count_steps=steps,
        **_WAYS[way],
    )


def run(
    workload: networks.Workload,
    rounds: int,
    config: RunConfig,
    last_writer: writers.Writer,
    sets: Sequence[str] = (_SET,),
    *,
    model_fn: Callable[..., Any] | None = None,
    of_run: Callable[[RunDir], Sequence[writers.Writer]] = telling.training_writers,
) -> None:
    """Trains in a run directory that is removed afterwards.

    Args:
        workload: What is trained.
        rounds: How many rounds.
        config: Cadences and the way.
        last_writer: Is told after the writers that every run has.
        sets: The names of the evaluation sets, which all hold the same.
        model_fn: The model, None for that of the workload.
        of_run: Returns the writers that a run has.
    """
    model = Model(model_fn or networks.make_model_fn(workload, EstimatorSpec), None, config)
    eval_sets = {name: EvalSet(input_fn=_inputs(workload), name=name) for name in sets}
    graphs = Graphs(model, _SEED, train_metrics=True, keyed=True, fuse=config.fuse, xla=config.xla)
    built, _ = graphs.training(_inputs(workload), eval_sets)
    schedule = Schedule(
        rounds * workload.steps,
        dict.fromkeys(eval_sets, workload.steps),
        commits=config.has_commits,
        commit_steps=config.save_checkpoints_steps,
    )
    with tempfile.TemporaryDirectory() as path:
        directory = RunDir(path)
        store = Commits(directory)
        if config.has_commits:
            store.take_up(None)
        evaluation = Evaluation(built, eval_sets, summaries=config.eval_summaries)
        with contextlib.closing(writers.Writers([*of_run(directory), last_writer])) as writer:
            writer.write_start(telling.start_row(built, {}, step=0, seed=_SEED, params=None, facts=_NO_FACTS))
            Loop(built, evaluation, store, writer, Settings(schedule, config, seed=_SEED)).run()


def _inputs(workload: networks.Workload) -> Callable[..., Any]:
    def input_fn(mode: str) -> Any:
        return workload.input_fn(mode)

    return input_fn


class _EndOfRound(writers.Writer):
    """Hands over at the end of a pass. A commit of the same step belongs to the round after."""

    def __init__(self, hand_over: HandOver):
        self._hand_over = hand_over
        self._loss = 0.0
        self._examples = 0

    def write_step(self, row: rows.StepRow) -> None:
        """Notes the loss."""
        self._loss = row.loss

    def write_phase(self, row: rows.PhaseRow) -> None:
        """Counts the examples of training, in however many phases."""
        if row.phase == 'train':
            self._examples += row.examples

    def write_pass(self, row: rows.PassRow) -> None:
        """Hands over."""
        metrics = {name: float(row.metrics[name]) for name in ('loss', 'mae')}
        examples, self._examples = self._examples, 0
        self._hand_over(Figures(row.step, self._loss, metrics, examples, row.examples))
