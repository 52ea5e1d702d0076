import pathlib

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from framework import inputs
from framework.errors import ConfigurationError, ConfigurationTypeError
from framework.inputs import from_arrays, from_csv, from_tfrecords
from framework.spec import ModeKeys
from framework.testing import drain

TRAIN, EVAL, PREDICT = ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as fresh:
        v1.set_random_seed(1)
        yield fresh


def joined(batches):
    return np.concatenate(batches)


def sizes(batches):
    return [len(batch) for batch in batches]


# What all makers share, tried on arrays and files.


def write_records(directory, per_file):
    """Files `<i>.rec` with one feature `x` = 0, 1, 2, ... over all files, and `y` = 10 x."""
    x = 0
    for index, count in enumerate(per_file):
        with tf.io.TFRecordWriter(str(directory / f'{index}.rec')) as writer:
            for _ in range(count):
                ints = {
                    name: tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
                    for name, value in (('x', x), ('y', 10 * x))
                }
                writer.write(tf.train.Example(features=tf.train.Features(feature=ints)).SerializeToString())
                x += 1
    return str(directory / '*.rec')


RECORD_SPEC = {'x': tf.io.FixedLenFeature([], tf.int64), 'y': tf.io.FixedLenFeature([], tf.int64)}


def parse_record(serialized):
    return tf.io.parse_single_example(serialized, RECORD_SPEC)


def numbers_from_arrays(directory, count, **options):
    return from_arrays(np.arange(count), **options)


