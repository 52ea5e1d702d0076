"""What people complained of in `tf.estimator`, each by its number in our list, as the promise that it became."""

import gc
import os
import pathlib
import random
import signal

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import errors, estimator, testing
from framework.graph import movement
from tests.estimator.conftest import FEATURES, LABELS, VALID, eval_fn, train_fn


def evaluated(made, max_steps=6, **changes):
    spec = estimator.EvalSpec(eval_fn, steps=None, **changes)
    return estimator.train_and_evaluate(made, estimator.TrainSpec(train_fn, max_steps), spec)[0]


def config(**changes):
    return estimator.RunConfig(**{'tf_random_seed': 1, 'save_checkpoints_steps': 3, **changes})


def graphs():
    gc.collect()
    return sum(isinstance(thing, tf.Graph) for thing in gc.get_objects())


def test_pain_11_to_14_a_predictor_reloads_on_request_only(make):
    made = make().train(train_fn, steps=1)

    def receiver_fn():
        fed = v1.placeholder(tf.float32, [None, 4])
        return estimator.export.TensorServingInputReceiver(fed, fed)

    with made.predictor(receiver_fn) as predictor:
        made.train(train_fn, steps=2)
        assert predictor.step == 1
        predictor.reload(made.latest_checkpoint())
        assert predictor.step == 3


def test_pain_18_to_20_rounds_of_training_and_evaluation_leave_no_graph_behind(make):
    made = make()
    made.train(train_fn, steps=1).evaluate(eval_fn)
    before = graphs()
    for _ in range(3):
        made.train(train_fn, steps=1).evaluate(eval_fn)
        list(made.predict(eval_fn))
    assert graphs() <= before


def test_pain_21_and_27_the_graph_is_serialised_once(make):
    made = make(config=config()).train(train_fn, max_steps=9)
    files = [os.stat(path) for path in pathlib.Path(made.model_dir).glob('*.meta')]
    assert len(files) == 4
    assert len({file.st_ino for file in files}) == 1


def test_pain_29_nothing_of_a_warm_start_is_on_the_path_of_a_step(make):
    first = make(directory='first').train(train_fn, steps=3)
    on_path = []

    def model_fn(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)

        class Look(v1.train.SessionRunHook):
            def after_create_session(self, session, coord):
                on_path.extend(op.type for op in movement.ancestors([spec.train_op]))

        return spec._replace(training_hooks=[Look()])

    warm = make(model_fn, directory='warm', warm_start_from=first.model_dir).train(train_fn, steps=1)
    assert not np.allclose(warm.get_variable_value('weights'), 0.0, atol=0.05)
    assert 'IteratorGetNext' in on_path
    assert not {'RestoreV2', 'LoadAndRemapMatrix'} & set(on_path)


@pytest.mark.parametrize('keep, left', [(2, 2), (None, 5), (0, 5)])
def test_pain_51_the_limit_of_checkpoints_holds_over_restarts(make, keep, left):
    for max_steps in (6, 12):
        make(config=config(keep_checkpoint_max=keep)).train(train_fn, max_steps=max_steps)
    made = make()
    found = sorted(int(path.stem.rpartition('-')[2]) for path in pathlib.Path(made.model_dir).glob('*.index'))
    assert found == [0, 3, 6, 9, 12][-left:]
    state = v1.train.get_checkpoint_state(made.model_dir)
    assert [path.rpartition('-')[2] for path in state.all_model_checkpoint_paths] == [str(step) for step in found]


def test_pain_52_a_lower_limit_frees_at_once(make):
    make(config=config()).train(train_fn, max_steps=12)
    made = make(config=config(keep_checkpoint_max=1)).train(train_fn, max_steps=13)
    assert [path.name for path in pathlib.Path(made.model_dir).glob('*.index')] == ['model.ckpt-13.index']


def test_pain_59_an_end_has_a_reason_and_a_last_line(make, lines):
    make().train(train_fn, steps=2)
    told = [line for line in lines() if line.startswith(('Training ended', 'Loss for final step'))]
    assert told[0] == 'Training ended: a hook asked for it at step 2.'
    assert len(told) == 2


def test_pain_64_a_step_that_stands_still_is_an_error(make):
    def model_fn(features, labels, mode):
        return testing.linear_model_fn(features, labels, mode)._replace(train_op=tf.no_op())

    with pytest.raises(errors.RunError, match=r'`global_step` \[0\] has not moved for 1000 runs'):
        make(model_fn).train(train_fn, max_steps=5)


def test_pain_81_and_83_keras_layers_share_their_weights(make):
    def model_fn(features, labels, mode):
        layers = tf.keras.Sequential([tf.keras.layers.Dense(3, activation='relu'), tf.keras.layers.Dense(2)])
        logits = layers(features)
        loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
        train_op = v1.train.AdamOptimizer(0.1).minimize(loss, v1.train.get_global_step()) if mode == 'train' else None
        return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    made = make(model_fn, config=config())
    assert evaluated(made)['loss'] == pytest.approx(made.evaluate(eval_fn)['loss'], rel=1e-6)


def test_pain_82_a_weight_that_only_evaluation_has_is_an_error(make):
    def model_fn(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)
        if mode == 'train':
            return spec
        return spec._replace(loss=spec.loss + v1.get_variable('extra', initializer=1.0))

    with pytest.raises(errors.ConfigurationError, match='`extra`'):
        evaluated(make(model_fn, config=config()))


def test_pain_84_a_keras_metric_is_updated_and_reset(make):
    def model_fn(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)
        if mode != 'eval':
            return spec
        metric = tf.keras.metrics.Accuracy()
        metric.update_state(labels, spec.predictions['class'])
        return spec._replace(eval_metric_ops={**spec.eval_metric_ops, 'keras': metric})

    metrics = evaluated(make(model_fn, config=config()))
    assert metrics['keras'] == metrics['accuracy']


