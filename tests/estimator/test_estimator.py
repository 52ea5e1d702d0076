"""`Estimator`: its constructor, its properties, `train`, `evaluate` and `predict`."""

import functools
import itertools
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import errors, estimator, testing
from framework.reporting import tensorboard
from tests.estimator.conftest import FEATURES, LABELS, VALID, Seen, eval_fn, train_fn

# The constructor.


@pytest.mark.parametrize(
    'arguments, text',
    [
        ({'model_fn': None}, 'model_fn must be provided to Estimator.'),
        ({'model_fn': lambda labels: None}, r'model_fn \(.*\) must include features argument.'),
        ({'model_fn': lambda features, x: None}, r"model_fn \(.*\) has following not expected args: \['x'\]"),
        ({'model_fn': lambda features: None, 'params': {}}, r'model_fn \(.*\) does not include params argument'),
        ({'model_fn': lambda features: None, 'config': {}}, 'config must be an instance of `RunConfig`, but provided'),
        (
            {
                'model_fn': lambda features: None,
                'model_dir': '/runs/a',
                'config': estimator.RunConfig(model_dir='/runs/b'),
            },
            "with different values. In constructor: '/runs/a', in `RunConfig`: '/runs/b'",
        ),
        ({'model_fn': lambda features: None, 'warm_start_from': 3}, r'`warm_start_from` \[3\] must be a path'),
    ],
)
def test_the_constructor_refuses(arguments, text):
    with pytest.raises(ValueError, match=text):
        estimator.Estimator(**arguments)


def test_params_without_being_given_are_a_warning(lines, caplog):
    estimator.Estimator(lambda features, params: None, 'unused')
    assert 'includes params argument, but params are not passed to it' in caplog.text


def test_the_directory_is_that_of_either_or_a_temporary_one(lines):
    def model_fn(features):
        del features

    assert estimator.Estimator(model_fn, pathlib.Path('/runs/a')).model_dir == '/runs/a'
    config = estimator.RunConfig(model_dir='/runs/a')
    assert estimator.Estimator(model_fn, config=config).model_dir == '/runs/a'
    assert estimator.Estimator(model_fn, '/runs/a', config).model_dir == '/runs/a'
    temporary = estimator.Estimator(model_fn, '').model_dir  # a flag that nobody set
    assert pathlib.Path(temporary).is_dir()
    assert f'Using temporary folder as model directory: {temporary}' in lines()
    assert 'Using default config.' in lines()
    assert any(line.startswith("Using config: {'_model_dir': '/runs/a', '_tf_random_seed': None") for line in lines())


def test_params_and_config_are_copies(make):
    params = {'list': [1]}
    made = make(lambda features, params: None, params=params)
    params['list'].append(2)
    made.params['list'].append(3)
    assert made.params == {'list': [1]}
    assert made.config is not made.config


def test_the_public_model_fn_has_the_params_bound(make):
    def model_fn(features, labels, mode, params):
        assert params == {'rate': 0.5}
        return testing.linear_model_fn(features, labels, mode)

    spec = make(model_fn, params={'rate': 0.5}).model_fn(tf.constant(FEATURES), None, 'infer', None)
    assert set(spec.predictions) == {'class'}


def test_eval_dir_is_named_by_the_evaluation(make):
    made = make()
    assert made.eval_dir() == f'{made.model_dir}/eval'
    assert made.eval_dir('x') == f'{made.model_dir}/eval_x'


def test_variables_are_read_from_the_newest_checkpoint(make):
    made = make()
    assert made.latest_checkpoint() is None
    for read in (made.get_variable_names, functools.partial(made.get_variable_value, 'weights')):
        with pytest.raises(ValueError, match=r'Could not find trained model in model_dir: .*/run\.'):
            read()
    made.train(train_fn, steps=3)
    assert made.latest_checkpoint() == f'{made.model_dir}/model.ckpt-3'
    assert made.get_variable_names() == ['global_step', 'weights']
    assert made.get_variable_value('global_step') == 3
    assert made.get_variable_value('weights').shape == (4, 2)
    with pytest.raises(ValueError, match=r'holds no variable \[weight\]. Did you mean `weights`\?'):
        made.get_variable_value('weight')


