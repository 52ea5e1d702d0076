"""One set of weights for every call of a model_fn.

`get_variable` is shared by AUTO_REUSE. Everything else (`tf.Variable`, Keras layers) is shared by a variable creator:
the first call of model_fn is recorded, later calls get the same variables back by (canonical name, occurrence), where
the canonical name is the variable's name without the prefix of its stream. Variable names are therefore those of a
graph that holds one call only. A custom getter tells the creator which of the two ways a variable came.
"""

import contextlib
import sys
import types
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging
from tensorflow.compat import v1

from framework import errors
from framework.graph.views import CallView

KEYS = v1.GraphKeys
Key = tuple[str, int]
Creator = Callable[..., Any]

_SAME_IN_EACH_MODE = (
    'model_fn must make the same variables in the same order in each mode, or give them names of their own.'
)


class _GetVariable:
    """The custom getter of the first call: tells the creator that `get_variable` is at work, and notes the names."""

    def __init__(self, names: set[str]) -> None:
        self._names = names
        self._depth = 0

    @property
    def at_work(self) -> bool:
        return self._depth > 0

    def __call__(self, getter: Creator, name: str, *args: Any, **kwargs: Any) -> Any:
        self._names.add(name)
        return self._get(getter, name, *args, **kwargs)

    def _get(self, getter: Creator, name: str, *args: Any, **kwargs: Any) -> Any:
        self._depth += 1
        try:
            return getter(name, *args, **kwargs)
        finally:
            self._depth -= 1


class _GetVariableAgain(_GetVariable):
    """The custom getter of a later call: makes the names and types those of the first call."""

    def __init__(self, names: set[str], view: CallView, prefix: str) -> None:
        super().__init__(names)
        self._view = view
        self._prefix = prefix

    def __call__(self, getter: Creator, name: str, *args: Any, **kwargs: Any) -> Any:
        if _is_local(kwargs):
            return self._get(getter, self._prefix + name, *args, **kwargs)  # AUTO_REUSE would share it like any other
        initial_value = kwargs.get('initializer')
        if initial_value is not None and not callable(initial_value):
            # A new variable takes the type of its initial value, a reused one is checked against the scope's.
            given = initial_value if hasattr(initial_value, 'dtype') else tf.convert_to_tensor(initial_value)
            kwargs['dtype'] = tf.as_dtype(given.dtype).base_dtype
        try:
            variable = self._get(getter, self._name_in_first_call(name), *args, **kwargs)
        except ValueError as error:
            if not str(error).startswith('Trying to share variable'):
                raise
            raise errors.ConfigurationError(f'{str(error).rstrip(".")}. {_SAME_IN_EACH_MODE}') from error
        self._view.note(variable, kwargs.get('collections'), kwargs.get('regularizer'))
        return variable

    def _name_in_first_call(self, name: str) -> str:
        # Slots and averages are named after the op that they belong to, so their names can hold our prefix.
        for prefix in (self._prefix, self._prefix.replace('/', '_')):
            name = name.replace(prefix, '')
        # A slot that TensorFlow made has a slash at the end of its name in the store, one that is asked for has none.
        known = (known for known in (name, f'{name}/', name.rstrip('/')) if known in self._names)
        # What the first call does not have is this call's own: AUTO_REUSE must not share it with a third call.
        return next(known, self._prefix + name)


class SharedVariables:
    """The variables of the first call of a model_fn, and the scopes in which the calls are made."""

    def __init__(self) -> None:
        self._recorded: dict[Key, Any] = {}
        self._names: set[str] = set()  # that `get_variable` was asked for
        self._first = ''

    @contextlib.contextmanager
    def first_call(self, stream: str) -> Iterator[None]:
        """The scope of the call whose variables all others share: no reuse, no prefix.

        Args:
            stream: What error messages of later calls call it, for example `training`.
        """
        self._first = stream
        counts: Counter[str] = Counter()
        get_variable = _GetVariable(self._names)

        def record(next_creator: Creator, **kwargs: Any) -> Any:
            _refuse_keras_3(kwargs)
            variable = next_creator(**_as_resource(kwargs))
            if not get_variable.at_work and not _is_local(kwargs):
                name = _canonical_name(kwargs, prefix='')
                counts[name] += 1
                self._recorded[name, counts[name]] = variable
            return variable

        _reset_keras_names()
        with _root_variable_scope(None, get_variable), v1.variable_creator_scope(record):
            yield

    @contextlib.contextmanager
    def later_call(self, prefix: str, stream: str, weight_losses: Sequence[tf.Tensor] = ()) -> Iterator[None]:
        """The scope of a further call: ops below `prefix`, the variables of the first call.

        Args:
            prefix: An absolute name scope that ends with a slash.
            stream: What error messages call the caller, for example `evaluation of valid, test`.
            weight_losses: The regularization losses of weights that the first call made.

        Raises:
            ConfigurationError: At a variable whose shape or dtype differs from the first call's, and after the call for
                trainable variables that the first call did not make.
        """
        view = CallView(prefix, weight_losses)
        replay = _Replay(self._recorded, self._first, prefix, stream, view)
        get_variable = _GetVariableAgain(self._names, view, prefix)
        _reset_keras_names()
        _reset_keras_learning_phase()
        with (
            v1.name_scope(prefix),
            _root_variable_scope(v1.AUTO_REUSE, get_variable),
            v1.variable_creator_scope(lambda next_creator, **kwargs: replay.create(next_creator, get_variable, kwargs)),
            view.shown(),
        ):
            yield
        replay.check()


