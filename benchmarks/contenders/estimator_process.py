"""Makes rounds of `tf.estimator` on request: a line on stdin asks for one, a JSON line on stdout answers.

Runs on TensorFlow 2.15, without the framework.
"""

import dataclasses
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import app, flags, logging
from tensorflow.compat import v1

from benchmarks import networks
from benchmarks.contenders.rounds import Figures, HandOver, InTurns

_CONTENDER = flags.DEFINE_enum('contender', 'estimator', ['estimator', 'estimator_in_memory'], 'Which way.')
_WORKLOAD = flags.DEFINE_enum('workload', 'mlp', list(networks.WORKLOADS), 'What it trains.')
_ROUNDS = flags.DEFINE_integer('rounds', 1, 'How many rounds will be asked for.')


class _LastLoss(v1.train.SessionRunHook):
    """Keeps the loss of the last step of every round; fetches nothing in the others."""

    def __init__(self, steps: int, then: Callable[[], None]):
        """Takes when it is called, and what.

        Args:
            steps: Steps a round.
            then: Is called at the end of each.
        """
        self._steps = steps
        self._then = then
        self._runs = 0
        self.loss: tf.Tensor | None = None
        self.value = 0.0

    def before_run(self, run_context: Any) -> v1.train.SessionRunArgs | None:
        self._runs += 1
        return v1.train.SessionRunArgs(self.loss) if self._runs % self._steps == 0 else None

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if self._runs % self._steps == 0:
            self.value = float(run_values.results)
            self._then()


def _train_and_evaluate(workload: networks.Workload, directory: str, max_steps: int) -> Callable[[HandOver], None]:
    """Returns the loop that saves a checkpoint a round, and evaluates it in a graph and a session of its own."""

    def loop(hand_over: HandOver) -> None:
        last = _LastLoss(workload.steps, lambda: None)
        # The very hook that `Estimator` would make, but after the one that keeps the loss: it calls the evaluation.
        saver = v1.train.CheckpointSaverHook(directory, save_steps=workload.steps)
        config = tf.estimator.RunConfig(save_summary_steps=None, save_checkpoints_steps=workload.steps)
        estimator = tf.estimator.Estimator(_model_fn(workload, last, saver), directory, config)
        end_of_round = _EndOfRound(lambda metrics: hand_over(_figures(metrics, last)))
        tf.estimator.train_and_evaluate(
            estimator,
            tf.estimator.TrainSpec(_input_fn(workload, 'train'), max_steps),
            tf.estimator.EvalSpec(
                _input_fn(workload, 'eval'), steps=None, exporters=end_of_round, start_delay_secs=0, throttle_secs=0
            ),
        )

    return loop


class _EndOfRound(tf.estimator.Exporter):
    """Is called after every evaluation of `train_and_evaluate`; exports nothing."""

    def __init__(self, told: Callable[[Mapping[str, Any]], None]):
        self._told = told

    @property
    def name(self) -> str:
        return 'end_of_round'

    def export(
        self, estimator: Any, export_path: str, checkpoint_path: str, eval_result: Any, is_the_final_export: bool
    ) -> None:
        self._told(eval_result)


def _in_memory(workload: networks.Workload, directory: str, max_steps: int) -> Callable[[HandOver], None]:
    """Returns the loop that evaluates in a second graph, with a new session a pass, and saves nothing."""

    def loop(hand_over: HandOver) -> None:
        # The caller's hooks come before those of the model: the pass was made.
        last = _LastLoss(workload.steps, lambda: hand_over(_figures(passes[-1], last)))
        config = tf.estimator.RunConfig(
            save_summary_steps=None, save_checkpoints_steps=None, save_checkpoints_secs=None
        )
        estimator = tf.estimator.Estimator(_model_fn(workload, last), directory, config)
        passes = _noted(estimator)
        hook = tf.estimator.experimental.InMemoryEvaluatorHook(
            estimator, _input_fn(workload, 'eval'), every_n_iter=workload.steps
        )
        estimator.train(_input_fn(workload, 'train'), hooks=[hook], max_steps=max_steps)

    return loop


def _noted(estimator: Any) -> list[Mapping[str, Any]]:
    """Returns a list that gets the metrics of every evaluation, which the hook that asks for them throws away."""
    passes: list[Mapping[str, Any]] = []
    evaluate_run = estimator._evaluate_run

    def noting(*args: Any, **kwargs: Any) -> Any:
        passes.append(evaluate_run(*args, **kwargs))
        return passes[-1]

    estimator._evaluate_run = noting  # a subclass may not override it
    return passes


def _model_fn(workload: networks.Workload, last: _LastLoss, *hooks: Any) -> Callable[..., Any]:
    """Returns the model_fn, whose training has a hook that keeps the loss, and others after it."""
    plain = networks.make_model_fn(workload, tf.estimator.EstimatorSpec)

    def model_fn(features: tf.Tensor, labels: tf.Tensor, mode: str) -> Any:
        spec = plain(features, labels, mode)
        if mode != 'train':
            return spec
        last.loss = spec.loss
        return spec._replace(training_hooks=[last, *hooks])

    return model_fn


def _input_fn(workload: networks.Workload, mode: str) -> Callable[[], tf.data.Dataset]:
    return lambda: workload.input_fn(mode)


def _figures(metrics: Mapping[str, Any], last: _LastLoss) -> Figures:
    values = {name: float(metrics[name]) for name in ('loss', 'mae')}
    return Figures(int(metrics['global_step']), last.value, values)


_LOOPS = {'estimator': _train_and_evaluate, 'estimator_in_memory': _in_memory}


def main(argv: Sequence[str]) -> None:
    """Answers until nobody asks."""
    del argv
    logging.set_verbosity(logging.ERROR)
    v1.logging.set_verbosity(v1.logging.ERROR)
    workload = networks.WORKLOADS[_WORKLOAD.value]
    with tempfile.TemporaryDirectory() as directory:
        max_steps = _ROUNDS.value * workload.steps
        contender = InTurns(_LOOPS[_CONTENDER.value](workload, directory, max_steps))
        for _ in sys.stdin:
            figures, cost = contender.measured_round()
            answer = {'figures': dataclasses.asdict(figures), 'cost': dataclasses.asdict(cost)}
            print(json.dumps(answer), flush=True)  # noqa: T201


if __name__ == '__main__':
    app.run(main)