def test_pain_78_methods_may_be_overridden(make):
    class Mine(estimator.Estimator):
        def evaluate(self, *args, **kwargs):
            return {'mine': 1}

    assert Mine(testing.linear_model_fn, 'unused').evaluate(eval_fn) == {'mine': 1}


def test_pain_79_a_bound_method_is_a_model_fn(make):
    class Models:
        def model_fn(self, features, labels, mode):
            return testing.linear_model_fn(features, labels, mode)

    assert make(Models().model_fn).train(train_fn, steps=1).get_variable_value('global_step') == 1


def test_pain_80_a_decorated_model_fn_is_seen_through(make):
    def decorated(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)

        return wrapper

    make(decorated(testing.linear_model_fn)).train(train_fn, steps=1)


# Training.


def test_train_returns_itself_and_counts_steps_on(make):
    made = make()
    assert made.train(train_fn, steps=3) is made
    made.train(train_fn, steps=3)
    assert made.get_variable_value('global_step') == 6
    made.train(train_fn, max_steps=8)
    assert made.get_variable_value('global_step') == 8


def test_training_that_has_reached_max_steps_is_skipped(make, lines):
    make().train(train_fn, steps=3)

    def refused(features):
        raise AssertionError

    assert make(refused).train(train_fn, max_steps=3).get_variable_value('global_step') == 3
    assert 'Skipping training since max_steps has already saved.' in lines()


@pytest.mark.parametrize(
    'arguments, kind, text',
    [
        ({'steps': 1, 'max_steps': 1}, ValueError, 'Can not provide both steps and max_steps.'),
        ({'steps': 0}, ValueError, 'Must specify steps > 0, given: 0'),
        ({'max_steps': 0}, ValueError, 'Must specify max_steps > 0, given: 0'),
        ({'steps': 1, 'hooks': ['x']}, TypeError, 'Hooks must be a SessionRunHook, given: x'),
        ({'steps': 1, 'saving_listeners': ['x']}, TypeError, 'saving_listeners must be a list of'),
    ],
)
def test_train_refuses(make, arguments, kind, text):
    with pytest.raises(kind, match=text):
        make().train(train_fn, **arguments)


@pytest.mark.parametrize('task', ['evaluator', 'ps'])
def test_a_task_that_may_not_train_is_refused(make, monkeypatch, task):
    cluster = '{"chief": ["c:1"], "ps": ["p:1"]}'
    monkeypatch.setenv('TF_CONFIG', f'{{"cluster": {cluster}, "task": {{"type": "{task}", "index": 0}}}}')
    with pytest.raises(ValueError, match=r'Please use tf\.estimator\.train_and_evaluate which calls proper API'):
        make(config=estimator.RunConfig()).train(train_fn, steps=1)


def test_training_ends_with_the_data(make, lines):
    def once():
        return testing.array_input_fn(FEATURES, LABELS, 10)('eval')

    assert make().train(once).get_variable_value('global_step') == 4
    assert 'Training ended: the training data ended at step 4.' in lines()


def test_training_without_a_batch_warns_and_saves(make, lines):
    made = make().train(lambda: train_fn().take(0))
    assert made.get_variable_value('global_step') == 0
    assert 'Training with estimator made no steps. Perhaps input is empty or misspecified.' in lines()
    assert 'Loss for final step: None.' in lines()


def test_the_log_has_the_lines_of_tf_estimator(make, lines):
    config = estimator.RunConfig(tf_random_seed=1, save_checkpoints_steps=10, log_step_count_steps=10)
    made = make(config=config).train(train_fn, max_steps=20)
    told = [line for line in lines() if not line.startswith(('Using', 'Graph', 'Running', 'Done running'))]
    prefix = f'{made.model_dir}/model.ckpt'
    expected = [
        'Calling model_fn.',
        'Done calling model_fn.',
        *(text for step in (0,) for text in saving(step, prefix)),
        'loss = *, step = 0',
        'global_step/sec: *',
        *saving(10, prefix),
        'loss = *, step = 10 (* sec)',
        'global_step/sec: *',
        *saving(20, prefix),
        'Training ended: reached step 20 of 20.',
        'Loss for final step: *.',
    ]
    assert len(told) == len(expected)
    for line, pattern in zip(told, expected, strict=True):
        assert pathlib.PurePath(line.replace('/', '|')).match(pattern.replace('/', '|')), (line, pattern)


