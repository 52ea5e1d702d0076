"""Passes: their numbers, their limits, their hooks and their ends."""

import os
import signal

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import errors, run_dir, testing
from framework.reporting import rows
from framework.run_config import EvalSet
from framework.session import commits, detached, evaluation
from framework.spec import EstimatorSpec, ModeKeys

EXAMPLES = testing.blobs(10, seed=1)  # the set `valid` of the fixtures: batches of 4, 4 and 2


class _Fetch(testing.RecordingHook):
    """Keeps what a tensor held in every batch."""

    def __init__(self, tensor, **settings):
        super().__init__(**settings)
        self.seen = []
        self._tensor = tensor

    def before_run(self, run_context):
        super().before_run(run_context)
        return v1.train.SessionRunArgs(self._tensor)

    def after_run(self, run_context, run_values):
        self.seen.append(run_values.results)
        super().after_run(run_context, run_values)


def _numpy_metrics(weights, features, labels, batch):
    """Accuracy over all examples, and the mean over batches of the loss."""
    logits = features.astype(np.float64) @ weights
    log_sums = np.log(np.exp(logits).sum(axis=1))
    losses = log_sums - logits[np.arange(len(labels)), labels]
    batch_losses = [losses[i : i + batch].mean() for i in range(0, len(labels), batch)]
    return np.mean(logits.argmax(axis=1) == labels), np.mean(batch_losses)


def _trained(start, tmp_path):
    """Trains for 3 steps and returns the prefix of the checkpoint."""
    start(3, sets=[]).run()
    return str(tmp_path / 'model.ckpt-3')


@pytest.fixture
def evaluate(start, tmp_path, make_graph, make_eval_set):
    """Returns a function that evaluates a checkpoint of 3 steps in a graph without training."""

    def run(sets=None, model_fn=testing.linear_model_fn):
        checkpoint = _trained(start, tmp_path)
        sets = [make_eval_set()] if sets is None else sets
        writer = testing.RecordingWriter()
        passes = evaluation.Evaluation(make_graph(model_fn, None, sets), {s.stream: s for s in sets})
        parts = [detached.DetachedEvaluation(passes)]
        return detached.evaluate_checkpoints(parts, [lambda: checkpoint], writer), writer.rows

    return run


def _linear_with(**fields):
    """Returns the linear model with further fields in its EVAL spec, each made by a function of the features."""

    def model_fn(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)
        if mode == ModeKeys.EVAL:
            spec = spec._replace(**{name: make(features) for name, make in fields.items()})
        return spec

    return model_fn


# Numbers.


def test_every_pass_of_a_run_has_the_numbers_of_numpy(start, tmp_path):
    # Weights of steps 0, 2 and 4 by the commits of these steps; 10 examples are no multiple of 4.
    settings = {'save_checkpoints_steps': 2, 'save_checkpoints_secs': None, 'log_step_count_steps': 1}
    run = start(4, every={'valid': 2}, eval_at_start=True, **settings)
    run.run()
    told = run.told(rows.PassRow)
    assert [row.step for row in told] == [0, 2, 4]
    for row in told:
        weights = testing.checkpoint_values(str(tmp_path / f'model.ckpt-{row.step}'))['weights']
        accuracy, loss = _numpy_metrics(weights, *EXAMPLES, 4)
        np.testing.assert_allclose(row.metrics['accuracy'], accuracy, rtol=1e-6)
        np.testing.assert_allclose(row.metrics['loss'], loss, rtol=1e-6)
        assert (row.batches, row.examples) == (3, 10)
    assert len({float(row.metrics['loss']) for row in told}) == 3


def test_a_checkpoint_evaluated_alone_has_the_numbers_of_numpy(evaluate, tmp_path):
    result, told = evaluate()
    weights = testing.checkpoint_values(str(tmp_path / 'model.ckpt-3'))['weights']
    expected = _numpy_metrics(weights, *EXAMPLES, 4)
    np.testing.assert_allclose([result.metrics['valid'][name] for name in ('accuracy', 'loss')], expected, rtol=1e-6)
    assert (result.status, result.global_step, result.exit_code) == ('done', 3, 0)
    assert [(row.step, row.stream) for row in told] == [(3, 'valid')]


def test_a_checkpoint_evaluated_alone_has_the_bits_of_the_run(start, evaluate):
    result, _ = evaluate()
    again = start(3).run()  # a set that is new to the finished run
    assert result.metrics['valid'] == again.metrics['valid']


