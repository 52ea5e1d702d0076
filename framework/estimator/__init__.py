"""The names of `tf.estimator`, which TensorFlow removed in 2.16, over the engine of this framework.

A code base written for it changes one import: `from framework import estimator as tf_estimator`.
"""

from typing import Any

from tensorflow.compat import v1

from framework.estimator import experimental, export, inputs, tpu, unbuilt
from framework.estimator.estimator import Estimator
from framework.estimator.exporters import BestExporter, Exporter, FinalExporter, LatestExporter
from framework.estimator.extenders import add_metrics
from framework.estimator.run_config import RunConfig
from framework.estimator.specs import EvalSpec, TrainSpec
from framework.estimator.train_and_evaluate import train_and_evaluate
from framework.spec import EstimatorSpec, ModeKeys
from framework.warm_start import VocabInfo, WarmStartSettings

CheckpointSaverHook = v1.train.CheckpointSaverHook
CheckpointSaverListener = v1.train.CheckpointSaverListener
FeedFnHook = v1.train.FeedFnHook
FinalOpsHook = v1.train.FinalOpsHook
GlobalStepWaiterHook = v1.train.GlobalStepWaiterHook
LoggingTensorHook = v1.train.LoggingTensorHook
NanLossDuringTrainingError = v1.train.NanLossDuringTrainingError
NanTensorHook = v1.train.NanTensorHook
ProfilerHook = v1.train.ProfilerHook
SecondOrStepTimer = v1.train.SecondOrStepTimer
SessionRunArgs = v1.train.SessionRunArgs
SessionRunContext = v1.train.SessionRunContext
SessionRunHook = v1.train.SessionRunHook
SessionRunValues = v1.train.SessionRunValues
StepCounterHook = v1.train.StepCounterHook
StopAtStepHook = v1.train.StopAtStepHook
SummarySaverHook = v1.train.SummarySaverHook

__all__ = [
    'BestExporter',
    'CheckpointSaverHook',
    'CheckpointSaverListener',
    'Estimator',
    'EstimatorSpec',
    'EvalSpec',
    'Exporter',
    'FeedFnHook',
    'FinalExporter',
    'FinalOpsHook',
    'GlobalStepWaiterHook',
    'LatestExporter',
    'LoggingTensorHook',
    'ModeKeys',
    'NanLossDuringTrainingError',
    'NanTensorHook',
    'ProfilerHook',
    'RunConfig',
    'SecondOrStepTimer',
    'SessionRunArgs',
    'SessionRunContext',
    'SessionRunHook',
    'SessionRunValues',
    'StepCounterHook',
    'StopAtStepHook',
    'SummarySaverHook',
    'TrainSpec',
    'VocabInfo',
    'WarmStartSettings',
    'add_metrics',
    'experimental',
    'export',
    'inputs',
    'tpu',
    'train_and_evaluate',
]


def __getattr__(name: str) -> Any:
    unbuilt.refuse(name, __name__, __all__)
