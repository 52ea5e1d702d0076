"""SavedModels: as a whole or not at all, and with the numbers of the session."""

import concurrent.futures
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import errors, serving, testing
from framework.export_outputs import ClassificationOutput, PredictOutput, RegressionOutput
from framework.graph import calls, prediction
from framework.session import export, opening
from framework.session import prediction as predicting
from framework.spec import EstimatorSpec, ModeKeys

FEATURES, LABELS = testing.blobs(6)
WORDS = ['b', 'nowhere', 'a']


def affine_model_fn(features, labels, mode):
    """Random weights, which training moves, and their moving average."""
    weights = v1.get_variable('weights', [4, 2])
    scores = tf.matmul(features, weights)
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions={'scores': scores})
    average = v1.train.ExponentialMovingAverage(0.5)
    with tf.control_dependencies([weights.assign_add(tf.ones([4, 2]))]):
        updates = tf.group(average.apply([weights]), v1.train.get_global_step().assign_add(1))
    return EstimatorSpec(mode, loss=tf.reduce_sum(weights), train_op=updates)


@pytest.fixture(scope='module')
def checkpoint(tmp_path_factory):
    prefix = str(tmp_path_factory.mktemp('run') / 'model.ckpt')
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(1)
        step = v1.train.create_global_step()
        spec = affine_model_fn(tf.constant(FEATURES), tf.constant(LABELS), ModeKeys.TRAIN)
        session.run(v1.global_variables_initializer())
        session.run(spec.train_op)
        return v1.train.Saver().save(session, prefix, global_step=step)


def receiving(model_fn=affine_model_fn, receiver_fn=None, checkpoint=None, spec=None):
    spec = tf.TensorSpec([4, 4]) if spec is None else spec
    receiver_fn = receiver_fn or (lambda: serving.receiver_of_spec(spec))
    saved = None if checkpoint is None else opening.saved_names(checkpoint)
    return prediction.compile_receiver(calls.Model(model_fn, None, None), receiver_fn, seed=1, saved=saved)


def exported(built, checkpoint, directory, **settings):
    return export.export_saved_model(built, checkpoint, directory / 'export', clock=lambda: 1700000000.9, **settings)


def served(directory, signature='serving_default', **inputs):
    """Returns the outputs of a signature, as a server loads it."""
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        loaded = v1.saved_model.load(session, [tf.saved_model.SERVING], directory)
        signature = loaded.signature_def[signature]
        feeds = {signature.inputs[name].name: value for name, value in inputs.items()}
        return session.run({name: info.name for name, info in signature.outputs.items()}, feeds)


def called(directory, signature='serving_default', **inputs):
    """Returns the outputs of a signature, as TensorFlow 2 loads it."""

    def call():
        assert tf.executing_eagerly()
        loaded = tf.saved_model.load(directory)
        outputs = loaded.signatures[signature](**{name: tf.constant(value) for name, value in inputs.items()})
        return {name: value.numpy() for name, value in outputs.items()}

    with concurrent.futures.ThreadPoolExecutor() as other_thread:  # where there is no default graph
        return other_thread.submit(call).result()


def names(directory):
    return sorted(os.listdir(directory))


def test_an_export_computes_what_the_session_computes(checkpoint, tmp_path):
    directory = exported(receiving(), checkpoint, tmp_path)
    with predicting.Predictor(receiving(), checkpoint) as predictor:
        expected = predictor(FEATURES)['scores']
    np.testing.assert_array_equal(served(directory, input=FEATURES)['scores'], expected)
    np.testing.assert_allclose(called(directory, input=FEATURES)['scores'], expected, rtol=1e-6)
    values = testing.checkpoint_values(checkpoint)
    np.testing.assert_allclose(expected, FEATURES @ values['weights'], rtol=1e-6)


def test_the_directory_is_the_second_of_the_export(checkpoint, tmp_path):
    directory = exported(receiving(), checkpoint, tmp_path)
    assert directory == str(tmp_path / 'export' / '1700000000')
    assert names(directory) == ['saved_model.pb', 'variables']