def test_every_pass_reads_every_example_once(start):
    hooks = []

    def hook(features):
        hooks.append(_Fetch(features))
        return hooks

    start(4, every={'valid': 2}, model_fn=_linear_with(evaluation_hooks=hook)).run()
    np.testing.assert_array_equal(np.concatenate(hooks[0].seen), np.concatenate([EXAMPLES[0]] * 2))


def test_sets_that_share_a_tower_have_numbers_of_their_own(start, tmp_path, make_eval_set):
    other = testing.blobs(7, seed=2)
    run = start(2, sets=[make_eval_set('valid'), make_eval_set('other', other)])
    metrics = run.run().metrics
    assert len(run.compiled.towers) == 1
    weights = testing.checkpoint_values(str(tmp_path / 'model.ckpt-2'))['weights']
    for name, examples in (('valid', EXAMPLES), ('other', other)):
        expected = _numpy_metrics(weights, *examples, 4)
        np.testing.assert_allclose([metrics[name][key] for key in ('accuracy', 'loss')], expected, rtol=1e-6)


def test_passes_do_not_change_training(start, tmp_path):
    start(6, every={'valid': 1}, eval_at_start=True).run()
    with_passes = testing.checkpoint_values(str(tmp_path / 'model.ckpt-6'))
    for path in [*tmp_path.glob('commits/*'), *tmp_path.glob('model.ckpt-*'), tmp_path / 'checkpoint']:
        path.unlink()
    start(6, sets=[]).run()
    without = testing.checkpoint_values(str(tmp_path / 'model.ckpt-6'))
    assert without.keys() == with_passes.keys()
    for name, value in without.items():
        np.testing.assert_array_equal(value, with_passes[name])


# Limits.


def test_steps_limit_a_pass_and_each_starts_at_the_beginning(start, tmp_path, make_eval_set):
    run = start(2, every={'valid': 1}, sets=[make_eval_set(steps=2)])
    metrics = run.run().metrics['valid']
    weights = testing.checkpoint_values(str(tmp_path / 'model.ckpt-2'))['weights']
    expected = _numpy_metrics(weights, EXAMPLES[0][:8], EXAMPLES[1][:8], 4)
    np.testing.assert_allclose([metrics[key] for key in ('accuracy', 'loss')], expected, rtol=1e-6)
    assert [(row.batches, row.examples) for row in run.told(rows.PassRow)] == [(2, 8), (2, 8)]


def test_more_steps_than_batches_end_with_the_data(evaluate, make_eval_set):
    _, told = evaluate([make_eval_set(steps=99)])
    assert told[0].batches == 3


def _endless():
    return tf.data.Dataset.from_tensor_slices(EXAMPLES).repeat().batch(4)


def test_an_infinite_set_with_steps_is_read_so_far(evaluate):
    _, told = evaluate([EvalSet(name='valid', input_fn=_endless, steps=5)])
    assert (told[0].batches, told[0].examples) == (5, 20)


def test_an_infinite_set_without_steps_is_refused_before_the_first_train_step(start, tmp_path):
    run = start(2, sets=[EvalSet(name='valid', input_fn=_endless)])
    with pytest.raises(errors.ConfigurationError, match=r'`EvalSet\.steps` \[None\] of `valid`: its Dataset is inf'):
        run.run()
    assert run.writer.rows == []
    assert not (tmp_path / 'commits').exists()


def test_an_infinite_set_without_steps_is_refused_without_training_too(evaluate):
    with pytest.raises(errors.ConfigurationError, match=r'`EvalSet\.steps` \[None\] of `valid`'):
        evaluate([EvalSet(name='valid', input_fn=_endless)])


def test_an_empty_set_is_refused_before_the_first_train_step(start, make_eval_set):
    run = start(2, sets=[make_eval_set(examples=testing.blobs(0))])
    with pytest.raises(errors.ConfigurationError, match='`valid` gave no batch: its metrics would be of nothing'):
        run.run()
    assert run.writer.rows == []


def test_a_set_whose_emptiness_only_reading_tells_is_refused_by_its_pass(evaluate):
    def input_fn():
        return tf.data.Dataset.from_tensor_slices(EXAMPLES).filter(lambda *_: False).batch(4)

    with pytest.raises(errors.ConfigurationError, match='`valid` gave no batch: its metrics would be of nothing'):
        evaluate([EvalSet(name='valid', input_fn=input_fn)])


