"""Predictions of a checkpoint."""

import gc
import threading

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.compat import v1

from framework import errors, serving, testing
from framework.graph import calls, prediction
from framework.run_config import EvalSet
from framework.session import opening
from framework.session import prediction as predicting
from framework.spec import EstimatorSpec, ModeKeys

FEATURES, LABELS = testing.blobs(10)
INPUT_FN = testing.array_input_fn(FEATURES, LABELS, batch_size=4)


def scores_model_fn(features, labels, mode):
    """Random weights that training moves; `scores` and `class`."""
    weights = v1.get_variable('weights', [4, 2])
    scores = tf.matmul(features, weights)
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions={'scores': scores, 'class': tf.argmax(scores, axis=1)})
    step = v1.train.get_global_step()
    return EstimatorSpec(mode, loss=tf.reduce_sum(weights), train_op=step.assign_add(1).op)


def save(model_fn, prefix, steps=3, seed=1):
    """Trains in a lone graph of plain code, and returns the prefix of its checkpoint."""
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(seed)
        step = v1.train.create_global_step()
        tf_keras.backend.reset_uids()
        spec = model_fn(features=tf.constant(FEATURES), labels=tf.constant(LABELS), mode=ModeKeys.TRAIN)
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer(), v1.tables_initializer()])
        for _ in range(steps):
            session.run(spec.train_op)
        return v1.train.Saver().save(session, str(prefix), global_step=step)


def compiled(model_fn=scores_model_fn, data=INPUT_FN, **settings):
    return prediction.compile_input(calls.Model(model_fn, None, None), data, **{'seed': 1, **settings})


def receiving(model_fn=scores_model_fn, spec=None, **settings):
    spec = tf.TensorSpec([4, 4]) if spec is None else spec
    receiver_fn = lambda: serving.receiver_of_spec(spec)  # noqa: E731
    return prediction.compile_receiver(calls.Model(model_fn, None, None), receiver_fn, **{'seed': 1, **settings})


@pytest.fixture(scope='module')
def checkpoint(tmp_path_factory):
    return save(scores_model_fn, tmp_path_factory.mktemp('run') / 'model.ckpt')


@pytest.fixture(scope='module')
def other(tmp_path_factory):
    return save(scores_model_fn, tmp_path_factory.mktemp('other') / 'model.ckpt', steps=5, seed=2)


def scores(checkpoint, features=FEATURES):
    return features @ testing.checkpoint_values(checkpoint)['weights']


def joined(batches, key='scores'):
    return np.concatenate([batch[key] for batch in batches])


# Batches.


def test_every_batch_is_predicted_with_the_weights_of_the_checkpoint(checkpoint):
    batches = list(predicting.predict(compiled(), checkpoint))
    assert [len(batch['class']) for batch in batches] == [4, 4, 2]
    np.testing.assert_allclose(joined(batches), scores(checkpoint), rtol=1e-6)
    np.testing.assert_array_equal(joined(batches, 'class'), scores(checkpoint).argmax(axis=1))


def test_single_examples_are_the_rows_of_the_batches(checkpoint):
    examples = list(predicting.single_examples(predicting.predict(compiled(), checkpoint)))
    assert len(examples) == 10
    np.testing.assert_allclose(np.stack([example['scores'] for example in examples]), scores(checkpoint), rtol=1e-6)


def test_nothing_runs_before_the_first_batch_is_asked_for():
    batches = predicting.predict(compiled(), 'missing')
    with pytest.raises(opening.CheckpointError, match='there is no such checkpoint'):
        next(batches)


def test_two_generators_take_turns_and_leave_the_default_graph_alone(checkpoint, other, fresh_graph):
    pairs = []
    first, second = (predicting.predict(compiled(), path) for path in (checkpoint, other))
    for pair in zip(first, second, strict=True):
        assert v1.get_default_graph() is fresh_graph
        assert v1.get_default_session() is None
        pairs.append(pair)
    np.testing.assert_allclose(joined(a for a, _ in pairs), scores(checkpoint), rtol=1e-6)
    np.testing.assert_allclose(joined(b for _, b in pairs), scores(other), rtol=1e-6)


def test_two_generators_over_one_graph_each_read_all(checkpoint):
    built = compiled()
    first, second = (predicting.predict(built, checkpoint) for _ in range(2))
    next(first)
    assert [len(batch['class']) for batch in second] == [4, 4, 2]
    assert [len(batch['class']) for batch in first] == [4, 2]


