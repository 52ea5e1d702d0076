"""The diabetes patients of scikit-learn, split once into train, valid and test."""

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import gin
import numpy as np
import tensorflow as tf

from framework import inputs
from framework.errors import ConfigurationError, nearest

# The split is part of the experiment: a seed is drawn once and never tuned, and the legacy generator of NumPy promises
# the same permutation in every version.
SPLIT_SEED = 0
SPLIT_SIZES: Mapping[str, int] = {'train': 282, 'valid': 80, 'test': 80}

SEX = 'sex'  # coded 1 and 2 in the source, which doesn't say which is which
NUMBERS: Sequence[str] = ('age', 'bmi', 'bp', 's1', 's2', 's3', 's4', 's5', 's6')
TARGET = 'progression'


class Statistics(NamedTuple):
    """Of the values of a column: their mean and their standard deviation, in the unit of the column."""

    mean: float
    deviation: float


@functools.cache
def load_diabetes() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Returns the features of all patients by column, each `[442]`, and the progression of their illness `[442]`.

    Numbers are float32 in the units of the source, sex is int64, 1 or 2. The progression is float32, from 25 to 346: a
    measure of the illness a year after the features were taken.

    Raises:
        ConfigurationError: scikit-learn, whose package holds the table, is not installed.
    """
    try:
        # Here, because only this experiment needs scikit-learn, and its import takes a second.
        from sklearn import datasets
    except ImportError as error:
        raise ConfigurationError(
            '`experiments.diabetes` reads its table from scikit-learn, which is not installed. '
            "Install the extra: pip install 'estimator-framework[examples]'."
        ) from error
    table = datasets.load_diabetes(scaled=False)  # scaled, it would know the means of all three splits
    columns = dict(zip(table.feature_names, table.data.T, strict=True))
    features = {name: columns[name].astype(np.float32) for name in NUMBERS}
    return {**features, SEX: columns[SEX].astype(np.int64)}, table.target.astype(np.float32)


def split_indices(split: str) -> np.ndarray:
    """Returns which of the 442 patients belong to a split, as unique indices in a fixed order.

    Args:
        split: 'train', 'valid' or 'test'.

    Raises:
        ConfigurationError: There is no such split.
    """
    splits = list(SPLIT_SIZES)
    if split not in splits:
        raise ConfigurationError(
            f'`diabetes.input_fn.split` [{split}] must be one of {splits}. {nearest(str(split), splits)}'
        )
    permutation = np.random.RandomState(SPLIT_SEED).permutation(sum(SPLIT_SIZES.values()))
    ends = np.cumsum(list(SPLIT_SIZES.values()))
    return np.split(permutation, ends[:-1])[splits.index(split)]


def load_split(split: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Returns the features by column and the progression of the N patients of a split, each `[N]`.

    Args:
        split: 'train', 'valid' or 'test'.
    """
    indices = split_indices(split)
    features, progression = load_diabetes()
    return {name: values[indices] for name, values in features.items()}, progression[indices]


def training_statistics() -> dict[str, Statistics]:
    """Returns the statistics of every column of numbers and of the progression, over the patients of train alone."""
    features, progression = load_split('train')
    columns = {name: features[name] for name in NUMBERS} | {TARGET: progression}
    return {name: _statistics(values.astype(np.float64)) for name, values in columns.items()}


def _statistics(values: np.ndarray) -> Statistics:
    return Statistics(float(values.mean()), float(values.std()))


@gin.configurable(module='diabetes')
def input_fn(mode: str, split: str = 'train', batch_size: int = 32, num_epochs: int | None = None) -> tf.data.Dataset:
    """Returns batches of patients: shuffled for training, one pass in a fixed order otherwise.

    Args:
        mode: The mode of the call, one of `ModeKeys`.
        split: 'train', 'valid' or 'test'.
        batch_size: Patients per batch, B; the last batch of an epoch may be smaller.
        num_epochs: After how many epochs the data of training ends; None: never.

    Returns:
        A data set of (features by column, progression), each `[B]`: float32, but sex int64.

    Raises:
        ConfigurationError: There is no such split, or scikit-learn is not installed.
    """
    features, progression = load_split(split)
    return inputs.from_arrays(features, progression, mode=mode, batch_size=batch_size, num_epochs=num_epochs)
