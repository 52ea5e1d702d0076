"""Sets that can't share the graph of training are evaluated in their own, by the weights of the moment."""

import json

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import EstimatorSpec, EvalSet, Experiment, ModeKeys, RunConfig, errors, testing

FEATURES, LABELS = testing.blobs(40)
VALID = testing.blobs(23, seed=1)


def make(directory, **changes):
    settings = {
        'model_fn': testing.linear_model_fn,
        'train_input_fn': testing.array_input_fn(FEATURES, LABELS, 10),
        'eval_sets': {'valid': testing.array_input_fn(*VALID, 10)},
        'train_steps': 20,
        'eval_every_steps': 10,
        'model_dir': str(directory),
        'seed': 1,
        'run_config': RunConfig(save_checkpoints_steps=10),
    }
    return Experiment(**{**settings, **changes})


def rows(directory, stream='valid'):
    lines = [json.loads(line) for line in (directory / 'metrics.jsonl').read_text().splitlines()]
    return [(line['step'], line['metrics']) for line in lines if line['stream'] == stream]


def queue_input_fn(features, labels, batch_size, mode_epochs):
    def input_fn(mode):
        epochs = mode_epochs if mode == ModeKeys.EVAL else None
        producer = v1.train.slice_input_producer([features, labels], num_epochs=epochs, shuffle=False)
        return tuple(v1.train.batch(producer, batch_size, allow_smaller_final_batch=True))

    return input_fn


def ema_model_fn(features, labels, mode):
    """Evaluates moving averages, which the evaluation saver restores in place of the weights."""
    spec = testing.linear_model_fn(features, labels, mode, learning_rate=0.5)
    average = v1.train.ExponentialMovingAverage(0.9)
    if mode == ModeKeys.TRAIN:
        with tf.control_dependencies([spec.train_op]):
            return spec._replace(train_op=average.apply(v1.trainable_variables()))
    return spec._replace(scaffold=v1.train.Scaffold(saver=v1.train.Saver(average.variables_to_restore())))


def accuracy(weights):
    features, labels = VALID
    return np.mean(np.argmax(features @ weights, axis=1) == labels)


def mean_loss(weights):
    """The mean over batches of 10, 10 and 3."""
    losses = []
    for start in range(0, 23, 10):
        features, labels = VALID[0][start : start + 10], VALID[1][start : start + 10]
        logits = features @ weights
        losses.append(np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(labels)), labels]))
    return np.mean(losses)


def test_queues_train_and_evaluate_every_example_once(tmp_path):
    changes = {
        'train_input_fn': queue_input_fn(FEATURES, LABELS, 10, 1),
        'eval_sets': {'valid': queue_input_fn(*VALID, 10, 1)},
    }
    result = make(tmp_path / 'queues', **changes).train_and_evaluate()
    assert result.status == 'done'
    reference = make(tmp_path / 'datasets').train_and_evaluate()
    assert rows(tmp_path / 'queues') == rows(tmp_path / 'datasets')
    assert float(result.metrics['valid']['loss']) == float(reference.metrics['valid']['loss'])
    timeline = (tmp_path / 'queues' / 'timeline.jsonl').read_text().splitlines()
    passes = [json.loads(line) for line in timeline if '"evaluate"' in line]
    assert [(line['steps'], line['examples']) for line in passes] == [(3, 23), (3, 23)]


def test_training_on_a_queue_ends_with_its_data(tmp_path):
    def input_fn():
        producer = v1.train.slice_input_producer([FEATURES, LABELS], num_epochs=1, shuffle=False)
        return tuple(v1.train.batch(producer, 10))

    result = make(tmp_path, train_input_fn=input_fn).train()
    assert (result.status, result.global_step) == ('exhausted', 4)


def test_bare_tensors_train_and_need_a_limit_in_evaluation(tmp_path):
    def input_fn():
        return tf.constant(VALID[0]), tf.constant(VALID[1])

    with pytest.raises(errors.ConfigurationError, match=r'`EvalSet.steps` \[None\] of `valid`'):
        make(tmp_path / 'endless', train_input_fn=input_fn, eval_sets={'valid': input_fn}).train_and_evaluate()
    limited = [EvalSet(name='valid', input_fn=input_fn, steps=1)]
    result = make(tmp_path / 'run', train_input_fn=input_fn, eval_sets=limited).train_and_evaluate()
    weights = testing.checkpoint_values(str(tmp_path / 'run' / 'model.ckpt-20'))['weights']
    assert result.metrics['valid']['accuracy'] == pytest.approx(accuracy(weights), abs=1e-6)


def test_moving_averages_are_evaluated_by_the_saver_of_evaluation(tmp_path):
    result = make(tmp_path, model_fn=ema_model_fn).train_and_evaluate()
    for step, metrics in rows(tmp_path):
        values = testing.checkpoint_values(str(tmp_path / f'model.ckpt-{step}'))
        average = values['weights/ExponentialMovingAverage']
        assert np.abs(average - values['weights']).max() > 0.01
        assert metrics['accuracy'] == pytest.approx(accuracy(average), abs=1e-6)
        assert metrics['loss'] == pytest.approx(mean_loss(average), rel=1e-5)
        assert abs(metrics['loss'] - mean_loss(values['weights'])) > 1e-4
    alone = make(tmp_path, model_fn=ema_model_fn).evaluate()
    assert float(alone.metrics['valid']['loss']) == float(result.metrics['valid']['loss'])


