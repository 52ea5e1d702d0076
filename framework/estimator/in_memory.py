"""`InMemoryEvaluatorHook`: asks for evaluations in the session of training."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tensorflow.compat import v1

from framework import errors, run_dir
from framework.estimator.input_calls import with_tensors
from framework.run_config import EvalSet


class InMemoryEvaluatorHook(v1.train.SessionRunHook):
    """Evaluates before training, every so many steps, and at the end, in the session of training.

    It stands for an evaluation set of the run: there is no second graph, and no copy of the variables.

    Args:
        estimator: The Estimator that trains.
        input_fn: Returns the data of the evaluation.
        steps: Batches of an evaluation, None for all.
        hooks: SessionRunHooks of the evaluation.
        name: Events go to `eval_<name>/`, without a name to `eval/`.
        every_n_iter: Steps between two evaluations.
    """

    def __init__(
        self,
        estimator: Any,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Iterable[Any] | None = None,
        name: str | None = None,
        every_n_iter: int = 100,
    ):
        if every_n_iter is None or every_n_iter <= 0:
            raise errors.ConfigurationError(f'invalid every_n_iter={every_n_iter}.')
        if estimator.config.num_ps_replicas > 0 or estimator.config.num_worker_replicas > 1:
            raise errors.ConfigurationError(
                'InMemoryEvaluator supports only single machine (aka Local) setting: TF_CONFIG describes a cluster.'
            )
        if name:
            run_dir.check_stream_name(name)
        self.evaluated = EvalSet(
            input_fn=with_tensors(input_fn), steps=steps, name=name or None, hooks=tuple(hooks or ())
        )
        self.every_n_iter = every_n_iter

    def begin(self) -> None:
        """Is never called by `Estimator.train`, which evaluates itself."""
        raise errors.RunError('`InMemoryEvaluatorHook` works in `Estimator.train` and `train_and_evaluate` only.')


@dataclasses.dataclass(frozen=True)
class OfHooks:
    """The evaluations that hooks ask for.

    Attributes:
        sets: The evaluation sets by stream.
        periods: Steps between two evaluations by stream.
    """

    sets: Mapping[str, EvalSet]
    periods: Mapping[str, int | None]


def without_evaluators(hooks: Sequence[Any]) -> tuple[list[Any], OfHooks]:
    """Returns the hooks of training without those that ask for evaluations, and what these ask for.

    Args:
        hooks: The caller's hooks.

    Raises:
        ConfigurationError: If two evaluations have one name.
    """
    asking = [hook for hook in hooks if isinstance(hook, InMemoryEvaluatorHook)]
    streams = [hook.evaluated.stream for hook in asking]
    if twice := [stream for stream in streams if streams.count(stream) > 1]:
        raise errors.ConfigurationError(f'Two `InMemoryEvaluatorHook`s have the `name` [{twice[0]}]. Rename one.')
    sets = {hook.evaluated.stream: hook.evaluated for hook in asking}
    periods = {hook.evaluated.stream: hook.every_n_iter for hook in asking}
    return [hook for hook in hooks if hook not in asking], OfHooks(sets, periods)