@contextlib.contextmanager
def local_variables_only(prefix: str, stream: str) -> Iterator[None]:
    """The scope of an evaluation's input_fn: its variables are its own and local, so that no checkpoint holds them.

    Args:
        prefix: Stands before the names of its variables; ends with a slash.
        stream: What error messages call it, for example `the input_fn of valid`.

    Raises:
        ConfigurationError: At the end, for trainable variables.
    """
    replay = _Replay({}, 'training', '', stream)
    none = _GetVariable(set())
    with (
        v1.variable_scope(prefix.rstrip('/'), auxiliary_name_scope=False, use_resource=True),
        v1.variable_creator_scope(lambda next_creator, **kwargs: replay.create(next_creator, none, kwargs)),
    ):
        yield
    replay.check()


_OWN_GRAPH = (
    "Where its name depends on what the graph already holds, `Experiment.evaluation_graph = 'separate'` gives "
    'evaluation a graph of its own.'
)


def keep_out_of_checkpoint(saved: Collection[str], stream: str, remedy: str = _OWN_GRAPH) -> None:
    """Makes the variables of the default graph local that no checkpoint holds, in a graph without training.

    Args:
        saved: The names in the checkpoint.
        stream: What messages call the calls of the graph.
        remedy: What else may help where they are trainable, as a sentence.

    Raises:
        ConfigurationError: If one of them is trainable.
    """
    # A checkpoint holds the slices of a partitioned variable under the name of the whole.
    unsaved = [v for v in v1.global_variables() if v.op.name.split('/part_')[0] not in saved]
    trainable = [variable.op.name for variable in unsaved if variable.trainable]
    if trainable:
        raise _untrained(trainable, stream, 'training', remedy)
    for variable in unsaved:
        _warn_unsaved(variable.op.name, stream)
        _made_local(variable)


def _untrained(names: Sequence[str], stream: str, first: str, remedy: str = _OWN_GRAPH) -> errors.ConfigurationError:
    return errors.ConfigurationError(
        f'`{"`, `".join(names)}`: trainable, made by {stream} but not by {first}, so it would be used untrained. '
        f'Make it in each mode, with the same names in the same scopes. {remedy}'.rstrip()
    )


def _warn_unsaved(name: str, stream: str) -> None:
    logging.warning('`%s` is made only by %s, so it is not saved. To save it, make it in each mode.', name, stream)


class _Replay:
    """The variable creator of one later call."""

    def __init__(self, recorded: Mapping[Key, Any], first: str, prefix: str, stream: str, view: CallView | None = None):
        self._recorded = recorded
        self._first = first
        self._view = view
        self._prefix = prefix
        self._stream = stream
        self._counts: Counter[str] = Counter()
        self._asked: list[str] = []
        self._new_trainable: list[str] = []

    def create(self, next_creator: Creator, get_variable: _GetVariable, kwargs: dict[str, Any]) -> Any:
        _refuse_keras_3(kwargs)
        kwargs = _as_resource(kwargs)
        if _is_local(kwargs):
            return next_creator(**kwargs)
        name = _canonical_name(kwargs, self._prefix)
        if get_variable.at_work:
            return self._create_own(name, next_creator, kwargs)  # AUTO_REUSE found none of this name
        self._counts[name] += 1
        key = (name, self._counts[name])
        if key not in self._recorded:
            return self._create_own(name, next_creator, kwargs)
        self._check_same(key, kwargs)
        if self._view is not None:
            self._view.note(self._recorded[key], kwargs.get('collections'))
        return self._recorded[key]

    def _create_own(self, name: str, next_creator: Creator, kwargs: dict[str, Any]) -> Any:
        if kwargs.get('trainable') in (None, True):
            self._new_trainable.append(name)
        else:
            _warn_unsaved(name, self._stream)
        return _made_local(next_creator(**kwargs))

    def _check_same(self, key: Key, kwargs: dict[str, Any]) -> None:
        known = self._recorded[key]
        shape, dtype = _requested(kwargs)
        self._asked.append(_listed(key, shape, dtype))
        if shape.is_compatible_with(known.shape) and dtype in (None, known.dtype.base_dtype):
            return
        raise errors.ConfigurationError(
            f'`{key[0]}` [{_describe(shape, dtype)}] in {self._stream} is not the variable that {self._first} made '
            f'under this name [{_describe(known.shape, known.dtype)}]. {_SAME_IN_EACH_MODE}\n'
            f'  {self._first} made: {", ".join(_listed(k, v.shape, v.dtype) for k, v in self._recorded.items())}\n'
            f'  here so far: {", ".join(self._asked)}'
        )

    def check(self) -> None:
        if self._new_trainable:
            raise _untrained(self._new_trainable, self._stream, self._first)