def test_a_generator_that_is_closed_early_closes_its_session(checkpoint):
    sessions = []
    hook = testing.RecordingHook(after_run=lambda context: sessions.append(context.session))
    built = compiled()
    examples = predicting.single_examples(predicting.predict(built, checkpoint, hooks=[hook]))
    next(examples)
    assert sessions[0].run(built.global_step) == 3
    examples.close()
    with pytest.raises(RuntimeError, match='closed Session'):
        sessions[0].run(built.global_step)


def test_only_the_predictions_that_are_asked_for_are_made(checkpoint):
    (batch, *_) = predicting.predict(compiled(), checkpoint, keys=['class'])
    assert list(batch) == ['class']


@pytest.mark.parametrize(
    ('keys', 'message'),
    [(['score'], r'`keys` \[score\]: no such prediction. Did you mean `scores`\?'), ('class', "Write \\['class'\\]")],
)
def test_unknown_keys_are_refused_at_once(keys, message):
    with pytest.raises(errors.ConfigurationError, match=message):
        predicting.predict(compiled(), 'missing', keys=keys)


def endless():
    return tf.data.Dataset.from_tensor_slices(FEATURES).repeat().batch(4)


def test_an_infinite_dataset_needs_steps(checkpoint):
    built = compiled(data=endless)
    with pytest.raises(errors.ConfigurationError, match=r'`steps` \[None\] .* infinite'):
        next(predicting.predict(built, checkpoint))
    assert len(list(predicting.predict(built, checkpoint, steps=3))) == 3


def test_the_steps_of_an_evaluation_set_hold_unless_others_are_given(checkpoint):
    built = compiled(data=EvalSet(name='valid', input_fn=INPUT_FN, steps=2))
    assert len(list(predicting.predict(built, checkpoint))) == 2
    assert len(list(predicting.predict(built, checkpoint, steps=1))) == 1


def test_data_without_a_batch_is_an_error(checkpoint):
    built = compiled(data=lambda: tf.data.Dataset.from_tensor_slices(FEATURES).batch(20, drop_remainder=True))
    with pytest.raises(errors.ConfigurationError, match='`predict` gave no batch: there is nothing to predict'):
        list(predicting.predict(built, checkpoint))


def test_bare_tensors_are_one_batch(checkpoint):
    (batch,) = predicting.predict(compiled(data=lambda: tf.constant(FEATURES)), checkpoint)
    np.testing.assert_allclose(batch['scores'], scores(checkpoint), rtol=1e-6)


def one_shot():
    return v1.data.make_one_shot_iterator(tf.data.Dataset.from_tensor_slices(FEATURES).batch(4)).get_next()


def queue():
    producer = v1.train.input_producer(tf.constant(FEATURES), num_epochs=1, shuffle=False)
    return v1.train.batch([producer.dequeue()], 4, allow_smaller_final_batch=True)


@pytest.mark.parametrize('input_fn', [one_shot, queue])
def test_iterators_and_queues_of_the_input_fn_are_read_to_their_end(checkpoint, input_fn):
    batches = predicting.predict(compiled(data=input_fn), checkpoint)
    np.testing.assert_allclose(joined(batches), scores(checkpoint), rtol=1e-6)


def test_predictions_that_do_not_depend_on_the_batch_end_with_the_data(checkpoint):
    def model_fn(features, mode):
        return EstimatorSpec(mode, predictions=tf.identity(v1.get_variable('weights', [4, 2])))

    batches = list(predicting.predict(compiled(model_fn), checkpoint))
    assert len(batches) == 3
    np.testing.assert_array_equal(batches[0]['predictions'], testing.checkpoint_values(checkpoint)['weights'])


def test_an_end_that_is_not_the_input_s_is_named(checkpoint):
    def model_fn(features, mode):
        own = v1.data.make_initializable_iterator(tf.data.Dataset.from_tensors(1.0))
        v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, own.initializer)
        return EstimatorSpec(mode, predictions=own.get_next() * features)

    batches = predicting.predict(compiled(model_fn), checkpoint)
    next(batches)
    with pytest.raises(errors.RunError, match='reported the end of its data in a prediction'):
        next(batches)


def test_batches_of_unequal_lengths_can_not_be_split(checkpoint):
    def model_fn(features, mode):
        return EstimatorSpec(mode, predictions={'a': features, 'b': tf.zeros([7])})

    whole = predicting.predict(compiled(model_fn), checkpoint)
    assert next(whole)['b'].shape == (7,)
    with pytest.raises(ValueError, match=r'Batch length of predictions should be same. `b` \[7\]'):
        next(predicting.single_examples(predicting.predict(compiled(model_fn), checkpoint)))


