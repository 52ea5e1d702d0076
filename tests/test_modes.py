"""What `Experiment` does beside training: evaluate, predict, export, describe, and the best of a run."""

import glob
import json
import os
import re

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import EarlyStopping, EvalSet, Experiment, KeepBest, RunConfig, WarmStartSettings, errors, testing
from framework.reporting import tensorboard, values
from framework.spec import EstimatorSpec, ModeKeys

FEATURES, LABELS = testing.blobs(103)
VALID, TEST = testing.blobs(47, seed=1), testing.blobs(20, seed=2)
BEST = KeepBest(metric='valid/accuracy', keep=2)


def _make(directory, **changes):
    settings = {
        'model_fn': testing.linear_model_fn,
        'train_input_fn': testing.array_input_fn(FEATURES, LABELS, 10, shuffle=50),
        'eval_sets': {
            'valid': testing.array_input_fn(*VALID, 10),
            'test': testing.array_input_fn(*TEST, 10),
        },
        'train_steps': 20,
        'eval_every_steps': 5,
        'model_dir': str(directory),
        'seed': 1,
        'keep_best': BEST,
        'run_config': RunConfig(save_checkpoints_steps=10, log_step_count_steps=10),
    }
    return Experiment(**{**settings, **changes})


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """A finished run, its result, and nothing that a test may change."""
    directory = tmp_path_factory.mktemp('trained')
    return directory, _make(directory).train_and_evaluate()


def _lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def _classes(prefix, features):
    """Returns the predictions of a checkpoint, by numpy."""
    return np.argmax(features @ testing.checkpoint_values(prefix)['weights'], axis=1)


# One number, told everywhere.


def test_a_metric_is_the_same_number_wherever_it_is_told(tmp_path, caplog):
    caplog.set_level('INFO')
    result = _make(tmp_path).train_and_evaluate()
    last = {row['stream']: row for row in _lines(tmp_path / 'metrics.jsonl') if row['step'] == 20}
    saved = json.loads((tmp_path / 'result.json').read_text())
    for stream in ('valid', 'test'):
        told = {name: values.plain(value) for name, value in result.metrics[stream].items()}
        assert last[stream]['metrics'] == saved['metrics'][stream] == told
        history = result.history[stream]
        assert history['step'] == [5, 10, 15, 20]
        assert {name: over_time[-1] for name, over_time in history.items() if name != 'step'} == told
        scalars = tensorboard.read_scalars(tmp_path / f'eval_{stream}')
        assert {name: points[-1] for name, points in scalars.items()} == {
            name: (20, np.float32(value)) for name, value in told.items()
        }
        line = next(m for m in reversed(caplog.messages) if m.startswith(f'step 20: {stream}:'))
        for name, value in told.items():
            assert re.search(rf'\b{name} = {re.escape(values.to_text(value))}[ ,]', line)
    assert saved['best']['value'] == result.best.value == max(result.history['valid']['accuracy'])
    assert saved['best']['step'] == result.best.step


def test_a_history_is_that_of_the_whole_run_over_stops(tmp_path):
    whole = _make(tmp_path / 'whole').train_and_evaluate().history
    parts = tmp_path / 'parts'
    _make(parts, train_steps=10).train_and_evaluate()
    history = _make(parts).train_and_evaluate().history
    assert history['valid']['step'] == whole['valid']['step'] == [5, 10, 15, 20]
    assert history['valid']['loss'][:2] == whole['valid']['loss'][:2]
    assert len(history['train']['loss']) == len(history['train']['step']) == 2


# Evaluation.


def test_the_best_checkpoint_is_evaluated_by_name(trained, tmp_path):
    directory, result = trained
    alone = _make(directory).evaluate(checkpoint='best')
    place = result.history['valid']['step'].index(result.best.step)
    assert alone.global_step == result.best.step
    assert alone.metrics['valid']['accuracy'] == result.best.value == result.history['valid']['accuracy'][place]


def test_every_commit_is_evaluated_in_order(trained):
    directory, result = trained
    alone = _make(directory).evaluate(['test'], every_commit=True)
    steps = alone.history['test']['step']
    assert {0, 10, 20} <= set(steps) and steps == sorted(steps)
    for step, loss in zip(steps, alone.history['test']['loss'], strict=True):
        if step in result.history['test']['step']:
            assert loss == result.history['test']['loss'][result.history['test']['step'].index(step)]


@pytest.mark.parametrize('name', ['', 'best'])
def test_another_run_is_named_by_its_directory(trained, tmp_path, name):
    directory, result = trained
    alone = _make(tmp_path / 'other').evaluate(checkpoint=str(directory / name))
    assert alone.global_step == (result.best.step if name else 20)