def saving(step, prefix):
    return [
        f'Calling checkpoint listeners before saving checkpoint {step}...',
        f'Saving checkpoints for {step} into {prefix}.',
        f'Calling checkpoint listeners after saving checkpoint {step}...',
    ]


def test_the_files_are_those_of_tf_estimator(make):
    made = make(config=estimator.RunConfig(save_checkpoints_steps=10)).train(train_fn, max_steps=20)
    made.evaluate(eval_fn, name='x')
    names = {path.name for path in pathlib.Path(made.model_dir).iterdir()}
    checkpoints = {f'model.ckpt-{n}.{p}' for n in (0, 10, 20) for p in ('index', 'meta', 'data-00000-of-00001')}
    assert checkpoints | {'checkpoint', 'graph.pbtxt', 'eval_x'} <= names
    assert [name for name in names if 'tfevents' in name]
    with tf.Graph().as_default():
        saver = v1.train.import_meta_graph(f'{made.model_dir}/model.ckpt-20.meta')
        with v1.Session() as session:
            saver.restore(session, f'{made.model_dir}/model.ckpt-20')
            assert session.run('weights/Read/ReadVariableOp:0').shape == (4, 2)


def test_graph_files_may_be_left_out(make):
    config = estimator.RunConfig(checkpoint_save_graph_def=False)
    made = make(config=config).train(train_fn, max_steps=2)
    assert not list(pathlib.Path(made.model_dir).glob('*.meta'))
    assert not (pathlib.Path(made.model_dir) / 'graph.pbtxt').exists()


def test_summaries_of_training_have_the_tags_of_tf_estimator(make):
    config = estimator.RunConfig(save_summary_steps=5, log_step_count_steps=5)
    made = make(config=config).train(train_fn, max_steps=10)
    scalars = tensorboard.read_scalars(made.model_dir)
    assert set(scalars) == {'loss', 'global_step/sec'}
    assert [step for step, _ in scalars['loss']] == [1, 5, 10]


class Listener(v1.train.CheckpointSaverListener):
    def __init__(self, stop_at=None):
        self.calls = []
        self.stop_at = stop_at

    def begin(self):
        self.calls.append('begin')

    def before_save(self, session, global_step_value):
        self.calls.append(('before', global_step_value, int(session.run(v1.train.get_global_step()))))

    def after_save(self, session, global_step_value):
        self.calls.append(('after', global_step_value))
        return global_step_value == self.stop_at

    def end(self, session, global_step_value):
        self.calls.append(('end', global_step_value))


def test_listeners_are_told_of_every_save(make):
    listener = Listener()
    make(config=estimator.RunConfig(save_checkpoints_steps=5)).train(train_fn, max_steps=7, saving_listeners=[listener])
    saves = [[('before', step, step), ('after', step)] for step in (0, 5, 7)]
    assert listener.calls == ['begin', *itertools.chain(*saves), ('end', 7)]


def test_a_listener_ends_training(make):
    listener = Listener(stop_at=5)
    made = make(config=estimator.RunConfig(save_checkpoints_steps=5))
    made.train(train_fn, max_steps=100, saving_listeners=[listener])
    assert made.get_variable_value('global_step') == 5


def test_listeners_without_checkpoints_are_refused(make):
    config = estimator.RunConfig(save_checkpoints_steps=None)
    with pytest.raises(ValueError, match=r'There should be a CheckpointSaverHook to use saving_listeners\.'):
        make(config=config).train(train_fn, steps=1, saving_listeners=[Listener()])