def test_sparse_predictions_come_in_whole_batches(checkpoint):
    def model_fn(features, mode):
        return EstimatorSpec(mode, predictions={'s': tf.sparse.from_dense(features)}, export_outputs={})

    (batch, *_) = predicting.predict(compiled(model_fn), checkpoint)
    np.testing.assert_array_equal(batch['s'].values, FEATURES[:4].ravel())


def test_hooks_of_the_caller_come_before_those_of_the_model(checkpoint):
    told = []

    def model_fn(features, labels, mode):
        hooks = [testing.RecordingHook('model', told)]
        return scores_model_fn(features, labels, mode)._replace(prediction_hooks=hooks)

    list(predicting.predict(compiled(model_fn), checkpoint, hooks=[testing.RecordingHook('caller', told)], steps=1))
    once = ['begin', 'after_create_session', 'before_run', 'after_run', 'end']
    assert told == [f'{owner}.{call}' for call in once for owner in ('caller', 'model')]


def test_a_hook_may_end_the_prediction_and_feed_it(checkpoint):
    stop = testing.RecordingHook(after_run=lambda context: context.request_stop())
    feed = v1.train.FeedFnHook(lambda: {built.data.batch.features: np.ones([2, 4], np.float32)})
    built = compiled()
    (batch,) = predicting.predict(built, checkpoint, hooks=[stop, feed])
    np.testing.assert_allclose(batch['scores'], scores(checkpoint, np.ones([2, 4])), rtol=1e-6)


def test_a_hook_may_feed_the_placeholder_of_an_input_fn(checkpoint):
    built = compiled(data=lambda: v1.placeholder(tf.float32, [None, 4]))
    feed = v1.train.FeedFnHook(lambda: {built.data.batch.features: FEATURES})
    (batch,) = predicting.predict(built, checkpoint, hooks=[feed])
    np.testing.assert_allclose(batch['scores'], scores(checkpoint), rtol=1e-6)


def test_a_hook_of_a_generator_that_is_closed_early_has_no_end(checkpoint):
    hook = testing.RecordingHook()
    batches = predicting.predict(compiled(), checkpoint, hooks=[hook])
    next(batches)
    batches.close()
    assert 'hook.end' not in hook.calls


def test_without_a_checkpoint_the_model_has_its_initial_values(caplog):
    def model_fn(features, mode):
        weight = v1.get_variable('w', [], initializer=v1.ones_initializer())
        return EstimatorSpec(mode, predictions=features * weight)

    np.testing.assert_array_equal(joined(predicting.predict(compiled(model_fn), None), 'predictions'), FEATURES)
    assert 'There is no checkpoint' in caplog.text


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    path = save(testing.linear_model_fn, tmp_path / 'model.ckpt')
    with pytest.raises(opening.CheckpointError, match='`other` is missing'):
        next(predicting.predict(compiled(_with_variable('other')), path))


def _with_variable(name, **settings):
    def model_fn(features, mode):
        return EstimatorSpec(mode, predictions=features + v1.get_variable(name, [], **settings))

    return model_fn


def test_a_variable_that_the_checkpoint_lacks_is_refused_when_it_is_trainable(checkpoint):
    saved = opening.saved_names(checkpoint)
    with pytest.raises(errors.ConfigurationError, match='`other`: trainable, made by prediction but not by training'):
        compiled(_with_variable('other'), saved=saved)


def test_any_other_variable_that_the_checkpoint_lacks_has_its_initial_value(checkpoint):
    model_fn = _with_variable('other', trainable=False, initializer=v1.constant_initializer(2.0))
    built = compiled(model_fn, saved=opening.saved_names(checkpoint))
    np.testing.assert_array_equal(joined(predicting.predict(built, checkpoint), 'predictions'), FEATURES + 2)


def average_model_fn(features, labels, mode):
    """Predicts with moving averages, which its saver restores in place of the weights."""
    spec = scores_model_fn(features, labels, mode)
    average = v1.train.ExponentialMovingAverage(0.5)
    if mode == ModeKeys.PREDICT:
        return spec._replace(scaffold=v1.train.Scaffold(saver=v1.train.Saver(average.variables_to_restore())))
    (weights,) = v1.trainable_variables()
    with tf.control_dependencies([weights.assign_add(tf.ones([4, 2])), spec.train_op]):
        return spec._replace(train_op=average.apply([weights]))


def test_a_saver_of_the_model_restores_moving_averages(tmp_path):
    path = save(average_model_fn, tmp_path / 'model.ckpt')
    values = testing.checkpoint_values(path)
    average = values['weights/ExponentialMovingAverage']
    assert not np.allclose(average, values['weights'])
    batches = predicting.predict(compiled(average_model_fn, saved=opening.saved_names(path)), path)
    np.testing.assert_allclose(joined(batches), FEATURES @ average, rtol=1e-6)


