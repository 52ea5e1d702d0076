"""What acts on the metrics of passes: the best checkpoints, early stopping, a smaller learning rate.

Each has a small state, which commits keep under its name, so that a run that goes on knows what the one before knew.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging
from tensorflow.compat import v1

from framework import errors, policies
from framework.reporting import values
from framework.reporting.rows import PassRow
from framework.session import opening
from framework.session.best import BestSteps


class Follower:
    """Follows a metric. Its state begins anew where a run goes on with another metric or direction."""

    name = ''

    def __init__(self, metric: policies.Metric):
        self.metric = metric

    def saw(self, row: PassRow) -> None:
        """Takes notice of a pass.

        Raises:
            ConfigurationError: If the metric's value is no number.
        """
        if row.stream == self.metric.stream:
            self._follow(row.step, self._value(row))

    def get(self) -> dict[str, Any]:
        """Returns the state, in the types of JSON."""
        return {'metric': self.metric.name, 'mode': self.metric.mode, **self._state()}

    def set(self, state: Mapping[str, Any]) -> None:
        """Takes the state of an earlier process."""
        if (state['metric'], state['mode']) != (self.metric.name, self.metric.mode):
            logging.warning(
                '`%s` followed `%s` [%s] before and follows `%s` [%s] now: it begins anew, and what '
                'it kept goes with the commits that name it.',
                self.metric.owner,
                state['metric'],
                state['mode'],
                self.metric.name,
                self.metric.mode,
            )
            return
        self._take(state)

    def _value(self, row: PassRow) -> float:
        value = values.plain(row.metrics[self.metric.key])
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise errors.ConfigurationError(
                f'`{self.metric.owner}.metric` [{self.metric.name}] is no number but {values.to_text(value)}. Follow '
                'a metric whose value is a scalar.'
            )
        return float(value)

    def _follow(self, step: int, value: float) -> None:
        raise NotImplementedError

    def _state(self) -> dict[str, Any]:
        raise NotImplementedError

    def _take(self, state: Mapping[str, Any]) -> None:
        raise NotImplementedError


class Best(Follower):
    """The steps of the best passes, best first.

    Attributes:
        kept: Pairs of step and value.
    """

    name = 'keep_best'

    def __init__(self, policy: policies.KeepBest):
        super().__init__(policy.followed())
        self._keep = policy.keep
        self.kept: list[tuple[int, float]] = []
        self._new: set[int] = set()  # those that came since the commit before

    @property
    def unsaved(self) -> bool:
        """Whether one of them is in no commit yet."""
        return bool(self._new)

    @property
    def steps(self) -> BestSteps:
        """What the next commit has to keep."""
        kept = [step for step, _ in self.kept]
        return BestSteps(kept, frozenset(self._new))

    def committed(self) -> None:
        """Takes notice of a commit."""
        self._new = set()

    def _follow(self, step: int, value: float) -> None:
        others = [(kept, known) for kept, known in self.kept if kept != step]
        if math.isnan(value):
            return
        # Equal values stay in the order of their passes: the earlier is better.
        place = sum(1 for _, known in others if not self.metric.better(value, known))
        if place < self._keep:
            self.kept = [*others[:place], (step, value), *others[place:]][: self._keep]
            self._new = {step}

    def _state(self) -> dict[str, Any]:
        return {'kept': [[step, values.to_json(value)] for step, value in self.kept]}

    def _take(self, state: Mapping[str, Any]) -> None:
        self.kept = [(int(step), float(value)) for step, value in state['kept']][: self._keep]


class _Patience:
    """Counts passes without a better value."""

    def __init__(self, metric: policies.Metric):
        self._metric = metric
        self.best: float | None = None
        self.best_step: int | None = None
        self.waited = 0

    def follow(self, step: int, value: float) -> None:
        if self._metric.better(value, self.best):
            self.best, self.best_step, self.waited = value, step, 0
        else:
            self.waited += 1

    def state(self) -> dict[str, Any]:
        return {'best': values.to_json(self.best), 'best_step': self.best_step, 'waited': self.waited}

    def take(self, state: Mapping[str, Any]) -> None:
        best = state['best']
        self.best = None if best is None else float(best)
        self.best_step, self.waited = state['best_step'], int(state['waited'])


class Stopping(Follower):
    """Early stopping."""

    name = 'early_stopping'

    def __init__(self, policy: policies.EarlyStopping):
        super().__init__(policy.followed())
        self._policy = policy
        self._patience = _Patience(self.metric)

    @property
    def restores_best(self) -> bool:
        """Whether the best weights come back at the end."""
        return self._policy.restore_best

    @property
    def reason(self) -> str | None:
        """Why training ends, None while it goes on."""
        patience = self._patience
        if patience.waited < self._policy.patience_evals:
            return None
        since = 'never had a value' if patience.best is None else self._since(patience)
        return f'early stopping: `{self.metric.name}` {since} in {patience.waited} passes'

    def _since(self, patience: _Patience) -> str:
        return f'was no better than {values.to_text(patience.best)} at step {patience.best_step}'

    def _follow(self, step: int, value: float) -> None:
        if step >= self._policy.min_steps:
            self._patience.follow(step, value)

    def _state(self) -> dict[str, Any]:
        return self._patience.state()

    def _take(self, state: Mapping[str, Any]) -> None:
        self._patience.take(state)


class Plateau(Follower):
    """A learning rate in a variable, made smaller on plateaus.

    Args:
        policy: The settings.
        graph: The graph of training, not finalized yet.
    """

    name = 'reduce_on_plateau'

    def __init__(self, policy: policies.ReduceOnPlateau, graph: tf.Graph):
        super().__init__(policy.followed())
        self._policy = policy
        self._patience = _Patience(self.metric)
        self._cooldown = 0
        with graph.as_default():
            self._variable = _variable_named(policy.variable)
            self._put = opening.VariableWriter(self._variable, 'framework/plateau/')
        self._due = False

    def act(self, session: v1.Session) -> bool:
        """Makes the rate smaller where the passes since the last call ask for it, and returns whether they did.

        Args:
            session: The raw session of training.
        """
        if not self._due:
            return False
        self._due = False
        before = float(session.run(self._variable))
        rate = self._reduced(before)
        logging.info(
            '`%s`: %.6g after %.6g: `%s` has not become better for %d passes.',
            self._policy.variable,
            rate,
            before,
            self.metric.name,
            self._policy.patience_evals,
        )
        self._put(session, rate)
        return True

    def _reduced(self, rate: float) -> float:
        dtype = self._variable.dtype.base_dtype.as_numpy_dtype
        return float(np.asarray(max(rate * self._policy.factor, min(rate, self._policy.min_value)), dtype))

    def _follow(self, step: int, value: float) -> None:
        self._patience.follow(step, value)
        if self._cooldown:
            self._cooldown -= 1
            self._patience.waited = 0
        if self._patience.waited >= self._policy.patience_evals:
            self._patience.waited = 0
            self._cooldown = self._policy.cooldown_evals
            self._due = True

    def _state(self) -> dict[str, Any]:
        return {**self._patience.state(), 'cooldown': self._cooldown}

    def _take(self, state: Mapping[str, Any]) -> None:
        self._patience.take(state)
        self._cooldown = int(state['cooldown'])


@dataclasses.dataclass(frozen=True)
class Followers:
    """Those of a run.

    Attributes:
        best: Keeps the best checkpoints.
        stopping: Ends training.
        plateau: Makes a learning rate smaller.
    """

    best: Best | None = None
    stopping: Stopping | None = None
    plateau: Plateau | None = None

    def __iter__(self) -> Iterator[Follower]:
        """Iterates over those that there are."""
        every: tuple[Follower | None, ...] = (self.best, self.stopping, self.plateau)
        return (follower for follower in every if follower is not None)

    @property
    def want_commit(self) -> bool:
        """Whether a pass is among the best, and its weights aren't saved."""
        return self.best is not None and self.best.unsaved

    def saw(self, row: PassRow) -> None:
        """Takes notice of a pass."""
        for follower in self:
            follower.saw(row)

    def get(self) -> dict[str, Any]:
        """Returns the states by name."""
        return {follower.name: follower.get() for follower in self}

    def set(self, states: Mapping[str, Any]) -> None:
        """Takes the states of an earlier process, as far as it had them."""
        for follower in self:
            if follower.name in states:
                follower.set(states[follower.name])


