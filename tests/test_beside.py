"""Evaluation and prediction beside a training of another process, which commits all the time and keeps little."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import EvalSet, Experiment, KeepBest, RunConfig, run_dir
from framework.session import commits
from framework.spec import EstimatorSpec, ModeKeys

LIMIT_SECS = 60


def model_fn(features, labels, mode):
    """The weight of step N is N, and so is the loss of an evaluation; `score` falls and rises with the step."""
    del labels
    step = v1.train.get_or_create_global_step()
    weight = v1.get_variable('weight', [], initializer=tf.zeros_initializer())
    value = weight + 0.0 * tf.reduce_sum(features)
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions={'weight': weight + 0.0 * features[:, 0]})
    if mode == ModeKeys.EVAL:
        return EstimatorSpec(mode, loss=value, eval_metric_ops={'score': v1.metrics.mean(tf.sin(value))})
    return EstimatorSpec(mode, loss=value, train_op=tf.group(v1.assign_add(weight, 1.0), v1.assign_add(step, 1)))


def input_fn(mode):
    data = tf.data.Dataset.from_tensor_slices(np.ones([5, 1], np.float32))
    return (data.repeat() if mode == ModeKeys.TRAIN else data).batch(2)


def make(directory):
    return Experiment(
        model_fn=model_fn,
        train_input_fn=input_fn,
        eval_sets=[EvalSet(name='valid', input_fn=input_fn), EvalSet(name='test', input_fn=input_fn)],
        eval_every_steps=1,
        keep_best=KeepBest(metric='valid/score', mode='max'),
        model_dir=str(directory),
        seed=1,
        run_config=RunConfig(save_checkpoints_steps=1, keep_checkpoint_max=1),
    )


@pytest.fixture
def training(tmp_path):
    """Yields the run directory of a training that goes on until the test ends; then it must end as it should."""
    root = pathlib.Path(__file__).parents[1]
    process = subprocess.Popen(
        [sys.executable, __file__, str(tmp_path)],
        env={**os.environ, 'PYTHONPATH': str(root)},
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(lambda: _newest_step(tmp_path) > 3, process)
        yield tmp_path
        assert process.poll() is None, 'the training ended beside the evaluations'
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_SECS) == 128 + signal.SIGTERM
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_for(condition, process):
    end = time.monotonic() + LIMIT_SECS
    while not condition():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.05)


def _newest_step(directory):
    records = commits.Commits(run_dir.RunDir(directory)).every()
    return records[-1].step if records else -1


def test_evaluation_and_prediction_beside_a_training_have_right_numbers(training, tmp_path):
    experiment = make(training)
    steps = []
    for _ in range(3):
        result = experiment.evaluate()
        steps.append(result.global_step)
        # One checkpoint for both sets, although the training removed it long before the second.
        assert {name: metrics['loss'] for name, metrics in result.metrics.items()} == dict.fromkeys(
            ('valid', 'test'), float(result.global_step)
        )
        best = experiment.evaluate(checkpoint='best')
        assert best.metrics['valid']['loss'] == best.global_step
        done = experiment.predict(tmp_path / 'p.jsonl', 'valid')
        lines = [json.loads(line) for line in (tmp_path / 'p.jsonl').read_text().splitlines()]
        assert lines == [{'weight': float(done.global_step)}] * 5
    assert steps == sorted(set(steps)), 'the training stood still'
    path = str(training / 'best')  # a directory is a path, too
    assert experiment.evaluate(['test'], checkpoint=path).metrics['test']['score'] == pytest.approx(1.0, abs=0.1)
    assert experiment.evaluate(['valid'], every_commit=True).status == 'done'


if __name__ == '__main__':
    sys.exit(make(sys.argv[1]).train_and_evaluate().exit_code)
