"""Warm start: what is loaded, under which name, and what is said of the rest.

The checkpoint and the models are those with which `tf.estimator` 2.15 was run, with the same settings. What it did is
repeated here by numpy; where it failed or drew lots, a test says what we do instead.
"""

import os
import pathlib
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.compat import v1

from framework import errors, testing
from framework.graph import compiled, movement
from framework.reporting import rows
from framework.run_config import EvalSet
from framework.session import checkpoints, warm_start
from framework.warm_start import VocabInfo, WarmStartSettings

COLD = -1.0
SAVED = {
    'emb': np.arange(8, dtype=np.float32).reshape(4, 2) + 1,  # of the words a, b, c, d
    'emb/Momentum': np.full((4, 2), 3, np.float32),
    'b': np.float32([10, 20, 30]),
    'b/Momentum': np.full(3, 9, np.float32),
    'old_b': np.float32([0.5, 0.25, 0.125]),
    'stat': np.float32([7]),
    'head': np.arange(6, dtype=np.float32).reshape(2, 3) + 100,  # of the classes p, q, r
    'part': np.arange(10, dtype=np.float32).reshape(5, 2) - 5,
    'global_step': np.int64(42),
}
SHAPES = {'emb': (4, 2), 'b': (3,), 'stat': (1,), 'head': (2, 3)}


def _save(prefix, values=SAVED, **settings):
    with tf.Graph().as_default(), v1.Session() as session:
        for name, value in values.items():
            v1.get_variable(name, initializer=tf.constant(value))
        session.run(v1.global_variables_initializer())
        return v1.train.Saver().save(session, str(prefix), write_meta_graph=False, **settings)


@pytest.fixture(scope='module')
def saved(tmp_path_factory):
    return _save(tmp_path_factory.mktemp('saved') / 'model.ckpt', global_step=42)


@pytest.fixture
def words(tmp_path):
    """Returns a function that makes vocabularies: of one letter a word."""

    def of(new, old, oov=0, **settings):
        for name, letters in (('new.txt', new), ('old.txt', old)):
            (tmp_path / name).write_text(''.join(f'{letter}\n' for letter in letters))
        return VocabInfo(str(tmp_path / 'new.txt'), len(new), oov, str(tmp_path / 'old.txt'), **settings)

    return of


def _variable(name, shape, **settings):
    return v1.get_variable(name, shape, initializer=v1.constant_initializer(COLD), **settings)


def _model(names=('emb', 'b', 'stat', 'head'), **shapes):
    """A model in the default graph that trains by momentum; `stat` is no weight."""
    step = v1.train.create_global_step()
    made = {name: _variable(name, {**SHAPES, **shapes}[name], trainable=name != 'stat') for name in names}
    loss = tf.add_n([tf.reduce_sum(variable) for variable in made.values()])
    return v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, step)


def _values(session):
    variables = v1.global_variables()
    return {v.op.name: value for v, value in zip(variables, session.run(variables), strict=True)}


def _prepare(settings, scaffold=None):
    return warm_start.prepare(settings, v1.get_default_graph(), scaffold or v1.train.Scaffold())


def _started(settings, scaffold=None):
    """Returns the values with which a fresh run begins."""
    scaffold = scaffold or v1.train.Scaffold()
    prepared = _prepare(settings, scaffold)
    with v1.train.SingularMonitoredSession(hooks=[prepared.hook], scaffold=scaffold) as session:
        return _values(session.raw_session())


def _assert_loaded(started, *names, **values):
    """Checks that some are as they were saved, some have other values, slots begin with 0 and the others cold."""
    expected = {name: SAVED[name] for name in names} | values
    for name, value in started.items():
        cold = 0 if name.endswith('Momentum') or name == 'global_step' else COLD
        np.testing.assert_array_equal(value, np.broadcast_to(expected.pop(name, cold), value.shape), err_msg=name)
    assert not expected


# Which variables


def test_an_expression_means_weights_neither_slots_nor_statistics_nor_the_step(saved):
    _model()
    _assert_loaded(_started(WarmStartSettings(saved)), 'emb', 'b', 'head')


@pytest.mark.parametrize('expression', ['b', 'b:0$', '(b|nothing)'])
def test_an_expression_is_matched_at_the_beginning_of_the_name_with_its_output(saved, expression):
    _model()
    _assert_loaded(_started(WarmStartSettings(saved, expression)), 'b')