def test_a_taken_second_leads_to_the_next_free_one_and_a_graph_may_be_exported_again(checkpoint, tmp_path):
    built = receiving()
    (tmp_path / 'export' / 'temp-1700000001').mkdir(parents=True)  # that another export is writing
    paths = [exported(built, checkpoint, tmp_path) for _ in range(2)]
    assert [os.path.basename(path) for path in paths] == ['1700000000', '1700000002']
    assert names(tmp_path / 'export') == ['1700000000', '1700000002', 'temp-1700000001']
    first, second = (served(path, input=FEATURES)['scores'] for path in paths)
    np.testing.assert_array_equal(first, second)


def failing_copy(*args):
    raise OSError('the disk is full')


def test_a_failed_export_leaves_nothing(checkpoint, tmp_path, monkeypatch):
    extra = tmp_path / 'notes.txt'
    extra.write_text('x')
    monkeypatch.setattr(shutil, 'copyfile', failing_copy)
    with pytest.raises(OSError, match='disk is full'):
        exported(receiving(), checkpoint, tmp_path, assets_extra={'notes.txt': extra})
    with pytest.raises(opening.CheckpointError, match='there is no such checkpoint'):
        exported(receiving(), 'missing', tmp_path)
    assert names(tmp_path) == ['notes.txt']


def test_extra_files_go_where_they_are_named(checkpoint, tmp_path):
    source = tmp_path / 'notes.txt'
    source.write_text('read me')
    directory = exported(receiving(), checkpoint, tmp_path, assets_extra={'docs/readme.txt': source})
    with open(os.path.join(directory, 'assets.extra', 'docs', 'readme.txt'), encoding='utf-8') as file:
        assert file.read() == 'read me'


@pytest.mark.parametrize(
    ('place', 'source', 'message'),
    [
        ('../x', __file__, r'`assets_extra` \[\.\./x\] must be a path of a file below'),
        ('/x', __file__, 'relative'),
        ('x', 'missing', r'`assets_extra\[x\]` \[missing\] is no file'),
    ],
)
def test_extra_files_that_can_not_be_copied_are_refused(checkpoint, tmp_path, place, source, message):
    with pytest.raises(errors.ConfigurationError, match=message):
        exported(receiving(), checkpoint, tmp_path, assets_extra={place: source})


def average_model_fn(features, labels, mode):
    spec = affine_model_fn(features, labels, mode)
    saver = v1.train.Saver(v1.train.ExponentialMovingAverage(0.5).variables_to_restore())
    return spec._replace(scaffold=v1.train.Scaffold(saver=saver))


def test_the_saver_of_the_model_says_which_weights_are_exported(checkpoint, tmp_path):
    directory = exported(receiving(average_model_fn), checkpoint, tmp_path)
    values = testing.checkpoint_values(checkpoint)
    average = values['weights/ExponentialMovingAverage']
    assert not np.allclose(average, values['weights'])
    for load in (served, called):
        np.testing.assert_allclose(load(directory, input=FEATURES)['scores'], FEATURES @ average, rtol=1e-6)


def table_model_fn(vocabulary, local_init=None):
    """Looks words up in a file; counts with a local variable; has a variable that no checkpoint holds."""

    def model_fn(features, mode):
        initializer = tf.lookup.TextFileInitializer(
            vocabulary, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
        )
        ids = tf.lookup.StaticVocabularyTable(initializer, 1).lookup(features['word'])
        offset = v1.get_local_variable('offset', initializer=tf.constant(10, tf.int64))
        unsaved = v1.get_variable('unsaved', initializer=tf.constant(100, tf.int64), trainable=False)
        scaffold = v1.train.Scaffold(local_init_op=local_init and local_init(offset))
        return EstimatorSpec(mode, predictions={'id': ids + offset + unsaved}, scaffold=scaffold)

    return model_fn