def followers_of(chosen: policies.Policies, graph: tf.Graph) -> Followers:
    """Returns what follows the metrics of a run.

    Args:
        chosen: The settings.
        graph: The graph of training, not finalized yet.

    Raises:
        ConfigurationError: If the graph has no such variable as one of them changes.
    """
    return Followers(
        best=None if chosen.keep_best is None else Best(chosen.keep_best),
        stopping=None if chosen.early_stopping is None else Stopping(chosen.early_stopping),
        plateau=None if chosen.reduce_on_plateau is None else Plateau(chosen.reduce_on_plateau, graph),
    )


def _variable_named(name: str) -> tf.Variable:
    scalars = {v.op.name: v for v in v1.global_variables() if v.shape.rank == 0 and v.dtype.base_dtype.is_floating}
    if name not in scalars:
        raise errors.ConfigurationError(
            f'`ReduceOnPlateau.variable` [{name}]: the model has no scalar variable of that name. '
            f'{errors.nearest(name, scalars) if scalars else "It has no floating scalar variable at all."} '
            "Make it in model_fn: `tf.compat.v1.get_variable('learning_rate', initializer=1e-3, trainable=False)`."
        )
    return scalars[name]


def check_metrics(followers: Iterable[Follower], known: Sequence[str]) -> None:
    """Refuses metrics that no set produces.

    Args:
        followers: Who follows metrics.
        known: The metrics of all sets, as `set/metric`.

    Raises:
        ConfigurationError: For one that isn't among them.
    """
    for follower in followers:
        metric = follower.metric
        if metric.name not in known:
            raise errors.ConfigurationError(
                f'`{metric.owner}.metric` [{metric.name}]: no evaluation set produces it. '
                f'{errors.nearest(metric.name, known)} There are: {", ".join(known)}.'
            )