def test_a_saver_that_leaves_a_variable_without_a_value_is_refused(checkpoint):
    def model_fn(features, labels, mode):
        saver = v1.train.Saver([v1.train.get_global_step()])
        return scores_model_fn(features, labels, mode)._replace(scaffold=v1.train.Scaffold(saver=saver))

    with pytest.raises(errors.ConfigurationError, match='leaves variables without a value: `weights`'):
        next(predicting.predict(compiled(model_fn), checkpoint))


def norm_model_fn(features, labels, mode):
    training = mode == ModeKeys.TRAIN
    layer = tf_keras.layers.BatchNormalization(momentum=0.5)
    output = tf_keras.layers.Dense(2)(layer(features, training=training))
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions=output)
    step = v1.train.get_global_step().assign_add(1)
    return EstimatorSpec(mode, loss=tf.reduce_sum(output), train_op=tf.group(step, *layer.updates))


def test_batch_normalization_of_keras_predicts_with_its_moving_statistics(tmp_path):
    path = save(norm_model_fn, tmp_path / 'model.ckpt')
    values = testing.checkpoint_values(path)
    (mean, variance) = (values[f'batch_normalization/moving_{name}'] for name in ('mean', 'variance'))
    assert np.abs(mean).min() > 0
    expected = (FEATURES - mean) / np.sqrt(variance + 1e-3) @ values['dense/kernel']
    batches = predicting.predict(compiled(norm_model_fn, saved=opening.saved_names(path)), path)
    np.testing.assert_allclose(joined(batches, 'predictions'), expected, rtol=1e-4, atol=1e-6)


# The predictor.


def test_a_predictor_stays_open_and_takes_any_number_of_examples(checkpoint):
    with predicting.Predictor(receiving(), checkpoint) as predictor:
        assert (predictor.step, predictor.checkpoint) == (3, checkpoint)
        for count in (1, 10):
            found = predictor(FEATURES[:count])
            np.testing.assert_allclose(found['scores'], scores(checkpoint)[:count], rtol=1e-6)


def test_a_predictor_and_a_prediction_of_the_same_checkpoint_agree_exactly(checkpoint):
    with predicting.Predictor(receiving(), checkpoint) as predictor:
        for batch, start in zip(predicting.predict(compiled(), checkpoint), range(0, 10, 4), strict=True):
            np.testing.assert_array_equal(predictor(FEATURES[start : start + 4])['scores'], batch['scores'])


def test_reload_takes_other_weights_and_keeps_the_former_when_it_fails(checkpoint, other):
    with predicting.Predictor(receiving(), checkpoint) as predictor:
        with pytest.raises(opening.CheckpointError):
            predictor.reload('missing')
        np.testing.assert_allclose(predictor(FEATURES)['scores'], scores(checkpoint), rtol=1e-6)
        predictor.reload(other)
        gc.collect()
        assert (predictor.step, predictor.checkpoint) == (5, other)
        np.testing.assert_allclose(predictor(FEATURES)['scores'], scores(other), rtol=1e-6)


def test_threads_without_a_default_graph_may_call_it_while_it_reloads(checkpoint, other):
    found = []
    expected = [scores(checkpoint), scores(other)]
    with predicting.Predictor(receiving(), checkpoint) as predictor:
        calls_of_it = lambda: found.extend(predictor(FEATURES)['scores'] for _ in range(40))  # noqa: E731
        threads = [threading.Thread(target=calls_of_it) for _ in range(3)]
        for thread in threads:
            thread.start()
        predictor.reload(other)
        for thread in threads:
            thread.join()
    assert len(found) == 120
    assert all(any(np.allclose(value, one) for one in expected) for value in found)


def test_a_closed_predictor_says_so(checkpoint):
    predictor = predicting.Predictor(receiving(), checkpoint)
    predictor.close()
    predictor.close()
    for use in (lambda: predictor(FEATURES), lambda: predictor.step, lambda: predictor.reload(checkpoint)):
        with pytest.raises(errors.RunError, match='The `Predictor` is closed'):
            use()


SPEC = (
    {
        'word': tf.TensorSpec([4], tf.string),
        'deep': {'x': tf.TensorSpec([4, 2]), 'count': tf.TensorSpec([4], tf.int32)},
    },
    tf.TensorSpec([4]),
)


def nested_model_fn(features, mode):
    deep = features['deep']
    product = deep['x'] * tf.cast(deep['count'], tf.float32)[:, tf.newaxis]
    return EstimatorSpec(mode, predictions={'product': product, 'word': tf.strings.join([features['word'], '!'])})


