"""The input of a stream, and which evaluation sets share one."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import errors
from framework.graph import sources, streams
from framework.run_config import EvalSet, RunConfig
from framework.spec import ModeKeys

KEYS = v1.GraphKeys


def range_input_fn(size=5, batch=2):
    def input_fn():
        return tf.data.Dataset.range(size).batch(batch)

    return input_fn


def train_input(input_fn):
    return streams.make_input('train', [sources.train_source(input_fn, None, None)])


def eval_source(input_fn, name='valid'):
    return sources.eval_source(EvalSet(input_fn=input_fn, name=name), None, None)


def started(batch):
    session = v1.Session()
    session.run(list(batch.initializers.values()))
    return session


# Sources


def test_an_input_fn_is_called_once_with_its_mode_and_in_a_scope_of_its_own(fresh_graph):
    calls = []

    def input_fn(mode, params):
        calls.append((mode, params, fresh_graph.get_name_scope()))
        return tf.data.Dataset.range(3)

    train = sources.train_source(input_fn, {'a': 1}, None)
    valid = sources.eval_source(EvalSet(input_fn=input_fn, name='valid'), {'a': 1}, None)

    assert calls == [
        (ModeKeys.TRAIN, {'a': 1}, 'framework/train_input'),
        (ModeKeys.EVAL, {'a': 1}, 'framework/valid_input'),
    ]
    assert (train.stream, valid.stream) == ('train', 'valid')
    assert all(op.name.startswith('framework/') for op in fresh_graph.get_operations())


@pytest.mark.parametrize(
    ('dataset', 'expected'),
    [
        (lambda: tf.data.Dataset.range(5).batch(2), 3),
        (lambda: tf.data.Dataset.range(5).repeat(), tf.data.INFINITE_CARDINALITY),
        (lambda: tf.data.Dataset.range(5).filter(lambda x: x > 2), tf.data.UNKNOWN_CARDINALITY),
    ],
    ids=['known', 'infinite', 'unknown'],
)
def test_the_cardinality_is_told(dataset, expected):
    source = sources.train_source(dataset, None, None)

    with v1.Session() as session:
        assert session.run(source.cardinality) == expected


@pytest.mark.filterwarnings('ignore:To make it possible to preserve tf.data options')
@pytest.mark.parametrize(('chosen', 'expected'), [(None, False), (True, True), (False, False)])
def test_evaluation_is_not_autotuned_unless_the_user_chose(chosen, expected):
    def input_fn():
        options = tf.data.Options()
        if chosen is not None:
            options.autotune.enabled = chosen
        return tf.data.Dataset.range(5).with_options(options).batch(2)

    assert eval_source(input_fn).dataset.options().autotune.enabled is expected
    assert sources.train_source(input_fn, None, None).dataset.options().autotune.enabled is chosen
    tuned = sources.eval_source(EvalSet(input_fn=input_fn, name='tuned'), None, RunConfig(autotune_evaluation=True))
    assert tuned.dataset.options().autotune.enabled is chosen


# Batches


def test_a_stream_gives_the_batches_of_its_dataset_and_starts_again():
    batch = train_input(range_input_fn())

    with started(batch) as session:
        for _ in range(2):
            session.run(batch.initializers['train'])
            assert [session.run(batch.features).tolist() for _ in range(3)] == [[0, 1], [2, 3], [4]]
    assert batch.labels is None


def test_features_and_labels_keep_their_structure():
    def input_fn():
        return tf.data.Dataset.from_tensors(({'a': [1.0], 'b': {'c': [2]}}, [3]))

    batch = train_input(input_fn)

    with started(batch) as session:
        features, labels = session.run([batch.features, batch.labels])
    assert features == {'a': [1.0], 'b': {'c': [2]}}
    assert labels == [3]


def test_the_sets_of_a_tower_are_read_one_at_a_time_each_from_its_beginning():
    sets = [eval_source(range_input_fn(size), name) for name, size in [('a', 3), ('b', 5)]]
    batch = streams.make_input('tower_0', sets)

    with v1.Session() as session:
        for name, expected in [('a', [0, 1]), ('b', [0, 1]), ('a', [0, 1])]:
            session.run(batch.initializers[name])
            assert session.run(batch.features).tolist() == expected
        assert session.run(batch.features).tolist() == [2]


# The end


@pytest.mark.parametrize('tower', [False, True], ids=['train', 'tower'])
def test_the_end_of_a_stream_is_recognised(tower):
    batch = streams.make_input('tower_0', [eval_source(range_input_fn())]) if tower else train_input(range_input_fn())

    with started(batch) as session:
        for _ in range(3):
            session.run(batch.features)
        with pytest.raises(tf.errors.OutOfRangeError) as caught:
            session.run(batch.features * 2 + 1)

    assert batch.ended(caught.value)


def test_an_end_without_an_op_is_recognised_by_its_message():
    batch = train_input(range_input_fn())
    (name,) = batch.ends

    def error(text):
        return tf.errors.OutOfRangeError(None, None, text)

    assert batch.ended(error(f'End of sequence\n\t [[{{{{node {name}}}}}]]'))
    assert not batch.ended(error('End of sequence'))
    assert not batch.ended(error(f'End of sequence\n\t [[{{{{node {name}_1}}}}]]'))


def test_the_end_of_another_iterator_is_not_taken_for_the_end():
    short = v1.data.make_initializable_iterator(tf.data.Dataset.range(0))
    batch, other = train_input(range_input_fn()), streams.make_input('tower_0', [eval_source(range_input_fn(0))])

    with started(batch) as session:
        session.run([short.initializer, *other.initializers.values()])
        for foreign in (short.get_next(), other.features):
            with pytest.raises(tf.errors.OutOfRangeError) as caught:
                session.run(foreign)
            assert not batch.ended(caught.value)


def test_the_end_of_an_iterator_that_the_input_fn_made_is_not_taken_for_the_end(fresh_graph):
    def input_fn():
        own.append(v1.data.make_initializable_iterator(tf.data.Dataset.range(0)))
        own.append(own[0].get_next())
        return tf.data.Dataset.range(5)

    own = []
    batch = train_input(input_fn)

    assert own[1].op.name.startswith('framework/train_input/')
    with started(batch) as session:
        session.run(own[0].initializer)
        with pytest.raises(tf.errors.OutOfRangeError) as caught:
            session.run(own[1])
    assert not batch.ended(caught.value)


def test_an_empty_queue_is_not_taken_for_the_end():
    batch = train_input(range_input_fn())
    queue = v1.FIFOQueue(2, tf.int64, shapes=[[]])

    with started(batch) as session:
        session.run(queue.close())
        with pytest.raises(tf.errors.OutOfRangeError) as caught:
            session.run([batch.features, queue.dequeue()])

    assert not batch.ended(caught.value)


# Examples

X = np.arange(12.0).reshape(3, 4)


def unknown_rank(shape):
    def read(_):
        tensor = tf.numpy_function(lambda: np.zeros(shape, np.float32), [], tf.float32)
        tensor.set_shape(None)
        return tensor

    return tf.data.Dataset.range(1).map(read)


ELEMENTS = {
    'dense': (lambda: tf.data.Dataset.from_tensors((X, X[:, 0])), 3),
    'dict': (lambda: tf.data.Dataset.from_tensors({'b': X, 'a': X[:, 0]}), 3),
    'scalar': (lambda: tf.data.Dataset.from_tensors((1.0, 2)), 1),
    'scalar_first': (lambda: tf.data.Dataset.from_tensors({'a': 1.0, 'b': X}), 3),
    'sparse': (lambda: tf.data.Dataset.from_tensors(tf.sparse.from_dense(X)), 3),
    'ragged': (lambda: tf.data.Dataset.from_tensors(tf.ragged.constant([[1], [2, 3], [], [4]])), 4),
    'ragged_batches': (
        lambda: tf.data.Dataset.range(3).map(tf.range).apply(tf.data.experimental.dense_to_ragged_batch(5)),
        3,
    ),
    'no_labels': (lambda: tf.data.Dataset.from_tensors(X).map(lambda x: (x, None)), 3),
    'none_first': (lambda: tf.data.Dataset.from_tensors(X).map(lambda x: {'a': None, 'b': x}), 3),
    'optional_first': (
        lambda: tf.data.Dataset.from_tensors(X).map(lambda x: {'a': tf.experimental.Optional.from_value(x), 'b': x}),
        3,
    ),
    'dataset_first': (
        lambda: tf.data.Dataset.from_tensors(X).map(lambda x: {'a': tf.data.Dataset.range(2), 'b': x}),
        3,
    ),
    'unknown_rank': (lambda: unknown_rank([3, 2]), 3),
    'unknown_scalar': (lambda: unknown_rank([]), 1),
    'unknown_size': (lambda: tf.data.Dataset.range(5).batch(7), 5),
}


@pytest.mark.parametrize('tower', [False, True], ids=['train', 'tower'])
@pytest.mark.parametrize(('dataset', 'expected'), ELEMENTS.values(), ids=ELEMENTS.keys())
def test_the_examples_of_a_batch_are_counted(dataset, expected, tower):
    sets = [eval_source(dataset), eval_source(dataset, 'test')]
    batch = streams.make_input('tower_0', sets) if tower else train_input(dataset)

    with v1.Session() as session:
        for initializer in batch.initializers.values():
            session.run(initializer)
            assert session.run(batch.examples) == expected
    assert batch.examples.dtype == tf.int64


def test_counting_takes_no_batch_of_its_own():
    batch = train_input(range_input_fn())

    with started(batch) as session:
        assert [session.run([batch.examples, batch.features])[0] for _ in range(3)] == [2, 2, 1]


# Structures


def test_sets_of_equal_structure_share_a_tower_and_others_do_not():
    structures = {
        'a': lambda: tf.data.Dataset.from_tensors(X).batch(2),
        'b': lambda: tf.data.Dataset.from_tensors(X).batch(2, drop_remainder=True),
        'c': lambda: tf.data.Dataset.from_tensors(X * 2).repeat(3).batch(5),
        'd': lambda: tf.data.Dataset.from_tensors(X.astype(np.float32)).batch(2),
        'e': lambda: tf.data.Dataset.from_tensors({'x': X}).batch(2),
        'f': lambda: tf.data.Dataset.from_tensors({'x': X}).repeat().batch(3),
    }
    sets = [eval_source(input_fn, name) for name, input_fn in structures.items()]

    groups = sources.group_by_structure(sets)

    assert [[source.stream for source in group] for group in groups] == [['a', 'c'], ['b'], ['d'], ['e', 'f']]


def compare(train_fn, eval_fn, require_equal):
    groups = [[eval_source(eval_fn, 'valid'), eval_source(eval_fn, 'test')]]
    sources.compare_with_training(sources.train_source(train_fn, None, None), groups, require_equal)


ALIKE = {
    'dense': lambda batch, drop: tf.data.Dataset.from_tensor_slices((X, X)).batch(batch, drop),
    'scalar': lambda batch, drop: tf.data.Dataset.from_tensors(1.0),
    'sparse': lambda batch, drop: tf.data.Dataset.from_tensor_slices(tf.sparse.from_dense(X)).batch(batch, drop),
    'ragged': lambda batch, drop: tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[1], [2, 3]])).batch(
        batch, drop
    ),
    'none': lambda batch, drop: tf.data.Dataset.from_tensor_slices(X).batch(batch, drop).map(lambda x: (x, None)),
    'dataset': lambda batch, drop: tf.data.Dataset.range(6).window(2),
}


@pytest.mark.parametrize('dataset', ALIKE.values(), ids=ALIKE.keys())
def test_a_difference_in_the_size_of_the_batch_alone_is_no_difference(dataset, caplog):
    compare(lambda: dataset(2, True), lambda: dataset(1, False), require_equal=True)

    assert 'another structure' not in caplog.text


DIFFERENT = {
    'dtype': (lambda: tf.data.Dataset.from_tensors(X), lambda: tf.data.Dataset.from_tensors(X.astype(np.float32))),
    'width': (lambda: tf.data.Dataset.from_tensors(X), lambda: tf.data.Dataset.from_tensors(X[:, :2])),
    'rank': (lambda: tf.data.Dataset.from_tensors(X), lambda: tf.data.Dataset.from_tensors(X[0])),
    'labels': (lambda: tf.data.Dataset.from_tensors((X, X)), lambda: tf.data.Dataset.from_tensors(X)),
    'key': (lambda: tf.data.Dataset.from_tensors({'a': X}), lambda: tf.data.Dataset.from_tensors({'b': X})),
    'sparse': (
        lambda: tf.data.Dataset.from_tensors(X),
        lambda: tf.data.Dataset.from_tensors(tf.sparse.from_dense(X)),
    ),
    'row_splits': (
        lambda: tf.data.Dataset.from_tensors(tf.ragged.constant([[1]], row_splits_dtype=tf.int64)),
        lambda: tf.data.Dataset.from_tensors(tf.ragged.constant([[1]], row_splits_dtype=tf.int32)),
    ),
}


@pytest.mark.parametrize(('train_fn', 'eval_fn'), DIFFERENT.values(), ids=DIFFERENT.keys())
def test_another_structure_is_told_once_with_both_specs(train_fn, eval_fn, caplog):
    compare(train_fn, eval_fn, require_equal=False)

    (record,) = [record for record in caplog.records if 'another structure' in record.message]
    assert record.levelname == 'WARNING'
    assert 'Evaluation of valid, test has elements of another structure than training' in record.message
    assert f'training:   {train_fn().element_spec}' in record.message
    assert f'evaluation: {eval_fn().element_spec}' in record.message


def test_another_structure_is_refused_where_equal_ones_are_required():
    train_fn, eval_fn = DIFFERENT['width']

    text = r'(?s)Evaluation of valid, test .*training: .*shape=\(3, 4\).*evaluation: .*shape=\(3, 2\).*'
    with pytest.raises(errors.ConfigurationError, match=text + r'`Experiment.require_equal_structures` \[True\]'):
        compare(train_fn, eval_fn, require_equal=True)


def test_a_table_beside_the_batch_is_not_taken_for_it():
    def input_fn():
        numbers = tf.data.Dataset.range(7).batch(3)
        return numbers.map(lambda batch: {'a_table': tf.zeros([500]), 'x': batch})

    batch = train_input(input_fn)
    with v1.Session() as session:
        session.run(batch.initializers['train'])
        assert [int(session.run(batch.examples)) for _ in range(3)] == [3, 3, 1]