def test_a_list_means_all_global_variables_slots_too(saved):
    _model()
    _assert_loaded(_started(WarmStartSettings(saved, ['stat', 'b'])), 'stat', 'b', 'b/Momentum')


def test_a_list_that_means_everything_means_the_global_step_too(saved):
    _model(('emb', 'b'))
    everything = ['emb', 'b', 'emb/Momentum', 'b/Momentum', 'global_step']
    _assert_loaded(_started(WarmStartSettings(saved, ['.*'])), *everything)


def test_a_variable_that_two_expressions_mean_is_loaded_once(saved):
    # tf.estimator failed: At least two variables have the same name.
    _model(('b',))
    _assert_loaded(_started(WarmStartSettings(saved, ['b', 'b:0'])), 'b', 'b/Momentum')


def test_without_an_expression_and_a_vocabulary_nothing_is_loaded(saved):
    _model()
    _assert_loaded(_started(WarmStartSettings(saved, None, None, {'b': 'old_b'})))


# Other names


def test_a_variable_takes_the_value_of_its_previous_name(saved):
    _model()
    _assert_loaded(
        _started(WarmStartSettings(saved, '.*', None, {'b': 'old_b'})), 'emb', 'head', b=np.float32([0.5, 0.25, 0.125])
    )


def test_two_variables_may_take_the_same_value(saved):
    _model(('b', 'c'), c=(3,))
    started = _started(WarmStartSettings(saved, '.*', None, {'b': 'old_b', 'c': 'old_b'}))
    _assert_loaded(started, b=SAVED['old_b'], c=SAVED['old_b'])


# Vocabularies


def _remapped(saved, new, old, fill=0.0):
    return np.stack([saved[old.index(word)] if word in old else np.full_like(saved[0], fill) for word in new])


def test_rows_follow_their_words_and_new_ones_are_zero(saved, words):
    _model()
    started = _started(WarmStartSettings(saved, None, {'emb': words('cxa', 'abcd', oov=1)}))
    _assert_loaded(started, emb=_remapped(SAVED['emb'], 'cxa?', 'abcd'))
    np.testing.assert_array_equal(started['emb'], [[5, 6], [0, 0], [1, 2], [0, 0]])  # as tf.estimator had it


def test_only_the_first_words_of_the_old_vocabulary_count_if_it_is_said_so(saved, words):
    _model()
    started = _started(WarmStartSettings(saved, None, {'emb': words('cxa', 'abcd', oov=1, old_vocab_size=2)}))
    _assert_loaded(started, emb=_remapped(SAVED['emb'], 'cxa?', 'ab'))


def test_columns_follow_their_words(saved, words):
    _model(head=(2, 5))
    started = _started(WarmStartSettings(saved, None, {'head': words('rzp', 'pqr', oov=2, axis=1)}))
    _assert_loaded(started, head=_remapped(SAVED['head'].T, 'rzp??', 'pqr').T)


@pytest.mark.parametrize(
    'backup',
    [v1.ones_initializer(), v1.constant_initializer(1.0), tf.constant_initializer(1.0)],
    ids=['v1.ones', 'v1.constant', 'constant'],
)
def test_new_rows_get_what_the_backup_initializer_makes(saved, words, backup):
    # A constant broke in tf.estimator: the number of missing values is known in the run only.
    _model()
    info = words('cxa', 'abcd', oov=1, backup_initializer=backup)
    _assert_loaded(
        _started(WarmStartSettings(saved, None, {'emb': info})), emb=_remapped(SAVED['emb'], 'cxa?', 'abcd', 1)
    )


def test_random_new_rows_are_those_of_the_seed(saved, words):
    info = words('cxa', 'abcd', oov=1, backup_initializer=v1.glorot_uniform_initializer())

    def start():
        with tf.Graph().as_default():
            v1.set_random_seed(3)
            _model()
            return _started(WarmStartSettings(saved, None, {'emb': info}))['emb']

    first = start()
    assert np.unique(first[[1, 3]]).size == 4
    np.testing.assert_array_equal(first, start())


def test_a_list_remaps_the_variable_and_loads_its_slot_as_it_is(saved, words):
    _model(('emb',))
    started = _started(WarmStartSettings(saved, ['emb'], {'emb': words('cxa', 'abcd', oov=1)}))
    _assert_loaded(started, 'emb/Momentum', emb=_remapped(SAVED['emb'], 'cxa?', 'abcd'))


# Kinds of variables and of checkpoints


