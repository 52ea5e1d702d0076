"""How a run goes: `RunConfig` (the fields that `tf.estimator.RunConfig` had, as far as they apply) and `EvalSet`."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import gin
from tensorflow.compat import v1

from framework import errors
from framework.run_dir import UNNAMED_SET

InputFn = Callable[..., Any]


AUTO, OFF, REQUIRE = 'auto', 'off', 'require'  # whether many runs are made in one
STEP, LOOP = 'step', 'loop'  # what XLA compiles


class _Unset:
    """Tells a cadence that nobody set from one that was switched off by None."""

    def __repr__(self) -> str:
        return 'unset'


_UNSET: Any = _Unset()


class _Cadence(NamedTuple):
    steps: str  # the fields of RunConfig
    secs: str
    default: tuple[int | None, float | None]


_CADENCES = (
    _Cadence('save_summary_steps', 'save_summary_secs', (100, None)),
    _Cadence('save_checkpoints_steps', 'save_checkpoints_secs', (None, 600)),
    _Cadence('log_step_count_steps', 'log_step_count_secs', (100, None)),
)


def positive(name: str, value: Any, *, what: str = 'a positive integer, or None') -> None:
    """Raises a `ConfigurationError` unless `value` is None or an integer above 0."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _LARGEST_STEP:
        raise errors.ConfigurationError(f'`{name}` [{value!r}] must be {what}.')


_LARGEST_STEP = 2**63 - 1  # what the global step can hold