# Hooks.


def test_evaluation_hooks_are_called_in_the_order_of_estimator(evaluate, make_eval_set):
    calls = []
    own = _linear_with(evaluation_hooks=lambda _: [testing.RecordingHook('spec', calls)])
    evaluate([make_eval_set(hooks=[testing.RecordingHook('caller', calls)], steps=1)], own)
    events = ['begin', 'after_create_session', 'before_run', 'after_run', 'end']
    assert calls == [f'{name}.{event}' for event in events for name in ('caller', 'spec')]


def test_a_hook_sees_every_pass_as_a_session_of_its_own(start, make_eval_set):
    hook = testing.RecordingHook()
    start(2, every={'valid': 1}, sets=[make_eval_set(hooks=[hook], steps=1)]).run()
    one_pass = ['hook.after_create_session', 'hook.before_run', 'hook.after_run', 'hook.end']
    assert hook.calls == ['hook.begin', *one_pass, *one_pass]


def test_a_hook_of_one_set_does_not_see_another(evaluate, make_eval_set):
    hook = testing.RecordingHook()
    evaluate([make_eval_set('valid', hooks=[hook]), make_eval_set('other')])
    assert hook.calls.count('hook.after_run') == 3


def test_a_hook_that_requests_a_stop_ends_the_pass(evaluate, make_eval_set):
    hook = testing.RecordingHook(after_run=lambda context: context.request_stop())
    result, told = evaluate([make_eval_set('valid', hooks=[hook]), make_eval_set('other')])
    assert [(row.stream, row.batches) for row in told] == [('valid', 1), ('other', 3)]
    assert hook.calls[-1] == 'hook.end'
    assert result.status == 'done'


def test_an_evaluation_hook_that_requests_a_stop_does_not_stop_training(start, make_eval_set):
    hook = testing.RecordingHook(after_run=lambda context: context.request_stop())
    assert start(3, every={'valid': 1}, sets=[make_eval_set(hooks=[hook])]).run().global_step == 3


def test_hooks_begin_with_the_collections_of_their_own_call(start):
    shown = []

    class Look(v1.train.SessionRunHook):
        def begin(self):
            shown.append(v1.get_collection('mine'))

    def model_fn(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)
        v1.add_to_collection('mine', mode)
        name = 'training_hooks' if mode == ModeKeys.TRAIN else 'evaluation_hooks'
        return spec._replace(**{name: [Look()]})

    start(1, model_fn=model_fn).run()
    assert sorted(shown) == [[ModeKeys.EVAL], [ModeKeys.TRAIN]]


# Local variables.


@pytest.mark.parametrize('alone', [False, True], ids=['beside training', 'alone'])
def test_a_local_init_op_of_evaluation_is_run_after_the_reset_of_every_pass(start, evaluate, make_eval_set, alone):
    # The variable counts batches, from 10 where the op puts it: 11, 12, 13 in each pass.
    def model_fn(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)
        if mode == ModeKeys.TRAIN:
            return spec
        count = v1.get_local_variable('count', [], tf.float32, tf.zeros_initializer())
        scaffold = v1.train.Scaffold(local_init_op=count.assign(10.0))
        update = count.assign_add(tf.ones_like(features)[0, 0])  # of the batch: not in the run that meets the end
        return spec._replace(eval_metric_ops={'count': (count.read_value(), update)}, scaffold=scaffold)

    sets = [make_eval_set('valid'), make_eval_set('other')]
    result = evaluate(sets, model_fn)[0] if alone else start(2, every={'valid': 1}, sets=sets, model_fn=model_fn).run()
    assert {stream: result.metrics[stream]['count'] for stream in ('valid', 'other')} == {'valid': 13.0, 'other': 13.0}


def test_a_scaffold_that_both_modes_return_does_not_reset_training(start):
    # Opening the session fills its local_init_op in: a pass must not run that, it resets training's local variables.
    scaffold = v1.train.Scaffold()

    def model_fn(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)._replace(scaffold=scaffold)
        if mode == ModeKeys.EVAL:
            return spec
        count = v1.get_local_variable('count', [], tf.float32, tf.zeros_initializer())
        counted = count.assign_add(1.0)
        return spec._replace(loss=tf.identity(counted))

    assert start(3, every={'valid': 1}, model_fn=model_fn).run().metrics['train'] == {'loss': 3.0}


