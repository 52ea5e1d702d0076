"""Whole experiments, step by step and fused: the same bits in every file."""

import itertools
import json

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import EstimatorSpec, EvalSet, Experiment, ModeKeys, RunConfig, errors, testing

TRAIN, VALID = testing.blobs(37), testing.blobs(13, seed=1)


def model_fn(features, labels, mode):
    spec = testing.linear_model_fn(tf.nn.dropout(features, rate=0.2), labels, mode)
    count = v1.metrics.mean(tf.constant(3.0), weights=2.0)
    metrics = {'accuracy': v1.metrics.accuracy(labels, labels), 'of_no_batch': count, 'batches': _batches()}
    if mode == ModeKeys.TRAIN:
        v1.summary.scalar('norm', tf.norm(features))
    return spec._replace(eval_metric_ops=metrics)


def _batches():
    """How often the metrics were updated."""
    total = v1.get_local_variable('batches', [], tf.int64, tf.zeros_initializer(), use_resource=True)
    return total.read_value(), total.assign_add(1)


def input_fn(unknown):
    def of_mode(mode):
        dataset = tf.data.Dataset.from_tensor_slices(TRAIN if mode == ModeKeys.TRAIN else VALID)
        dataset = dataset.shuffle(37) if mode == ModeKeys.TRAIN else dataset
        return (dataset.filter(lambda *_: True) if unknown else dataset).batch(5)

    return of_mode


class Watching(v1.train.SessionRunHook):
    """Makes passes batch by batch."""

    def after_run(self, run_context, run_values):
        del run_context, run_values


def train(directory, fuse, unknown, hooks=(), **settings):
    sets = [
        EvalSet(name='valid', input_fn=input_fn(unknown), hooks=hooks),
        EvalSet(name='part', input_fn=input_fn(unknown), hooks=hooks, steps=2),
    ]
    return Experiment(
        model_fn=model_fn,
        train_input_fn=input_fn(unknown),
        eval_sets=sets,
        train_steps=40,
        eval_every_steps=12,
        model_dir=str(directory),
        seed=1,
        on_train_end='restart',
        run_config=RunConfig(save_checkpoints_steps=15, save_summary_steps=10, log_step_count_steps=7, fuse=fuse),
        **settings,
    ).train_and_evaluate()


@pytest.mark.parametrize('unknown', [False, True])
def test_a_fused_experiment_writes_the_bits_of_one_step_by_step(tmp_path, unknown):
    single, fused = tmp_path / 'single', tmp_path / 'fused'
    results = train(single, 'off', unknown), train(fused, 'require', unknown)
    assert repr(results[0].metrics) == repr(results[1].metrics)
    arrays = [testing.checkpoint_values(str(path / 'model.ckpt-40')) for path in (single, fused)]
    assert arrays[0].keys() == arrays[1].keys()
    for name, value in arrays[0].items():
        np.testing.assert_array_equal(arrays[1][name], value, err_msg=name)
    assert testing.json_lines(fused / 'metrics.jsonl', 'time') == testing.json_lines(single / 'metrics.jsonl', 'time')
    assert testing.json_lines(fused / 'timeline.jsonl', 'secs') == testing.json_lines(single / 'timeline.jsonl', 'secs')
    for stream in ('.', 'eval_valid', 'eval_part'):
        found = testing.event_values(fused / stream)
        assert found and found == testing.event_values(single / stream)


@pytest.mark.parametrize('unknown', [False, True])
@pytest.mark.parametrize(('fuse', 'hooks'), [('off', ()), ('off', [Watching()]), ('require', ())])
def test_what_a_metric_takes_from_no_batch_is_taken_as_often_as_there_are_batches(tmp_path, unknown, fuse, hooks):
    metrics = train(tmp_path, fuse, unknown, hooks).metrics
    assert metrics['valid']['batches'] == 3
    assert metrics['part']['batches'] == 2


def test_an_op_that_fails_in_a_fused_run_is_named_with_its_line_and_the_step(tmp_path):
    def failing(features, labels, mode):
        beyond = tf.where(v1.train.get_global_step() < 9, 0, 1)
        features = tf.gather(features, tf.range(5) + beyond, name='rows')
        return testing.linear_model_fn(features, labels, mode)

    experiment = Experiment(
        model_fn=failing,
        train_input_fn=testing.array_input_fn(*TRAIN, 5),
        train_steps=40,
        model_dir=str(tmp_path),
        run_config=RunConfig(fuse='require'),
    )
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        experiment.train()
    assert [note for note in caught.value.__notes__ if '`rows` [GatherV2] was made at' in note and __file__ in note]
    assert json.loads((tmp_path / 'result.json').read_text())['global_step'] in (9, 10)