@pytest.mark.parametrize('use_resource', [True, False])
def test_a_partitioned_variable_takes_its_parts_of_the_whole(saved, use_resource):
    v1.train.create_global_step()
    _variable('part', (5, 2), partitioner=v1.fixed_size_partitioner(2), use_resource=use_resource)
    started = _started(WarmStartSettings(saved))
    np.testing.assert_array_equal(np.concatenate([started['part/part_0'], started['part/part_1']]), SAVED['part'])


def test_a_partitioned_variable_is_remapped_as_a_whole(saved, words):
    v1.train.create_global_step()
    _variable('part', (5, 2), partitioner=v1.fixed_size_partitioner(2), use_resource=True)
    started = _started(WarmStartSettings(saved, None, {'part': words('cxa', 'abcd', oov=2)}))
    whole = np.concatenate([started['part/part_0'], started['part/part_1']])
    np.testing.assert_array_equal(whole, _remapped(SAVED['part'], 'cxa??', 'abcd'))


def test_a_vocabulary_is_refused_for_a_variable_in_pieces_of_rows(saved, words):
    _variable('part', (5, 2), partitioner=v1.fixed_size_partitioner(2, axis=1), use_resource=True)
    with pytest.raises(errors.ConfigurationError, match='`part` is partitioned along its columns'):
        _prepare(WarmStartSettings(saved, None, {'part': words('cxa', 'abcd', oov=2)}))


def test_layers_of_keras_are_loaded(tmp_path):
    values = {'dense/kernel': np.float32([[1, 2], [3, 4]]), 'dense/bias': np.float32([5, 6])}
    path = _save(tmp_path / 'model.ckpt', values)
    v1.train.create_global_step()
    tf_keras.layers.Dense(2)(tf.ones([1, 2]))
    started = _started(WarmStartSettings(path))
    np.testing.assert_array_equal(started['dense/kernel'], values['dense/kernel'])
    np.testing.assert_array_equal(started['dense/bias'], values['dense/bias'])


def test_a_checkpoint_of_objects_is_loaded_by_the_names_of_its_variables(tmp_path):
    with tf.Graph().as_default(), v1.Session().as_default() as session:
        weight = v1.get_variable('b', initializer=tf.constant(SAVED['b']), use_resource=True)
        session.run(weight.initializer)
        path = tf.train.Checkpoint(some=tf.train.Checkpoint(attribute=weight)).write(str(tmp_path / 'objects'))
    _model(('b',))
    _assert_loaded(_started(WarmStartSettings(path)), 'b')


def test_a_saved_model_is_loaded(tmp_path):
    directory = str(tmp_path / 'exported')
    with tf.Graph().as_default(), v1.Session() as session:
        v1.get_variable('b', initializer=tf.constant(SAVED['b']))
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(directory)
        builder.add_meta_graph_and_variables(session, ['serve'])
        builder.save()
    _model(('b',))
    _assert_loaded(_started(WarmStartSettings(directory)), 'b')


# In the one graph


def _model_fn(features, labels, mode):
    hidden = v1.layers.dense(features, 3, name='hidden')
    hidden = v1.layers.dropout(hidden, 0.5, training=mode == 'train')
    return testing.linear_model_fn(hidden, labels, mode)


def _compile():
    data = testing.array_input_fn(*testing.blobs(20), 4)
    model = compiled.Model(_model_fn, None, None)
    return compiled.compile_graph(model, data, [EvalSet(name='valid', input_fn=data)], seed=1)


def test_training_and_evaluation_begin_with_the_loaded_weights_and_no_step_reads_a_file(tmp_path):
    kernel, weights = np.float32([[1, 2, 3]] * 4), np.float32([[1, 0], [0, 1], [0, 0]])
    path = _save(
        tmp_path / 'model.ckpt', {'hidden/kernel': kernel, 'hidden/bias': np.zeros(3, 'f'), 'weights': weights}
    )
    built = _compile()
    train = [built.train.spec.train_op, built.train.spec.loss, built.train.step_after]
    tower = [built.towers[0].update, *built.towers[0].values.values()]
    before = [op.node_def for op in movement.ancestors(train)]
    names = [variable.name for variable in built.graph.get_collection('variables')]
    with built.graph.as_default():
        scaffold = v1.train.Scaffold()
        prepared = _prepare(WarmStartSettings(path), scaffold)
        with v1.train.SingularMonitoredSession(hooks=[prepared.hook], scaffold=scaffold) as session:
            started = _values(session.raw_session())
            session.raw_session().run([built.init, *built.train.input.initializers.values()])
            session.run(built.train.spec.train_op)
    np.testing.assert_array_equal(started['hidden/kernel'], kernel)
    np.testing.assert_array_equal(started['weights'], weights)
    assert [variable.name for variable in built.graph.get_collection('variables')] == names
    assert [op.node_def for op in movement.ancestors(train)] == before
    kinds = {op.type for op in movement.ancestors([*train, *tower])}
    assert not kinds & {'RestoreV2', 'LoadAndRemapMatrix', 'GenerateVocabRemapping'}


