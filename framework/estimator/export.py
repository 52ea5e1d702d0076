"""`tf.estimator.export`: receivers, and what served signatures return."""

from framework.export_outputs import (
    ClassificationOutput,
    EvalOutput,
    ExportOutput,
    PredictOutput,
    RegressionOutput,
)
from framework.serving import (
    ServingInputReceiver,
    TensorServingInputReceiver,
    build_parsing_serving_input_receiver_fn,
    build_raw_serving_input_receiver_fn,
)

__all__ = [
    'ClassificationOutput',
    'EvalOutput',
    'ExportOutput',
    'PredictOutput',
    'RegressionOutput',
    'ServingInputReceiver',
    'TensorServingInputReceiver',
    'build_parsing_serving_input_receiver_fn',
    'build_raw_serving_input_receiver_fn',
]
