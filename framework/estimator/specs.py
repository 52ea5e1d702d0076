"""`TrainSpec` and `EvalSpec`: what `train_and_evaluate` trains on and evaluates on, checked where they are made."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Self

from tensorflow.compat import v1

from framework import errors
from framework.estimator.exporters import Exporter

_UNSET: Any = object()
_STEPS, _START_DELAY_SECS, _THROTTLE_SECS = 100, 120, 600


class _TrainFields(NamedTuple):
    input_fn: Callable[..., Any]
    max_steps: int | None
    hooks: tuple[Any, ...]
    saving_listeners: tuple[Any, ...]


class TrainSpec(_TrainFields):
    """What is trained on, and how long.

    Attributes:
        input_fn: Returns the training data.
        max_steps: The global step to reach; None until the data ends.
        hooks: SessionRunHooks of training.
        saving_listeners: CheckpointSaverListeners.
    """

    def __new__(
        cls,
        input_fn: Callable[..., Any],
        max_steps: int | None = None,
        hooks: Iterable[Any] | None = None,
        saving_listeners: Iterable[Any] | None = None,
    ) -> Self:
        """Checks the fields.

        Raises:
            ConfigurationError: If a value breaks its rule.
        """
        _check_input_fn(input_fn)
        check_above_zero('max_steps', max_steps)
        return super().__new__(cls, input_fn, max_steps, _hooks(hooks), _listeners(saving_listeners))


class _EvalFields(NamedTuple):
    input_fn: Callable[..., Any]
    steps: int | None
    name: str | None
    hooks: tuple[Any, ...]
    exporters: tuple[Any, ...]
    start_delay_secs: float
    throttle_secs: float


class EvalSpec(_EvalFields):
    """What is evaluated on, and what is exported after that.

    Attributes:
        input_fn: Returns the data of the evaluation.
        steps: Batches of an evaluation, None for all of the data. The default is that of `tf.estimator`, 100.
        name: Its metrics go to `eval_<name>/`, those of one without a name to `eval/`.
        hooks: SessionRunHooks of evaluation.
        exporters: Exporters, which are called after every evaluation.
        start_delay_secs: How long a separate evaluator waits before it begins.
        throttle_secs: Seconds between two evaluations at least, where the caller sets it.
        given: Which of `steps` and `throttle_secs` the caller set.
    """

    given: frozenset[str]

    def __new__(
        cls,
        input_fn: Callable[..., Any],
        steps: int | None = _UNSET,
        name: str | None = None,
        hooks: Iterable[Any] | None = None,
        exporters: Any = None,
        start_delay_secs: float = _START_DELAY_SECS,
        throttle_secs: float = _UNSET,
    ) -> Self:
        """Checks the fields.

        Raises:
            ConfigurationError: If a value breaks its rule.
        """
        values = {'steps': steps, 'throttle_secs': throttle_secs}
        given = frozenset(key for key, value in values.items() if value is not _UNSET)
        steps = steps if 'steps' in given else _STEPS
        throttle_secs = throttle_secs if 'throttle_secs' in given else _THROTTLE_SECS
        _check_input_fn(input_fn)
        check_above_zero('steps', steps)
        if name is not None and not isinstance(name, str):
            raise errors.ConfigurationTypeError(f'`name` must be string, given: {name}')
        for field, value in (('start_delay_secs', start_delay_secs), ('throttle_secs', throttle_secs)):
            if value < 0:
                raise errors.ConfigurationError(f'Must specify {field} >= 0, given: {value}')
        made = super().__new__(
            cls, input_fn, steps, name, _hooks(hooks), _exporters(exporters), start_delay_secs, throttle_secs
        )
        made.given = given
        return made

    def _replace(self, **changes: Any) -> Self:
        """Returns a copy with other values, which are checked and count as set."""
        kept = {key: value for key, value in self._asdict().items() if key in self.given or key not in _DEFAULTED}
        return type(self)(**{**kept, **changes})


_DEFAULTED = ('steps', 'throttle_secs')


def check_above_zero(name: str, value: Any) -> None:
    """Raises a `ConfigurationError` for a number that is neither None nor above 0."""
    if value is not None and value <= 0:
        raise errors.ConfigurationError(f'Must specify {name} > 0, given: {value}')


def _check_input_fn(input_fn: Any) -> None:
    if not callable(input_fn):
        raise errors.ConfigurationTypeError(f'`input_fn` must be callable, given: {input_fn}')


def _hooks(hooks: Iterable[Any] | None) -> tuple[Any, ...]:
    every = tuple(hooks or ())
    for hook in every:
        if not isinstance(hook, v1.train.SessionRunHook):
            raise errors.ConfigurationTypeError(f'All hooks must be `SessionRunHook` instances, given: {hook}')
    return every


def _listeners(listeners: Iterable[Any] | None) -> tuple[Any, ...]:
    every = tuple(listeners or ())
    for listener in every:
        if not isinstance(listener, v1.train.CheckpointSaverListener):
            raise errors.ConfigurationTypeError(
                f'All saving_listeners must be `CheckpointSaverListener` instances, given: {listener}'
            )
    return every


def _exporters(exporters: Any) -> tuple[Any, ...]:
    """Returns the exporters, which write into directories of their names."""
    if not exporters:
        return ()
    listed = (exporters,) if isinstance(exporters, Exporter) else exporters
    listed = tuple(listed) if isinstance(listed, Iterable) else (listed,)
    if not all(isinstance(one, Exporter) for one in listed):
        raise errors.ConfigurationTypeError(
            f'`exporters` must be an Exporter, an iterable of Exporter, or `None`, found {exporters}.'
        )
    names = [exporter.name for exporter in listed]
    for name in names:
        if not name:
            raise errors.ConfigurationError(
                f'An Exporter cannot have a name that is `None` or empty. All exporter names: {names}'
            )
        if not isinstance(name, str):
            raise errors.ConfigurationError(f'An Exporter must have a string name. Given: {type(name)}')
        if names.count(name) > 1:
            raise errors.ConfigurationError(f'`exporters` must have unique names. All exporter names: {names}')
    return listed