def positive_number(name: str, value: Any) -> None:
    """Raises a `ConfigurationError` unless `value` is None or a finite number above 0."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise errors.ConfigurationError(f'`{name}` [{value!r}] must be a positive number, or None.')


def hooks_tuple(name: str, hooks: Sequence[Any] | None) -> tuple[Any, ...]:
    """Returns the hooks as a tuple; raises a `ConfigurationTypeError` for anything that is no SessionRunHook."""
    if isinstance(hooks, v1.train.SessionRunHook):
        raise errors.ConfigurationTypeError(f'`{name}` must be a list of hooks: write [{type(hooks).__name__}(...)].')
    if not isinstance(hooks, Iterable | None):
        raise errors.ConfigurationTypeError(f'`{name}` [{hooks!r}] must be a list of SessionRunHook instances.')
    found = tuple(hooks or ())
    for hook in found:
        if not isinstance(hook, v1.train.SessionRunHook):
            raise errors.ConfigurationTypeError(f'`{name}` [{hook!r}]: all hooks must be SessionRunHook instances.')
    return found


@dataclasses.dataclass(frozen=True)
class EvalPeriod:
    """How often passes are made: by one of the three, or at the end of the run only.

    Attributes:
        steps: Global steps between two passes.
        epochs: Epochs of training data between two passes.
        secs: Seconds between two passes.
    """

    steps: int | None = None
    epochs: int | None = None
    secs: float | None = None

    def check(self, owner: str, names: Sequence[str], *others: str) -> None:
        """Raises a `ConfigurationError` unless the values are positive, and one of them given at most.

        Args:
            owner: Whose fields they are: `EvalSet`.
            names: The fields.
            others: Other settings that say when passes are made, as text.
        """
        values = (self.steps, self.epochs, self.secs)
        for name, value, check in zip(names, values, (positive, positive, positive_number), strict=True):
            check(f'{owner}.{name}', value)
        given = [f'`{owner}.{n}` [{v}]' for n, v in zip(names, values, strict=True) if v is not None]
        if len(given) + len(others) > 1:
            raise errors.ConfigurationError(
                f'{" and ".join([*given, *others])} say different things about when passes are made. Set one of them.'
            )


@gin.configurable(module='framework')
@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalSet:
    """One evaluation set: a pass over it is made in the same session, every so many training steps.

    Attributes:
        input_fn: Returns its Dataset of `(features, labels)`; asks for `mode`, `params`, `config` by name.
        name: Its name in metrics (`valid/accuracy`) and directories (`eval_valid/`). None: `eval`, `eval/`.
        every_steps: Global steps between its passes; of the three periods one may be set, and where none is, that of
            `Experiment` holds. A pass is always made at the end of the run.
        every_epochs: Epochs of training data between its passes, where the data starts again when it ends
            (`Experiment.on_train_end`).
        every_secs: Seconds between its passes.
        only_at_end: Whether there is a pass at the end of the run only.
        steps: Batches a pass. None: all, until the data ends.
        hooks: SessionRunHooks that see every batch of its passes. `begin` is called once a run, before the graph is
            frozen; `after_create_session`, `before_run`, `after_run` and `end` are called in every pass, so the state
            that a pass starts from belongs into `after_create_session`. What they change of the model's variables is
            put back after the pass.
    """

    input_fn: InputFn
    name: str | None = None
    every_steps: int | None = None
    every_epochs: int | None = None
    every_secs: float | None = None
    only_at_end: bool = False
    steps: int | None = None
    hooks: Sequence[Any] = ()

    def __post_init__(self) -> None:
        if self.name is not None and not isinstance(self.name, str):
            raise errors.ConfigurationTypeError(f'`EvalSet.name` [{self.name!r}] must be a string, or None.')
        if not isinstance(self.only_at_end, bool):
            raise errors.ConfigurationTypeError(f'`EvalSet.only_at_end` [{self.only_at_end!r}] must be True or False.')
        positive('EvalSet.steps', self.steps)
        period = EvalPeriod(self.every_steps, self.every_epochs, self.every_secs)
        at_end = ['`EvalSet.only_at_end` [True]'] if self.only_at_end else []
        period.check('EvalSet', ('every_steps', 'every_epochs', 'every_secs'), *at_end)
        object.__setattr__(self, 'hooks', hooks_tuple('EvalSet.hooks', self.hooks))

    @property
    def period(self) -> EvalPeriod | None:
        """How often its passes are made, None where the experiment says so."""
        period = EvalPeriod(self.every_steps, self.every_epochs, self.every_secs)
        return period if self.only_at_end or period != EvalPeriod() else None

    @property
    def stream(self) -> str:
        """What our files call the set."""
        return UNNAMED_SET if self.name is None else self.name


def default_session_config() -> v1.ConfigProto:
    """Returns the session configuration that `tf.estimator` used: soft placement, one Grappler iteration."""
    config = v1.ConfigProto(allow_soft_placement=True)
    rewrite = config.graph_options.rewrite_options
    rewrite.meta_optimizer_iterations = rewrite.ONE
    return config


@gin.configurable(module='framework')
@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """How often a run saves, logs and summarises, and with which session.

    Attributes:
        model_dir: The run directory; `Experiment.model_dir` or the flag says the same, or this is None.
        tf_random_seed: Means the same as `Experiment.seed`.
        save_summary_steps: Steps between two merged summaries of training, 100 where neither is given. Both None: none.
        save_summary_secs: Seconds between two merged summaries.
        save_checkpoints_steps: Steps between two commits.
        save_checkpoints_secs: Seconds between two commits, 600 where neither is given. Both None: no commits.
        session_config: Replaces the default `ConfigProto` entirely.
        keep_checkpoint_max: How many commits stay. None or 0: all.
        keep_checkpoint_every_n_hours: One commit every so many hours stays beyond `keep_checkpoint_max`.
        log_step_count_steps: Steps between two lines of progress, and between two `global_step/sec`, 100 where neither
            is given. Both None: none. Metrics of training are accumulated between two lines.
        log_step_count_secs: Seconds between two lines of progress.
        eval_summaries: How many of the summaries that model_fn collected in EVAL (images, histograms, curves; a scalar
            of a batch is no metric) a pass writes at most: those of its first batch. 0: none, and none is computed.
        intra_op_threads: Threads that share the work of one op, for all sessions of the process; None: as
            `session_config` says, which by default is one a core. With 1, small ops wait for no other thread.
        inter_op_threads: Ops that run at the same time; None: as `session_config` says.
        autotune_evaluation: Whether TensorFlow tunes the pipelines of evaluation sets that say nothing of it in their
            options. Starting a pass then waits for the thread that tunes.
        fuse: Whether many steps, and whole passes, are made in one run of the session, with the same bits: `auto`
            (where that can be; the log says why where it can't), `off`, or `require` (an error where it can't).
        xla: What XLA compiles of fused train runs: `step`, `loop` (all steps of a call; their batches are read before,
            and must be of one shape) or None. Rounding and random draws are then not those of single steps, and a
            resumed run has not the bits of an uninterrupted one.
    """

    model_dir: str | None = None
    tf_random_seed: int | None = None
    save_summary_steps: int | None = _UNSET
    save_summary_secs: float | None = _UNSET
    save_checkpoints_steps: int | None = _UNSET
    save_checkpoints_secs: float | None = _UNSET
    session_config: v1.ConfigProto | None = None
    keep_checkpoint_max: int | None = 5
    keep_checkpoint_every_n_hours: float | None = 10000.0
    log_step_count_steps: int | None = _UNSET
    log_step_count_secs: float | None = _UNSET
    eval_summaries: int = 50
    intra_op_threads: int | None = None
    inter_op_threads: int | None = None
    autotune_evaluation: bool = False
    fuse: str = AUTO
    xla: str | None = None

    def __post_init__(self) -> None:
        for name in ('intra_op_threads', 'inter_op_threads'):
            positive(f'RunConfig.{name}', getattr(self, name))
        if not isinstance(self.autotune_evaluation, bool):
            raise errors.ConfigurationTypeError(
                f'`RunConfig.autotune_evaluation` [{self.autotune_evaluation!r}] must be True or False.'
            )
        if self.eval_summaries != 0:
            positive('RunConfig.eval_summaries', self.eval_summaries or -1, what='0 or a positive integer')
        errors.checked_choice('RunConfig.fuse', self.fuse, (AUTO, OFF, REQUIRE))
        if self.xla is not None:
            errors.checked_choice('RunConfig.xla', self.xla, (STEP, LOOP))
        if self.xla is not None and self.fuse == OFF:
            raise errors.ConfigurationError(
                f"`RunConfig.xla` ['{self.xla}'] is for fused runs, and `RunConfig.fuse` is ['off']. Leave one out."
            )
        for cadence in _CADENCES:
            self._resolve(cadence)
            positive(f'RunConfig.{cadence.steps}', getattr(self, cadence.steps))
            positive_number(f'RunConfig.{cadence.secs}', getattr(self, cadence.secs))
        if self.keep_checkpoint_max != 0:
            positive('RunConfig.keep_checkpoint_max', self.keep_checkpoint_max, what='a positive integer, 0 or None')
        positive_number('RunConfig.keep_checkpoint_every_n_hours', self.keep_checkpoint_every_n_hours)
        if self.session_config is not None and not isinstance(self.session_config, v1.ConfigProto):
            raise errors.ConfigurationTypeError(
                f'`RunConfig.session_config` [{type(self.session_config).__name__}] must be a tf.compat.v1.ConfigProto.'
            )

    @property
    def session_proto(self) -> v1.ConfigProto | None:
        """The configuration of sessions: `session_config` with the numbers of threads; None where nothing is set."""
        if self.intra_op_threads is None and self.inter_op_threads is None:
            return self.session_config
        proto = v1.ConfigProto()
        proto.CopyFrom(self.session_config or default_session_config())
        if self.intra_op_threads is not None:
            proto.intra_op_parallelism_threads = self.intra_op_threads
        if self.inter_op_threads is not None:
            proto.inter_op_parallelism_threads = self.inter_op_threads
        return proto

    @property
    def has_commits(self) -> bool:
        """Whether a run saves itself."""
        return self.save_checkpoints_steps is not None or self.save_checkpoints_secs is not None

    def _resolve(self, cadence: _Cadence) -> None:
        """Takes the default where neither of a cadence's fields was set, and refuses both."""
        steps: Any = getattr(self, cadence.steps)
        secs: Any = getattr(self, cadence.secs)
        if steps is _UNSET and secs is _UNSET:
            steps, secs = cadence.default
        steps, secs = (None if value is _UNSET else value for value in (steps, secs))
        if steps is not None and secs is not None:
            raise errors.ConfigurationError(
                f'`RunConfig.{cadence.steps}` [{steps!r}] and `RunConfig.{cadence.secs}` [{secs!r}] '
                'can not be provided both. Set one of them, and leave the other unset.'
            )
        object.__setattr__(self, cadence.steps, steps)
        object.__setattr__(self, cadence.secs, secs)

    def replace(self, **changes: Any) -> 'RunConfig':
        """Returns a copy with other values; setting one checkpoint cadence clears the other.

        Raises:
            ConfigurationError: For a name that is no field, and for values that the constructor refuses.
        """
        fields = [field.name for field in dataclasses.fields(self)]
        for name in changes:
            if name not in fields:
                raise errors.ConfigurationError(
                    f'`RunConfig.replace` [{name}]: no such field. {errors.nearest(name, fields)}'
                )
        for cadence in _CADENCES:
            for name, other in ((cadence.steps, cadence.secs), (cadence.secs, cadence.steps)):
                if changes.get(name) is not None:
                    changes.setdefault(other, None)
        return dataclasses.replace(self, **changes)
