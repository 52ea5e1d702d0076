"""What people complained of in `tf.estimator`, each as the promise that it became."""

import functools
import json

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import EstimatorSpec, EvalSet, Experiment, ModeKeys, RunConfig, testing

FEATURES, LABELS = testing.blobs(40)
VALID = testing.blobs(23, seed=1)


def make(directory, experiment=Experiment, **changes):
    settings = {
        'model_fn': testing.linear_model_fn,
        'train_input_fn': testing.array_input_fn(FEATURES, LABELS, 10),
        'eval_sets': {'valid': testing.array_input_fn(*VALID, 10)},
        'train_steps': 20,
        'eval_every_steps': 5,
        'model_dir': str(directory),
        'seed': 1,
        'run_config': RunConfig(save_checkpoints_steps=10),
    }
    return experiment(**{**settings, **changes})


class Fetch(v1.train.SessionRunHook):
    """Keeps what a tensor of the newest call of model_fn holds at each run."""

    def __init__(self):
        self.tensor = None
        self.values = []

    def before_run(self, run_context):
        return v1.train.SessionRunArgs(self.tensor)

    def after_run(self, run_context, run_values):
        self.values.append(run_values.results)


def watching(hook, mode):
    watched = mode

    def model_fn(features, labels, mode):
        if mode == watched:
            hook.tensor = features
        return testing.linear_model_fn(features, labels, mode)

    return model_fn


def test_training_goes_on_in_its_data_across_evaluations(tmp_path):
    # Estimator began the data again after each evaluation: chunks shorter than an epoch saw only its first part.
    seen = Fetch()
    make(tmp_path, model_fn=watching(seen, ModeKeys.TRAIN), train_hooks=[seen]).train_and_evaluate()
    order = np.concatenate(seen.values)
    np.testing.assert_array_equal(order, np.concatenate([FEATURES] * 5))


def test_every_pass_sees_the_same_examples_from_the_first_on(tmp_path):
    seen = Fetch()
    sets = [EvalSet(name='valid', input_fn=testing.array_input_fn(*VALID, 10), hooks=[seen])]
    make(tmp_path, model_fn=watching(seen, ModeKeys.EVAL), eval_sets=sets).train_and_evaluate()
    passes = np.split(np.concatenate(seen.values), 4)
    for examples in passes:
        np.testing.assert_array_equal(examples, VALID[0])


@pytest.mark.parametrize('where', ['memory', 'file'])
def test_a_cached_set_is_evaluated_again_and_again(tmp_path, where):
    path = '' if where == 'memory' else str(tmp_path / 'cache')

    def cached(mode):
        dataset = tf.data.Dataset.from_tensor_slices(VALID).batch(10)
        return dataset.cache(path)

    make(tmp_path / 'cached', eval_sets={'valid': cached}).train_and_evaluate()
    make(tmp_path / 'plain').train_and_evaluate()
    assert rows(tmp_path / 'cached') == rows(tmp_path / 'plain')


def rows(directory):
    lines = [json.loads(line) for line in (directory / 'metrics.jsonl').read_text().splitlines()]
    return [(line['step'], line['metrics']) for line in lines if line['stream'] == 'valid']


def test_sets_are_given_as_a_list_or_by_name_or_alone(tmp_path):
    input_fn = testing.array_input_fn(*VALID, 10)
    ways = {
        'list': [EvalSet(name='valid', input_fn=input_fn)],
        'dict': {'valid': input_fn},
        'set': EvalSet(name='valid', input_fn=input_fn),
        'function': input_fn,
    }
    losses = {}
    for name, way in ways.items():
        metrics = make(tmp_path / name, eval_sets=way).train_and_evaluate().metrics
        losses[name] = float(metrics['eval' if name == 'function' else 'valid']['loss'])
    assert len(set(losses.values())) == 1