def test_a_pass_that_fails_half_way_leaves_training_as_it_was(tmp_path):
    failed = []

    class FailsOnce(v1.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            if not failed:
                failed.append(True)
                raise RuntimeError('half-way')

    def sets(*hooks):
        return [EvalSet(name='valid', input_fn=testing.array_input_fn(*VALID, 10), hooks=hooks)]

    with pytest.raises(RuntimeError, match='half-way'):
        make(tmp_path / 'run', model_fn=ema_model_fn, eval_sets=sets(FailsOnce())).train_and_evaluate()
    make(tmp_path / 'run', model_fn=ema_model_fn, eval_sets=sets()).train_and_evaluate()
    make(tmp_path / 'alone', model_fn=ema_model_fn).train()
    run, alone = (testing.checkpoint_values(str(tmp_path / name / 'model.ckpt-20')) for name in ('run', 'alone'))
    assert list(run) == list(alone)


def test_evaluation_apart_leaves_training_untouched_to_the_bit(tmp_path):
    for name, changes in {'ema': {'model_fn': ema_model_fn}, 'separate': {'evaluation_graph': 'separate'}}.items():
        make(tmp_path / name, **changes).train_and_evaluate()
        make(tmp_path / f'{name}_alone', **changes).train()
        evaluated, alone = (
            testing.checkpoint_values(str(tmp_path / directory / 'model.ckpt-20'))
            for directory in (name, f'{name}_alone')
        )
        assert {k: v.tobytes() for k, v in evaluated.items()} == {k: v.tobytes() for k, v in alone.items()}


def test_a_separate_graph_gives_the_numbers_of_the_shared_one(tmp_path):
    make(tmp_path / 'shared').train_and_evaluate()
    make(tmp_path / 'separate', evaluation_graph='separate').train_and_evaluate()
    assert rows(tmp_path / 'separate') == rows(tmp_path / 'shared')


def test_a_set_apart_is_announced_with_the_reason(tmp_path, caplog):
    caplog.set_level('INFO')
    make(tmp_path, model_fn=ema_model_fn).train_and_evaluate()
    assert '`valid` is evaluated in a graph of its own, by a checkpoint: its Scaffold has a saver' in caplog.text


def test_a_saver_that_leaves_variables_without_a_value_is_refused(tmp_path):
    def model_fn(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)
        if mode == ModeKeys.TRAIN:
            return spec
        return spec._replace(scaffold=v1.train.Scaffold(saver=v1.train.Saver([v1.train.get_global_step()])))

    with pytest.raises(errors.ConfigurationError, match='leaves variables without a value: `weights`'):
        make(tmp_path, model_fn=model_fn).train_and_evaluate()


def test_hooks_of_a_set_apart_see_its_passes(tmp_path):
    hook = testing.RecordingHook('e')
    sets = [EvalSet(name='valid', input_fn=testing.array_input_fn(*VALID, 10), hooks=[hook])]
    make(tmp_path, eval_sets=sets, evaluation_graph='separate', eval_every_steps=None).train_and_evaluate()
    batch = ['e.before_run', 'e.after_run']
    # No run meets the end of the data, as the last one of a pass did in tf.estimator.
    assert hook.calls == ['e.begin', 'e.after_create_session', *3 * batch, 'e.end']


def test_sanity_batches_show_a_fault_of_evaluation_before_the_first_step(tmp_path):
    def model_fn(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)
        if mode == ModeKeys.TRAIN:
            return spec
        with tf.control_dependencies([v1.assert_less(features, -100.0, message='far too large')]):
            return EstimatorSpec(mode, loss=tf.identity(spec.loss))

    with pytest.raises(tf.errors.InvalidArgumentError, match='far too large'):
        make(tmp_path / 'tried', model_fn=model_fn).train_and_evaluate()
    assert not list((tmp_path / 'tried').glob('model.ckpt-*'))
    with pytest.raises(tf.errors.InvalidArgumentError, match='far too large'):
        make(tmp_path / 'untried', model_fn=model_fn, sanity_batches=0).train_and_evaluate()
    assert (tmp_path / 'untried' / 'model.ckpt-0.index').exists()


def test_sanity_batches_leave_no_trace(tmp_path):
    hook = testing.RecordingHook('e')
    sets = [EvalSet(name='valid', input_fn=testing.array_input_fn(*VALID, 10), hooks=[hook])]
    make(tmp_path / 'tried', eval_sets=sets, sanity_batches=2).train_and_evaluate()
    make(tmp_path / 'untried', sanity_batches=0).train_and_evaluate()
    assert rows(tmp_path / 'tried') == rows(tmp_path / 'untried')
    assert hook.calls.count('e.after_create_session') == 2  # of the passes at 10 and 20


@pytest.mark.parametrize(('name', 'value'), [('evaluation_graph', 'shared'), ('sanity_batches', -1)])
def test_a_value_out_of_range_is_refused(tmp_path, name, value):
    with pytest.raises(errors.ConfigurationError, match=f'`Experiment.{name}`'):
        make(tmp_path, **{name: value})