@pytest.mark.parametrize('where', ['hooks', 'training_chief_hooks'])
def test_pain_62_a_saver_hook_of_the_user_is_the_only_one(make, where):
    of_hook, of_call = Listener(), Listener()
    made = make(config=estimator.RunConfig(save_checkpoints_steps=100))
    hook = estimator.CheckpointSaverHook(made.model_dir, save_steps=3, listeners=[of_hook])

    def model_fn(features, labels, mode):
        return testing.linear_model_fn(features, labels, mode)._replace(training_chief_hooks=[hook])

    if where == 'hooks':
        made.train(train_fn, hooks=[hook], steps=7, saving_listeners=[of_call])
    else:
        make(model_fn).train(train_fn, steps=7, saving_listeners=[of_call])
    assert of_hook.calls == of_call.calls
    assert [call[1] for call in of_hook.calls if call[0] == 'after'] == [0, 3, 6, 7]
    found = {path.stem for path in pathlib.Path(made.model_dir).glob('*.index')}
    assert found == {f'model.ckpt-{step}' for step in (0, 3, 6, 7)}


def test_a_saver_hook_of_the_user_saves_where_the_configuration_does_not(make):
    made = make(config=estimator.RunConfig(save_checkpoints_steps=None))
    listener = Listener()
    hook = estimator.CheckpointSaverHook(made.model_dir, save_steps=3)
    made.train(train_fn, hooks=[hook], steps=4, saving_listeners=[listener])
    assert [call[1] for call in listener.calls if call[0] == 'after'] == [0, 3, 4]


def test_a_loss_that_is_not_finite_raises_tensorflow_s_error(make):
    def model_fn(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)
        return spec._replace(loss=spec.loss / 0.0)

    with pytest.raises(estimator.NanLossDuringTrainingError):
        make(model_fn).train(train_fn, steps=3)


def test_pain_65_a_nan_hook_of_the_user_replaces_ours(make):
    def model_fn(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)
        loss = spec.loss / 0.0
        return spec._replace(loss=loss, training_hooks=[estimator.NanTensorHook(loss, fail_on_nan_loss=False)])

    make(model_fn).train(train_fn, steps=3)


@pytest.mark.parametrize('form', [np.asarray, tf.constant], ids=['array', 'tensor'])
def test_input_functions_may_return_one_batch(make, form):
    made = make().train(lambda: (form(FEATURES[:10]), form(LABELS[:10])), steps=3)
    assert made.get_variable_value('global_step') == 3
    assert len(list(made.predict(lambda: (tf.constant(VALID[0]), None)))) == 23


def test_a_model_may_have_no_features(make):
    def model_fn(features):
        assert features == {}
        loss = tf.square(v1.get_variable('x', initializer=1.0))
        return estimator.EstimatorSpec('train', loss=loss, train_op=v1.train.get_global_step().assign_add(1))

    assert make(model_fn).train(lambda: ({}, None), steps=2).get_variable_value('global_step') == 2


def test_a_tuple_of_another_length_is_refused(make):
    with pytest.raises(ValueError, match='len 2 tuple'):
        make().train(lambda: (FEATURES, LABELS, LABELS), steps=1)


# The place in the data.


def test_each_call_of_train_begins_with_the_first_example(make):
    seen = Seen('train')
    made = make(seen.model_fn)
    made.train(train_fn, hooks=[seen], steps=3)
    made.train(train_fn, hooks=[seen], steps=3)
    first = [FEATURES[:10], FEATURES[10:20], FEATURES[20:30]]
    np.testing.assert_array_equal(seen.values, [*first, *first])


def test_pain_5_keep_input_position_goes_on_in_the_data(make):
    seen = Seen('train')
    made = make(seen.model_fn, config=estimator.RunConfig(keep_input_position=True))
    for _ in range(3):
        made.train(train_fn, hooks=[seen], steps=3)
    np.testing.assert_array_equal(np.concatenate(seen.values), np.concatenate([FEATURES] * 3)[:90])


def test_data_that_had_ended_begins_again_also_where_its_place_is_kept(make):
    made = make(config=estimator.RunConfig(keep_input_position=True))
    for step in (4, 8):
        made.train(lambda: testing.array_input_fn(FEATURES, LABELS, 10)('eval'))
        assert made.get_variable_value('global_step') == step


def test_draws_are_tensorflow_s_own_without_a_seed_of_the_run(make):
    config = estimator.RunConfig(save_checkpoints_steps=1000)
    seeded = seeded_model_fn()
    weights = [
        make(seeded, directory=name, config=config).train(train_fn, steps=2).get_variable_value('w')
        for name in ('a', 'b')
    ]
    np.testing.assert_array_equal(*weights)