@pytest.mark.parametrize(
    ('local_init', 'offset'), [(None, 110), (lambda variable: variable.assign(20).op, 120)], ids=['default', 'own']
)
def test_tables_and_local_variables_start_by_themselves_from_the_exported_vocabulary(
    checkpoint, tmp_path, local_init, offset
):
    vocabulary = tmp_path / 'words.txt'
    vocabulary.write_text('a\nb\n')
    spec = {'word': tf.TensorSpec([3], tf.string)}
    built = receiving(table_model_fn(str(vocabulary), local_init), None, checkpoint, spec)
    directory = exported(built, checkpoint, tmp_path)
    vocabulary.unlink()
    moved = str(tmp_path / 'moved')
    os.rename(directory, moved)
    assert names(os.path.join(moved, 'assets')) == ['words.txt']
    expected = [offset + 1, offset + 2, offset]
    np.testing.assert_array_equal(served(moved, word=WORDS)['id'], expected)
    np.testing.assert_array_equal(called(moved, word=WORDS)['id'], expected)


def signatures_model_fn(features, mode):
    scores = tf.matmul(features['x'], tf.ones([4, 2]))
    outputs = {
        'serving_default': PredictOutput({'scores': scores}),
        'classes': ClassificationOutput(scores=scores),
        'value': RegressionOutput(scores[:, 0]),
    }
    return EstimatorSpec(mode, predictions=scores, export_outputs=outputs)


def parsing():
    spec = {'x': tf.io.FixedLenFeature([4], tf.float32)}
    receiver = serving.build_parsing_serving_input_receiver_fn(spec)()
    return serving.ServingInputReceiver(receiver.features, receiver.receiver_tensors, {'raw': receiver.features})


def example(row):
    feature = tf.train.Feature(float_list=tf.train.FloatList(value=row))
    return tf.train.Example(features=tf.train.Features(feature={'x': feature})).SerializeToString()


def test_each_output_has_a_signature_and_alternatives_have_their_own(checkpoint, tmp_path, caplog):
    directory = exported(receiving(signatures_model_fn, parsing), checkpoint, tmp_path)
    sums = FEATURES.sum(axis=1)
    serialized = [example(row) for row in FEATURES]
    np.testing.assert_allclose(served(directory, examples=serialized)['scores'][:, 1], sums, rtol=1e-5)
    np.testing.assert_allclose(served(directory, 'classes', inputs=serialized)['scores'][:, 0], sums, rtol=1e-5)
    np.testing.assert_allclose(served(directory, 'value', inputs=serialized)['outputs'], sums, rtol=1e-5)
    np.testing.assert_allclose(served(directory, 'raw:serving_default', x=FEATURES)['scores'][:, 0], sums, rtol=1e-5)
    (told,) = [record.getMessage() for record in caplog.records if record.getMessage().startswith('Not exported')]
    assert '`raw:classes`: Classification signatures can only accept' in told
    assert '`raw:value`: Regression signatures can only accept' in told


def test_an_export_without_a_signature_is_refused(checkpoint, tmp_path):
    def model_fn(features, mode):
        return EstimatorSpec(mode, predictions=features, export_outputs={'value': RegressionOutput(features)})

    with pytest.raises(errors.ConfigurationError, match=r'has nothing that can be served\. `value`: Regression'):
        exported(receiving(model_fn), checkpoint, tmp_path)
    assert not names(tmp_path)


def test_an_output_that_needs_what_is_not_fed_is_named(checkpoint, tmp_path):
    def receiver_fn():
        fed = v1.placeholder(tf.float32, [None], name='fed')
        other = v1.placeholder(tf.float32, [None], name='other')
        return serving.ServingInputReceiver({'x': fed + other}, {'x': fed})

    def model_fn(features, mode):
        return EstimatorSpec(mode, predictions=features['x'])

    with pytest.raises(errors.ConfigurationError, match=r'its outputs need \[framework/serving_input/other\]'):
        exported(receiving(model_fn, receiver_fn), checkpoint, tmp_path)


def test_the_graph_of_an_export_has_a_receiver_and_was_not_used(checkpoint, tmp_path):
    built = receiving()
    predicting.Predictor(built, checkpoint).close()
    with pytest.raises(errors.ConfigurationError, match='This graph has been used for predictions'):
        exported(built, checkpoint, tmp_path)
    input_fn = testing.array_input_fn(FEATURES, LABELS, 2)
    of_input = prediction.compile_input(calls.Model(affine_model_fn, None, None), input_fn, seed=1)
    with pytest.raises(errors.ConfigurationError, match='An export needs a graph with a receiver'):
        exported(of_input, checkpoint, tmp_path)