# Ends.


def test_the_end_of_another_op_in_a_pass_is_named(start):
    class Close(v1.train.SessionRunHook):
        def after_create_session(self, session, coord):
            session.run('eval/tower_0/close')

    def model_fn(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)
        if mode == ModeKeys.TRAIN:
            return spec
        queue = v1.FIFOQueue(5, [tf.float32], shapes=[[]])
        tf.group(queue.close(), name='close')
        loss = spec.loss + queue.dequeue(name='user_dequeue')
        return spec._replace(loss=loss, evaluation_hooks=[Close()])

    text = r'`eval/tower_0/user_dequeue` \[QueueDequeueV2\] reported the end .* in the evaluation of `valid`'
    with pytest.raises(errors.RunError, match=text):
        start(2, model_fn=model_fn).run()


@pytest.mark.parametrize('alone', [False, True], ids=['beside training', 'alone'])
def test_a_stop_iteration_from_an_evaluation_hook_is_an_error(start, evaluate, make_eval_set, alone):
    def fail(_):
        raise StopIteration('mine')

    sets = [make_eval_set(hooks=[testing.RecordingHook(after_run=fail)])]
    with pytest.raises(errors.RunError, match='StopIteration escaped from a hook'):
        evaluate(sets) if alone else start(2, sets=sets).run()


def test_a_signal_ends_an_evaluation_without_the_metrics_of_a_part(evaluate, make_eval_set):
    hook = testing.RecordingHook(after_run=lambda _: os.kill(os.getpid(), signal.SIGINT))
    sets = [make_eval_set('first'), make_eval_set('second', hooks=[hook]), make_eval_set('third')]
    result, told = evaluate(sets)
    assert (result.status, result.exit_code) == ('interrupted', 130)
    assert [row.stream for row in told] == list(result.metrics) == ['first']


def test_a_damaged_checkpoint_is_refused(start, tmp_path, make_graph, make_eval_set):
    checkpoint = _trained(start, tmp_path)
    with open(f'{checkpoint}.data-00000-of-00001', 'r+b') as file:
        file.truncate(10)
    passes = evaluation.Evaluation(
        make_graph(testing.linear_model_fn, None, [make_eval_set()]), {'valid': make_eval_set()}
    )
    with pytest.raises(errors.RunDirectoryError, match='its files are damaged'):
        detached.evaluate_checkpoints(
            [detached.DetachedEvaluation(passes)], [lambda: checkpoint], testing.RecordingWriter()
        )


def test_a_pass_tells_how_long_it_took(make_graph, make_eval_set, start, tmp_path, clock):
    # 3 batches of 10 s.
    checkpoint = _trained(start, tmp_path)
    sets = {'valid': make_eval_set(hooks=[testing.RecordingHook(after_run=lambda _: clock.advance(10))])}
    passes = evaluation.Evaluation(make_graph(testing.linear_model_fn, None, list(sets.values())), sets, clock=clock)
    writer = testing.RecordingWriter()
    result = detached.evaluate_checkpoints([detached.DetachedEvaluation(passes)], [lambda: checkpoint], writer)
    assert writer.rows[0].secs == 30.0
    assert result.timing == {'evaluate': 30.0}


def test_newest_path_is_what_an_evaluation_asks_for(start, tmp_path):
    checkpoint = _trained(start, tmp_path)
    assert commits.Commits(run_dir.RunDir(tmp_path)).newest_path() == checkpoint


def test_metrics_that_are_no_scalars_keep_their_shape(evaluate):
    def metrics(features):
        total, update = v1.metrics.mean_tensor(tf.reduce_sum(features, axis=0))
        return {'sums': (total, update)}

    result, _ = evaluate(model_fn=_linear_with(eval_metric_ops=metrics))
    expected = np.mean([EXAMPLES[0][i : i + 4].sum(axis=0) for i in (0, 4, 8)], axis=0)
    np.testing.assert_allclose(result.metrics['valid']['sums'], expected, rtol=1e-5)


def test_an_evaluation_spec_needs_no_metrics(evaluate):
    def model_fn(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)
        return spec if mode == ModeKeys.TRAIN else EstimatorSpec(mode, loss=spec.loss)

    result, _ = evaluate(model_fn=model_fn)
    assert set(result.metrics['valid']) == {'loss', 'loss_per_example'}