def seeded_model_fn():
    def model_fn(features, labels, mode):
        weights = v1.get_variable('w', [4, 2], initializer=v1.random_normal_initializer(seed=5))
        loss = v1.losses.sparse_softmax_cross_entropy(labels, tf.matmul(features, weights))
        train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_global_step())
        return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    return model_fn


def test_exact_calls_make_the_bits_of_one_call(make, monkeypatch):
    # It holds for the whole process, and other tests draw without a seed.
    monkeypatch.setattr(tf.config.experimental, 'enable_op_determinism', lambda: None)
    config = estimator.RunConfig(tf_random_seed=1, reproducible='exact', save_checkpoints_steps=1000)

    def model_fn(features, labels, mode):
        return testing.linear_model_fn(tf.nn.dropout(features, rate=0.5), labels, mode)

    whole = make(model_fn, 'whole', config).train(train_fn, steps=6)
    parts = make(model_fn, 'parts', config)
    for _ in range(3):
        parts.train(train_fn, steps=2)
    np.testing.assert_array_equal(whole.get_variable_value('weights'), parts.get_variable_value('weights'))


# Evaluation.


def test_evaluate_returns_metrics_loss_and_step(make, lines):
    made = make().train(train_fn, steps=5)
    metrics = made.evaluate(eval_fn)
    assert set(metrics) == {'accuracy', 'loss', 'global_step'}
    weights = made.get_variable_value('weights')
    logits = VALID[0] @ weights
    assert metrics['accuracy'] == pytest.approx(np.mean(logits.argmax(1) == VALID[1]))
    losses = -np.log(np.exp(logits) / np.exp(logits).sum(1, keepdims=True))[np.arange(23), VALID[1]]
    assert metrics['loss'] == pytest.approx(np.mean([losses[i : i + 10].mean() for i in (0, 10, 20)]), rel=1e-6)
    assert metrics['global_step'] == 5
    shown = f'accuracy = {metrics["accuracy"]!s}, global_step = 5, loss = {metrics["loss"]!s}'
    assert f'Saving dict for global step 5: {shown}' in lines()
    path = f'{made.model_dir}/model.ckpt-5'
    assert f"Saving 'checkpoint_path' summary for global step 5: {path}" in lines()


def test_events_of_evaluations_stay_over_calls_of_train(make):
    made = make()
    for _ in range(2):
        made.train(train_fn, steps=5)
        made.evaluate(eval_fn, name='x')
    scalars = tensorboard.read_scalars(made.eval_dir('x'))
    assert set(scalars) == {'accuracy', 'loss'}
    assert [step for step, _ in scalars['loss']] == [5, 10]


def test_pain_42_every_evaluation_sees_the_same_examples(make):
    seen = Seen('eval')
    made = make(seen.model_fn).train(train_fn, steps=1)
    for _ in range(2):
        made.evaluate(eval_fn, hooks=[seen])
    np.testing.assert_array_equal(np.concatenate(seen.values), np.concatenate([VALID[0]] * 2))


def test_evaluate_reads_so_many_batches(make):
    seen = Seen('eval')
    make(seen.model_fn).train(train_fn, steps=1).evaluate(eval_fn, steps=2, hooks=[seen])
    assert len(seen.values) == 2
    with pytest.raises(ValueError, match='Must specify steps > 0, given: 0'):
        make().evaluate(eval_fn, steps=0)


def test_evaluate_takes_an_older_checkpoint(make):
    made = make(config=estimator.RunConfig(save_checkpoints_steps=2)).train(train_fn, steps=4)
    assert made.evaluate(eval_fn, checkpoint_path=f'{made.model_dir}/model.ckpt-2')['global_step'] == 2


def test_a_model_without_a_checkpoint_is_evaluated_with_a_warning(make, lines):
    assert make().evaluate(eval_fn)['global_step'] == 0
    assert any('Could not find trained model in model_dir: ' in line for line in lines())


def test_a_warm_start_holds_where_there_is_no_checkpoint(make):
    trained = make(directory='trained').train(train_fn, steps=5)
    warm = make(directory='warm', warm_start_from=trained.model_dir)
    expected = trained.evaluate(eval_fn)
    assert warm.evaluate(eval_fn) == {**expected, 'global_step': 0}
    predictions = [[p['class'] for p in one.predict(eval_fn)] for one in (trained, warm)]
    assert predictions[0] == predictions[1]
    warm.train(train_fn, steps=1)
    assert make(directory='warm', warm_start_from='/nowhere').evaluate(eval_fn)['global_step'] == 1


