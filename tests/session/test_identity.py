"""Every change between two starts: the run goes on, or it refuses with the lines that have changed."""

import os
import pathlib
import shutil

import pytest
import tensorflow as tf
from tensorflow.compat import v1
from tensorflow.core.protobuf import rewriter_config_pb2

from framework import EvalSet, Experiment, KeepBest, RunConfig, errors, testing
from framework.spec import ModeKeys

FEATURES, LABELS = testing.blobs(40)


def _model(learning_rate=0.1, activation=None, extra=False):
    def model_fn(features, labels, mode):
        if activation is not None:
            features = activation(features)
        if extra and mode != ModeKeys.TRAIN:
            v1.summary.scalar('extra', tf.reduce_mean(features))
        return testing.linear_model_fn(features, labels, mode, learning_rate)

    return model_fn


def _data(batch_size=4, shuffle=20, scale=1.0):
    def input_fn(mode):
        dataset = tf.data.Dataset.from_tensor_slices((FEATURES * scale, LABELS))
        if mode == ModeKeys.TRAIN:
            dataset = dataset.shuffle(shuffle).map(lambda x, y: (x + tf.random.normal([4], stddev=0.1), y)).repeat()
        return dataset.batch(batch_size)

    return input_fn


def _make(directory, **changes):
    settings = {
        'model_fn': _model(),
        'train_input_fn': _data(),
        'eval_sets': {'valid': _data()},
        'train_steps': 4,
        'model_dir': str(directory),
        'seed': 1,
        'run_config': RunConfig(save_checkpoints_steps=2),
    }
    return Experiment(**{**settings, **changes})


@pytest.fixture(scope='module')
def begun(tmp_path_factory):
    """A directory with a run of 4 steps, copied for each test."""
    directory = tmp_path_factory.mktemp('begun') / 'run'
    _make(directory).train_and_evaluate()
    return directory


@pytest.fixture
def directory(begun, tmp_path):

    return shutil.copytree(begun, tmp_path / 'run')


GOES_ON = {
    'nothing': {},
    'more steps': {'train_steps': 6},
    'a period': {'eval_every_steps': 1},
    'a pass at the start': {'eval_at_start': True},
    'another set': {'eval_sets': {'valid': _data(), 'test': _data()}},
    'no set': {'eval_sets': ()},
    'a smaller batch of evaluation': {'eval_sets': {'valid': _data(batch_size=2)}},
    'evaluation apart': {'evaluation_graph': 'separate'},
    'a summary of evaluation': {'model_fn': _model(extra=True)},
    'a limit of a set': {'eval_sets': [EvalSet(name='valid', input_fn=_data(), steps=1)]},
    'the best kept': {'keep_best': KeepBest(metric='valid/accuracy')},
    'cadences': {'run_config': RunConfig(save_checkpoints_steps=3, save_summary_steps=1, log_step_count_steps=1)},
    'fewer commits kept': {'run_config': RunConfig(save_checkpoints_steps=2, keep_checkpoint_max=1)},
    'no sanity batches': {'sanity_batches': 0},
    'a hook': {'train_hooks': [testing.RecordingHook()]},
    'the policy for NaN': {'on_nan': 'stop'},
    'metrics of training': {'train_metrics': False},
    'data that may start again': {'on_train_end': 'restart'},
}
REFUSES = {
    'the learning rate': ({'model_fn': _model(0.2)}, ['graph of training: not the same']),
    'the model': ({'model_fn': _model(activation=tf.tanh)}, ['graph of training: not the same']),
    'the batch size': ({'train_input_fn': _data(batch_size=2)}, ['training data: not the same']),
    'the shuffle': ({'train_input_fn': _data(shuffle=5)}, ['training data: not the same']),
    'the values of the data': ({'train_input_fn': _data(scale=2.0)}, ['training data: not the same']),
    'the seed': ({'seed': 2}, ['seed: 1, now 2']),
}


