"""Early stopping, evaluation in the session of training, `add_metrics`, `call_logit_fn`."""

import json

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import estimator, testing
from framework.estimator import experimental
from framework.estimator.early_stopping import read_eval_metrics
from framework.reporting import tensorboard
from framework.reporting.rows import PassRow
from tests.estimator.conftest import eval_fn, train_fn

SCORES = [9, 5, 7, 3, 8, 4, 6, 6, 6]


def scored_model_fn(features, labels, mode):
    """Has a metric `score` that follows from the step: one of `SCORES` every 5 steps."""
    spec = testing.linear_model_fn(features, labels, mode)
    if mode != 'eval':
        return spec
    step = v1.train.get_global_step().read_value()
    score = tf.gather(tf.constant(SCORES, tf.float32), step // 5)
    return spec._replace(eval_metric_ops={'score': (score, tf.no_op())})


def ended_at(made, hook, max_steps=40):
    spec = estimator.TrainSpec(train_fn, max_steps, hooks=[hook])
    metrics, _ = estimator.train_and_evaluate(made, spec, estimator.EvalSpec(eval_fn))
    return int(metrics['global_step'])


@pytest.fixture
def scored(make):
    return make(scored_model_fn, config=estimator.RunConfig(tf_random_seed=1, save_checkpoints_steps=5))


# A hook sees an evaluation in the run behind it: it ends training one step later.
@pytest.mark.parametrize(
    'hook, arguments, step',
    [
        ('stop_if_higher_hook', {'threshold': 6.5}, 11),
        ('stop_if_lower_hook', {'threshold': 3.5}, 16),
        ('stop_if_lower_hook', {'threshold': 3.0}, 40),
        ('stop_if_lower_hook', {'threshold': 5.5, 'min_steps': 10}, 16),
        ('stop_if_no_decrease_hook', {'max_steps_without_decrease': 10}, 26),
        ('stop_if_no_decrease_hook', {'max_steps_without_decrease': 5}, 11),
        ('stop_if_no_increase_hook', {'max_steps_without_increase': 15}, 36),
    ],
)
def test_pain_49_and_50_hooks_follow_the_evaluations_of_the_process(scored, lines, hook, arguments, step):
    made = getattr(experimental, hook)(scored, 'score', **arguments)
    assert ended_at(scored, made) == step
    if step < 40:
        assert any(line.startswith('Requesting early stopping at global step ') for line in lines())


def test_hooks_read_the_directory_where_another_process_evaluates(scored):
    writer = tensorboard.EventWriter(lambda stream: scored.eval_dir())
    for step, score in ((5, 1.0), (10, 2.0)):
        writer.write_pass(PassRow(step, 'eval', {'score': score}, 1, 1, 0.0))
    writer.close()
    hook = experimental.stop_if_no_decrease_hook(scored, 'score', 5, run_every_secs=None, run_every_steps=1)
    scored.train(train_fn, hooks=[hook], max_steps=40)
    assert scored.get_variable_value('global_step') == 1
    assert read_eval_metrics(scored.eval_dir()) == {5: {'score': 1.0}, 10: {'score': 2.0}}


def test_a_restart_knows_the_evaluations_before_it(make):
    config = estimator.RunConfig(tf_random_seed=1, save_checkpoints_steps=5)
    first = make(scored_model_fn, config=config)
    hook = experimental.stop_if_no_decrease_hook(first, 'score', 10)
    assert ended_at(first, hook, max_steps=20) == 20  # 3 at step 15 is the best
    second = make(scored_model_fn, config=config)
    hook = experimental.stop_if_no_decrease_hook(second, 'score', 10)
    assert ended_at(second, hook) == 26


def test_an_unknown_metric_is_named(scored):
    hook = experimental.stop_if_higher_hook(scored, 'scores', 1)
    with pytest.raises(
        ValueError, match=r'`metric_name` \[scores\]: no evaluation has produced it. Did you mean `score`'
    ):
        ended_at(scored, hook)


def test_a_function_of_the_user_ends_training(make):
    made = make()
    asked = []

    def should_stop():
        asked.append(1)
        return len(asked) == 3

    hook = experimental.make_early_stopping_hook(made, should_stop, run_every_secs=None, run_every_steps=4)
    made.train(train_fn, hooks=[hook], max_steps=40)
    assert made.get_variable_value('global_step') == 9
    assert made.get_variable_names() == ['global_step', 'weights']


@pytest.mark.parametrize(
    'arguments, kind, text',
    [
        ((None, lambda: True), TypeError, '`estimator` must have type `tf.estimator.Estimator`. Got: '),
        (('made', lambda: True, 1, 1), ValueError, 'Only one of `run_every_secs` and `run_every_steps` must be set.'),
        (('made', 1), TypeError, '`should_stop_fn` must be callable.'),
    ],
)
def test_early_stopping_refuses(make, arguments, kind, text):
    with pytest.raises(kind, match=text):
        experimental.make_early_stopping_hook(*(make() if a == 'made' else a for a in arguments))


def test_pain_24_and_106_evaluation_in_memory_is_a_stream_of_the_run(make):
    calls = []

    def model_fn(features, labels, mode):
        calls.append(mode)
        return testing.linear_model_fn(features, labels, mode)

    made = make(model_fn)
    hook = experimental.InMemoryEvaluatorHook(made, eval_fn, name='x', every_n_iter=4)
    made.train(train_fn, hooks=[hook], steps=10)
    assert [step for step, _ in tensorboard.read_scalars(made.eval_dir('x'))['loss']] == [0, 4, 8, 10]
    assert calls == ['train', 'eval']


@pytest.mark.parametrize('every_n_iter', [0, None, -1])
def test_evaluation_in_memory_needs_a_period(make, every_n_iter):
    with pytest.raises(ValueError, match=f'invalid every_n_iter={every_n_iter}'):
        experimental.InMemoryEvaluatorHook(make(), eval_fn, every_n_iter=every_n_iter)


def test_evaluation_in_memory_is_for_one_machine(make, monkeypatch):
    cluster = {'cluster': {'chief': ['c:1'], 'worker': ['w:1']}, 'task': {'type': 'chief', 'index': 0}}
    monkeypatch.setenv('TF_CONFIG', json.dumps(cluster))
    with pytest.raises(ValueError, match='supports only single machine'):
        experimental.InMemoryEvaluatorHook(make(config=estimator.RunConfig()), eval_fn)


def test_a_cluster_is_refused_with_a_sentence(make, monkeypatch):
    cluster = {'cluster': {'chief': ['c:1'], 'worker': ['w:1']}, 'task': {'type': 'chief', 'index': 0}}
    monkeypatch.setenv('TF_CONFIG', json.dumps(cluster))
    with pytest.raises(ValueError, match='training in a cluster is not here yet'):
        make(config=estimator.RunConfig()).train(train_fn, steps=1)


def test_a_chief_stops_at_the_step_a_worker_at_the_checkpoint(make, monkeypatch):
    assert isinstance(experimental.make_stop_at_checkpoint_step_hook(make(), 5), v1.train.StopAtStepHook)
    cluster = {'cluster': {'chief': ['c:1'], 'worker': ['w:1']}, 'task': {'type': 'worker', 'index': 0}}
    trained = make().train(train_fn, steps=5)
    monkeypatch.setenv('TF_CONFIG', json.dumps(cluster))
    hook = experimental.make_stop_at_checkpoint_step_hook(make(config=estimator.RunConfig()), 5, 0)
    context = v1.train.SessionRunContext(None, None)
    hook.after_run(context, v1.train.SessionRunValues(3, None, None))
    assert not context.stop_requested
    hook.after_run(context, v1.train.SessionRunValues(4, None, None))
    assert context.stop_requested
    assert trained.get_variable_value('global_step') == 5


def test_add_metrics_joins_those_of_the_model(make):
    def metric_fn(labels, predictions, features, config):
        assert config.tf_random_seed == 1
        return {'mean': v1.metrics.mean(features), 'hits': v1.metrics.mean(tf.equal(labels, predictions['class']))}

    made = make().train(train_fn, steps=3)
    metrics = estimator.add_metrics(made, metric_fn).evaluate(eval_fn)
    assert set(metrics) == {'accuracy', 'global_step', 'hits', 'loss', 'mean'}
    assert metrics['hits'] == metrics['accuracy']
    assert set(made.evaluate(eval_fn)) == {'accuracy', 'global_step', 'loss'}


def test_added_metrics_win(make):
    made = estimator.add_metrics(make(), lambda labels: {'accuracy': v1.metrics.mean(tf.zeros_like(labels))})
    assert made.train(train_fn, steps=1).evaluate(eval_fn)['accuracy'] == 0.0


def test_a_metric_fn_that_asks_for_more_is_refused(make):
    with pytest.raises(ValueError, match=r"metric_fn \(.*\) has following not expected args: \['x'\]"):
        estimator.add_metrics(make(), lambda x: {})


def test_call_logit_fn_passes_what_is_named():
    def logit_fn(features, mode, params):
        return {'a': features + params, 'b': tf.constant(mode)}

    logits = experimental.call_logit_fn(logit_fn, tf.constant(1), 'train', 2, None)
    with v1.Session() as session:
        assert session.run(logits) == {'a': 3, 'b': b'train'}
    with pytest.raises(ValueError, match='logit_fn should return a Tensor or a dictionary mapping strings to Tensors'):
        experimental.call_logit_fn(lambda features: np.zeros(3), None, 'train', None, None)
