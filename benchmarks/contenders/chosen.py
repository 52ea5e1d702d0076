"""The contenders by name."""

from collections.abc import Callable, Mapping

from benchmarks import networks
from benchmarks.contenders import estimator, keras, ours, sessions
from benchmarks.contenders.rounds import Contender

OURS = ('per_step', 'fused', 'fused_xla', 'per_step_saving', 'fused_saving')
# Their kernels and their order are those of the reference, so their numbers are, to the bit.
EXACT = frozenset({'per_step', 'fused', 'per_step_saving', 'fused_saving', 'floor', 'monitored'})
_OF_OLD_TENSORFLOW = ('estimator', 'estimator_in_memory')
_HERE: Mapping[str, Callable[[networks.Workload, int], Contender]] = {
    'floor': sessions.Floor,
    'monitored': sessions.Monitored,
    'tf_keras_1': lambda workload, rounds: keras.fit(workload, rounds, 1),
    'tf_keras_100': lambda workload, rounds: keras.fit(workload, rounds, workload.steps),
    'tf_function': keras.Functions,
}
NAMES = (*OURS, *_HERE, *_OF_OLD_TENSORFLOW)


def contender(name: str, workload: str, rounds: int, old_python: str | None = None) -> Contender:
    """Returns a contender; nothing is built before its first round.

    Args:
        name: One of `NAMES`.
        workload: The name of the workload.
        rounds: How many rounds it will be asked for.
        old_python: The interpreter for `tf.estimator`.

    Raises:
        ValueError: If it needs `old_python`, and there is none.
    """
    if name in _OF_OLD_TENSORFLOW:
        if old_python is None:
            raise ValueError(f'`{name}` needs `--old_python`: `python -m benchmarks.old_environment` makes one.')
        return estimator.OtherProcess(old_python, name, workload, rounds)
    if name in OURS:
        return ours.contender(name, networks.WORKLOADS[workload], rounds)
    return _HERE[name](networks.WORKLOADS[workload], rounds)