@pytest.fixture(scope='module')
def nested(tmp_path_factory):
    path = tmp_path_factory.mktemp('nested') / 'model.ckpt'
    saved = save(lambda **_: EstimatorSpec('train', loss=tf.zeros([]), train_op=tf.no_op()), path, steps=0)
    with tf.Graph().as_default(), predicting.Predictor(receiving(nested_model_fn, SPEC), saved) as predictor:
        yield predictor


def test_a_predictor_takes_nested_features_and_strings(nested):
    found = nested({'word': ['a', 'é'], 'deep': {'x': [[1, 2], [3, 4]], 'count': np.int64([2, 3])}})
    np.testing.assert_array_equal(found['product'], [[2, 4], [9, 12]])
    assert found['word'].tolist() == [b'a!', 'é!'.encode()]


GOOD = {'word': ['a'], 'deep': {'x': [[1.0, 2.0]], 'count': [2]}}


@pytest.mark.parametrize(
    ('features', 'message'),
    [
        ({**GOOD, 'words': ['a']}, r'`features` \[words\]: the model takes no such feature. Did you mean `word`\?'),
        ({'word': ['a']}, r'`features` lacks \[deep/count, deep/x\]. The model takes: deep/count, deep/x, word'),
        ([1.0], r'`features` \[list\] is one value, and the model takes: deep/count, deep/x, word'),
        ({**GOOD, 'word': [1.0]}, r'`features\[word\]` \[float64\] does not fit the string'),
        ({**GOOD, 'deep': {'x': [['a', 'b']], 'count': [2]}}, r'`features\[deep/x\]` .* does not fit the float32'),
        (
            {**GOOD, 'deep': {'x': [[1, 2]], 'count': [2.5]}},
            r'`features\[deep/count\]` \[float64\] does not fit the int',
        ),
        ({**GOOD, 'deep': {'x': [[1, 2]], 'count': [2**40]}}, r'`features\[deep/count\]` \[int64\] does not fit'),
        ({**GOOD, 'deep': {'x': [1, 2], 'count': [2]}}, r'shape \(2,\)\] .*Put the example into a batch'),
        ({**GOOD, 'deep': {'x': [[1, 2, 3]], 'count': [2]}}, r'shape \(1, 3\)\] does not fit the shape \(None, 2\)'),
        ({**GOOD, 'deep': {'x': [[1], [2, 3]], 'count': [2]}}, r"`features\[deep/x\]` \[list\] can't become an array"),
        ({**GOOD, 'deep': {'x': [[1, 2]] * 3, 'count': [2, 3]}}, r'not of equally many examples: .*`deep/x` \[3\]'),
    ],
)
def test_features_that_do_not_fit_are_explained(nested, features, message):
    with pytest.raises(errors.ConfigurationError, match=message):
        nested(features)


def test_a_model_of_one_tensor_takes_no_dict(checkpoint):
    message = r'`features` \[a dict of x\]: .* Give the array itself'
    with (
        predicting.Predictor(receiving(), checkpoint) as predictor,
        pytest.raises(errors.ConfigurationError, match=message),
    ):
        predictor({'x': FEATURES})


def test_a_predictor_takes_sparse_and_ragged_features(checkpoint):
    spec = {'s': tf.SparseTensorSpec([4, 3]), 'r': tf.RaggedTensorSpec([4, None], tf.float32, 1)}

    def model_fn(features, mode):
        dense = tf.sparse.to_dense(features['s'])
        return EstimatorSpec(mode, predictions={'s': dense, 'r': tf.reduce_sum(features['r'], axis=1)})

    given = {
        's': v1.SparseTensorValue([[0, 2]], np.float32([5.0]), [1, 3]),
        'r': v1.ragged.constant_value([[1.0, 2.0]], dtype=np.float32),
    }
    with predicting.Predictor(receiving(model_fn, spec), checkpoint) as predictor:
        found = predictor(given)
        with pytest.raises(errors.ConfigurationError, match=r'`features\[r\]` \[list\] must be a RaggedTensorValue'):
            predictor({**given, 'r': [[1.0]]})
    np.testing.assert_array_equal(found['s'], [[0, 0, 5]])
    np.testing.assert_array_equal(found['r'], [3])


def test_each_kind_of_graph_names_the_other_s_use(checkpoint):
    with pytest.raises(errors.ConfigurationError, match='Make a `Predictor` of it'):
        predicting.predict(receiving(), checkpoint)
    with pytest.raises(errors.ConfigurationError, match='needs a graph with a receiver'):
        predicting.Predictor(compiled(), checkpoint)