def test_a_run_without_a_best_checkpoint_says_so(tmp_path):
    experiment = _make(tmp_path, keep_best=None)
    experiment.train()
    with pytest.raises(errors.RunDirectoryError, match=r'holds no best checkpoint\. Train with `Experiment.keep_best'):
        experiment.evaluate(checkpoint='best')


def test_nothing_stays_beside_the_checkpoints_that_were_read(trained):
    directory, _ = trained
    _make(directory).evaluate()
    assert glob.glob(str(directory / '.held-*')) == [] == glob.glob(str(directory / 'best' / '.held-*'))


# Prediction.


@pytest.mark.parametrize('checkpoint', ['latest', 'best'])
def test_predictions_are_those_of_the_weights_example_by_example(trained, tmp_path, checkpoint):
    directory, result = trained
    output = tmp_path / 'p.jsonl'
    done = _make(directory).predict(output, 'valid', checkpoint)
    prefix = result.best.checkpoint if checkpoint == 'best' else str(directory / 'model.ckpt-20')
    assert [line['class'] for line in _lines(output)] == _classes(prefix, VALID[0]).tolist()
    assert done.global_step == (result.best.step if checkpoint == 'best' else 20)
    assert done.status == 'done' and '47 examples' in done.stop_reason


def test_an_input_function_is_predicted_for(trained, tmp_path):
    directory, _ = trained
    modes = []

    def input_fn(mode):
        modes.append(mode)
        return tf.data.Dataset.from_tensor_slices(TEST[0]).batch(7)

    _make(directory, predict_input_fn=input_fn).predict(tmp_path / 'p.npz')
    assert modes == [ModeKeys.PREDICT]
    with np.load(tmp_path / 'p.npz') as file:
        np.testing.assert_array_equal(file['class'], _classes(str(directory / 'model.ckpt-20'), TEST[0]))


def test_the_only_set_needs_no_name_and_several_do(trained, tmp_path):
    directory, _ = trained
    only = {'valid': testing.array_input_fn(*VALID, 10)}
    _make(directory, eval_sets=only).predict(tmp_path / 'p.jsonl')
    assert len(_lines(tmp_path / 'p.jsonl')) == 47
    with pytest.raises(errors.ConfigurationError, match=r'`Experiment.predict_input_fn` is missing.*name one'):
        _make(directory).predict(tmp_path / 'p.jsonl')


def test_an_unknown_set_is_refused_before_anything_is_written(trained, tmp_path):
    with pytest.raises(errors.ConfigurationError, match=r'`sets` \[vali\].*Did you mean `valid`'):
        _make(trained[0]).predict(tmp_path / 'p.jsonl', 'vali')
    assert os.listdir(tmp_path) == []


def test_a_predictor_stays_loaded(trained):
    directory, result = trained
    with _make(directory).predictor('best') as predictor:
        for count in (1, 5):
            features = VALID[0][:count]
            expected = _classes(result.best.checkpoint, features)
            np.testing.assert_array_equal(predictor(features)['class'], expected)
        assert predictor.step == result.best.step


# Export.


def _served(path, features):
    with tf.Graph().as_default(), v1.Session() as session:
        model = v1.saved_model.load(session, [tf.saved_model.SERVING], path)
        signature = model.signature_def['serving_default']
        (fed,) = (info.name for info in signature.inputs.values())
        return session.run(signature.outputs['class'].name, {fed: features})


def test_an_export_serves_the_predictions_of_its_checkpoint(trained):
    directory, result = trained
    path = _make(directory).export('best')
    assert os.path.dirname(path) == str(directory / 'export' / 'best') and re.fullmatch(r'\d{10}', path[-10:])
    np.testing.assert_array_equal(_served(path, TEST[0]), _classes(result.best.checkpoint, TEST[0]))


def test_the_best_is_exported_at_the_end_on_request(tmp_path):
    experiment = _make(tmp_path, keep_best=KeepBest(metric='valid/loss', export=True))
    result = experiment.train_and_evaluate()
    experiment.train_and_evaluate()  # nothing is left to do, so nothing is exported again
    (path,) = glob.glob(str(tmp_path / 'export' / 'best' / '*'))
    np.testing.assert_array_equal(_served(path, TEST[0]), _classes(result.best.checkpoint, TEST[0]))


# Description.


def test_a_description_shows_schedule_streams_and_variables_and_writes_nothing(tmp_path):
    text = _make(tmp_path / 'run').describe()
    assert 'Train to step 20; evaluate `valid` every 5 steps' in text
    for stream, place in {'train': 'training', 'valid': 'tower_0', 'test': 'tower_0'}.items():
        assert re.search(rf'\| {stream} +\| {place} ', text)
    assert 'accuracy' in text and re.search(r'\| weights +\| \[4, 2\] +\| +8 \|', text)
    assert '[float32 ?, 4]' in text
    assert os.listdir(tmp_path) == []


# What follows a metric.