def test_metrics_that_are_taken_are_refused(make):
    def model_fn(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)
        return spec if mode == 'train' else spec._replace(eval_metric_ops={'loss': v1.metrics.mean(spec.loss)})

    made = make(model_fn).train(train_fn, steps=1)
    with pytest.raises(ValueError, match='Metric with name "loss" is not allowed'):
        made.evaluate(eval_fn)


def test_pain_60_the_end_of_the_data_ends_an_evaluation(make):
    assert make().train(train_fn, steps=1).evaluate(eval_fn, steps=1000)['global_step'] == 1


# Prediction.


def test_predict_yields_an_example_at_a_time(make):
    made = make().train(train_fn, steps=5)
    found = [prediction['class'] for prediction in made.predict(eval_fn)]
    np.testing.assert_array_equal(found, (VALID[0] @ made.get_variable_value('weights')).argmax(1))


def test_pain_95_predict_yields_whole_batches(make):
    made = make().train(train_fn, steps=5)
    assert [len(batch['class']) for batch in made.predict(eval_fn, yield_single_examples=False)] == [10, 10, 3]


def test_pain_93_two_generators_take_turns(make):
    made = make().train(train_fn, steps=5)
    graph = tf.Graph()
    with graph.as_default():
        one, other = made.predict(eval_fn), made.predict(eval_fn)
        pairs = [(next(one), next(other)) for _ in range(15)]
        assert v1.get_default_graph() is graph
    assert all(a == b for a, b in pairs)


def test_predict_does_nothing_before_the_first_next(make):
    def refused(features):
        raise AssertionError

    make(refused).predict(eval_fn)


def test_pain_94_tensors_make_one_batch(make):
    made = make().train(train_fn, steps=1)
    assert len(list(made.predict(lambda: tf.constant(VALID[0])))) == 23


def test_data_without_end_is_predicted_as_long_as_is_asked(make):
    made = make().train(train_fn, steps=1)
    assert len(list(itertools.islice(made.predict(train_fn), 95))) == 95


def test_data_without_a_batch_has_no_predictions(make):
    assert list(make().train(train_fn, steps=1).predict(lambda: eval_fn().take(0))) == []


def test_predict_keys_choose(make):
    def model_fn(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)
        return spec if mode != 'infer' else spec._replace(predictions={**spec.predictions, 'x': features})

    made = make(model_fn).train(train_fn, steps=1)
    assert set(next(made.predict(eval_fn))) == {'class', 'x'}
    assert set(next(made.predict(eval_fn, predict_keys=['x', 'other']))) == {'x'}
    with pytest.raises(ValueError, match=r"Expected to run at least one output from \['class', 'x'\], provided"):
        next(made.predict(eval_fn, predict_keys=['other']))


def test_a_single_tensor_of_predictions_comes_as_it_is(make):
    def model_fn(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)
        return spec if mode != 'infer' else spec._replace(predictions=spec.predictions['class'], export_outputs=None)

    made = make(model_fn).train(train_fn, steps=1)
    assert next(made.predict(eval_fn)) in (0, 1)
    with pytest.raises(ValueError, match=r'predict_keys argument is not valid in case of non-dict predictions\.'):
        next(made.predict(eval_fn, predict_keys=['class']))


def test_predictions_of_unequal_length_are_refused(make):
    def model_fn(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)
        return spec if mode != 'infer' else spec._replace(predictions={**spec.predictions, 'x': features[:2]})

    made = make(model_fn).train(train_fn, steps=1)
    with pytest.raises(errors.ConfigurationError):
        next(made.predict(eval_fn))


# The log.


def test_pain_76_a_line_is_printed_once(make, capfd):
    made = make()
    v1.logging.set_verbosity(v1.logging.INFO)
    try:
        made.train(train_fn, steps=1)
    finally:
        v1.logging.set_verbosity(v1.logging.WARN)
    assert capfd.readouterr().err.count('Loss for final step') <= 1