def numbers_from_spec(directory, count, **options):
    files = write_records(directory, [count // 2, count - count // 2])
    return from_tfrecords(files, RECORD_SPEC, **options).map(lambda features: features['x'])


def numbers_from_parse_fn(directory, count, **options):
    files = write_records(directory, [count // 2, count - count // 2])
    return from_tfrecords(files, parse_record, **options).map(lambda features: features['x'])


def numbers_from_csv(directory, count, **options):
    (directory / 'a.csv').write_text('x\n' + ''.join(f'{i}\n' for i in range(count)))
    return from_csv(str(directory / 'a.csv'), {'x': 'int64'}, **options).map(lambda features: features['x'])


every_maker = pytest.mark.parametrize(
    'numbers', [numbers_from_arrays, numbers_from_spec, numbers_from_parse_fn, numbers_from_csv]
)


@every_maker
@pytest.mark.parametrize('mode', [EVAL, PREDICT])
def test_evaluation_is_one_pass_in_order_whatever_training_asks_for(numbers, mode, tmp_path):
    dataset = numbers(tmp_path, 7, mode=mode, batch_size=3, num_epochs=5, shuffle_buffer=4, seed=1, drop_remainder=True)
    batches = drain(dataset)
    assert sizes(batches) == [3, 3, 1]
    np.testing.assert_array_equal(joined(batches), np.arange(7))


@every_maker
def test_training_shuffles_each_epoch_anew_and_batches_across_epochs(numbers, tmp_path):
    values = joined(drain(numbers(tmp_path, 20, mode=TRAIN, batch_size=8, num_epochs=2, seed=5)))
    assert len(values) == 40
    first, second = values[:20], values[20:]
    np.testing.assert_array_equal(np.sort(first), np.arange(20))
    np.testing.assert_array_equal(np.sort(second), np.arange(20))
    assert list(first) != sorted(first)
    assert list(first) != list(second)


@every_maker
def test_training_never_ends_by_default(numbers, tmp_path):
    assert sizes(drain(numbers(tmp_path, 3, mode=TRAIN, batch_size=2), limit=10)) == [2] * 10


@every_maker
@pytest.mark.parametrize(('drop', 'expected'), [(False, [3, 3, 1]), (True, [3, 3])])
def test_training_keeps_the_partial_last_batch_unless_told(numbers, drop, expected, tmp_path):
    dataset = numbers(tmp_path, 7, mode=TRAIN, batch_size=3, num_epochs=1, drop_remainder=drop)
    assert sizes(drain(dataset)) == expected
    assert dataset.element_spec.shape == [3 if drop else None]


@every_maker
@pytest.mark.parametrize('seeds', [{'seed': 4}, {}])
def test_equal_seeds_give_equal_orders(numbers, seeds, tmp_path):
    orders = []
    for _ in range(2):
        with tf.Graph().as_default():
            v1.set_random_seed(9)
            orders.append(joined(drain(numbers(tmp_path, 20, mode=TRAIN, batch_size=4, num_epochs=1, **seeds))))
    np.testing.assert_array_equal(*orders)


@every_maker
def test_a_stream_can_be_saved_under_the_strict_policy_and_goes_on_exactly(numbers, tmp_path):
    iterator = v1.data.make_initializable_iterator(numbers(tmp_path, 20, mode=TRAIN, batch_size=3))
    batch = iterator.get_next()
    saveable = tf.data.experimental.make_saveable_from_iterator(iterator, external_state_policy='fail')
    saver = v1.train.Saver([saveable])
    with v1.Session() as session:
        session.run(iterator.initializer)
        session.run(batch)
        path = saver.save(session, str(tmp_path / 'input'), write_meta_graph=False)
        expected = [session.run(batch) for _ in range(9)]
        saver.restore(session, path)
        np.testing.assert_array_equal([session.run(batch) for _ in range(9)], expected)


@every_maker
@pytest.mark.parametrize(
    ('option', 'message'),
    [
        ({'mode': 'predict'}, r"^`mode` \['predict'\] must be one of ModeKeys"),
        ({'batch_size': 0}, r'^`batch_size` \[0\] must be at least 1'),
        ({'batch_size': 2.0}, r'^`batch_size` \[2.0\] must be an integer'),
        ({'batch_size': True}, '^`batch_size`'),
        ({'num_epochs': 0}, r'^`num_epochs` \[0\] must be at least 1'),
        ({'shuffle_buffer': -1}, r'^`shuffle_buffer` \[-1\] must be at least 0'),
    ],
)
def test_options_out_of_range_are_refused(numbers, option, message, tmp_path):
    with pytest.raises(ConfigurationError, match=message):
        numbers(tmp_path, 3, **{'mode': TRAIN, 'batch_size': 2, **option})


# Arrays.


def test_a_shuffle_buffer_of_zero_keeps_the_order():
    values = joined(drain(from_arrays(np.arange(9), mode=TRAIN, batch_size=2, num_epochs=1, shuffle_buffer=0)))
    np.testing.assert_array_equal(values, np.arange(9))


def test_structures_dtypes_and_shapes_of_arrays_are_kept():
    features = {'image': np.ones([3, 2, 2], np.float32), 'pair': (np.arange(3, dtype=np.int8), ['a', 'b', 'c'])}
    dataset = from_arrays(features, [0.5, 1.5, 2.5], mode=EVAL, batch_size=3)
    (batch, labels), = drain(dataset)  # fmt: skip
    np.testing.assert_array_equal(batch['image'], features['image'])
    assert batch['pair'][0].dtype == np.int8
    assert list(batch['pair'][1]) == [b'a', b'b', b'c']
    np.testing.assert_array_equal(labels, [0.5, 1.5, 2.5])


@pytest.mark.parametrize('strings', [['a', 'bc'], [b'a', b'bc'], np.array(['a', 'bc'], object)])
def test_strings_become_bytes(strings):
    assert list(joined(drain(from_arrays(strings, mode=EVAL, batch_size=2)))) == [b'a', b'bc']


def test_examples_keep_their_labels_under_shuffling():
    x = np.arange(50)
    for features, labels in drain(from_arrays({'x': x}, -x, mode=TRAIN, batch_size=8, num_epochs=1)):
        np.testing.assert_array_equal(features['x'], -labels)


@pytest.mark.parametrize(
    ('features', 'labels', 'message'),
    [
        (np.ones(3), np.ones(4), r'^All arrays must have the same first dimension, .*`features` \[3\], `labels` \[4\]'),
        ({'a': np.ones(3), 'b': np.ones(2)}, None, r"given: `features\['a'\]` \[3\], `features\['b'\]` \[2\]"),
        ((np.ones(3), np.ones(2)), np.ones(3), r'`features\[1\]` \[2\], `labels` \[3\]'),
        (np.ones([0, 2]), None, r'^`features` \[shape \(0, 2\)\] must have at least one example'),
        (np.ones(2), 5, r'^`labels` \[shape \(\)\] must have at least one example'),
        ({}, None, r'^`features` \[\{\}\] has no arrays'),
        ((np.ones(2), np.ones(2)), None, r'^`features` \[a tuple of 2\] without `labels` would be read as'),
        (None, None, '^`features` holds Python objects'),
        ([[1], [1, 2]], None, r"^`features` \[list\] can't become an array"),
        (np.array([None, 1]), None, r'^`features` holds Python objects \[NoneType'),
        (np.array(['2020-01-01'], 'datetime64[D]'), None, r"^`features` \[ndarray\] can't become an array"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_by_name(features, labels, message):
    with pytest.raises(ConfigurationError, match=message):
        from_arrays(features, labels, mode=EVAL, batch_size=1)


def test_a_tensor_of_the_graph_is_no_array():
    with pytest.raises(ConfigurationTypeError, match=r"^`features` .* can't become an array"):
        from_arrays(v1.placeholder(tf.float32, [3]), mode=EVAL, batch_size=1)


def test_arrays_too_large_for_a_graph_are_refused_with_the_alternative():
    huge = np.broadcast_to(np.float32(0), [250_000_000])
    with pytest.raises(ConfigurationError, match=r'^The arrays \[2.00 GB\] are larger than 1.9 GB.*from_tfrecords'):
        from_arrays({'a': huge, 'b': huge}, mode=EVAL, batch_size=1)


def test_the_size_of_strings_is_that_of_their_characters(monkeypatch):
    monkeypatch.setattr(inputs, '_ARRAY_LIMIT_BYTES', 10)
    from_arrays(np.array(['12345', '12345'], object), mode=EVAL, batch_size=1)
    with pytest.raises(ConfigurationError, match=r'^The arrays'):
        from_arrays(np.array(['12345', '123456'], object), mode=EVAL, batch_size=1)


# TFRecord files.


@pytest.mark.parametrize('parser', [RECORD_SPEC, parse_record])
def test_label_key_splits_the_labels_off(parser, tmp_path):
    files = write_records(tmp_path, [2, 1])
    (features, labels), = drain(from_tfrecords(files, parser, label_key='y', mode=EVAL, batch_size=5))  # fmt: skip
    assert list(features) == ['x']
    np.testing.assert_array_equal(features['x'], [0, 1, 2])
    np.testing.assert_array_equal(labels, [0, 10, 20])


def test_a_parse_function_may_return_the_pair_itself(tmp_path):
    def parse(serialized):
        features = parse_record(serialized)
        return features['x'], features['y']

    (x, y), = drain(from_tfrecords(write_records(tmp_path, [3]), parse, mode=EVAL, batch_size=5))  # fmt: skip
    np.testing.assert_array_equal(y, 10 * x)


def test_a_sparse_feature_stays_sparse(tmp_path):
    spec = {'x': tf.io.VarLenFeature(tf.int64)}
    dataset = from_tfrecords(write_records(tmp_path, [3]), spec, mode=EVAL, batch_size=5)
    assert isinstance(dataset.element_spec['x'], tf.SparseTensorSpec)
    np.testing.assert_array_equal(drain(dataset)[0]['x'].values, [0, 1, 2])


def test_files_are_read_in_the_order_of_their_names_each_once(tmp_path):
    write_records(tmp_path, [2, 2, 2])
    files = [tmp_path / '2.rec', str(tmp_path / '0.rec'), str(tmp_path / '*.rec')]
    batches = drain(from_tfrecords(files, RECORD_SPEC, mode=EVAL, batch_size=6))
    np.testing.assert_array_equal(joined([batch['x'] for batch in batches]), np.arange(6))


def test_training_mixes_the_files_in_the_same_way_every_time(tmp_path):
    files = write_records(tmp_path, [3, 3])
    orders = [
        joined([batch['x'] for batch in drain(from_tfrecords(
            files, RECORD_SPEC, mode=TRAIN, batch_size=6, num_epochs=1, shuffle_buffer=0))])
        for _ in range(2)
    ]  # fmt: skip
    np.testing.assert_array_equal(orders, [[0, 3, 1, 4, 2, 5]] * 2)


@pytest.mark.parametrize('mode', [TRAIN, EVAL])
def test_compressed_records_are_read(mode, tmp_path):
    path = str(tmp_path / 'a.gz')
    with tf.io.TFRecordWriter(path, 'GZIP') as writer:
        writer.write(b'text')
    dataset = from_tfrecords(
        path, lambda record: record, mode=mode, batch_size=1, num_epochs=1, compression_type='GZIP'
    )
    assert list(joined(drain(dataset))) == [b'text']


@pytest.mark.parametrize(
    ('files', 'message'),
    [
        ('nothing.rec', r'^`files` \[.*nothing.rec\] does not exist or matches no file'),
        (['0.rec', 'nothing.rec'], r'^`files` \[.*nothing.rec\] does not exist'),
        ('*.none', r'^`files` \[.*\*.none\] does not exist or matches no file'),
        ('.', r'^`files` \[.*\] is a directory\. Write a pattern'),
        ([], r'^`files` \[\] must name at least one file'),
    ],
)
def test_a_missing_file_is_named(files, message, tmp_path):
    write_records(tmp_path, [1])
    paths = [str(tmp_path / file) for file in files] if isinstance(files, list) else tmp_path / files
    for make in (
        lambda: from_tfrecords(paths, RECORD_SPEC, mode=EVAL, batch_size=1),
        lambda: csv(paths, {'x': 'int64'}),
    ):
        with pytest.raises(ConfigurationError, match=message):
            make()


@pytest.mark.parametrize(
    ('parser', 'key', 'message'),
    [
        (RECORD_SPEC, 'yy', r'^`label_key` \[yy\] is no feature\. Did you mean `y`'),
        (
            lambda record: record,
            'y',
            r'^`label_key` \[y\] needs features in a dict, but the parser returns \[TensorSpec',
        ),
    ],
)
def test_a_label_key_that_is_no_feature_is_refused(parser, key, message, tmp_path):
    with pytest.raises(ConfigurationError, match=message):
        from_tfrecords(write_records(tmp_path, [1]), parser, label_key=key, mode=EVAL, batch_size=1)


# CSV files.


def csv(files, columns, **options):
    return from_csv(files, columns, **{'mode': EVAL, 'batch_size': 10, **options})


@pytest.fixture
def table(tmp_path):
    path = tmp_path / 'a.csv'
    path.write_text('height,name,age,"last, one"\n1.5,ann,31,7\n1.75,"b, c",,8\n')
    return path


def test_columns_are_chosen_by_the_header_in_any_order(table):
    (batch,) = drain(csv(table, {'age': 0, 'height': tf.float32}))
    np.testing.assert_array_equal(batch['height'], np.float32([1.5, 1.75]))
    np.testing.assert_array_equal(batch['age'], [31, 0])
    assert set(batch) == {'age', 'height'}


def test_quoted_fields_and_headers_are_read(table):
    (batch,) = drain(csv(table, {'name': 'string', 'last, one': 'int32'}))
    assert list(batch['name']) == [b'ann', b'b, c']
    np.testing.assert_array_equal(batch['last, one'], [7, 8])


def test_the_label_column_is_split_off(table):
    (features, labels), = drain(csv(table, {'height': float, 'age': -1}, label_column='age'))  # fmt: skip
    assert list(features) == ['height']
    np.testing.assert_array_equal(labels, [31, -1])


@pytest.mark.parametrize(
    ('declared', 'expected'),
    [
        ('float32', tf.float32), ('string', tf.string), (tf.float64, tf.float64), (np.int32, tf.int32),
        (np.dtype('int64'), tf.int64), (float, tf.float32), (int, tf.int64), (str, tf.string),
        (0.5, tf.float32), (3, tf.int64), ('', tf.string), ('none', tf.string), (np.float64(1), tf.float64),
    ],
)  # fmt: skip
def test_a_column_has_the_declared_type(declared, expected, table):
    assert csv(table, {'age': declared}).element_spec['age'] == tf.TensorSpec([None], expected)


@pytest.mark.parametrize('declared', [tf.bool, bool, True, None, [0.0], np.float16, np.int8(1), dict])
def test_a_type_that_csv_files_do_not_have_is_refused(declared, table):
    with pytest.raises(ConfigurationTypeError, match=r"^`columns\['age'\]` \[.*Types: float32, float64"):
        csv(table, {'age': declared})


def test_files_are_read_one_after_the_other(tmp_path):
    (tmp_path / 'b.csv').write_text('x\n3\n')
    (tmp_path / 'a.csv').write_text('\ufeffx\n1\n2\n', encoding='utf-8')
    (tmp_path / 'c.csv').write_text('x\n4')
    with pytest.raises(ConfigurationError, match=r'a.csv'):
        csv(tmp_path / '*.csv', {'y': 'int64'})
    (batch,) = drain(csv(str(tmp_path / '*.csv'), {'x': 'int64'}))
    np.testing.assert_array_equal(batch['x'], [1, 2, 3, 4])


def test_without_a_header_the_columns_are_those_of_the_file(tmp_path):
    path = tmp_path / 'a.csv'
    path.write_text('1;2\n3;4\n')
    (batch,) = drain(csv(path, {'b': 'int64', 'a': 'int64'}, header=False, delimiter=';'))
    np.testing.assert_array_equal(batch['b'], [1, 3])
    np.testing.assert_array_equal(batch['a'], [2, 4])
    with pytest.raises(ConfigurationError, match=r'^`columns` \[1\] must name every column .*a.csv\] has 2'):
        csv(path, {'a': 'int64'}, header=False, delimiter=';')


@pytest.mark.parametrize(
    ('columns', 'options', 'message'),
    [
        ({'heigt': float}, {}, r'^`columns` \[heigt\] is not in \[.*a.csv\]\. Did you mean `height`'),
        ({'age': 0, 'height': float}, {'label_column': 'ages'}, r'^`label_column` \[ages\] is no feature.*`age`'),
    ],
)
def test_a_column_that_does_not_exist_is_named(columns, options, message, table):
    with pytest.raises(ConfigurationError, match=message):
        csv(table, columns, **options)


def test_files_of_different_headers_are_refused(table):
    (pathlib.Path(table).parent / 'b.csv').write_text('age,height\n1,2\n')
    with pytest.raises(
        ConfigurationError, match=r'must have the same header, but \[.*b.csv\] differs from \[.*a.csv\]'
    ):
        csv(table.parent / '*.csv', {'age': 0})


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / 'a.csv').write_text('')
    with pytest.raises(ConfigurationError, match=r'a.csv\] starts with an empty line or is empty'):
        csv(tmp_path / 'a.csv', {'x': 'int64'})
