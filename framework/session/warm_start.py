"""Warm start: variables of a fresh run begin with the values of a checkpoint.

The loading is that of `v1.train.warm_start`: it gives variables another initializer, so that the session's init op
reads the checkpoint, once, and nothing of it stays on the path of a step. Here is decided what is loaded, and is said
beforehand what can't be.
"""

import contextlib
import dataclasses
import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging
from tensorflow.compat import v1

from framework import errors
from framework.graph import movement
from framework.reporting.rows import WarmStartRow
from framework.session import checkpoints, reading, vocabularies
from framework.warm_start import WarmStartSettings

_EXPRESSIONS = 'WarmStartSettings.vars_to_warm_start'


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A warm start that the opening of the session makes.

    Attributes:
        checkpoint: The prefix of the checkpoint's files.
        rows: What is loaded and what is not, of all variables that may have been meant.
        hook: Must be the first one of the session.
        sources: The keys in the checkpoint of what is loaded.
    """

    checkpoint: str
    rows: Sequence[WarmStartRow]
    hook: v1.train.SessionRunHook
    sources: Sequence[str]

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Around the opening of the session: says so where its error comes from damaged files.

        Raises:
            RunDirectoryError: If they are.
        """
        try:
            yield
        except (tf.errors.OpError, ValueError) as error:
            fault = _reading_error(self.checkpoint, self.sources)
            if fault is None:
                raise
            raise checkpoints.damaged(self.checkpoint, fault) from error


def prepare(settings: WarmStartSettings, graph: tf.Graph, scaffold: v1.train.Scaffold) -> Prepared:
    """Lets variables begin with the values of a checkpoint, in a session that restores nothing.

    Adds ops, so it comes after the whole graph and before the Scaffold is finalized. A `Scaffold.init_fn` of the user
    runs later, and has the last word.

    Args:
        settings: What to load.
        graph: The graph.
        scaffold: The session's.

    Raises:
        ConfigurationError: If the checkpoint isn't there, a name is wrong, or, unless the settings are lenient, if a
            variable can't be loaded.
        RunDirectoryError: If the checkpoint is damaged.
    """
    logging.info('Warm-starting with WarmStartSettings: %s', settings)
    checkpoint = checkpoints.resolve(str(settings.ckpt_to_initialize_from))
    saved = checkpoints.read(checkpoint)
    with graph.as_default():
        meant = _meant(settings)
        _check_names(settings, meant)
        plans = {name: _plan(variable, settings, saved) for name, variable in meant.items()}
        if settings.strict:
            _check_faults(checkpoint, plans)
        loaded = [plan for plan in plans.values() if not plan.skipped]
        if loaded:
            _set_initializers(checkpoint, loaded)
        hook = _Completion(scaffold, [part for plan in loaded for part in plan.variable.parts])
        rows = _rows(plans, _whole(v1.trainable_variables()))
    return Prepared(checkpoint, rows, hook, [plan.source for plan in loaded])


# What is meant


@dataclasses.dataclass(frozen=True)
class _Variable:
    """A variable as a checkpoint has it: a partitioned one is whole."""

    name: str
    shape: tf.TensorShape
    dtype: tf.DType
    parts: Sequence[tf.Variable]


def _meant(settings: WarmStartSettings) -> dict[str, _Variable]:
    """Returns the variables that the settings speak of, by name."""
    expressions = settings.vars_to_warm_start
    if expressions is None:
        return _whole(v1.trainable_variables())
    if isinstance(expressions, str):
        found = {expressions: v1.trainable_variables(scope=expressions)}
        kind, everything = 'trainable', v1.trainable_variables()
    else:
        found = {expression: v1.global_variables(scope=expression) for expression in expressions}
        kind, everything = 'global', v1.global_variables()
    for expression, variables in found.items():
        if not variables:
            _tell_idle(expression, kind, _whole(everything), settings.strict)
    return _whole(variable for variables in found.values() for variable in variables)


def _whole(variables: Iterable[tf.Variable]) -> dict[str, _Variable]:
    """Returns the variables by name, each once, and the parts of a partitioned one together."""
    whole: dict[str, _Variable] = {}
    for part in {id(variable): variable for variable in variables}.values():
        of = part.to_proto().save_slice_info_def  # empty unless it is a part
        name = of.full_name or part.op.name
        shape = tf.TensorShape(of.full_shape) if of.full_name else part.shape
        before = whole[name].parts if name in whole else ()
        whole[name] = _Variable(name, shape, part.dtype.base_dtype, (*before, part))
    return whole


def _tell_idle(expression: str, kind: str, variables: Mapping[str, _Variable], strict: bool) -> None:
    sentence = (
        f'`{_EXPRESSIONS}` [{expression}] means none of the {kind} variables. {errors.nearest(expression, variables)}'
    )
    if strict:
        raise errors.ConfigurationError(sentence)
    logging.warning('%s', sentence)


def _check_names(settings: WarmStartSettings, meant: Mapping[str, _Variable]) -> None:
    """Refuses settings of variables that are not meant: a slip of the pen would start them cold."""
    for field in ('var_name_to_vocab_info', 'var_name_to_prev_var_name'):
        for name in getattr(settings, field):
            if name not in meant:
                raise errors.ConfigurationError(
                    f'`WarmStartSettings.{field}` [{name}] is no variable that `vars_to_warm_start` '
                    f'[{settings.vars_to_warm_start!r}] means. {errors.nearest(name, meant)}'
                )


# What can be loaded


