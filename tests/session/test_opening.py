"""Opening: what is restored, and what is said when it can't be."""

import os

import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import errors, testing
from framework.session import opening


def _variables(shape=(3,), name='weights'):
    weights = v1.get_variable(name, shape, initializer=tf.ones_initializer())
    return weights, v1.train.create_global_step()


@pytest.fixture
def checkpoint(tmp_path):
    """A checkpoint of `weights` [3] and the global step."""
    with tf.Graph().as_default():
        weights, step = _variables()
        with v1.Session() as session:
            session.run([weights.initializer, step.initializer])
            session.run(weights.assign([1.0, 2.0, 3.0]))
            return v1.train.Saver().save(session, str(tmp_path / 'model.ckpt'), global_step=5)


def _open(checkpoint, hooks=(), **scaffold):
    return opening.open_session(v1.train.Scaffold(**scaffold), hooks, None, checkpoint)


def _data(checkpoint):
    return f'{checkpoint}.data-00000-of-00001'


def test_without_a_checkpoint_the_variables_have_their_initial_values():
    weights, _ = _variables()
    with _open(None) as session:
        assert list(session.run(weights)) == [1.0, 1.0, 1.0]


def test_with_a_checkpoint_they_have_its_values(checkpoint):
    weights, _ = _variables()
    with _open(checkpoint) as session:
        assert list(session.run(weights)) == [1.0, 2.0, 3.0]


def test_a_truncated_file_is_an_error_with_its_reason_and_remedy(checkpoint):
    # TensorFlow raises OutOfRangeError here, which elsewhere is the end of the data.
    with open(_data(checkpoint), 'r+b') as file:
        file.truncate(4)
    _variables()
    with pytest.raises(errors.RunDirectoryError) as caught:
        _open(checkpoint)
    message = str(caught.value)
    assert message.startswith(f'`{checkpoint}` can not be restored: its files are damaged [')
    assert message.endswith(
        'Remove its commit record to go on from the commit before it, or start in a new run directory.'
    )
    assert caught.value.exit_code == 3


@pytest.mark.parametrize('offset', [0, 9])
def test_a_flipped_bit_is_found(checkpoint, offset):
    with open(_data(checkpoint), 'r+b') as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))
    _variables()
    with pytest.raises(errors.RunDirectoryError, match=r'its files are damaged \[.*Checksum does not match'):
        _open(checkpoint)


def test_a_damaged_index_is_found(checkpoint):
    with open(f'{checkpoint}.index', 'r+b') as file:
        file.truncate(20)
    _variables()
    with pytest.raises(errors.RunDirectoryError, match='its files are damaged'):
        _open(checkpoint)


def test_missing_data_are_found(checkpoint):
    os.remove(_data(checkpoint))
    _variables()
    with pytest.raises(errors.RunDirectoryError, match='its files are damaged'):
        _open(checkpoint)


def test_a_missing_variable_is_named(checkpoint):
    _variables()
    v1.get_variable('bias', [2])
    with pytest.raises(errors.RunDirectoryError, match=r'it is of another model \[`bias` is missing\]'):
        _open(checkpoint)


def test_a_wrong_shape_is_named(checkpoint):
    _variables(shape=(4,))
    with pytest.raises(
        errors.RunDirectoryError, match=r'another model \[`weights` has shape \(3,\), the model \(4,\)\]'
    ):
        _open(checkpoint)


def test_all_shapes_that_differ_are_named(checkpoint, tmp_path):
    _variables(shape=(4,))
    v1.get_variable('bias', [2])
    with tf.Graph().as_default():
        variables = [v1.get_variable('weights', [3]), v1.get_variable('bias', [5]), v1.train.create_global_step()]
        with v1.Session() as session:
            session.run([variable.initializer for variable in variables])
            other = v1.train.Saver().save(session, str(tmp_path / 'other'))
    with pytest.raises(errors.RunDirectoryError, match=r'`weights` has shape .*; `bias` has shape \(5,\), the model'):
        _open(other)


def test_an_error_of_the_users_init_fn_passes_through_unchanged():
    def init_fn(scaffold, session):
        raise ValueError('mine')

    _variables()
    with pytest.raises(ValueError, match=r'^mine$'):
        _open(None, init_fn=init_fn)