def test_the_checkpoint_is_read_once_and_may_then_go(tmp_path):
    path = _save(tmp_path / 'model.ckpt', {'b': SAVED['b']})
    _model(('b',))

    def remove(scaffold, session):  # runs right after the init op
        del scaffold, session
        for file in tmp_path.glob('model.ckpt*'):
            file.unlink()

    _assert_loaded(_started(WarmStartSettings(path), v1.train.Scaffold(init_fn=remove)), 'b')


def test_init_fn_has_the_last_word(saved):
    _model(('b',))
    assign = v1.trainable_variables()[0].assign([7, 7, 7]).op
    scaffold = v1.train.Scaffold(init_fn=lambda scaffold, session: session.run(assign))
    _assert_loaded(_started(WarmStartSettings(saved), scaffold), b=np.float32([7, 7, 7]))


def test_an_init_op_of_the_users_own_makes_no_cold_start(saved):
    # In tf.estimator it did: the op was made before the initializers were changed.
    _model()
    scaffold = v1.train.Scaffold(init_op=v1.global_variables_initializer())
    _assert_loaded(_started(WarmStartSettings(saved), scaffold), 'emb', 'b', 'head')


def test_moving_averages_begin_with_the_loaded_values(saved):
    # In tf.estimator they drew lots: their initializers ran beside the loading.
    _model(('b',))
    average = v1.train.ExponentialMovingAverage(0.9)
    weight = v1.trainable_variables()[0]
    average.apply([weight])
    of_the_average = v1.train.ExponentialMovingAverage(0.5, name='Twice')
    of_the_average.apply([average.average(weight)])
    init_op = v1.global_variables_initializer()
    scaffold = mock.create_autospec(v1.train.Scaffold, instance=True, init_op=init_op)
    prepared = _prepare(WarmStartSettings(saved), scaffold)
    with v1.Session() as session:  # the averages come first, which is the worst case
        session.run([v.initializer for v in v1.global_variables() if v is not weight])
        session.run(weight.initializer)
        prepared.hook.after_create_session(session, None)
        started = _values(session)
    np.testing.assert_array_equal(started['b/ExponentialMovingAverage'], SAVED['b'])
    np.testing.assert_array_equal(started['b/ExponentialMovingAverage/Twice'], SAVED['b'])


# What is said


def _message(settings, kind=errors.ConfigurationError):
    with pytest.raises(kind) as caught:
        _prepare(settings)
    return str(caught.value)


def test_every_variable_that_does_not_fit_is_named(tmp_path):
    values = {'emb': SAVED['emb'][:3], 'b': np.float64([1, 2, 3]), 'headd': SAVED['head']}
    path = _save(tmp_path / 'model.ckpt', values)
    _model()
    assert _message(WarmStartSettings(path)) == (
        f'`warm_start_from` [{path}] does not fit the model [`emb` has shape (4, 2), in the checkpoint (3, 2); `b` has '
        'dtype float32, in the checkpoint float64; `head` is not in the checkpoint. Did you mean `headd`?]. Leave them '
        'out of `vars_to_warm_start`, give their old names in `var_name_to_prev_var_name`, or set '
        '`WarmStartSettings.strict = False` to leave them at their initial values.'
    )


def test_lenient_settings_leave_what_does_not_fit_cold_and_say_so(tmp_path):
    path = _save(tmp_path / 'model.ckpt', {'emb': SAVED['emb'][:3], 'b': SAVED['b']})
    _model(('emb', 'b', 'stat'))
    settings = WarmStartSettings(path, strict=False)
    scaffold = v1.train.Scaffold()
    prepared = _prepare(settings, scaffold)
    assert prepared.rows == [
        rows.WarmStartRow('emb', 'emb', (4, 2), False, 'has shape (4, 2), in the checkpoint (3, 2)'),
        rows.WarmStartRow('b', 'b', (3,), True),
    ]
    with v1.train.SingularMonitoredSession(hooks=[prepared.hook], scaffold=scaffold) as session:
        _assert_loaded(_values(session), 'b')


