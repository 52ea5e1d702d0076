"""What follows from a metric: `KeepBest`, `EarlyStopping` and `ReduceOnPlateau`.

All take the metric of an evaluation set, as `set/metric`, from memory after its pass.
"""

import dataclasses
import math
import re
from typing import Any

import gin

from framework import errors

_SMALLER_IS_BETTER = re.compile(
    r'(^|[/_.-])(loss|error|err|perplexity|mae|mse|rmse|msle|wer|cer|deviance|distance|divergence|nll)($|[/_.-])'
    r'|loss_per_example$|mean_(absolute|squared|relative)_error$'
)
_LARGER_IS_BETTER = re.compile(
    r'(^|[/_.-])(accuracy|acc|auc|precision|recall|f1|f1_score|iou|map|bleu|rouge|r2|ndcg|mrr|hit_rate)($|[/_.-])'
)
_MODES = ('auto', 'min', 'max')


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric to follow, and which of its values are better.

    Attributes:
        owner: What follows it, for messages: `EarlyStopping`.
        name: `set/metric`.
        mode: `min` or `max`.
        min_delta: By how much a value must be better than the best one before to count.
    """

    owner: str
    name: str
    mode: str
    min_delta: float = 0.0

    @property
    def stream(self) -> str:
        """The evaluation set."""
        return self.name.partition('/')[0]

    @property
    def key(self) -> str:
        """The metric's name in its set."""
        return self.name.partition('/')[2]

    def better(self, value: float, best: float | None) -> bool:
        """Whether a value is better than the best one before; NaN is never."""
        if math.isnan(value):
            return False
        if best is None:
            return True
        return value > best + self.min_delta if self.mode == 'max' else value < best - self.min_delta


def _metric(owner: str, name: Any, mode: Any, min_delta: Any = 0.0) -> Metric:
    """Returns the metric; raises a `ConfigurationError` for a slip."""
    if not isinstance(name, str) or not all(name.partition('/')):
        raise errors.ConfigurationError(
            f'`{owner}.metric` [{name!r}] must be the name of a set and of one of its metrics: `valid/accuracy`; for '
            'the set without a name `eval/accuracy`.'
        )
    errors.checked_choice(f'{owner}.mode', mode, _MODES)
    _check_number(f'{owner}.min_delta', min_delta)
    return Metric(owner, name, _direction(owner, name) if mode == 'auto' else mode, float(min_delta))


def better_direction(name: str) -> str | None:
    """Returns whether smaller (`min`) or larger (`max`) values are better by the name, None where that does not tell.

    Args:
        name: `set/metric`.
    """
    key = name.partition('/')[2].lower()
    small, large = _SMALLER_IS_BETTER.search(key), _LARGER_IS_BETTER.search(key)
    if bool(small) == bool(large):
        return None
    return 'min' if small else 'max'


def _direction(owner: str, name: str) -> str:
    direction = better_direction(name)
    if direction is None:
        raise errors.ConfigurationError(
            f"`{owner}.mode` ['auto'] can not tell by its name whether larger values of `{name}` are better. Set "
            "`mode` to 'max' or 'min'."
        )
    return direction


def _check_number(name: str, value: Any, least: float = 0.0, below: float = math.inf) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < below:
        limits = f'a number, {least:g} or more' if below == math.inf else f'a number from {least:g} to below {below:g}'
        raise errors.ConfigurationError(f'`{name}` [{value!r}] must be {limits}.')