@pytest.mark.parametrize('setting', ['keep_best', 'early_stopping'])
def test_a_metric_that_no_set_produces_is_refused_before_the_first_step(tmp_path, setting):
    kind = {'keep_best': KeepBest, 'early_stopping': EarlyStopping}[setting]
    with pytest.raises(errors.ConfigurationError, match=r'\[valid/acuracy\].*Did you mean `valid/accuracy`') as raised:
        _make(tmp_path, **{setting: kind(metric='valid/acuracy', mode='max')}).train_and_evaluate()
    assert 'There are: valid/accuracy, valid/loss, valid/loss_per_example, test/accuracy' in str(raised.value)
    assert glob.glob(str(tmp_path / 'model.ckpt*')) == []


def test_a_metric_of_a_set_in_a_graph_of_its_own_is_followed(tmp_path):
    result = _make(tmp_path, evaluation_graph='separate').train_and_evaluate()
    shared = _make(tmp_path / 'shared').train_and_evaluate()
    assert result.best.kept == shared.best.kept


def test_training_alone_follows_nothing(tmp_path):
    assert _make(tmp_path).train().best is None


def test_what_follows_changes_no_weight(tmp_path):
    _make(tmp_path / 'a', keep_best=None).train_and_evaluate()
    stopping = EarlyStopping(metric='valid/loss', patience_evals=100)
    _make(tmp_path / 'b', early_stopping=stopping).train_and_evaluate()
    first, second = (testing.checkpoint_values(str(tmp_path / name / 'model.ckpt-20')) for name in 'ab')
    for key, value in first.items():
        np.testing.assert_array_equal(value, second[key])


def test_a_set_over_a_slice_of_the_training_data_has_the_metrics_of_that_slice(tmp_path):
    def in_order(mode):
        del mode  # the order of training, whatever the mode
        return tf.data.Dataset.from_tensor_slices((FEATURES, LABELS)).repeat().batch(10)

    sets = [EvalSet(name='train_slice', input_fn=in_order, steps=3)]
    result = _make(tmp_path, train_input_fn=in_order, eval_sets=sets, keep_best=None).train_and_evaluate()
    classes = _classes(str(tmp_path / 'model.ckpt-20'), FEATURES[:30])
    expected = np.mean(classes == LABELS[:30])
    assert result.metrics['train_slice']['accuracy'] == pytest.approx(expected)


def test_a_set_that_is_for_the_end_only_has_one_pass(tmp_path):
    sets = [
        EvalSet(name='valid', input_fn=testing.array_input_fn(*VALID, 10)),
        EvalSet(name='test', input_fn=testing.array_input_fn(*TEST, 10), only_at_end=True),
    ]
    history = _make(tmp_path, eval_sets=sets).train_and_evaluate().history
    assert history['valid']['step'] == [5, 10, 15, 20] and history['test']['step'] == [20]


def test_metrics_of_training_are_told_with_every_line(tmp_path):
    def model_fn(features, labels, mode):
        made = testing.linear_model_fn(features, labels, mode)
        if mode != ModeKeys.TRAIN:
            return made
        metrics = {'mean': v1.metrics.mean(features)}
        return EstimatorSpec(mode, loss=made.loss, train_op=made.train_op, eval_metric_ops=metrics)

    result = _make(tmp_path, model_fn=model_fn).train_and_evaluate()
    told = result.history['train']['mean']
    assert [row['metrics']['mean'] for row in _lines(tmp_path / 'metrics.jsonl') if row['stream'] == 'train'] == told
    assert [value for _, value in tensorboard.read_scalars(tmp_path)['mean']] == [np.float32(value) for value in told]
    assert result.metrics['train']['mean'] == told[-1]
    _make(tmp_path / 'without', model_fn=model_fn, train_metrics=False).train_and_evaluate()
    assert 'mean' not in tensorboard.read_scalars(tmp_path / 'without')


def test_a_curve_that_the_model_draws_itself_is_not_drawn_twice(tmp_path):
    def model_fn(features, labels, mode):
        made = testing.linear_model_fn(features, labels, mode)
        if mode != ModeKeys.TRAIN:
            return made
        v1.summary.scalar('mean', tf.reduce_mean(features))
        metrics = {'mean': v1.metrics.mean(features)}
        return EstimatorSpec(mode, loss=made.loss, train_op=made.train_op, eval_metric_ops=metrics)

    config = RunConfig(save_summary_steps=10, log_step_count_steps=10)
    _make(tmp_path, model_fn=model_fn, run_config=config).train_and_evaluate()
    steps = [step for step, _ in tensorboard.read_scalars(tmp_path)['mean']]
    assert steps == sorted(set(steps))


# Losses that are not finite.


