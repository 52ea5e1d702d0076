"""SessionRunHooks around runs that the monitored session doesn't see: those of an evaluation pass."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf
from tensorflow.compat import v1

from framework import errors
from framework.graph import collections, movement, views
from framework.graph.calls import Compiled
from framework.session import ends

Hook: TypeAlias = v1.train.SessionRunHook


class StartStreams(v1.train.SessionRunHook):
    """Starts the training data and evaluation's tables once the session exists.

    Stands where Estimator put its input initialisers: after the chief's hooks, before the caller's.
    """

    def __init__(self, *ops: tf.Operation):
        self._ops = ops
        self._coordinator: v1.train.Coordinator | None = None

    def after_create_session(self, session: v1.Session, coord: v1.train.Coordinator) -> None:
        """Runs the initialisers, one after the other."""
        self._coordinator = coord
        for op in self._ops:
            session.run(op)

    def request_stop(self) -> None:
        """Asks the monitored session to stop, as a hook does in one of its runs."""
        if self._coordinator is not None:
            self._coordinator.request_stop()


class HookClock:
    """Counts the seconds that the hooks of a monitored session take around its runs.

    Args:
        clock: Seconds, monotonic.

    Attributes:
        secs: The seconds so far.
    """

    def __init__(self, clock: Callable[[], float]):
        self._clock = clock
        self._since = 0.0
        self.secs = 0.0

    def around(self, hooks: Sequence[Hook]) -> list[Hook]:
        """Returns the hooks with one before and one after them, where one of them sees runs.

        Args:
            hooks: The hooks, in the order in which they are called.
        """
        if not any(map(sees_runs, hooks)):
            return list(hooks)
        return [_Called(self._begin), *hooks, _Called(self._end)]

    def _begin(self) -> None:
        self._since = self._clock()

    def _end(self) -> None:
        self.secs += self._clock() - self._since


class _Called(v1.train.SessionRunHook):
    """Calls a function before and after each run."""

    def __init__(self, function: Callable[[], None]):
        self._function = function

    def before_run(self, run_context: v1.train.SessionRunContext) -> None:
        """Calls it."""
        del run_context
        self._function()

    def after_run(self, run_context: v1.train.SessionRunContext, run_values: v1.train.SessionRunValues) -> None:
        """Calls it."""
        del run_context, run_values
        self._function()


def sees_runs(hook: Hook) -> bool:
    """Whether a hook does anything before or after runs, and not only at the beginning and at the end."""
    names = ('before_run', 'after_run')
    return any(getattr(getattr(hook, name), '__func__', None) is not getattr(Hook, name) for name in names)


def begin_evaluation(compiled: Compiled, hooks: Sequence[tuple[str, Sequence[Hook]]], begun: Sequence[Hook]) -> None:
    """Calls `begin` of evaluation hooks, once each, with the collections of their call in place.

    Args:
        compiled: The graph, not finalized yet.
        hooks: Per evaluation set its hooks.
        begun: Hooks that the training session begins; a hook that both use begins there.
    """
    seen = {id(hook) for hook in begun}
    for stream, of_stream in hooks:
        tower = compiled.tower(stream)
        graph = compiled.graph
        with collections.shown(graph, tower.collections), views.own_names(graph, tower.prefix):
            for hook in of_stream:
                if id(hook) not in seen:
                    seen.add(id(hook))
                    hook.begin()


class HookedRuns:
    """Runs a raw session with the hooks of one pass, as `MonitoredSession` does with its own.

    Args:
        session: The raw session.
        hooks: The hooks of the pass.
        coordinator: What the hooks were given at the start; they may ask it to stop.
        foreign: The names of ops that read another stream's data: no hook may fetch what depends on them.
    """

    def __init__(
        self,
        session: v1.Session,
        hooks: Sequence[Hook],
        coordinator: v1.train.Coordinator | None = None,
        foreign: frozenset[str] = frozenset(),
    ):
        self._session = session
        self._hooks = hooks
        self._coordinator = coordinator
        self._foreign = foreign
        self._checked: set[str] = set()
        self._stop_requested = False

    @property
    def should_stop(self) -> bool:
        """Whether a hook asked for the end of the pass."""
        return self._stop_requested or (self._coordinator is not None and self._coordinator.should_stop())

    def run(self, fetches: Any, feeds: Mapping[tf.Tensor, Any] | None = None) -> Any:
        """Runs the fetches and what the hooks ask for in one call, and returns the values of the fetches.

        Args:
            fetches: What to run.
            feeds: What to feed beside what the hooks feed.
        """
        if not self._hooks:
            return self._session.run(fetches, feed_dict=feeds)
        context = v1.train.SessionRunContext(v1.train.SessionRunArgs(fetches), self._session)
        asked, of_hooks, options = self._before_run(context)
        of_hooks = {**(feeds or {}), **of_hooks}
        metadata = v1.RunMetadata()
        wanted = {'fetches': fetches, 'hooks': {str(i): args.fetches for i, args in asked.items()}}
        values = self._session.run(wanted, feed_dict=of_hooks, options=options, run_metadata=metadata)
        for i, hook in enumerate(self._hooks):
            results = values['hooks'].get(str(i))
            hook.after_run(context, v1.train.SessionRunValues(results, options, metadata))
        self._stop_requested = self._stop_requested or context.stop_requested
        return values['fetches']

    def _before_run(self, context: Any) -> tuple[dict[int, Any], dict[Any, Any], v1.RunOptions]:
        asked: dict[int, Any] = {}
        feeds: dict[Any, Any] = {}
        options = v1.RunOptions()
        for i, hook in enumerate(self._hooks):
            args = hook.before_run(context)
            if args is None:
                continue
            self._add_feeds(feeds, args.feed_dict or {})
            if args.options is not None:
                options.MergeFrom(args.options)
            if args.fetches is not None:
                self._check(hook, args.fetches)
                asked[i] = args
        return asked, feeds, options

    def _check(self, hook: Hook, fetches: Any) -> None:
        if not self._foreign:
            return
        graph = self._session.graph
        parts = tf.nest.flatten(fetches, expand_composites=True)
        elements = [graph.as_graph_element(fetch) for fetch in parts]
        for element in elements:
            if element.name in self._checked:
                continue
            self._checked.add(element.name)
            if any(op.name in self._foreign for op in movement.ancestors([element])):
                raise errors.ConfigurationError(
                    f'`{type(hook).__name__}` of an evaluation fetches `{element.name}`, which reads the training '
                    'data: each run would take a batch from training. Fetch a tensor that model_fn made in EVAL.'
                )

    def _add_feeds(self, feeds: dict[Any, Any], more: dict[Any, Any]) -> None:
        if twice := feeds.keys() & more.keys():
            raise RuntimeError(f'Same tensor is fed by two hooks. Conflict(s): {list(twice)}')
        feeds.update(more)


@contextlib.contextmanager
def hooked_pass(
    session: v1.Session, hooks: Sequence[Hook], prefix: str = '', foreign: frozenset[str] = frozenset()
) -> Iterator[HookedRuns]:
    """A pass as its hooks see it: a session of its own, which ends well unless an error escapes.

    Args:
        session: The raw session.
        hooks: The hooks of the pass.
        prefix: The name scope of the call that the pass runs: what hooks name is its own.
        foreign: The names of ops that read another stream's data.
    """
    if not hooks:
        yield HookedRuns(session, ())
        return
    coordinator = v1.train.Coordinator()
    with views.own_names(session.graph, prefix):
        with ends.named_stop('a hook of an evaluation'):
            for hook in hooks:
                hook.after_create_session(session, coordinator)
        yield HookedRuns(session, hooks, coordinator, foreign)
        with ends.named_stop('a hook of an evaluation'):
            for hook in hooks:
                hook.end(session)