def _check_count(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise errors.ConfigurationError(f'`{name}` [{value!r}] must be an integer, {least} or more.')


def _check_bool(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise errors.ConfigurationTypeError(f'`{name}` [{value!r}] must be True or False.')


@gin.configurable(module='framework')
@dataclasses.dataclass(frozen=True, kw_only=True)
class KeepBest:
    """Keeps the checkpoints of the best passes in `best/`, beside those that come and go.

    A pass that is among the best is saved at once. `--checkpoint=best` names the best one.

    Attributes:
        metric: `set/metric`. Of equal values the earlier is better; NaN is never among the best.
        mode: `max` or `min`: which values are better. `auto` goes by the metric's name and refuses what it can't tell.
        keep: How many are kept.
        export: Whether a run that ends exports the best one as a SavedModel into `export/best/<timestamp>/`.
    """

    metric: str
    mode: str = 'auto'
    keep: int = 1
    export: bool = False

    def __post_init__(self) -> None:
        _check_count('KeepBest.keep', self.keep, 1)
        _check_bool('KeepBest.export', self.export)
        self.followed()  # checks the metric

    def followed(self) -> Metric:
        """Returns the metric to follow."""
        return _metric('KeepBest', self.metric, self.mode)


@gin.configurable(module='framework')
@dataclasses.dataclass(frozen=True, kw_only=True)
class EarlyStopping:
    """Ends training when a metric has not become better for a number of passes.

    Attributes:
        metric: `set/metric`.
        mode: `max` or `min`: which values are better. `auto` goes by the metric's name and refuses what it can't tell.
        patience_evals: Passes without a better value after which training ends.
        min_delta: By how much a value must be better than the best one before to count.
        min_steps: Passes before this global step count in no way.
        restore_best: Whether the weights of the best pass come back at the end, before the last passes and the last
            commit. Needs `Experiment.keep_best` of the same metric, which is added where there is none.
    """

    metric: str
    mode: str = 'auto'
    patience_evals: int = 10
    min_delta: float = 0.0
    min_steps: int = 0
    restore_best: bool = False

    def __post_init__(self) -> None:
        _check_count('EarlyStopping.patience_evals', self.patience_evals, 1)
        _check_count('EarlyStopping.min_steps', self.min_steps, 0)
        _check_bool('EarlyStopping.restore_best', self.restore_best)
        self.followed()  # checks the metric

    def followed(self) -> Metric:
        """Returns the metric to follow."""
        return _metric('EarlyStopping', self.metric, self.mode, self.min_delta)


@gin.configurable(module='framework')
@dataclasses.dataclass(frozen=True, kw_only=True)
class ReduceOnPlateau:
    """Makes a learning rate smaller when a metric has not become better for a number of passes.

    The rate is a variable of the model, for example `tf.compat.v1.get_variable('learning_rate', initializer=1e-3,
    trainable=False)`, that model_fn hands to its optimizer.

    Attributes:
        metric: `set/metric`.
        mode: `max` or `min`: which values are better. `auto` goes by the metric's name and refuses what it can't tell.
        variable: The name of the variable.
        factor: What the rate is multiplied by.
        patience_evals: Passes without a better value after which that happens.
        min_delta: By how much a value must be better than the best one before to count.
        cooldown_evals: Passes after a reduction that do not count.
        min_value: The rate does not become smaller than this.
    """

    metric: str
    mode: str = 'auto'
    variable: str = 'learning_rate'
    factor: float = 0.1
    patience_evals: int = 10
    min_delta: float = 0.0
    cooldown_evals: int = 0
    min_value: float = 0.0

    def __post_init__(self) -> None:
        _check_count('ReduceOnPlateau.patience_evals', self.patience_evals, 1)
        _check_count('ReduceOnPlateau.cooldown_evals', self.cooldown_evals, 0)
        _check_number('ReduceOnPlateau.factor', self.factor, below=1.0)
        _check_number('ReduceOnPlateau.min_value', self.min_value)
        if not isinstance(self.variable, str) or not self.variable:
            raise errors.ConfigurationTypeError(
                f'`ReduceOnPlateau.variable` [{self.variable!r}] must be the name of a variable.'
            )
        self.followed()  # checks the metric

    def followed(self) -> Metric:
        """Returns the metric to follow."""
        return _metric('ReduceOnPlateau', self.metric, self.mode, self.min_delta)


@dataclasses.dataclass(frozen=True)
class Policies:
    """What a run follows; each may be None."""

    keep_best: KeepBest | None = None
    early_stopping: EarlyStopping | None = None
    reduce_on_plateau: ReduceOnPlateau | None = None

    @property
    def exports_best(self) -> bool:
        """Whether a run that ends exports its best checkpoint."""
        return self.keep_best is not None and self.keep_best.export

    @property
    def names(self) -> list[str]:
        """The settings that are given."""
        return [field.name for field in dataclasses.fields(self) if getattr(self, field.name) is not None]


def agreed(
    keep_best: KeepBest | None, early_stopping: EarlyStopping | None, reduce_on_plateau: ReduceOnPlateau | None
) -> Policies:
    """Returns the policies of a run; those that restore the best weights keep them.

    Raises:
        ConfigurationError: If the best weights to restore are those of another metric than the ones that are kept.
    """
    if early_stopping is not None and early_stopping.restore_best:
        stopped = early_stopping.followed()
        if keep_best is None:
            keep_best = KeepBest(metric=stopped.name, mode=stopped.mode)
        kept = keep_best.followed()
        if (kept.name, kept.mode) != (stopped.name, stopped.mode):
            raise errors.ConfigurationError(
                f'`EarlyStopping.restore_best` [True] of `{stopped.name}` [{stopped.mode}] needs `KeepBest` of the '
                f'same metric, which keeps `{kept.name}` [{kept.mode}]. Let both follow one metric.'
            )
    return Policies(keep_best, early_stopping, reduce_on_plateau)