@pytest.mark.parametrize('fails', [True, False])
def test_a_nan_hook_of_ones_own_decides(tmp_path, fails):
    def model_fn(features, labels, mode):
        made = testing.linear_model_fn(features, labels, mode)
        if mode != ModeKeys.TRAIN:
            return made
        loss = made.loss + np.nan
        hook = v1.train.NanTensorHook(loss, fail_on_nan_loss=fails)
        return EstimatorSpec(mode, loss=loss, train_op=made.train_op, training_hooks=[hook])

    experiment = _make(tmp_path, model_fn=model_fn)
    if fails:
        with pytest.raises(v1.train.NanLossDuringTrainingError, match='NaN loss during training'):
            experiment.train()
    else:
        result = experiment.train()
        assert (result.status, result.stop_reason) == ('stopped', 'a hook asked for it at step 1')


# Warm start.


def test_a_fresh_run_begins_with_the_best_weights_of_another(trained, tmp_path):
    directory, result = trained
    _make(tmp_path, warm_start_from=directory / 'best', train_steps=1, keep_best=None).train()
    begun = testing.checkpoint_values(str(tmp_path / 'model.ckpt-0'))
    best = testing.checkpoint_values(result.best.checkpoint)
    np.testing.assert_array_equal(begun['weights'], best['weights'])
    assert begun['global_step'] == 0


def test_a_run_that_goes_on_does_not_begin_again(trained, tmp_path):
    _make(tmp_path, train_steps=5, keep_best=None).train()
    before = testing.checkpoint_values(str(tmp_path / 'model.ckpt-5'))
    _make(tmp_path, warm_start_from=trained[0], train_steps=5, keep_best=None).train()
    after = testing.checkpoint_values(v1.train.latest_checkpoint(str(tmp_path)))
    np.testing.assert_array_equal(before['weights'], after['weights'])


def test_what_a_warm_start_loads_is_told(trained, tmp_path, caplog):
    caplog.set_level('INFO')
    settings = WarmStartSettings(str(trained[0]), vars_to_warm_start='weights')
    _make(tmp_path, warm_start_from=settings, train_steps=1, keep_best=None).train()
    table = next(message for message in caplog.messages if message.startswith('Warm start from'))
    assert re.search(r'\| weights +\| weights +\| \[4, 2\] +\| loaded', table)


# Slips.


@pytest.mark.parametrize(
    ('settings', 'text'),
    [
        ({'on_train_end': 'again'}, r"`Experiment.on_train_end` \['again'\] is no such choice"),
        ({'train_epochs': 3}, r"`Experiment.train_epochs` \[3\] counts epochs, and with .* \['stop'\]"),
        ({'eval_every_epochs': 2, 'eval_every_steps': None}, r'`Experiment.eval_every_epochs` counts epochs'),
        ({'eval_every_epochs': 2}, r'`Experiment.eval_every_steps` \[5\] and .*say different things'),
        ({'eval_every_secs': -1, 'eval_every_steps': None}, r'`Experiment.eval_every_secs` \[-1\] must be a positive'),
        ({'keep_best': 'valid/loss'}, r"`Experiment.keep_best` \['valid/loss'\] must be a KeepBest.*= @KeepBest\(\)"),
        ({'early_stopping': KeepBest(metric='valid/loss')}, r'`Experiment.early_stopping` .* must be an EarlyStopping'),
        ({'on_nan': 'explode'}, r"`Experiment.on_nan` \['explode'\] is no such choice"),
        ({'train_metrics': 1}, r'`Experiment.train_metrics` \[1\] must be True or False'),
        ({'warm_start_from': 3}, r'`warm_start_from` \[3\] must be a path'),
        ({'serving_input_receiver_fn': 3}, r'`Experiment.serving_input_receiver_fn` \[3\] must be a function'),
        (
            {'run_config': RunConfig(save_checkpoints_secs=None, save_checkpoints_steps=None)},
            r'`KeepBest` saves by commits, and `RunConfig` has switched them off',
        ),
    ],
)
def test_a_slip_in_a_setting_is_refused(tmp_path, settings, text):
    with pytest.raises(errors.ConfigurationError, match=text):
        _make(tmp_path, **settings)


@pytest.mark.parametrize(
    ('settings', 'text'),
    [
        ({'every_steps': 5, 'every_epochs': 1}, r'`EvalSet.every_steps` \[5\] and `EvalSet.every_epochs` \[1\] say'),
        ({'every_secs': 5, 'only_at_end': True}, r'`EvalSet.every_secs` \[5\] and `EvalSet.only_at_end` \[True\] say'),
        ({'every_secs': 0}, r'`EvalSet.every_secs` \[0\] must be a positive number'),
        ({'only_at_end': 'yes'}, r"`EvalSet.only_at_end` \['yes'\] must be True or False"),
    ],
)
def test_a_set_has_one_period(settings, text):
    with pytest.raises(errors.ConfigurationError, match=text):
        EvalSet(name='valid', input_fn=lambda: None, **settings)
