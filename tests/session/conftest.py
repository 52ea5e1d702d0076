"""Starts of a run in one directory, as a process each would make them."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import tensorflow as tf

from framework import policies, run_dir, testing
from framework.graph import compiled
from framework.reporting import rows
from framework.run_config import EvalSet, RunConfig
from framework.session import commits, evaluation, followers, graphs, loop
from framework.session.schedule import Schedule

TRAIN_BATCH, EVAL_EXAMPLES, EVAL_BATCH = 4, 10, 4
VALID = testing.blobs(EVAL_EXAMPLES, seed=1)


class Clock:
    """A clock that goes only when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def advance(self, secs: float) -> None:
        self.now += secs


@dataclasses.dataclass
class Start:
    """One start of a run: call `run`, then look at what was told."""

    loop: loop.Loop
    writer: testing.RecordingWriter
    compiled: compiled.Compiled
    store: commits.Commits

    def run(self) -> rows.RunResult:
        return self.loop.run(self.store.resume_point())

    def told(self, kind: type) -> list[Any]:
        return [row for row in self.writer.rows if isinstance(row, kind)]

    @property
    def phases(self) -> list[str]:
        """For example `train 3 @3`, `valid @3`, `commit @3`."""
        names = {'train': 'train {steps}', 'evaluate': '{stream}', 'commit': 'commit'}
        told = self.told(rows.PhaseRow)
        return [f'{names[row.phase].format(steps=row.steps, stream=row.stream)} @{row.step}' for row in told]


@pytest.fixture
def clock() -> Clock:
    return Clock()


def eval_set(name: str = 'valid', examples: Any = VALID, batch: int = EVAL_BATCH, **settings: Any) -> EvalSet:
    return EvalSet(name=name, input_fn=testing.array_input_fn(*examples, batch), **settings)


def build(
    model_fn: Callable[..., Any], train_input_fn: Callable[..., Any] | None, sets: list[EvalSet], **settings: Any
) -> compiled.Compiled:
    settings.setdefault('sizes_of', graphs.sizes_of)
    return compiled.compile_graph(compiled.Model(model_fn, None, None), train_input_fn, sets, seed=1, **settings)


@pytest.fixture
def start(tmp_path):
    """Returns a function that prepares one start of the run in `tmp_path`."""

    def prepare(
        train_steps: int | None = 4,
        *,
        every: Mapping[str, int | None] | None = None,
        sets: list[EvalSet] | None = None,
        model_fn: Callable[..., Any] = testing.linear_model_fn,
        train_input_fn: Callable[..., Any] | None = None,
        hooks: Any = (),
        eval_at_start: bool = False,
        clock: Callable[[], float] = time.perf_counter,
        seed: int | None = None,
        schedule: Mapping[str, Any] | None = None,
        follow: policies.Policies | None = None,
        on_nan: str = 'raise',
        train_metrics: bool = False,
        directory: Any = tmp_path,
        **config: Any,
    ) -> Start:
        settings = RunConfig(**{'save_checkpoints_steps': None, 'save_checkpoints_secs': 3600, **config})
        sets = [eval_set()] if sets is None else sets
        input_fn = train_input_fn or testing.array_input_fn(*testing.blobs(20), TRAIN_BATCH)
        more = schedule or {}
        built = build(model_fn, input_fn, sets, restart=more.get('restart', False), accumulate=train_metrics)
        plan = Schedule(
            train_steps,
            {s.stream: (every or {}).get(s.stream) for s in sets},
            commits=settings.save_checkpoints_steps is not None or settings.save_checkpoints_secs is not None,
            commit_steps=settings.save_checkpoints_steps,
            eval_at_start=eval_at_start,
            **more,
        )
        store = commits.Commits(run_dir.RunDir(directory), keep=settings.keep_checkpoint_max)
        writer = testing.RecordingWriter()
        run = loop.Loop(
            built,
            evaluation.Evaluation(built, {s.stream: s for s in sets}),
            store,
            writer,
            loop.Settings(
                plan,
                settings,
                hooks,
                seed,
                followers=followers.followers_of(follow or policies.Policies(), built.graph),
                on_nan=on_nan,
            ),
            clock=clock,
        )
        return Start(run, writer, built, store)

    return prepare


@pytest.fixture
def make_eval_set():
    return eval_set


@pytest.fixture
def make_graph():
    return build


@pytest.fixture
def batches():
    """Returns an input_fn of that many batches of 4 examples, which then ends."""

    def of(count: int) -> Callable[[], tf.data.Dataset]:
        return lambda: tf.data.Dataset.from_tensor_slices(testing.blobs(TRAIN_BATCH * count)).batch(TRAIN_BATCH)

    return of
