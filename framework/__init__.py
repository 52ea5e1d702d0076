"""Estimator-style experiments: one graph, one monitored session, training and evaluation in turns."""

import os
import sys

# tf.compat.v1.layers and rnn_cell exist only with legacy Keras, and TensorFlow decides at the first use of tf.keras.
os.environ.setdefault('TF_USE_LEGACY_KERAS', '1')


def _refuse_keras_3() -> None:
    """Raises if `tf.keras` was resolved to Keras 3 before this import: its layers are silently wrong in a graph."""
    tensorflow = sys.modules.get('tensorflow')
    if os.environ['TF_USE_LEGACY_KERAS'] not in ('1', 'true', 'True') or 'keras_3' in repr(
        getattr(tensorflow, 'keras', None)
    ):
        raise ImportError(
            '`tf.keras` is Keras 3 in this process, whose layers are silently wrong in a graph. Import `framework` '
            'before anything that uses `tf.keras`, or set the environment variable `TF_USE_LEGACY_KERAS=1`.'
        )


_refuse_keras_3()

from framework import inputs  # noqa: E402
from framework.experiment import Experiment  # noqa: E402
from framework.policies import EarlyStopping, KeepBest, ReduceOnPlateau  # noqa: E402
from framework.reporting.csv_file import CsvWriter  # noqa: E402
from framework.reporting.rows import RunResult  # noqa: E402
from framework.reporting.writers import Writer  # noqa: E402
from framework.run_config import EvalSet, RunConfig  # noqa: E402
from framework.spec import EstimatorSpec, ModeKeys  # noqa: E402
from framework.warm_start import VocabInfo, WarmStartSettings  # noqa: E402

__all__ = [
    'CsvWriter',
    'EarlyStopping',
    'EstimatorSpec',
    'EvalSet',
    'Experiment',
    'KeepBest',
    'ModeKeys',
    'ReduceOnPlateau',
    'RunConfig',
    'RunResult',
    'VocabInfo',
    'WarmStartSettings',
    'Writer',
    'inputs',
]
__version__ = '0.1.0'
