"""What reporting costs: everything that a run tells at default settings, beside a run that tells nothing.

    python -m benchmarks.reporting --rounds=20 --json=reporting.json

A round is 100 training steps, fused, and one pass. The one side has all writers of a run, lines of progress (into
nowhere) and summaries at their default cadence, and the model collects a scalar in training, and an image and a
histogram in evaluation; its events are flushed before a round is at its end, so that their thread costs nothing
elsewhere. The other side has the same model, no writer and no cadence. Both have to compute the same to the bit. The
ratio is that of the CPU seconds of all threads in one round; rounds are interleaved, and the first are not measured.
Pools have one thread: in larger ones each side measures for itself which threads its fused runs take, and two that
choose otherwise differ by a tenth, whatever they tell.
"""

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from absl import app, flags, logging
from tensorflow.compat import v1

import framework  # noqa: F401  (before anything that uses Keras)
from benchmarks import measuring, networks
from benchmarks.contenders import ours
from benchmarks.contenders.rounds import Contender, Figures, HandOver, InTurns
from framework import EstimatorSpec, RunConfig, run_dir
from framework.reporting import rows, writers
from framework.session import telling

_TELLS, _SILENT = 'tells', 'silent'
_WORKLOAD = flags.DEFINE_enum('workload', 'conv', list(networks.WORKLOADS), 'What both train.')
_ROUNDS = flags.DEFINE_integer('rounds', 20, 'Rounds of measurement.', lower_bound=1)
_JSON = flags.DEFINE_string('json', None, 'Where the figures go; None: only to the terminal.')


def _model_fn(workload: networks.Workload) -> Callable[..., Any]:
    """Returns the model of a workload, with summaries."""
    made = networks.make_model_fn(workload, EstimatorSpec)

    def model_fn(features: tf.Tensor, labels: tf.Tensor, mode: str) -> Any:
        spec = made(features, labels, mode)
        if mode == 'train':
            v1.summary.scalar('training_loss', spec.loss)
        elif features.shape.rank == 4:
            v1.summary.image('digits', features)
            v1.summary.histogram('labels', labels)
        return spec

    return model_fn


def _contender(workload: networks.Workload, rounds: int, tells: bool) -> Contender:
    config = RunConfig(
        save_checkpoints_steps=None, save_checkpoints_secs=None, fuse='require', intra_op_threads=1, inter_op_threads=1
    )
    if not tells:
        config = config.replace(save_summary_steps=None, log_step_count_steps=None, eval_summaries=0)

    def loop(hand_over: HandOver) -> None:
        of_run: list[writers.Writer] = []

        def writers_of(directory: run_dir.RunDir) -> Sequence[writers.Writer]:
            of_run.extend(telling.training_writers(directory) if tells else [])
            return of_run

        last = _EndOfRound(hand_over, of_run)
        ours.run(workload, rounds, config, last, model_fn=_model_fn(workload), of_run=writers_of)

    return InTurns(loop)


class _EndOfRound(writers.Writer):
    """Hands over at the end of a pass, when all has been written."""

    def __init__(self, hand_over: HandOver, others: Sequence[writers.Writer]):
        self._hand_over = hand_over
        self._others = others

    def write_pass(self, row: rows.PassRow) -> None:
        """Hands over."""
        for writer in self._others:
            writer.flush()
        metrics = {name: float(row.metrics[name]) for name in ('loss', 'mae')}
        # What the last training step lost is told on one side only; the metrics follow from the weights of all.
        self._hand_over(Figures(row.step, metrics['loss'], metrics, None, row.examples))


def main(argv: Sequence[str]) -> None:
    """Measures and prints."""
    del argv
    logging.use_absl_handler()
    logging.set_verbosity(logging.INFO)
    with open(os.devnull, 'w', encoding='utf-8') as nowhere:
        logging.get_absl_handler().python_handler.stream = nowhere
        workload, rounds = networks.WORKLOADS[_WORKLOAD.value], _ROUNDS.value
        sides = {name: _contender(workload, measuring.WARM_UP + rounds, name == _TELLS) for name in (_TELLS, _SILENT)}
        costs = measuring.measure(sides, rounds, _TELLS, frozenset(sides))
        for side in sides.values():
            side.close()
    found = measuring.summary(costs, _TELLS)
    results = {
        'workload': _WORKLOAD.value,
        'rounds': rounds,
        'agree': True,  # or `measure` had failed
        'cpu_ms': {name: figures['cpu_ms'] for name, figures in found.items()},
        'ratio_cpu': found[_SILENT]['ratio_cpu'],
    }
    text = json.dumps(results, indent=2)
    print(text)  # noqa: T201
    if _JSON.value:
        run_dir.write_atomically(_JSON.value, text + '\n')


if __name__ == '__main__':
    app.run(main)