def test_rows_name_what_is_not_meant_and_how_a_matrix_is_put_together(saved, words):
    _model()
    prepared = _prepare(WarmStartSettings(saved, 'emb', {'emb': words('cxa', 'abcd', oov=1)}, {'emb': 'part'}, False))
    assert prepared.rows == [
        rows.WarmStartRow('emb', 'part', (4, 2), True, 'by vocabulary: 2 of 3 entries known'),
        rows.WarmStartRow('b', '', (3,), False, 'not meant'),
        rows.WarmStartRow('head', '', (2, 3), False, 'not meant'),
    ]


def test_without_an_expression_weights_without_a_vocabulary_are_said_to_have_none(saved):
    _model(('b',))
    assert _prepare(WarmStartSettings(saved, None)).rows == [
        rows.WarmStartRow('b', 'b', (3,), False, 'has no vocabulary')
    ]


@pytest.mark.parametrize('field', ['var_name_to_prev_var_name', 'var_name_to_vocab_info'])
@pytest.mark.parametrize('name', ['embb', 'stat'])
@pytest.mark.parametrize('strict', [True, False])
def test_a_name_that_is_not_used_is_an_error_with_the_nearest(saved, words, field, name, strict):
    # tf.estimator: You provided the following variables in ... that were not used: {'embb'}.
    _model()
    value = words('abcd', 'abcd') if field == 'var_name_to_vocab_info' else 'emb'
    near = {'embb': 'Did you mean `emb`?', 'stat': 'Valid names: `b`, `emb`, `head`.'}[name]
    assert _message(WarmStartSettings(saved, strict=strict, **{field: {name: value}})) == (
        f"`WarmStartSettings.{field}` [{name}] is no variable that `vars_to_warm_start` ['.*'] means. {near}"
    )


def test_an_expression_that_means_nothing_is_an_error(saved):
    _model()
    assert _message(WarmStartSettings(saved, ['b', 'heat'])) == (
        '`WarmStartSettings.vars_to_warm_start` [heat] means none of the global variables. Did you mean `head`?'
    )


def test_an_expression_that_means_nothing_is_a_warning_if_lenient(saved, caplog):
    _model()
    _assert_loaded(_started(WarmStartSettings(saved, 'stat', strict=False)))
    assert '`WarmStartSettings.vars_to_warm_start` [stat] means none of the trainable variables' in caplog.text


def test_a_previous_name_that_is_not_there_is_named(saved):
    _model()
    message = _message(WarmStartSettings(saved, 'b', None, {'b': 'old'}))
    assert '`b` is not in the checkpoint as `old`. Did you mean `old_b`?' in message


@pytest.mark.parametrize(
    ('name', 'settings', 'fault'),
    [
        ('b', {}, '`b` has shape (3,), in the checkpoint (3,), and a vocabulary needs two axes'),
        ('emb', {'oov': 0}, '`emb` has 4 entries along axis 0, its vocabulary 3 + 0'),
        ('head', {'oov': 1}, '`head` has size 3 along axis 1, in the checkpoint 5'),
        ('head', {'oov': 1, 'axis': 1}, '`head` has 3 entries along axis 1, its vocabulary 3 + 1'),
    ],
)
def test_a_vocabulary_that_does_not_fit_is_named(tmp_path, words, name, settings, fault):
    path = _save(tmp_path / 'model.ckpt', {**SAVED, 'head': np.zeros((2, 5), np.float32)})
    _model()
    assert fault in _message(WarmStartSettings(path, None, {name: words('cxa', 'abcd', **settings)}))


def test_a_vocabulary_with_words_beyond_the_saved_rows_is_named(saved, words):
    _model()
    fault = '`emb` has 4 entries in the checkpoint, and `.*old.txt` has known ones beyond'
    with pytest.raises(errors.ConfigurationError, match=fault):
        _prepare(WarmStartSettings(saved, None, {'emb': words('cxg', 'abcdefgh', oov=1)}))