@pytest.mark.parametrize('change', GOES_ON)
def test_a_run_goes_on(directory, change):
    settings = {'train_steps': 5, **GOES_ON[change]}
    result = _make(directory, **settings).train_and_evaluate()
    assert (result.status, result.global_step) == ('done', settings['train_steps'])


@pytest.mark.parametrize('change', REFUSES)
def test_a_run_that_would_draw_or_compute_otherwise_is_refused(directory, change):
    settings, lines = REFUSES[change]
    with pytest.raises(errors.RunDirectoryError) as raised:
        _make(directory, train_steps=5, **settings).train_and_evaluate()
    for line in [*lines, '`--resume=force`']:
        assert line in str(raised.value)
    # Nothing was touched: the run goes on by its own settings.
    assert _make(directory, train_steps=5).train_and_evaluate().global_step == 5


@pytest.mark.parametrize('change', REFUSES)
def test_a_run_goes_on_all_the_same_by_force(directory, change, caplog):
    settings, lines = REFUSES[change]
    result = _make(directory, train_steps=5, resume='force', **settings).train_and_evaluate()
    assert result.global_step == 5
    for line in lines:
        assert line in caplog.text


def test_a_directory_with_a_run_is_refused_where_none_may_be(directory, tmp_path):
    with pytest.raises(errors.RunDirectoryError, match=r"holds a run at step 4, and `resume` is \['never'\]"):
        _make(directory, resume='never').train_and_evaluate()
    assert _make(tmp_path / 'new', resume='never').train_and_evaluate().global_step == 4


def test_nothing_is_refused_where_nothing_is_promised(directory):
    _make(directory, reproducible='off', train_steps=5, seed=2).train_and_evaluate()


# What can't come again to the bit.


def _with_python(mode):
    dataset = tf.data.Dataset.from_tensor_slices((FEATURES, LABELS))
    if mode == ModeKeys.TRAIN:
        python = lambda x: tf.py_function(lambda v: v, [x], tf.float32)  # noqa: E731
        dataset = dataset.map(lambda x, y: (tf.ensure_shape(python(x), [4]), y)).repeat()
    return dataset.batch(4)


def test_what_is_not_sure_to_come_again_is_said_in_a_line(tmp_path, caplog):
    _make(tmp_path, train_input_fn=_with_python).train()
    (line,) = [message for message in caplog.messages if 'Not sure to come again' in message]
    assert 'EagerPyFunc' in line and 'test_identity.py:' in line


def test_what_is_not_sure_to_come_again_is_refused_where_all_must(tmp_path, monkeypatch):
    monkeypatch.setattr(tf.config.experimental, 'enable_op_determinism', lambda: None)  # it is for the whole process
    with pytest.raises(
        errors.ConfigurationError, match=r"\['exact'\] needs a graph that does the same again.*\n.*EagerPy"
    ):
        _make(tmp_path, train_input_fn=_with_python, reproducible='exact').train()