def test_pain_85_a_variable_is_a_metric_s_value(make):
    def model_fn(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)
        if mode != 'eval':
            return spec
        count = v1.get_variable('count', initializer=0, collections=[v1.GraphKeys.LOCAL_VARIABLES], trainable=False)
        return spec._replace(eval_metric_ops={'count': (count, count.assign_add(1))})

    assert evaluated(make(model_fn, config=config()))['count'] == 3


def test_pain_88_moving_averages_are_evaluated_and_training_keeps_its_weights(make):
    def model_fn(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)
        weights = v1.trainable_variables()
        average = tf.train.ExponentialMovingAverage(0.5)
        if mode == 'train':
            with tf.control_dependencies([spec.train_op]):
                return spec._replace(train_op=average.apply(weights))
        names = {average.average_name(variable): variable for variable in weights}
        saver = v1.train.Saver({**names, 'global_step': v1.train.get_global_step()})
        return spec._replace(scaffold=v1.train.Scaffold(saver=saver))

    made = make(model_fn, config=config())
    metrics = evaluated(made)
    assert metrics['loss'] == pytest.approx(made.evaluate(eval_fn)['loss'], rel=1e-6)
    logits = VALID[0] @ made.get_variable_value('weights/ExponentialMovingAverage')
    assert metrics['accuracy'] == pytest.approx(np.mean(logits.argmax(1) == VALID[1]))
    plain = make(directory='plain').train(train_fn, max_steps=6)
    np.testing.assert_array_equal(made.get_variable_value('weights'), plain.get_variable_value('weights'))


def test_pain_90_and_92_a_warm_start_says_what_it_loads(make, caplog):
    caplog.set_level('INFO')
    first = make(directory='first').train(train_fn, steps=3)
    settings = estimator.WarmStartSettings(first.model_dir, vars_to_warm_start='weights')
    warm = make(directory='warm', warm_start_from=settings).train(train_fn, steps=1)
    assert warm.get_variable_value('global_step') == 1
    (table,) = [record.getMessage() for record in caplog.records if record.getMessage().startswith('Warm start from')]
    assert 'weights' in table
    assert any('Warm-starting with WarmStartSettings: ' in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize('as_settings', [True, False])
def test_pain_91_a_saved_model_is_a_warm_start(make, tmp_path, as_settings):
    def receiver_fn():
        fed = v1.placeholder(tf.float32, [None, 4])
        return estimator.export.TensorServingInputReceiver(fed, fed)

    first = make(directory='first').train(train_fn, steps=3)
    path = first.export_saved_model(tmp_path / 'export', receiver_fn).decode()
    warm = make(directory='warm', warm_start_from=estimator.WarmStartSettings(path) if as_settings else path)
    assert warm.evaluate(eval_fn)['loss'] == first.evaluate(eval_fn)['loss']


@pytest.mark.parametrize('receiver', ['TensorServingInputReceiver', 'ServingInputReceiver'])
def test_pain_96_an_error_says_which_receiver_to_use(make, tmp_path, receiver):
    features = {'x': tf.zeros([1])} if receiver.startswith('Tensor') else 3
    with pytest.raises(ValueError, match=r'`ServingInputReceiver`|must be a Tensor'):
        getattr(estimator.export, receiver)(features, tf.zeros([1]))


def test_pain_97_to_99_one_seed_governs_python_numpy_and_tensorflow(make):
    def model_fn(features, labels, mode):
        offset = random.random() + np.random.rand()
        weights = v1.get_variable('w', [4, 2], initializer=v1.random_normal_initializer(offset))
        loss = v1.losses.sparse_softmax_cross_entropy(labels, tf.matmul(features, weights))
        train_op = v1.train.get_global_step().assign_add(1)
        return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    found = [
        make(model_fn, directory=name, config=config(tf_random_seed=seed)).train(train_fn, steps=1)
        for name, seed in (('a', 1), ('b', 1), ('c', 2))
    ]
    a, b, c = (made.get_variable_value('w') for made in found)
    np.testing.assert_array_equal(a, b)
    assert not np.allclose(a, c)


class Kill(v1.train.SessionRunHook):
    def __init__(self, number):
        self.number = number
        self.runs = 0

    def after_run(self, run_context, run_values):
        self.runs += 1
        if self.runs == 3:
            os.kill(os.getpid(), self.number)


@pytest.mark.parametrize('number, kind', [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_ends_training_with_everything_saved(make, number, kind):
    made = make()
    with pytest.raises(kind):
        made.train(train_fn, hooks=[Kill(number)], max_steps=100)
    assert made.get_variable_value('global_step') == 3


def test_a_signal_ends_an_evaluation(make):
    made = make().train(train_fn, steps=1)
    with pytest.raises(KeyboardInterrupt):
        made.evaluate(lambda: eval_fn().repeat(10), hooks=[Kill(signal.SIGINT)])


def test_pain_101_to_103_the_place_in_shuffled_data_comes_back_exactly(make):
    def shuffled():
        return testing.array_input_fn(FEATURES, LABELS, 10, shuffle=40)('train')

    keeping = config(keep_input_position=True, save_checkpoints_steps=1000)
    whole = make(directory='whole', config=keeping).train(shuffled, steps=9)
    parts = make(directory='parts', config=keeping)
    for _ in range(3):
        parts.train(shuffled, steps=3)
    np.testing.assert_array_equal(whole.get_variable_value('weights'), parts.get_variable_value('weights'))