@dataclasses.dataclass(frozen=True)
class _Plan:
    """What is to become of a variable.

    Attributes:
        variable: The variable.
        source: Its key in the checkpoint.
        vocabulary: Its vocabularies.
        fault: Why it can't be loaded.
        unnamed: Why it isn't meant to be.
    """

    variable: _Variable
    source: str
    vocabulary: v1.train.VocabInfo | None = None
    fault: str = ''
    unnamed: str = ''

    @property
    def skipped(self) -> str:
        """Why it isn't loaded, empty if it is."""
        return self.fault or self.unnamed


def _plan(variable: _Variable, settings: WarmStartSettings, saved: checkpoints.Saved) -> _Plan:
    vocabularies_by_name: Mapping[str, Any] = settings.var_name_to_vocab_info or {}
    previous: Mapping[str, str] = settings.var_name_to_prev_var_name or {}
    name = variable.name
    vocabulary = vocabularies_by_name.get(name)
    source = saved.key(previous.get(name) or name)
    if vocabulary is None and settings.vars_to_warm_start is None:
        return _Plan(variable, source, unnamed='has no vocabulary')
    return _Plan(variable, source, vocabulary, _fault(variable, source, vocabulary, saved) or '')


def _fault(variable: _Variable, source: str, vocabulary: Any, saved: checkpoints.Saved) -> str | None:
    """Returns why a variable can't be loaded, as the end of a sentence; None if it can."""
    if source not in saved.shapes:
        near = difflib.get_close_matches(source, saved.names, n=1)  # not all of its names, for each of many
        said = '' if source == variable.name else f' as `{source}`'
        return f'is not in the checkpoint{said}' + (f'. Did you mean `{near[0]}`?' if near else '')
    shape, dtype = tf.TensorShape(saved.shapes[source]), saved.dtypes[source]
    if vocabulary is not None:
        if any(part.shape[1:] != variable.shape[1:] for part in variable.parts):
            return 'is partitioned along its columns, and a vocabulary needs whole rows'
        return vocabularies.fault(vocabulary, variable.shape, shape, {variable.dtype, dtype})
    if not variable.shape.is_compatible_with(shape):
        return f'has shape {variable.shape}, in the checkpoint {shape}'
    if variable.dtype != dtype:
        return f'has dtype {variable.dtype.name}, in the checkpoint {dtype.name}'
    return None


def _check_faults(checkpoint: str, plans: Mapping[str, _Plan]) -> None:
    faults = [f'`{name}` {plan.fault}' for name, plan in plans.items() if plan.fault]
    if faults:
        raise errors.ConfigurationError(
            f'`warm_start_from` [{checkpoint}] does not fit the model [{"; ".join(faults)}]. Leave them out of '
            '`vars_to_warm_start`, give their old names in `var_name_to_prev_var_name`, or set '
            '`WarmStartSettings.strict = False` to leave them at their initial values.'
        )


def _rows(plans: Mapping[str, _Plan], trainable: Mapping[str, _Variable]) -> list[WarmStartRow]:
    rows = [_row(plan) for plan in plans.values()]
    others = [_Plan(variable, '', unnamed='not meant') for name, variable in trainable.items() if name not in plans]
    return rows + [_row(plan) for plan in others]


def _row(plan: _Plan) -> WarmStartRow:
    variable = plan.variable
    shape = None if variable.shape.rank is None else tuple(variable.shape.as_list())
    why = plan.skipped
    if not why and plan.vocabulary is not None:
        why = vocabularies.known(plan.vocabulary, variable.shape)
    return WarmStartRow(variable.name, plan.source, shape, loaded=not plan.skipped, why=why)


# The loading


def _set_initializers(checkpoint: str, plans: Sequence[_Plan]) -> None:
    remapped = [plan for plan in plans if plan.vocabulary is not None]
    with v1.name_scope('framework/warm_start/'):
        v1.train.warm_start(
            checkpoint,
            [part for plan in plans for part in plan.variable.parts],
            {plan.variable.name: vocabularies.static_shapes(plan.vocabulary, plan.variable.shape) for plan in remapped},
            {plan.variable.name: plan.source for plan in plans},
        )


class _Completion(v1.train.SessionRunHook):
    """Does what the session's init op leaves open.

    An init op of the user's own was made before, with the initializers of a cold start. And a variable that begins with
    another's value, as a moving average does, takes it while that is being loaded: the old value or the new one.
    """

    def __init__(self, scaffold: v1.train.Scaffold, loaded: Sequence[tf.Variable]):
        self._scaffold = scaffold
        self._loads = [_operation(variable) for variable in loaded]
        self._followers = [_operation(variable) for variable in _followers(loaded)]

    def after_create_session(self, session: v1.Session, coord: v1.train.Coordinator) -> None:
        """Loads what isn't loaded yet, then initializes what depends on it, one after the other."""
        del coord
        run = {op.name for op in movement.ancestors([self._scaffold.init_op])}
        session.run([op for op in self._loads if op.name not in run])
        for op in self._followers:
            session.run(op)


def _operation(variable: tf.Variable) -> tf.Operation:
    initializer = variable.initializer
    return getattr(initializer, 'op', initializer)  # of a remapped variable it is what `assign` returns


def _followers(loaded: Sequence[tf.Variable]) -> list[tf.Variable]:
    """Returns the variables whose initial values depend on those of others, in the order in which they were made."""
    leaders = {variable.op.name for variable in loaded}
    others = [v for v in [*v1.global_variables(), *v1.local_variables()] if v.op.name not in leaders]
    # By way of another follower too: an initial value holds those of the variables that it reads.
    return [v for v in others if leaders & {op.name for op in movement.ancestors([v.initializer])}]


def _reading_error(checkpoint: str, keys: Iterable[str]) -> Exception | None:
    try:
        reader = v1.train.load_checkpoint(checkpoint)
        for key in keys:
            reader.get_tensor(key)
    except reading.READ_ERRORS as error:
        return error
    return None
