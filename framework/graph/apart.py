"""Which evaluation calls need a graph of their own.

Those that would not compute what they compute in a graph of one call, and those that would change what belongs to
another call. In a graph of their own, with the weights of a checkpoint, both are as they were with `tf.estimator`.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import tensorflow as tf
from tensorflow.compat import v1

from framework.graph import movement
from framework.graph.calls import Tower, TrainStream

CANNOT_RESTART = 'its input_fn returns tensors whose data can not start again in a session'
OWN_SAVER = 'its Scaffold has a saver of its own, which says how a checkpoint becomes its variables'
# Types of ops with state that is no variable, or that write it, begin like this: a session resets it, a pass doesn't.
_KEEP_STATE = (
    *('IteratorGetNext', 'OneShotIterator', 'Queue', 'Barrier', 'Stage', 'Unstage', 'MapStage', 'OrderedMapStage'),
    *('AccumulatorTake', 'AccumulatorApply', 'SparseAccumulator', 'ResourceAccumulator'),
    *('LookupTableInsert', 'LookupTableImport', 'LookupTableRemove'),
)
_TABLES = ('MutableHashTable', 'MutableDenseHashTable')


@dataclasses.dataclass(frozen=True)
class Calls:
    """What the calls of one graph made.

    Attributes:
        made: Per call the names of its ops, those of its input included.
        weight_losses: The names of the ops that the regularization losses of weights depend on.
    """

    made: Mapping[str, frozenset[str]]
    weight_losses: frozenset[str]


def reasons(calls: Calls, towers: Sequence[Tower], train: TrainStream | None) -> dict[str, str]:
    """Returns per evaluation set that needs a graph of its own the reason, as the end of a sentence.

    Args:
        calls: What the calls of the default graph made.
        towers: The evaluation calls.
        train: The training call.
    """
    found: dict[str, str] = {}
    for tower in towers:
        reason = OWN_SAVER if has_own_saver(tower, train) else _entanglement(calls, tower)
        if reason:
            found |= dict.fromkeys(tower.sources, reason)
    return found


def has_own_saver(tower: Tower, train: TrainStream | None) -> bool:
    """Whether evaluation restores its variables in its own way."""
    scaffold = tower.spec.scaffold
    own = scaffold.saver is not None and (train is None or scaffold is not train.spec.scaffold)
    return own or bool(tower.collections.get(v1.GraphKeys.SAVERS))


def _entanglement(calls: Calls, tower: Tower) -> str | None:
    fetches = [tower.update, *tower.values.values()]
    if tower.local_init is not None:
        fetches.append(tower.local_init)
    table = next(_shared_tables(calls, tower), None)
    if table is not None:
        return f'it has the table `{table}` in common with another call'
    if tower.collections.get(v1.GraphKeys.QUEUE_RUNNERS):
        return 'its model_fn makes queue runners'
    return touches_others(calls, tower, fetches)


def touches_others(calls: Calls, tower: Tower, fetches: Sequence[tf.Tensor | tf.Operation]) -> str | None:
    """Returns what of other calls a run of some fetches reads or writes, as the end of a sentence; None for nothing.

    Args:
        calls: What the calls of the default graph made.
        tower: The evaluation call that the fetches belong to.
        fetches: Ops and tensors.
    """
    written = movement.changed(fetches, _variables_of_others(tower))
    if written:
        return f'it writes `{written[0].op.name}`, which is not its own'
    for op in movement.ancestors(fetches):
        if op.type.startswith(_KEEP_STATE) and op.name not in tower.input.ends:
            return f'it keeps state in `{op.name}` [{op.type}], which no pass resets'
        for caller, made in calls.made.items():
            foreign = caller != tower.caller and op.name in made and op.name not in calls.weight_losses
            if foreign and not _may_be_used(op):
                return f'it reads `{op.name}`, which {caller} made'
    return None


def _variables_of_others(tower: Tower) -> list[tf.Variable]:
    own = {id(variable) for variable in tower.variables}
    return [v for v in [*v1.global_variables(), *v1.local_variables()] if id(v) not in own]


def _shared_tables(calls: Calls, tower: Tower) -> Iterator[str]:
    """Yields the mutable tables that a `shared_name` makes one with those of another call."""
    named: dict[str, set[str]] = {}
    for caller, made in calls.made.items():
        for name in made:
            op = v1.get_default_graph().get_operation_by_name(name)
            if op.type.startswith(_TABLES) and op.get_attr('shared_name'):
                named.setdefault(op.get_attr('shared_name').decode(), set()).add(caller)
    return (name for name, callers in named.items() if tower.caller in callers and len(callers) > 1)


def _may_be_used(op: tf.Operation) -> bool:
    """Whether a call may use the op of another: a variable or table, its current value, Keras's learning phase."""
    while op.type in ('ReadVariableOp', 'Identity'):
        op = op.inputs[0].op
    of_resource = all(value.dtype == tf.resource for value in op.outputs) and not op.type.startswith('Iterator')
    is_handle = not op.inputs and (of_resource or op.type in ('Variable', 'VariableV2'))
    return is_handle or 'keras_learning_phase' in op.name
