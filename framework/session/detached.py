"""Evaluation detached from training: in a graph of its own, with the weights of a checkpoint.

That is how a checkpoint is evaluated by itself, and how a run evaluates sets that can't share its graph: those whose
data can't start again in a session (queues, bare tensors), and those whose Scaffold says by a saver of its own how a
checkpoint becomes variables (moving averages). Nothing of training is touched, however a pass ends.
"""

import contextlib
import dataclasses
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from absl import logging
from tensorflow.compat import v1

from framework import run_config
from framework.graph.calls import Tower
from framework.reporting.rows import Metrics, PassRow, RunResult
from framework.reporting.writers import Writer
from framework.session import ends, holding, initial, opening
from framework.session.evaluation import Evaluation, PassInterrupted
from framework.session.pulse import Pulse
from framework.session.signals import StopSignals
from framework.warm_start import WarmStartSettings


class DetachedEvaluation:
    """The evaluation sets of a graph without training.

    Args:
        evaluation: The sets.
        config: The sessions' configuration, None for the default.
        warm_start: What passes without a checkpoint begin with, None for the initial values of the model.
    """

    def __init__(
        self,
        evaluation: Evaluation,
        config: v1.ConfigProto | None = None,
        warm_start: WarmStartSettings | None = None,
    ):
        self._evaluation = evaluation
        self._config = config or run_config.default_session_config()
        with evaluation.compiled.graph.as_default():
            self._scaffold = opening.session_scaffold(evaluation.compiled)
            evaluation.begin()
            self._initialise = initial.prepare(warm_start, evaluation.compiled.graph, self._scaffold)
            self._scaffold.finalize()

    def metrics(self, stream: str) -> list[str]:
        """Returns the names of a set's metrics."""
        return list(self._evaluation.compiled.tower(stream).values)

    @property
    def towers(self) -> Sequence[Tower]:
        """The evaluation calls of its graph."""
        return self._evaluation.compiled.towers

    def element_spec(self, stream: str) -> Any:
        """Returns the structure of a set's elements."""
        return self._evaluation.compiled.tower(stream).sources[stream].element_spec

    def make_passes(
        self,
        checkpoint: str | None,
        interrupted: Callable[[], bool],
        tell: Callable[[PassRow], None],
        progress: Callable[[str, int, int | None], None] = lambda *_: None,
    ) -> None:
        """Makes a pass over every set with the weights of a checkpoint, each in a session of its own.

        What a pass leaves behind, in a table for example, ends with its session.

        Args:
            checkpoint: The prefix of the checkpoint's files; None for what a model without one begins with.
            interrupted: Asked between batches; True ends a pass.
            tell: Called with each pass when it is made.
            progress: See `Evaluation.progress`.

        Raises:
            PassInterrupted: If a signal came before the last batch.
            RunDirectoryError: If the checkpoint is damaged or of another model.
        """
        evaluation = dataclasses.replace(self._evaluation, interrupted=interrupted, progress=progress)
        for stream in evaluation.sets:
            with self._session(checkpoint) as session:
                evaluation.check(session)
                step = int(session.run(evaluation.compiled.global_step))
                tell(evaluation.make_pass(session, stream, step))

    def try_out(self, checkpoint: str, interrupted: Callable[[], bool], batches: int) -> None:
        """Refuses sets whose pass would never end or be of nothing, and runs a few batches of each tower.

        Args:
            checkpoint: The prefix of the checkpoint's files.
            interrupted: Asked between batches; True ends it.
            batches: How many; the data may end before.
        """
        evaluation = dataclasses.replace(self._evaluation, interrupted=interrupted)
        with self._session(checkpoint) as session:
            evaluation.check(session)
            evaluation.try_out(session, batches)

    @contextlib.contextmanager
    def _session(self, checkpoint: str | None) -> Iterator[v1.Session]:
        compiled = self._evaluation.compiled
        caller = f'evaluation ({", ".join(self._evaluation.sets)})'
        with compiled.graph.as_default(), v1.Session(graph=compiled.graph, config=self._config) as session:
            if checkpoint is None:
                self._initialise(session)
            else:
                opening.restore(session, self._scaffold.saver, checkpoint)
            session.run([self._scaffold.local_init_op, compiled.init])
            opening.check_ready(session, self._scaffold, caller)
            with contextlib.closing(opening.Queues(session)):
                yield session


def evaluate_checkpoints(
    parts: Sequence[DetachedEvaluation],
    checkpoints: Iterable[Callable[[], str]],
    writer: Writer,
    skip_missing: bool = False,
) -> RunResult:
    """Makes a pass over every set with the weights of each checkpoint.

    Args:
        parts: The sets, by graph.
        checkpoints: For each a function that returns the prefix of its files; see `holding.held`.
        writer: Is told every pass.
        skip_missing: Whether a checkpoint that a training beside this removed is left out.

    Raises:
        RunDirectoryError: If a checkpoint is damaged or of another model.
    """
    made: list[PassRow] = []
    named: list[str] = []

    pulse = Pulse(writer, time.monotonic)

    def tell(row: PassRow) -> None:
        made.append(row)
        writer.write_pass(row)

    with StopSignals() as signals, ends.named_ends(), contextlib.suppress(PassInterrupted):
        for choose in checkpoints:
            with holding.held(choose) as checkpoint:
                if skip_missing and not holding.exists(checkpoint):
                    logging.info('`%s` is gone: a training beside this removed it.', choose())
                    continue
                named.append(holding.original(checkpoint))
                for part in parts:
                    part.make_passes(checkpoint, signals.came, tell, pulse.batches)
    step = made[-1].step if made else 0
    metrics: dict[str, Metrics] = {row.stream: row.metrics for row in made}
    timing = {'evaluate': sum(row.secs for row in made)}
    if signals.came():
        return RunResult('interrupted', signals.sentence, step, metrics, timing, signals.exit_code)
    return RunResult('done', f'evaluated {", ".join(named)}', step, metrics, timing)


@contextlib.contextmanager
def saved_weights(session: v1.Session, saver: v1.train.Saver) -> Iterator[str]:
    """Yields the prefix of a checkpoint of the weights as they are now, which is removed afterwards.

    Args:
        session: The raw session of training.
        saver: Training's.
    """
    with tempfile.TemporaryDirectory(prefix='weights-') as directory:
        prefix = os.path.join(directory, 'model.ckpt')
        yield saver.save(session, prefix, write_meta_graph=False, write_state=False)
