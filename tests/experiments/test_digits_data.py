import hashlib
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from experiments.digits import data
from framework import ModeKeys
from framework.errors import ConfigurationError

v1 = tf.compat.v1
ROOT = pathlib.Path(data.__file__).parents[2]
SPLITS = ('train', 'valid', 'test')
DIGESTS = ['2ca17c35', '80099c92', '51bf3604']


def batches(count=None, *, seed=1, **arguments):
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(seed)
        dataset = data.input_fn(**arguments)
        element = v1.data.make_one_shot_iterator(dataset if count is None else dataset.take(count)).get_next()
        found = []
        with pytest.raises(tf.errors.OutOfRangeError):
            while True:
                found.append(session.run(element))
    return found


def images_of(found):
    return np.concatenate([features['image'] for features, _ in found])


def test_the_splits_are_disjoint_and_cover_all_images():
    indices = np.concatenate([data.split_indices(split) for split in SPLITS])

    np.testing.assert_array_equal(np.sort(indices), np.arange(1797))


def test_the_splits_have_their_sizes_and_all_classes():
    _, labels = data.load_digits()

    for split, size in zip(SPLITS, (1197, 300, 300), strict=True):
        indices = data.split_indices(split)
        assert len(indices) == size
        assert set(labels[indices]) == set(range(10))


def test_the_splits_are_those_of_the_published_figure():
    digests = [hashlib.sha256(data.split_indices(split).astype('<i8').tobytes()).hexdigest()[:8] for split in SPLITS]

    assert digests == DIGESTS


def test_the_splits_are_the_same_in_another_process_and_whatever_was_drawn_before():
    code = "from experiments.digits import data; print(*data.split_indices('valid'))"
    other = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True, check=True)
    np.random.seed(7)

    assert [int(word) for word in other.stdout.split()] == data.split_indices('valid').tolist()


@pytest.mark.parametrize('mode', [ModeKeys.TRAIN, ModeKeys.EVAL])
def test_batches_have_the_promised_shapes_types_and_range(mode):
    features, labels = batches(1, mode=mode, split='train', batch_size=16)[0]
    image = features['image']

    assert (image.shape, image.dtype, labels.shape, labels.dtype) == ((16, 8, 8, 1), np.float32, (16,), np.int64)
    assert (image.min(), image.max()) == (0.0, 1.0)
    assert set(labels) <= set(range(10))


def test_the_static_shape_survives_the_augmentation():
    features, labels = data.input_fn(ModeKeys.TRAIN, batch_size=16).element_spec

    assert features['image'].shape.as_list() == [None, 8, 8, 1]
    assert labels.shape.as_list() == [None]


def test_evaluation_sees_every_image_once_in_order_and_untouched():
    found = batches(mode=ModeKeys.EVAL, split='valid', batch_size=128)
    images, labels = data.load_digits()
    indices = data.split_indices('valid')

    assert [len(batch_labels) for _, batch_labels in found] == [128, 128, 44]
    np.testing.assert_array_equal(images_of(found), images[indices])
    np.testing.assert_array_equal(np.concatenate([batch_labels for _, batch_labels in found]), labels[indices])


def test_training_sees_every_label_of_an_epoch_once():
    found = batches(3, mode=ModeKeys.TRAIN, split='train', batch_size=399)
    _, labels = data.load_digits()

    seen = np.concatenate([batch_labels for _, batch_labels in found])
    np.testing.assert_array_equal(np.bincount(seen), np.bincount(labels[data.split_indices('train')]))


def test_training_repeats_itself_for_a_seed_and_differs_for_another():
    runs = [images_of(batches(4, seed=seed, mode=ModeKeys.TRAIN, batch_size=8)) for seed in (1, 1, 2)]

    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


def test_shifts_move_the_whole_image_by_at_most_one_pixel():
    images = np.random.RandomState(0).rand(64, 8, 8, 1).astype(np.float32)
    with v1.Session() as session:
        shifted = session.run(data.shift_images(tf.constant(images), tf.constant([1, 2], tf.int64)))

    padded = np.pad(images, [(0, 0), (1, 1), (1, 1), (0, 0)])
    places = [(row, column) for row in range(3) for column in range(3)]
    used = set()
    for image, result in zip(padded, shifted, strict=True):
        matches = [(r, c) for r, c in places if np.array_equal(image[r : r + 8, c : c + 8], result)]
        assert len(matches) == 1
        used.update(matches)
    assert used == set(places)


def test_an_unknown_split_is_refused_with_the_valid_ones():
    rule = r"\[validation\] must be one of \['train', 'valid', 'test'\].*`valid`"

    with pytest.raises(ConfigurationError, match=rule):
        data.input_fn(ModeKeys.EVAL, split='validation')


def test_a_missing_scikit_learn_is_named_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, 'sklearn', None)
    data.load_digits.cache_clear()

    with pytest.raises(ConfigurationError, match=r'scikit-learn, which is not installed.*\[examples\]'):
        data.load_digits()
