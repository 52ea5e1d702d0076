"""Passes leave the variables of the model as they found them, whatever their hooks write.

In `tf.estimator` an evaluation had a session of its own, and what its hooks wrote died with it. Recipes rely on that:
moving averages, for example, that `after_create_session` assigns to the variables that they average.
"""

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf
from absl import logging
from tensorflow.compat import v1

from framework.session.hooks import Hook


class VariableGuard:
    """Puts the global variables back that a pass changed, and warns once for every set of hooks."""

    def __init__(self) -> None:
        self._warned: set[tuple[int, ...]] = set()

    @contextlib.contextmanager
    def guarded(
        self, session: v1.Session, stream: str, hooks: Sequence[Hook], own: Sequence[tf.Variable] = ()
    ) -> Iterator[None]:
        """Guards a pass, also one that fails. Costs two reads of the variables, and nothing without hooks.

        TensorFlow's own hooks are no exception: what they are asked to fetch may write.

        Args:
            session: The raw session.
            stream: The evaluation set, for the warning.
            hooks: The hooks of the pass.
            own: The local variables of the call that the pass runs, which it may write.
        """
        if not hooks:
            yield
            return
        variables = _variables(session.graph, own)
        before = _values(session, variables)
        try:
            yield
        except BaseException:
            # The error of the pass tells more than one of putting back, as in a session that a hook has closed.
            with contextlib.suppress(Exception):
                self._put_back(session, stream, hooks, variables, before)
            raise
        self._put_back(session, stream, hooks, variables, before)

    def _put_back(
        self,
        session: v1.Session,
        stream: str,
        hooks: Sequence[Hook],
        variables: Sequence[tf.Variable],
        before: Sequence[np.ndarray],
    ) -> None:
        after = _values(session, variables)
        changed = [i for i in range(len(variables)) if not _same_bytes(before[i], after[i])]
        if changed:
            self._warn(stream, hooks, [variables[i].op.name for i in changed])
            _load(session, [variables[i] for i in changed], [before[i] for i in changed])

    def _warn(self, stream: str, hooks: Sequence[Hook], names: Sequence[str]) -> None:
        key = tuple(id(hook) for hook in hooks)
        if key in self._warned:
            return
        self._warned.add(key)
        others = f' and {len(names) - 1} more' if len(names) > 1 else ''
        logging.warning(
            'A pass over `%s`, with the hooks %s, changed `%s`%s: put back after this pass and every other, so that '
            'training goes on from its own values.',
            stream,
            ', '.join(type(hook).__name__ for hook in hooks),
            names[0],
            others,
        )


def _variables(graph: tf.Graph, own: Sequence[tf.Variable]) -> list[tf.Variable]:
    left_out = {id(variable) for variable in own}
    names = (v1.GraphKeys.GLOBAL_VARIABLES, v1.GraphKeys.LOCAL_VARIABLES)
    found = {id(variable): variable for name in names for variable in graph.get_collection(name)}
    return [variable for key, variable in found.items() if key not in left_out]


def _values(session: v1.Session, variables: Sequence[tf.Variable]) -> list[np.ndarray]:
    # By dtype, because a scalar string comes as bytes, of which NumPy would cut the zeros at the end.
    dtypes = [variable.dtype.base_dtype.as_numpy_dtype for variable in variables]
    return [np.asarray(value, dtype) for value, dtype in zip(session.run(variables), dtypes, strict=True)]


def _same_bytes(one: np.ndarray, other: np.ndarray) -> bool:
    if one.shape != other.shape:
        return False
    if one.dtype == object:  # strings, whose array holds addresses
        return bool(one.tolist() == other.tolist())
    return one.tobytes() == other.tobytes()  # NaN equals itself


def _load(session: v1.Session, variables: Sequence[tf.Variable], values: Sequence[np.ndarray]) -> None:
    """Does what `Variable.load` does, for all in one run as far as no two have the same initial tensor."""
    ops: list[tf.Operation] = []
    feeds: dict[str, np.ndarray] = {}
    for variable, value in zip(variables, values, strict=True):
        initial = variable.initializer.inputs[1].name
        if initial in feeds:
            session.run(ops, feeds)
            ops, feeds = [], {}
        ops.append(variable.initializer)
        feeds[initial] = value
    session.run(ops, feeds)
