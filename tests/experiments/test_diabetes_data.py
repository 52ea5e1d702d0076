import hashlib
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

from experiments.diabetes import data, model
from framework import ModeKeys
from framework.errors import ConfigurationError

SPLITS = ('train', 'valid', 'test')
DIGESTS = ['713f6345', '40ddf90a', 'a18c5984']


def batches(mode, **arguments):
    with tf.Graph().as_default(), v1.Session() as session:
        element = v1.data.make_one_shot_iterator(data.input_fn(mode, **arguments)).get_next()
        found = []
        with pytest.raises(tf.errors.OutOfRangeError):
            while True:
                found.append(session.run(element))
    return found


def test_the_splits_are_disjoint_and_cover_all_patients():
    indices = np.concatenate([data.split_indices(split) for split in SPLITS])

    np.testing.assert_array_equal(np.sort(indices), np.arange(442))
    assert [len(data.split_indices(split)) for split in SPLITS] == [282, 80, 80]


def test_no_patient_of_one_split_is_in_another_under_another_index():
    features, labels = data.load_diabetes()
    rows = np.stack([*features.values(), labels], axis=1)

    assert len(np.unique(rows, axis=0)) == 442


def test_the_splits_are_those_of_the_published_figure():
    digests = [hashlib.sha256(data.split_indices(split).astype('<i8').tobytes()).hexdigest()[:8] for split in SPLITS]

    assert digests == DIGESTS


def test_values_are_those_of_the_source_and_not_scaled_by_all_patients():
    features, labels = data.load_diabetes()

    assert sorted(features) == ['age', 'bmi', 'bp', 's1', 's2', 's3', 's4', 's5', 's6', 'sex']
    assert [features[name][0] for name in ('age', 'sex', 'bp')] == [59, 2, 101]
    assert (labels[0], labels.min(), labels.max()) == (151, 25, 346)


def test_statistics_are_those_of_train():
    statistics = data.training_statistics()
    features, labels = data.load_split('train')

    assert sorted(statistics) == sorted([*data.NUMBERS, 'progression'])
    for name, values in {**features, 'progression': labels}.items():
        if name != 'sex':
            expected = (np.mean(values, dtype=np.float64), np.std(values, dtype=np.float64))
            np.testing.assert_allclose(statistics[name], expected)


def test_statistics_do_not_change_with_the_patients_of_valid_and_test(monkeypatch):
    expected = data.training_statistics()
    features, labels = data.load_diabetes()
    held_out = np.concatenate([data.split_indices('valid'), data.split_indices('test')])
    other = {name: values.copy() for name, values in {**features, 'labels': labels}.items()}
    for values in other.values():
        values[held_out] = 1000
    monkeypatch.setattr(data, 'load_diabetes', lambda: (other, other['labels']))

    assert data.training_statistics() == expected


def test_the_model_sees_numbers_with_mean_0_and_deviation_1_over_train_alone():
    def inputs_of(split):
        with tf.Graph().as_default(), v1.Session() as session, model.quiet_deprecations():
            features = {name: tf.constant(values) for name, values in data.load_split(split)[0].items()}
            columns = model.build_columns(cross_dimension=0)[: len(data.NUMBERS)]
            return session.run(v1.feature_column.input_layer(features, columns))

    train, test = inputs_of('train'), inputs_of('test')
    np.testing.assert_allclose(train.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(train.std(axis=0), 1, atol=1e-5)
    assert np.abs(test.mean(axis=0)).max() > 0.05


def test_training_ends_after_its_epochs_having_seen_every_label_of_train():
    found = batches(ModeKeys.TRAIN, split='train', batch_size=32, num_epochs=1)
    labels = np.concatenate([labels for _, labels in found])

    assert [len(labels) for _, labels in found] == [32] * 8 + [26]
    np.testing.assert_array_equal(np.sort(labels), np.sort(data.load_split('train')[1]))
    assert not np.array_equal(labels, data.load_split('train')[1])


@pytest.mark.parametrize('mode', [ModeKeys.EVAL, ModeKeys.PREDICT])
def test_a_pass_sees_every_patient_once_in_order(mode):
    found = batches(mode, split='test', batch_size=32)
    features, labels = data.load_split('test')

    assert [len(labels) for _, labels in found] == [32, 32, 16]
    np.testing.assert_array_equal(np.concatenate([labels for _, labels in found]), labels)
    for name, values in features.items():
        np.testing.assert_array_equal(np.concatenate([batch[name] for batch, _ in found]), values)


def test_an_unknown_split_is_refused_with_the_valid_ones():
    rule = r"`diabetes.input_fn.split` \[tests\] must be one of \['train', 'valid', 'test'\].*`test`"

    with pytest.raises(ConfigurationError, match=rule):
        data.input_fn(ModeKeys.EVAL, split='tests')


def test_a_missing_scikit_learn_is_named_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, 'sklearn', None)
    data.load_diabetes.cache_clear()

    with pytest.raises(ConfigurationError, match=r'scikit-learn, which is not installed.*\[examples\]'):
        data.load_diabetes()