def test_threads_are_those_that_the_configuration_says(tmp_path):
    seen = []

    def watching(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)

        class Seen(v1.train.SessionRunHook):
            def after_create_session(self, session, coord):
                seen.append((session._config.intra_op_parallelism_threads, session._config.allow_soft_placement))

        return EstimatorSpec(mode, loss=spec.loss, train_op=spec.train_op, training_hooks=[Seen()])

    Experiment(
        model_fn=watching,
        train_input_fn=testing.array_input_fn(*TRAIN, 5),
        train_steps=1,
        model_dir=str(tmp_path),
        run_config=RunConfig(intra_op_threads=1),
    ).train()
    assert seen == [(1, True)]


def _evaluated(directory, input_fn, fuse, model_fn=testing.linear_model_fn, **settings):
    return Experiment(
        model_fn=model_fn,
        train_input_fn=testing.array_input_fn(*TRAIN, 5),
        eval_sets=[EvalSet(name='valid', input_fn=input_fn, **settings)],
        train_steps=3,
        sanity_batches=0,
        model_dir=str(directory),
        run_config=RunConfig(fuse=fuse),
    )


def test_a_value_that_does_something_is_read_once_a_pass(tmp_path):
    seen = []

    def collecting(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)

        def collect(batch):
            seen.append(len(batch))
            return np.int64(0)

        def evaluate():
            total = sum(seen)
            seen.clear()
            return np.int64(total)

        update, value = tf.py_function(collect, [features], tf.int64), tf.py_function(evaluate, [], tf.int64)
        return spec._replace(eval_metric_ops={'seen': (value, update)}) if mode == ModeKeys.EVAL else spec

    data = testing.array_input_fn(*testing.blobs(50), 2)
    assert _evaluated(tmp_path, data, 'require', collecting).train_and_evaluate().metrics['valid']['seen'] == 50


def test_labels_that_are_none_may_be_of_unknown_number(tmp_path):
    def unlabelled(features, labels, mode):
        assert labels is None or mode == ModeKeys.TRAIN
        return testing.linear_model_fn(features['x'] if mode == ModeKeys.EVAL else features, _ones(features), mode)

    def _ones(features):
        return tf.ones([tf.shape(features['x'] if isinstance(features, dict) else features)[0]], tf.int64)

    def data():
        dataset = tf.data.Dataset.from_tensor_slices(VALID[0]).filter(lambda _: True).batch(5)
        return dataset.map(lambda x: ({'x': x}, None))

    result = _evaluated(tmp_path, data, 'require', unlabelled).train_and_evaluate()
    assert np.isfinite(result.metrics['valid']['loss'])


def test_the_size_of_a_set_may_depend_on_a_variable(tmp_path):
    def data():
        size = v1.get_local_variable('size', [], tf.int64, tf.constant_initializer(7), use_resource=True)
        return tf.data.Dataset.from_tensor_slices(VALID).take(size).batch(5)

    result = _evaluated(tmp_path, data, 'auto').train_and_evaluate()
    assert np.isfinite(result.metrics['valid']['loss'])


def _spent(rows):
    """Data that claims to have no end, and has one."""
    left = iter(rows)
    kinds = (tf.TensorSpec([4], tf.float32), tf.TensorSpec([], tf.int64))
    return tf.data.Dataset.from_generator(lambda: left, output_signature=kinds).repeat()


@pytest.mark.parametrize('fuse', ['off', 'auto'])
def test_data_that_ends_against_its_word_ends_training(tmp_path, fuse):
    result = Experiment(
        model_fn=testing.linear_model_fn,
        train_input_fn=lambda: _spent(zip(*testing.blobs(52), strict=True)).batch(4),
        train_steps=40,
        model_dir=str(tmp_path),
        run_config=RunConfig(fuse=fuse),
    ).train()
    assert (result.status, result.global_step) == ('exhausted', 13)


@pytest.mark.parametrize('fuse', ['off', 'auto'])
def test_a_set_that_ends_against_its_word_is_read_to_its_end(tmp_path, fuse):
    epochs = itertools.cycle([list(zip(*VALID, strict=True)), []])

    def data():
        kinds = (tf.TensorSpec([4], tf.float32), tf.TensorSpec([], tf.int64))
        return tf.data.Dataset.from_generator(epochs.__next__, output_signature=kinds).repeat().batch(5)

    result = _evaluated(tmp_path, data, fuse, steps=30).train_and_evaluate()
    assert np.isfinite(result.metrics['valid']['loss'])
    assert testing.json_lines(tmp_path / 'timeline.jsonl')[-2]['examples'] == 13


@pytest.mark.parametrize('fuse', ['off', 'auto'])
def test_a_set_without_a_batch_is_said(tmp_path, fuse):
    def data():
        return tf.data.Dataset.from_tensor_slices(VALID).filter(lambda *_: False).batch(5)

    with pytest.raises(errors.ConfigurationError, match='`valid` gave no batch'):
        _evaluated(tmp_path, data, fuse).train_and_evaluate()
