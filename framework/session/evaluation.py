"""A pass over one evaluation set, on the raw session: no training hook sees it."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from absl import logging
from tensorflow.compat import v1

from framework import errors
from framework.graph.calls import Compiled, Tower
from framework.graph.random_ops import keys
from framework.reporting.rows import PassRow
from framework.run_config import AUTO, REQUIRE, EvalSet
from framework.session import ends, hooks, pass_summaries
from framework.session.guard import VariableGuard
from framework.session.pace import Pace

_TELL_SECS = 30  # a pass that lasts says so; one that never ends is found in the log


class PassInterrupted(Exception):  # noqa: N818 - a signal, not an error
    """A signal came during a pass; its metrics cover a part of the set and are thrown away."""


@dataclasses.dataclass
class _Read:
    """What was read of a set.

    Attributes:
        batches: How many batches.
        examples: How many examples.
        last: Whether the last of them announced itself as the last.
        summary: The summaries of the first, where they are asked for.
    """

    batches: int = 0
    examples: int = 0
    last: bool = False
    summary: bytes = b''


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The evaluation sets of one graph, ready for passes.

    Attributes:
        compiled: The graph.
        sets: The sets by stream name.
        interrupted: Asked between batches; True ends a pass.
        clock: Seconds, monotonic.
        fuse: Whether many batches are made in one run: `RunConfig.fuse`.
        summaries: How many summaries of its first batch a pass has at most.
        progress: Called with the set, the batches read and the batches of the pass, which may be unknown.
        guard: Keeps the variables of the model from the hooks of the passes.
    """

    compiled: Compiled
    sets: dict[str, EvalSet]
    interrupted: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.perf_counter
    fuse: str = AUTO
    summaries: int = 0
    progress: Callable[[str, int, int | None], None] = lambda *_: None
    guard: VariableGuard = dataclasses.field(default_factory=VariableGuard, repr=False)
    _left_out: set[str] = dataclasses.field(default_factory=set, repr=False)  # the streams that it was said of
    _paces: dict[str, Pace] = dataclasses.field(default_factory=dict, repr=False)

    def hooks_of(self, stream: str) -> list[v1.train.SessionRunHook]:
        """Returns the hooks of a set's passes in the order of `tf.estimator`: the caller's, then the model's."""
        return [*self.sets[stream].hooks, *self.compiled.tower(stream).spec.evaluation_hooks]

    def begin(self, begun: Sequence[v1.train.SessionRunHook] = ()) -> None:
        """Calls `begin` of all hooks; the graph must not be finalized yet.

        Raises:
            ConfigurationError: If `fuse` is `require`, and a hook has to see every batch.
        """
        self._check_hooks()
        hooks.begin_evaluation(self.compiled, [(stream, self.hooks_of(stream)) for stream in self.sets], begun)

    def _check_hooks(self) -> None:
        for stream in self.sets if self.fuse == REQUIRE else ():
            if watching := self._watching(stream):
                raise errors.ConfigurationError(
                    f"`RunConfig.fuse` is ['require'], and `{type(watching[0]).__name__}` has to see every batch of "
                    f"`{stream}`. Leave out the hook, or set it to 'auto'."
                )

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
            self._start(session, tower, stream)
            limit = self._limit(tower, stream)
            limit = batches if limit is None else min(limit, batches)
            self._read(hooks.HookedRuns(session, ()), tower, stream, limit, 0, _Read())

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
        of_pass = self.hooks_of(stream)
        self.progress(stream, 0, self._limit(tower, stream))
        self._start(session, tower, stream)
        train = self.compiled.train
        foreign = frozenset() if train is None else train.input.ends
        hooked = hooks.hooked_pass(session, of_pass, tower.prefix, foreign)
        with self.guard.guarded(session, stream, of_pass, tower.variables), hooked as runs:
            read, values = self._read_set(session, runs, tower, stream, step)
            if runs.should_stop:
                logging.warning('A hook ended the pass over `%s` after %d batches.', stream, read.batches)
        summary = self._summary_of(read, tower, stream)
        return PassRow(step, stream, values, read.batches, read.examples, self.clock() - start, summary)

    def _read_set(
        self, session: v1.Session, runs: hooks.HookedRuns, tower: Tower, stream: str, step: int
    ) -> tuple[_Read, dict[str, Any]]:
        if self._is_fused(tower, stream) and not runs.should_stop:
            with contextlib.suppress(tf.errors.OutOfRangeError):
                read = _Read()
                return read, self._read_fused(session, tower, stream, step, read)
            # The data ended before the size that it claims, and with that how many batches were read is lost.
            self._start(session, tower, stream)
        read = _Read()
        self._read(runs, tower, stream, self._limit(tower, stream), step, read)
        return read, _values(session, tower, stream)

    def _summary_of(self, read: _Read, tower: Tower, stream: str) -> bytes:
        """Returns the summaries of a pass, and says once where there are more than a pass may have."""
        if not read.summary:
            return b''
        summary, more = pass_summaries.bounded(read.summary, tower.prefix, self.summaries)
        if more and stream not in self._left_out:
            self._left_out.add(stream)
            logging.warning(
                'Of the summaries of `%s`, %d a pass are left out, `%s` the first: `RunConfig.eval_summaries` is [%d].',
                stream,
                len(more),
                more[0],
                self.summaries,
            )
        return summary

    def _pace(self, stream: str) -> Pace:
        return self._paces.setdefault(stream, Pace(self.clock))

    def _is_fused(self, tower: Tower, stream: str) -> bool:
        """Whether many batches are read in one run: no hook has to see each, and the end is known beforehand."""
        has_end = tower.input.last is not None or self._limit(tower, stream) is not None
        return tower.fused is not None and has_end and not self._watching(stream)

    def _watching(self, stream: str) -> list[hooks.Hook]:
        return [hook for hook in self.hooks_of(stream) if hooks.sees_runs(hook)]

    def _start(self, session: v1.Session, tower: Tower, stream: str) -> None:
        """Resets the metrics and starts the set from its beginning."""
        if tower.local_init is None:
            session.run([tower.reset, tower.input.initializers[stream]], options=self._pace(stream).options)
            return
        for op in (tower.reset, tower.local_init, tower.input.initializers[stream]):
            session.run(op)

    def _limit(self, tower: Tower, stream: str) -> int | None:
        """Returns the batches of a pass; None where nobody knows, and where each says whether it is the last."""
        limits = (self.sets[stream].steps, tower.input.sizes.get(stream))
        return min((limit for limit in limits if limit is not None), default=None)

    def _feeds(self, step: int, batch: int) -> dict[tf.Tensor, int] | None:
        """Returns what draws depend on: the step and the batch, and nothing that was run before."""
        tick = self.compiled.draws.tick
        return None if tick is None else {tick: keys.evaluation_tick(step, batch)}

    def _summary_fetches(self, tower: Tower, batch: int) -> list[tf.Tensor]:
        """Returns what the run of a batch gives beside: summaries, for the first."""
        return [tower.summary] if tower.summary is not None and self.summaries and not batch else []

    def _read_fused(self, session: v1.Session, tower: Tower, stream: str, step: int, read: _Read) -> dict[str, Any]:
        """Reads the whole set, in one run of the session where that doesn't take too long; returns the metrics."""
        fused = tower.fused
        assert fused is not None
        pace = self._pace(stream)
        limit, told_at = self._limit(tower, stream), self.clock()
        if self._summary_fetches(tower, 0):
            self._read(hooks.HookedRuns(session, ()), tower, stream, 1, step, read)
            if read.last or read.batches == limit:
                return _values(session, tower, stream)
        fetches = {'batches': fused.batches, 'examples': fused.examples, 'last': fused.last}
        while True:
            if self.interrupted():
                raise PassInterrupted
            many = pace.fits if limit is None else min(pace.fits, limit - read.batches)
            # A value may do something (a Python function that clears what it collected): it is read once, at the end.
            values = {'values': dict(fused.values)} if limit == read.batches + many and tower.input.last is None else {}
            feeds = {fused.limit: many, fused.start: keys.evaluation_tick(step, read.batches)}
            start = self.clock()
            with self._named(tower, stream), ends.explained(session.graph):
                got = session.run({**fetches, **values}, feeds, pace.options)
            pace.measured(int(got['batches']), start)
            read.batches += int(got['batches'])
            read.examples += int(got['examples'])
            if got['last'] or read.batches == limit:
                return got['values'] if values else _values(session, tower, stream)
            told_at = self._told(stream, read, limit, told_at)

    @contextlib.contextmanager
    def _named(self, tower: Tower, stream: str) -> Iterator[None]:
        """Names the ends of data that are not the end of the set, and a set that has no batch."""
        try:
            yield
        except tf.errors.OutOfRangeError as error:
            if tower.input.ended(error):
                raise
            raise ends.unnamed_end(error, f'the evaluation of `{stream}`') from error
        except tf.errors.InvalidArgumentError as error:
            if not tower.input.is_empty(error):
                raise
            raise _no_batch(stream) from error

    def _told(self, stream: str, read: _Read, limit: int | None, told_at: float) -> float:
        """Says how far a pass is, if it has lasted; returns when that was done last."""
        self.progress(stream, read.batches, limit)
        if self.clock() - told_at < _TELL_SECS:
            return told_at
        logging.info('%s: %d batches, %d examples so far.', stream, read.batches, read.examples)
        return self.clock()

    def _read(
        self, runs: hooks.HookedRuns, tower: Tower, stream: str, limit: int | None, step: int, read: _Read
    ) -> None:
        """Reads batch by batch, to the end or to so many."""
        told_at = self.clock()
        while not read.last and (limit is None or read.batches < limit) and not runs.should_stop:
            if self.interrupted():
                raise PassInterrupted
            fetches = [tower.input.examples, tower.update, tower.input.announcement]
            summary = self._summary_fetches(tower, read.batches)
            try:
                with self._named(tower, stream):
                    count, _, ended, *of_first = runs.run([*fetches, *summary], self._feeds(step, read.batches))
            except tf.errors.OutOfRangeError:  # of data that has no known size, and can't be announced
                break
            read.last = any(ended)
            read.batches += 1
            read.examples += int(count)
            read.summary = of_first[0] if of_first else read.summary
            told_at = self._told(stream, read, limit, told_at)
        if not read.batches:
            raise _no_batch(stream)


def _values(session: v1.Session, tower: Tower, stream: str) -> dict[str, Any]:
    try:
        return session.run(dict(tower.values))
    except tf.errors.OutOfRangeError as error:
        if not tower.input.ended(error):
            raise ends.unnamed_end(error, f'the evaluation of `{stream}`') from error
        names = [name for name, value in tower.values.items() if tower.input.is_read_by(value)]
        raise errors.ConfigurationError(
            f'The value of a metric of `{stream}` [{", ".join(names)}] reads the batch, and at the end of a pass there '
            'is none. Its update must put into variables what its value reads, as `tf.compat.v1.metrics.mean` does.'
        ) from error


def _no_batch(stream: str) -> errors.ConfigurationError:
    return errors.ConfigurationError(
        f'`{stream}` gave no batch: its metrics would be of nothing. Check what its input_fn reads, and whether '
        '`drop_remainder` drops its only batch.'
    )