def test_members_may_be_overridden(tmp_path):
    class Own(Experiment):
        def train_and_evaluate(self):
            return super().train_and_evaluate().global_step + 1

    assert make(tmp_path, Own).train_and_evaluate() == 21


def test_no_meta_graph_is_written_with_a_checkpoint(tmp_path):
    make(tmp_path).train_and_evaluate()
    assert not list(tmp_path.glob('*.meta'))
    assert not list(tmp_path.glob('graph.pbtxt'))


def test_evaluation_does_not_depend_on_a_checkpoint(tmp_path):
    config = RunConfig(save_checkpoints_steps=None, save_checkpoints_secs=None)
    result = make(tmp_path, run_config=config).train_and_evaluate()
    assert [step for step, _ in rows(tmp_path)] == [5, 10, 15, 20]
    assert result.metrics['valid']['accuracy'] > 0.5
    assert not list(tmp_path.glob('model.ckpt*'))


def test_a_bound_method_a_partial_and_a_decorated_function_are_model_fns(tmp_path):
    class Model:
        def model_fn(self, features, labels, mode):
            return testing.linear_model_fn(features, labels, mode)

    def decorated(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)

        return wrapper

    ways = {
        'method': Model().model_fn,
        'partial': functools.partial(testing.linear_model_fn, learning_rate=0.1),
        'decorated': decorated(testing.linear_model_fn),
    }
    for name, way in ways.items():
        make(tmp_path / name, model_fn=way).train_and_evaluate()
    assert rows(tmp_path / 'method') == rows(tmp_path / 'partial') == rows(tmp_path / 'decorated')


def test_batch_norm_updates_of_evaluation_never_run_in_training(tmp_path):
    def model_fn(features, labels, mode):
        normalized = v1.layers.batch_normalization(features, training=True, momentum=0.5)
        spec = testing.linear_model_fn(normalized, labels, mode)
        if mode == ModeKeys.EVAL:
            return spec
        with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
            return spec._replace(train_op=tf.group(spec.train_op))

    make(tmp_path / 'evaluated', model_fn=model_fn).train_and_evaluate()
    make(tmp_path / 'alone', model_fn=model_fn).train()
    evaluated, alone = (
        testing.checkpoint_values(str(tmp_path / name / 'model.ckpt-20')) for name in ('evaluated', 'alone')
    )
    assert {k: v.tobytes() for k, v in evaluated.items()} == {k: v.tobytes() for k, v in alone.items()}


def test_gradient_accumulation_may_leave_the_step_for_some_runs(tmp_path):
    def model_fn(features, labels, mode):
        weights = v1.get_variable('weights', [4, 1], initializer=v1.zeros_initializer())
        loss = tf.reduce_mean(tf.square(features @ weights - tf.cast(labels, tf.float32)[:, None]))
        if mode == ModeKeys.EVAL:
            return EstimatorSpec(mode, loss=loss)
        total = v1.get_variable('total', [4, 1], initializer=v1.zeros_initializer(), trainable=False)
        count = v1.get_variable('count', [], tf.int64, v1.zeros_initializer(), trainable=False)
        (gradient,) = tf.gradients(loss, [weights])
        with tf.control_dependencies([total.assign_add(gradient), count.assign_add(1)]):
            due = tf.equal(count.read_value() % 3, 0)

        def apply():
            step = v1.train.get_global_step()
            update = v1.train.GradientDescentOptimizer(0.1).apply_gradients([(total.read_value(), weights)], step)
            with tf.control_dependencies([update]):
                return tf.group(total.assign(tf.zeros_like(total)))

        return EstimatorSpec(mode, loss=loss, train_op=tf.cond(due, apply, tf.no_op))

    result = make(tmp_path, model_fn=model_fn, train_steps=10).train_and_evaluate()
    values = testing.checkpoint_values(str(tmp_path / 'model.ckpt-10'))
    assert (result.global_step, values['count']) == (10, 30)
    assert [step for step, _ in rows(tmp_path)] == [5, 10]
