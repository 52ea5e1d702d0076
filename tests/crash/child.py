"""A run that is killed at a chosen point: digits with dropout, batch normalization and a random parallel map.

    python child.py MODEL_DIR FUSE [POINT NUMBER]

SIGKILL comes when the process gets to that point for the time of that number.
"""

import os
import signal
import sys
import time
from unittest import mock

import tensorflow as tf
from tensorflow.compat import v1

import framework
from experiments.digits import data, model
from framework import ModeKeys, run_dir
from framework.reporting import writers
from framework.session import commits

STEPS = 90
SECS_A_STEP, SLOW_STEPS = 0.02, 5  # so that a kill from outside can come between two steps


def shifted(image, label):
    """Moves an image by a pixel at most, drawn by an op that keeps its state in the session."""
    padded = tf.pad(image, [[1, 1], [1, 1], [0, 0]])
    return tf.image.random_crop(padded, [8, 8, 1]) + tf.random.normal([8, 8, 1], stddev=0.01), label


def input_fn(mode):
    """Training draws its order and its shifts; evaluation reads all in order."""
    images, labels = data.load_digits()
    split = data.split_indices('train' if mode == ModeKeys.TRAIN else 'valid')
    dataset = tf.data.Dataset.from_tensor_slices((images[split], labels[split]))
    if mode == ModeKeys.TRAIN:
        dataset = dataset.shuffle(200).repeat().map(shifted, num_parallel_calls=4)
    return dataset.map(lambda image, label: ({'image': image}, label)).batch(32).prefetch(2)


def small_model_fn(features, labels, mode):
    """The model of digits, made small."""
    return model.model_fn(features, labels, mode, filters=(4, 8), hidden=16, decay_steps=STEPS)


class Slow(v1.train.SessionRunHook):
    """Takes its time after some steps; those between may be made in one run."""

    def next_wanted_step(self, global_step):
        return global_step + SLOW_STEPS

    def after_run(self, run_context, run_values):
        del run_context, run_values
        time.sleep(SLOW_STEPS * SECS_A_STEP)


def experiment(directory, fuse):
    """Passes every 20 steps, commits every 30, lines every 7: no two of them keep time."""
    return framework.Experiment(
        model_fn=small_model_fn,
        train_input_fn=input_fn,
        eval_sets={'valid': input_fn},
        train_steps=STEPS,
        eval_every_steps=20,
        keep_best=framework.KeepBest(metric='valid/accuracy', keep=2),
        model_dir=directory,
        seed=1,
        train_hooks=[Slow()],
        run_config=framework.RunConfig(
            save_checkpoints_steps=30, log_step_count_steps=7, save_summary_steps=15, fuse=fuse
        ),
    )


def _die():
    os.kill(os.getpid(), signal.SIGKILL)


class _Countdown:
    def __init__(self, number):
        self._left = number

    def __call__(self):
        self._left -= 1
        return self._left == 0


def killed_at(point, number):
    """Returns the patch that kills this process at a point."""
    now = _Countdown(number)
    if point == 'before a save':
        original = commits.Commits.save

        def save(*args, **kwargs):
            return _die() if now() else original(*args, **kwargs)

        return mock.patch.object(commits.Commits, 'save', save)
    if point == 'inside a save':
        original = v1.train.Saver.save

        def save_half(self, session, path, **kwargs):
            original(self, session, path, **kwargs)
            if now():
                os.truncate(f'{path}.index', 10)
                _die()
            return path

        return mock.patch.object(v1.train.Saver, 'save', save_half)
    if point == 'after an evaluation':
        original = writers.MetricsWriter.write_pass

        def write_pass(self, row):
            original(self, row)
            if now():
                _die()

        return mock.patch.object(writers.MetricsWriter, 'write_pass', write_pass)
    return _killed_at_a_record(point, now)


def _killed_at_a_record(point, now):
    original = run_dir.write_atomically

    def write(path, content):
        if 'commit-' in os.path.basename(path) and now():
            if point == 'with a torn record':
                with open(path, 'w', encoding='utf-8') as file:
                    file.write(content[: len(content) // 2])
            _die()
        original(path, content)

    return mock.patch.object(run_dir, 'write_atomically', write)


if __name__ == '__main__':
    if len(sys.argv) > 3:
        with killed_at(sys.argv[3], int(sys.argv[4])):
            experiment(*sys.argv[1:3]).train_and_evaluate()
    sys.exit(experiment(*sys.argv[1:3]).train_and_evaluate().exit_code)
