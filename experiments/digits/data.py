"""The digits of scikit-learn, split once into train, valid and test."""

import functools
from collections.abc import Mapping

import gin
import numpy as np
import tensorflow as tf

from framework import ModeKeys, inputs
from framework.errors import ConfigurationError, nearest

# The split is part of the experiment: a seed is drawn once and never tuned, and the legacy generator of NumPy promises
# the same permutation in every version.
SPLIT_SEED = 0
SPLIT_SIZES: Mapping[str, int] = {'train': 1197, 'valid': 300, 'test': 300}
MAX_SHIFT = 1  # pixels; the strokes come within one or two pixels of the border


@functools.cache
def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """Returns all images `[1797, 8, 8, 1]` in [0, 1] as float32, and their labels `[1797]` in 0..9 as int64.

    Raises:
        ConfigurationError: scikit-learn, whose package holds the images, is not installed.
    """
    try:
        # Here, because only this experiment needs scikit-learn, and its import takes a second.
        from sklearn import datasets
    except ImportError as error:
        raise ConfigurationError(
            '`experiments.digits` reads its images from scikit-learn, which is not installed. '
            "Install the extra: pip install 'estimator-framework[examples]'."
        ) from error
    digits = datasets.load_digits()
    images = (digits.images / 16.0).astype(np.float32)[..., np.newaxis]  # the source counts ink from 0 to 16
    return images, digits.target.astype(np.int64)


def split_indices(split: str) -> np.ndarray:
    """Returns which of the 1,797 images belong to a split, as unique indices in a fixed order.

    Args:
        split: 'train', 'valid' or 'test'.

    Raises:
        ConfigurationError: There is no such split.
    """
    splits = list(SPLIT_SIZES)
    if split not in splits:
        raise ConfigurationError(
            f'`digits.input_fn.split` [{split}] must be one of {splits}. {nearest(str(split), splits)}'
        )
    permutation = np.random.RandomState(SPLIT_SEED).permutation(sum(SPLIT_SIZES.values()))
    ends = np.cumsum(list(SPLIT_SIZES.values()))
    return np.split(permutation, ends[:-1])[splits.index(split)]


def shift_images(images: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Moves each image by up to `MAX_SHIFT` pixels in both directions; what leaves is lost, what enters is empty.

    Args:
        images: `[B, 8, 8, 1]`.
        seed: `[2]` int64, which decides all shifts of the batch.
    """
    side = images.shape[1]
    padded = tf.pad(images, [[0, 0], [MAX_SHIFT, MAX_SHIFT], [MAX_SHIFT, MAX_SHIFT], [0, 0]])
    offsets = tf.random.stateless_uniform([tf.shape(images)[0], 2, 1], seed, maxval=2 * MAX_SHIFT + 1, dtype=tf.int32)
    places = offsets + tf.range(side)  # [B, 2, 8]: the rows and the columns to take
    rows = tf.gather(padded, places[:, 0], axis=1, batch_dims=1)
    shifted = tf.gather(rows, places[:, 1], axis=2, batch_dims=1)
    shifted.set_shape(images.shape)
    return shifted


def augment(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the batches with every image shifted at random, anew in each epoch.

    The draws come from a data set of seeds, whose position is saved with that of the images: a stateful random op
    inside `map` would start again when a run resumes. Its seed derives from the graph's.

    Args:
        dataset: Batches of (features, labels).
    """
    seeds = tf.data.Dataset.random().batch(2, drop_remainder=True)

    def shift(batch: tuple[dict[str, tf.Tensor], tf.Tensor], seed: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        features, labels = batch
        return {**features, 'image': shift_images(features['image'], seed)}, labels

    return tf.data.Dataset.zip((dataset, seeds)).map(shift)


@gin.configurable(module='digits')
def input_fn(mode: str, split: str = 'train', batch_size: int = 128, augmented: bool = True) -> tf.data.Dataset:
    """Returns batches of digits: shuffled, shifted and endless for training, one pass in a fixed order otherwise.

    Args:
        mode: The mode of the call, one of `ModeKeys`.
        split: 'train', 'valid' or 'test'.
        batch_size: Examples per batch, B; the last batch of a pass may be smaller.
        augmented: Whether training shifts its images at random by at most one pixel; nothing else ever does.

    Returns:
        A data set of ({'image': `[B, 8, 8, 1]` float32 in [0, 1]}, labels `[B]` int64 in 0..9).

    Raises:
        ConfigurationError: There is no such split, or scikit-learn is not installed.
    """
    indices = split_indices(split)
    images, labels = load_digits()
    dataset = inputs.from_arrays({'image': images[indices]}, labels[indices], mode=mode, batch_size=batch_size)
    return augment(dataset) if augmented and mode == ModeKeys.TRAIN else dataset