@pytest.mark.parametrize('error', [ValueError('mine'), tf.errors.OutOfRangeError(None, None, 'mine')])
@pytest.mark.parametrize('event', ['begin', 'after_create_session'])
def test_an_error_of_a_hook_is_not_blamed_on_the_checkpoint(checkpoint, event, error):
    # Not even where the saver of the user leaves a variable out of it.
    class Fail(v1.train.SessionRunHook):
        def begin(self):
            if event == 'begin':
                raise error

        def after_create_session(self, session, coord):
            raise error

    weights, step = _variables()
    own = v1.get_variable('own', [2])
    ready = v1.report_uninitialized_variables([weights, step])
    saver = v1.train.Saver([weights, step])
    with pytest.raises(type(error), match='mine'):
        _open(checkpoint, [Fail()], saver=saver, ready_op=ready, ready_for_local_init_op=ready)
    del own


def test_an_error_of_local_initialisation_passes_through_when_the_checkpoint_is_sound(checkpoint):
    _variables()
    with pytest.raises(tf.errors.InvalidArgumentError, match='mine'):
        _open(checkpoint, local_init_op=v1.Assert(False, ['mine']))


def test_the_hooks_are_called_in_their_order(checkpoint):
    _variables()
    calls = []
    _open(checkpoint, [testing.RecordingHook('a', calls), testing.RecordingHook('b', calls)]).close()
    assert calls == [f'{name}.{event}' for event in ('begin', 'after_create_session', 'end') for name in 'ab']


# The remedy depends on whose checkpoint it is.


def _restore(checkpoint, **settings):
    _variables()
    with v1.Session() as session:
        opening.restore(session, v1.train.Saver(), checkpoint, **settings)


def test_a_checkpoint_that_is_not_there_is_told_from_a_damaged_one(checkpoint):
    text = (
        r'`.*ckpt-6` can not be restored: there is no such checkpoint\. Name another one: `--checkpoint` takes a prefix'
    )
    with pytest.raises(errors.RunDirectoryError, match=text):
        _restore(checkpoint.replace('-5', '-6'))


def test_a_file_in_place_of_its_prefix_is_no_checkpoint(checkpoint):
    with pytest.raises(errors.RunDirectoryError, match=r'no such checkpoint\. .* without `\.index`'):
        _restore(f'{checkpoint}.index')


def test_a_damaged_checkpoint_that_the_caller_named_asks_for_another(checkpoint):
    os.truncate(_data(checkpoint), 4)
    with pytest.raises(
        errors.RunDirectoryError, match=r'its files are damaged \[.*\]\. Name another one: `--checkpoint`'
    ):
        _restore(checkpoint)


def test_the_caller_of_restore_says_the_remedy(checkpoint):
    os.truncate(_data(checkpoint), 4)
    with pytest.raises(opening.CheckpointError, match=r'damaged \[.*\]\. Pray\.$') as caught:
        _restore(checkpoint, remedy='Pray.')
    assert caught.value.fault.startswith('its files are damaged')


# The Scaffold of the session.


def test_the_session_has_the_scaffold_of_training_itself(make_graph, make_eval_set):
    given = v1.train.Scaffold()

    def model_fn(features, labels, mode):
        return testing.linear_model_fn(features, labels, mode)._replace(scaffold=given)

    compiled = make_graph(model_fn, testing.array_input_fn(*testing.blobs(8), 4), [make_eval_set()])
    with compiled.graph.as_default():
        assert opening.session_scaffold(compiled) is given


def test_our_saver_deletes_nothing_and_holds_the_model_only(make_graph, make_eval_set):
    compiled = make_graph(testing.linear_model_fn, testing.array_input_fn(*testing.blobs(8), 4), [make_eval_set()])
    with compiled.graph.as_default():
        scaffold = opening.session_scaffold(compiled).finalize()
        assert not scaffold.saver.saver_def.max_to_keep
        saved = [op for op in compiled.graph.get_operations() if op.type == 'SaveV2']
        names = {name.decode() for op in saved for name in tf.get_static_value(op.inputs[1])}
    assert names == {'global_step', 'weights'}


def test_a_saver_in_the_collection_is_used(make_graph, make_eval_set):
    savers = []

    def model_fn(features, labels, mode):
        spec = testing.linear_model_fn(features, labels, mode)
        if not savers:
            savers.append(v1.train.Saver())
            v1.add_to_collection(v1.GraphKeys.SAVERS, savers[0])
        return spec

    compiled = make_graph(model_fn, testing.array_input_fn(*testing.blobs(8), 4), [make_eval_set()])
    with compiled.graph.as_default():
        assert opening.session_scaffold(compiled).finalize().saver is savers[0]