def test_tensors_are_added_up_in_one_order_where_all_must_come_again(tmp_path, monkeypatch):
    monkeypatch.setattr(tf.config.experimental, 'enable_op_determinism', lambda: None)
    seen = []

    def model_fn(features, labels, mode, config):
        proto = config.session_config or v1.ConfigProto()
        rewritten = (
            proto.graph_options.rewrite_options.arithmetic_optimization != rewriter_config_pb2.RewriterConfig.OFF
        )
        seen.append((tf.add_n([features, features, features]).op.type, rewritten))
        return testing.linear_model_fn(features, labels, mode)

    for level in ('best_effort', 'exact'):
        _make(tmp_path / level, model_fn=model_fn, reproducible=level).train()
    assert set(seen[: len(seen) // 2]) == {('AddN', True)} and set(seen[len(seen) // 2 :]) == {('AddV2', False)}


def test_data_whose_place_can_not_be_saved_is_read_again_up_to_it(tmp_path, caplog):

    def input_fn(mode):
        def generate():
            yield from zip(FEATURES, LABELS, strict=True)

        spec = (tf.TensorSpec([4]), tf.TensorSpec([], tf.int64))
        dataset = tf.data.Dataset.from_generator(generate, output_signature=spec)
        return (dataset.repeat() if mode == ModeKeys.TRAIN else dataset).batch(4)

    def weights(directory):
        return testing.checkpoint_values(str(directory / 'model.ckpt-7'))['weights']

    _make(tmp_path / 'whole', train_input_fn=input_fn, train_steps=7).train()
    _make(tmp_path / 'parts', train_input_fn=input_fn, train_steps=3).train()
    assert 'The place in the training data can not be saved' in caplog.text
    caplog.set_level('INFO')
    _make(tmp_path / 'parts', train_input_fn=input_fn, train_steps=7).train()
    assert 'Reading 3 elements of the training data again' in caplog.text
    assert (weights(tmp_path / 'whole') == weights(tmp_path / 'parts')).all()


def test_data_that_look_up_tables_have_a_place_that_is_saved(tmp_path, caplog):
    def input_fn(mode):
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([0, 1], [0.0, 1.0]), -1.0)
        dataset = tf.data.Dataset.from_tensor_slices((FEATURES, tf.cast(LABELS, tf.int32)))
        dataset = dataset.map(lambda x, y: (x + table.lookup(y), tf.cast(y, tf.int64)))
        return (dataset.shuffle(20).repeat() if mode == ModeKeys.TRAIN else dataset).batch(4)

    _make(tmp_path / 'whole', train_input_fn=input_fn, train_steps=7).train()
    _make(tmp_path / 'parts', train_input_fn=input_fn, train_steps=3).train()
    _make(tmp_path / 'parts', train_input_fn=input_fn, train_steps=7).train()
    assert 'can not be saved' not in caplog.text and 'again' not in caplog.text
    first, second = (testing.checkpoint_values(str(tmp_path / name / 'model.ckpt-7')) for name in ('whole', 'parts'))
    assert (first['weights'] == second['weights']).all()


def test_own_iterators_are_all_read_again_up_to_the_place(tmp_path):
    def input_fn(mode):
        del mode
        features = tf.data.Dataset.from_tensor_slices(FEATURES).repeat().batch(4)
        labels = tf.data.Dataset.from_tensor_slices(LABELS).repeat().batch(4)
        return tuple(v1.data.make_one_shot_iterator(data).get_next() for data in (features, labels))

    settings = {'train_input_fn': input_fn, 'eval_sets': ()}
    _make(tmp_path / 'whole', train_steps=7, **settings).train()
    _make(tmp_path / 'parts', train_steps=3, **settings).train()
    _make(tmp_path / 'parts', train_steps=7, **settings).train()
    first, second = (testing.checkpoint_values(str(tmp_path / name / 'model.ckpt-7')) for name in ('whole', 'parts'))
    assert (first['weights'] == second['weights']).all()


def test_other_data_begin_at_their_beginning_by_force(directory, caplog):
    _make(directory, train_steps=5, resume='force', train_input_fn=_data(shuffle=5)).train()
    assert 'The training data begins again' in caplog.text


def test_a_refused_start_leaves_the_result_of_the_run(directory):
    before = (directory / 'result.json').read_text()
    with pytest.raises(errors.RunDirectoryError):
        _make(directory, seed=2).train()
    with pytest.raises(errors.RunDirectoryError):
        _make(directory, resume='never').train()
    assert (directory / 'result.json').read_text() == before


def _truncate(path):
    os.truncate(path, path.stat().st_size // 2)


def _flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize('damage', [_truncate, _flip_a_bit, lambda path: path.write_bytes(b''), pathlib.Path.unlink])
@pytest.mark.parametrize('part', ['index', 'data-00000-of-00001'])
def test_a_damaged_place_in_the_data_sets_its_commit_aside(directory, caplog, damage, part):
    damage(directory / f'state-4.position.{part}')
    assert _make(directory, train_steps=5).train().global_step == 5
    assert 'Going on from the commit before: step 2' in caplog.text
