"""A pass over one evaluation set, on the raw session: no training hook sees it."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf
from tensorflow.compat import v1

from framework import errors
from framework.graph.compiled import Compiled, Tower
from framework.reporting.rows import PassRow
from framework.run_config import EvalSet
from framework.session import hooks
from framework.session.guard import VariableGuard


class PassInterrupted(Exception):  # noqa: N818 - a signal, not an error
    """A signal came during a pass; its metrics cover a part of the set and are thrown away."""


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The evaluation sets of one graph, ready for passes.

    Attributes:
        compiled: The graph.
        sets: The sets by stream name.
        interrupted: Asked between batches; True ends a pass.
        clock: Seconds, monotonic.
        guard: Keeps the variables of the model from the hooks of the passes.
    """

    compiled: Compiled
    sets: dict[str, EvalSet]
    interrupted: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.perf_counter
    guard: VariableGuard = dataclasses.field(default_factory=VariableGuard, repr=False)
    local_inits: dict[str, tf.Operation] | None = dataclasses.field(default=None, repr=False)

    def __post_init__(self) -> None:
        # Looked up once, because opening the session fills in what a Scaffold leaves open.
        inits = {tower.name: tower.spec.scaffold.local_init_op for tower in self.compiled.towers}
        own = {name: op for name, op in inits.items() if op is not None}
        if self.local_inits is None:
            object.__setattr__(self, 'local_inits', own)

    def hooks_of(self, stream: str) -> list[v1.train.SessionRunHook]:
        """Returns the hooks of a set's passes in the order of `tf.estimator`: the caller's, then the model's."""
        return [*self.sets[stream].hooks, *self.compiled.tower(stream).spec.evaluation_hooks]

    def begin(self, begun: Sequence[v1.train.SessionRunHook] = ()) -> None:
        """Calls `begin` of all hooks; the graph must not be finalized yet."""
        hooks.begin_evaluation(self.compiled, [(stream, self.hooks_of(stream)) for stream in self.sets], begun)

    def check(self, session: v1.Session) -> None:
        """Refuses sets whose pass would never end, or would be of nothing, as far as their Datasets tell.

        Raises:
            ConfigurationError: For an infinite Dataset without `steps`, and for one without a batch.
        """
        towers = {stream: self.compiled.tower(stream) for stream in self.sets}
        sizes = session.run({stream: tower.sources[stream].cardinality for stream, tower in towers.items()})
        for stream, size in sizes.items():
            if size == tf.data.INFINITE_CARDINALITY and self.sets[stream].steps is None:
                raise errors.ConfigurationError(
                    f'`EvalSet.steps` [None] of `{stream}`: its Dataset is infinite, so a pass would never end. Set '
                    '`steps`, or leave out `repeat()` in its input_fn when `mode` is ModeKeys.EVAL.'
                )
            if size == 0:
                raise _no_batch(stream)

    def try_out(self, session: v1.Session, batches: int) -> None:
        """Runs a few batches of every tower, without hooks, so that faults show before the first training step.

        Args:
            session: The raw session.
            batches: How many; the data may end before.

        Raises:
            ConfigurationError: If a set has no batch.
            RunError: If an op other than the set's iterator reports the end of its data.
        """
        first = {self.compiled.tower(stream).name: stream for stream in reversed(self.sets)}
        for stream in first.values() if batches else ():
            tower = self.compiled.tower(stream)
            self._reset(session, tower)
            session.run(tower.input.initializers[stream])
            self._read(hooks.HookedRuns(session, ()), tower, stream, batches)

    def make_pass(self, session: v1.Session, stream: str, step: int) -> PassRow:
        """Runs one full pass: resets the metrics, starts the set from its beginning, reads it to its end.

        What hooks change of the model's variables holds for this pass only.

        Args:
            session: The raw session.
            stream: The set.
            step: The global step of the weights.

        Raises:
            PassInterrupted: If a signal came before the last batch.
            ConfigurationError: If the set has no batch.
            RunError: If an op other than the set's iterator reports the end of its data.
        """
        start = self.clock()
        tower = self.compiled.tower(stream)
        self._reset(session, tower)
        session.run(tower.input.initializers[stream])
        of_pass = self.hooks_of(stream)
        train = self.compiled.train
        foreign = frozenset() if train is None else train.input.ends
        hooked = hooks.hooked_pass(session, of_pass, tower.prefix, foreign)
        with self.guard.guarded(session, stream, of_pass), hooked as runs:
            batches, examples = self._read(runs, tower, stream, self.sets[stream].steps)
            values = session.run(dict(tower.values))
        return PassRow(step, stream, values, batches, examples, self.clock() - start)

    def _reset(self, session: v1.Session, tower: Tower) -> None:
        session.run(tower.reset)
        local_init = (self.local_inits or {}).get(tower.name)
        if local_init is not None:
            session.run(local_init)

    def _read(self, runs: hooks.HookedRuns, tower: Tower, stream: str, limit: int | None) -> tuple[int, int]:
        batches = examples = 0
        while (limit is None or batches < limit) and not runs.should_stop:
            if self.interrupted():
                raise PassInterrupted
            try:
                count, _ = runs.run([tower.input.examples, tower.update])
            except tf.errors.OutOfRangeError as error:
                if not tower.input.ended(error):
                    raise unnamed_end(error, f'the evaluation of `{stream}`') from error
                break
            batches += 1
            examples += int(count)
        if not batches:
            raise _no_batch(stream)
        return batches, examples


def _no_batch(stream: str) -> errors.ConfigurationError:
    return errors.ConfigurationError(
        f'`{stream}` gave no batch: its metrics would be of nothing. Check what its input_fn reads, and whether '
        '`drop_remainder` drops its only batch.'
    )


@contextlib.contextmanager
def named_ends() -> Iterator[None]:
    """Turns what a monitored session would swallow into an error: it takes both for the end of the data."""
    try:
        yield
    except tf.errors.OutOfRangeError as error:
        raise unnamed_end(error, 'the run') from error
    except StopIteration as error:
        raise errors.RunError(f'StopIteration escaped from a hook or a function of the run: {error!r}') from error


def unnamed_end(error: tf.errors.OutOfRangeError, where: str) -> errors.RunError:
    """Returns the error for an OutOfRangeError that is not the end of the stream that was read."""
    op = f'`{error.op.name}` [{error.op.type}]' if error.op is not None else 'an op'
    return errors.RunError(
        f'{op} reported the end of its data in {where}, but it is not the iterator of that stream: {error.message}'
    )
