"""Names of `tf.estimator` that this room does not have yet: each raises a sentence."""

from collections.abc import Collection
from typing import NoReturn

from framework import errors

_CANNED = 'canned estimators and heads'
_WRITE_A_MODEL = 'Until then, write it as a model_fn for `Estimator`.'
CANNED = (
    'BaselineClassifier',
    'BaselineEstimator',
    'BaselineRegressor',
    'BinaryClassHead',
    'DNNClassifier',
    'DNNEstimator',
    'DNNLinearCombinedClassifier',
    'DNNLinearCombinedEstimator',
    'DNNLinearCombinedRegressor',
    'DNNRegressor',
    'Head',
    'LinearClassifier',
    'LinearEstimator',
    'LinearRegressor',
    'LogisticRegressionHead',
    'MultiClassHead',
    'MultiHead',
    'MultiLabelHead',
    'PoissonRegressionHead',
    'RegressionHead',
    'classifier_parse_example_spec',
    'regressor_parse_example_spec',
)
CANNED_EXPERIMENTAL = (
    'KMeans',
    'LinearSDCA',
    'RNNClassifier',
    'RNNEstimator',
    'dnn_logit_fn_builder',
    'linear_logit_fn_builder',
)
TPU = ('InputPipelineConfig', 'RunConfig', 'TPUConfig', 'TPUEstimator', 'TPUEstimatorSpec')
TPU_EXPERIMENTAL = ('EmbeddingConfigSpec',)


class NotBuiltError(errors.FrameworkError, AttributeError, NotImplementedError):
    """A name of `tf.estimator` that isn't here; as an AttributeError it leaves `hasattr` and `getattr` working."""


def refuse(name: str, module: str, known: Collection[str]) -> NoReturn:
    """Raises the sentence about a name that a module of this room lacks.

    Args:
        name: The name that was asked for.
        module: The module: `framework.estimator`.
        known: The names that it has.
    """
    asked = f'`{module}.{name}`'
    if name in (*CANNED, *CANNED_EXPERIMENTAL):
        raise NotBuiltError(f'{asked} is not here yet: {_CANNED} come later. {_WRITE_A_MODEL}')
    if name in (*TPU, *TPU_EXPERIMENTAL):
        raise NotBuiltError(
            f'{asked} is not here yet: `TPUEstimator` on CPU and GPU comes later. Until then use `Estimator`, whose '
            '`params` hold the `batch_size`.'
        )
    raise AttributeError(f'module {module!r} has no attribute {name!r}. {errors.nearest(name, known)}')