def test_a_vocabulary_file_that_is_not_there_or_too_short_is_named(saved, words):
    _model()
    info = words('cxa', 'abcd', oov=1)
    with pytest.raises(errors.ConfigurationError, match=r'has 3 lines, and `new_vocab_size` is 4'):
        _prepare(WarmStartSettings(saved, None, {'emb': info._replace(new_vocab_size=4, num_oov_buckets=0)}))
    pathlib.Path(info.old_vocab).unlink()
    with pytest.raises(errors.ConfigurationError, match=r'`VocabInfo` \[.*old.txt\] can not be read \(NotFoundError\)'):
        _prepare(WarmStartSettings(saved, None, {'emb': info}))


def test_damaged_values_are_found_when_the_session_opens(tmp_path):
    path = _save(tmp_path / 'model.ckpt')
    os.truncate(f'{path}.data-00000-of-00001', 4)
    _model()
    scaffold = v1.train.Scaffold()
    prepared = _prepare(WarmStartSettings(path), scaffold)
    with (
        pytest.raises(errors.RunDirectoryError, match=r'model\.ckpt` can not be read: its files are damaged'),
        prepared.explained(),
    ):
        v1.train.SingularMonitoredSession(hooks=[prepared.hook], scaffold=scaffold)


def test_an_error_that_is_not_the_files_stays_as_it_is(saved):
    _model()
    prepared = _prepare(WarmStartSettings(saved))
    with pytest.raises(ValueError, match='of a hook'), prepared.explained():
        raise ValueError('of a hook')


# Where the checkpoint is


def test_a_prefix_means_itself(saved):
    assert checkpoints.resolve(saved) == saved


def test_a_directory_means_the_newest_checkpoint_that_its_file_names(tmp_path):
    best = tmp_path / 'best'
    best.mkdir()
    newest = _save(tmp_path / 'model.ckpt', {'b': SAVED['b']}, global_step=4)
    _save(best / 'model.ckpt', {'b': SAVED['b']}, global_step=2)
    assert checkpoints.resolve(str(tmp_path)) == newest
    assert checkpoints.resolve(f'{best}/') == str(best / 'model.ckpt-2')


def _unresolved(path):
    with pytest.raises(errors.ConfigurationError) as caught:
        checkpoints.resolve(str(path))
    return str(caught.value)


def test_a_prefix_that_is_not_there_is_an_error_with_the_nearest(tmp_path):
    path = _save(tmp_path / 'model.ckpt', {'b': SAVED['b']}, global_step=60)
    said = f'there is no such checkpoint or directory. Did you mean `{path}`?'
    for wrong in (tmp_path / 'model.ckpt-600', f'{path}.data-00000-of-00001.tmp'):
        assert _unresolved(wrong) == f'`warm_start_from` [{wrong}]: {said}'


def test_a_directory_of_runs_is_an_error_that_names_the_runs(tmp_path):
    for name in ('a', 'b'):
        (tmp_path / name).mkdir()
        _save(tmp_path / name / 'model.ckpt', {'b': SAVED['b']})
    assert _unresolved(tmp_path) == (
        f"`warm_start_from` [{tmp_path}]: the directory's file `checkpoint` is missing, and so is a SavedModel. In it "
        f'are `{tmp_path}/a`, `{tmp_path}/b`. Name one of them.'
    )


def test_where_nothing_is_near_the_kinds_are_named(tmp_path):
    for path in (tmp_path, tmp_path / 'no' / 'such'):
        assert _unresolved(path).endswith(
            "Name the prefix of a checkpoint's files such as `runs/digits/model.ckpt-600`, a directory with a file "
            '`checkpoint`, or a SavedModel.'
        )


@pytest.mark.parametrize('content', [b'model_checkpoint_path: "model.ckpt-70"\n', b'\xff\xfe', b''])
def test_a_state_file_that_names_nothing_is_said_to(tmp_path, content):
    path = _save(tmp_path / 'model.ckpt', {'b': SAVED['b']}, global_step=60)
    (tmp_path / 'checkpoint').write_bytes(content)
    assert _unresolved(tmp_path) == (
        f"`warm_start_from` [{tmp_path}]: the directory's file `checkpoint` names no checkpoint that is there. In it "
        f'are `{path}`. Name one of them.'
    )


def test_a_damaged_index_is_a_damaged_checkpoint(tmp_path):
    path = _save(tmp_path / 'model.ckpt')
    os.truncate(f'{path}.index', 20)
    with pytest.raises(errors.RunDirectoryError, match=r'can not be read: its files are damaged \[.*Name another'):
        checkpoints.read(path)