def _root_variable_scope(reuse: Any, getter: _GetVariable) -> Any:
    # Re-entering the scope object restarts default names (`dense`, `dense_1`), as in a graph of one call.
    root = v1.get_variable_scope()
    return v1.variable_scope(root, reuse=reuse, custom_getter=getter, auxiliary_name_scope=False, use_resource=True)


def _keras_backends() -> list[Any]:
    # Whoever uses a Keras has imported it: looking there spares everyone else the import.
    names = ('tf_keras', 'tensorflow.python.keras')
    return [sys.modules[name].backend for name in names if hasattr(sys.modules.get(name), 'backend')]


def _reset_keras_names() -> None:
    for backend in _keras_backends():
        backend.reset_uids()


def _reset_keras_learning_phase() -> None:
    """Undoes `set_learning_phase(True)` of a model_fn in TRAIN: Keras keeps it per graph, and so would drop units."""
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # Keras calls it deprecated, and has nothing else that resets the phase
        for backend in _keras_backends():
            backend.set_learning_phase(False)


def _refuse_keras_3(kwargs: Mapping[str, Any]) -> None:
    """Raises if Keras 3 is making this variable: in a graph its layers, metrics and optimizers are silently wrong.

    Batch statistics never move, dropout drops the same units in every run, metrics stay 0, weights aren't shared.
    """
    owner = _keras_3_owner()
    if owner is not None:
        raise errors.ConfigurationError(
            f'`{kwargs.get("name") or "a variable"}` is made by Keras 3 [{owner}], whose layers, metrics and '
            'optimizers are silently wrong in a graph. Use `tf.keras` after `import framework`, `tf_keras` or '
            '`tf.compat.v1`, not `import keras`.'
        )


def _keras_3_owner() -> str | None:
    """Returns the type of the Keras 3 object that the user called to get here; the stack is the only trace of it."""
    owner = None
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals.get('__name__', '').startswith('keras.src.'):
            owner = type(frame.f_locals['self']).__name__ if 'self' in frame.f_locals else owner or 'a function'
        frame = frame.f_back
    return owner


def _as_resource(kwargs: dict[str, Any]) -> dict[str, Any]:
    # Ref variables (code under `disable_v2_behavior`) can't cross a function boundary, and reading them races.
    return kwargs if kwargs.get('use_resource') is not None else {**kwargs, 'use_resource': True}


def _is_local(kwargs: Mapping[str, Any]) -> bool:
    """Whether the variable is a call's own: the state of a metric."""
    collections = kwargs.get('collections')
    if collections is None:
        return False
    of_keras_metric = not collections and kwargs.get('trainable') is False
    return of_keras_metric or KEYS.LOCAL_VARIABLES in collections or KEYS.METRIC_VARIABLES in collections


def _made_local(variable: Any) -> Any:
    """Moves a variable that only evaluation has out of the checkpoint, which every run of the model writes the same."""
    # Not by the creator's argument `collections`, which the creator of TensorFlow 2's `tf.Variable` ignores.
    saved = v1.get_collection_ref(KEYS.GLOBAL_VARIABLES)
    saved[:] = [other for other in saved if other is not variable]
    v1.add_to_collection(KEYS.LOCAL_VARIABLES, variable)
    return variable


def _canonical_name(kwargs: dict[str, Any], prefix: str) -> str:
    scope = v1.get_default_graph().get_name_scope()
    full = f'{scope}/{kwargs.get("name") or "Variable"}'.lstrip('/')
    return full.removeprefix(prefix)


def _requested(kwargs: Mapping[str, Any]) -> tuple[tf.TensorShape, tf.DType | None]:
    """Returns the shape and dtype that a creation asks for, as far as they are known without making it."""
    value, shape, dtype = kwargs.get('initial_value'), kwargs.get('shape'), kwargs.get('dtype')
    if callable(value) and shape is None:
        value = value()
    if value is not None and not callable(value) and (shape is None or dtype is None):
        given = value if hasattr(value, 'dtype') else tf.convert_to_tensor(value)
        shape = given.shape if shape is None else shape
        dtype = given.dtype if dtype is None else dtype
    return tf.TensorShape(shape), None if dtype is None else tf.as_dtype(dtype).base_dtype


def _listed(key: Key, shape: Any, dtype: Any) -> str:
    name, occurrence = key
    return f'{name} (#{occurrence}) {_describe(shape, dtype)}'


def _describe(shape: Any, dtype: Any) -> str:
    return f'{tf.TensorShape(shape)} {tf.as_dtype(dtype).base_dtype.name if dtype is not None else ""}'.strip()
