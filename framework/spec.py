"""The model_fn contract: `ModeKeys`, `EstimatorSpec`, and how a function of the user is checked and called.

Everything is validated where the user makes it, so that an error points at the user's line and not at a session.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, Self

import tensorflow as tf
from absl import logging

from framework import errors, metric_ops, tensors
from framework.calling import CallSignature, call_by_keyword
from framework.errors import ConfigurationError, ConfigurationTypeError
from framework.export_outputs import (
    ClassificationOutput,
    ExportOutput,
    PredictOutput,
    RegressionOutput,
)

__all__ = [
    'LOSS_PER_EXAMPLE',
    'ClassificationOutput',
    'EstimatorSpec',
    'ExportOutput',
    'ModeKeys',
    'PredictOutput',
    'RegressionOutput',
    'call_model_fn',
    'check_mode',
    'check_model_fn',
]

_MODEL_FN_ARGUMENTS = ('features', 'labels', 'mode', 'params', 'config')
LOSS_PER_EXAMPLE = 'loss_per_example'  # every pass has it, the model's own or ours: `loss` weighs batches, not examples
_DEFAULT_SIGNATURE = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY


class ModeKeys:
    """What a model_fn is called for. Plain strings, compared with `==`."""

    TRAIN = 'train'
    EVAL = 'eval'
    PREDICT = 'infer'


_MODES = (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT)


class _Fields(NamedTuple):
    mode: str
    predictions: Any
    loss: Any
    train_op: Any
    eval_metric_ops: Any
    export_outputs: Any
    training_chief_hooks: Any
    training_hooks: Any
    scaffold: Any
    evaluation_hooks: Any
    prediction_hooks: Any


class EstimatorSpec(_Fields):
    """What a model_fn returns.

    The fields that a mode needs are required, the others are accepted and ignored, so one spec may serve all modes:
    TRAIN needs `loss` and `train_op`, EVAL needs `loss`, PREDICT needs `predictions`. It is a namedtuple, in this
    order. Every tensor must belong to the default graph.

    Attributes:
        mode: One of `ModeKeys`.
        predictions: Tensor or dict of tensors; `{}` when not given.
        loss: Scalar tensor. A tensor of one element is reshaped; an unknown static shape is accepted.
        train_op: Operation or tensor that makes one training step. A variable stands for its op.
        eval_metric_ops: Name to `(value, update_op)`, sorted by name. A tf_keras metric on which `update_state` was
            called becomes such a pair, its variables local.
        export_outputs: Name to `ExportOutput`; in PREDICT, `predictions` is served when nothing is given.
        training_chief_hooks: SessionRunHooks of training, on the chief only.
        training_hooks: SessionRunHooks of training.
        scaffold: `tf.compat.v1.train.Scaffold`; an empty one when not given.
        evaluation_hooks: SessionRunHooks of evaluation.
        prediction_hooks: SessionRunHooks of prediction.
    """

    __slots__ = ()

    def __new__(
        cls,
        mode: str,
        predictions: Any = None,
        loss: Any = None,
        train_op: Any = None,
        eval_metric_ops: Any = None,
        export_outputs: Any = None,
        training_chief_hooks: Any = None,
        training_hooks: Any = None,
        scaffold: Any = None,
        evaluation_hooks: Any = None,
        prediction_hooks: Any = None,
    ) -> Self:
        """Validates the fields.

        Raises:
            ConfigurationError: A field that the mode needs is missing, or a value breaks a rule.
            ConfigurationTypeError: A value has the wrong type.
        """
        check_mode(mode, 'mode')
        predictions = _checked_predictions(predictions, mode)
        return super().__new__(
            cls,
            mode=mode,
            predictions=predictions,
            train_op=_checked_train_op(train_op, mode),
            loss=_checked_loss(loss, mode),
            eval_metric_ops=metric_ops.checked_metrics(eval_metric_ops, evaluates=mode == ModeKeys.EVAL),
            export_outputs=_checked_export_outputs(export_outputs, predictions, mode),
            training_chief_hooks=_checked_hooks(training_chief_hooks, 'training_chief_hooks'),
            training_hooks=_checked_hooks(training_hooks, 'training_hooks'),
            scaffold=_checked_scaffold(scaffold),
            evaluation_hooks=_checked_hooks(evaluation_hooks, 'evaluation_hooks'),
            prediction_hooks=_checked_hooks(prediction_hooks, 'prediction_hooks'),
        )

    def _replace(self, **changes: Any) -> Self:
        """Returns a copy with other values, validated again; the mode can't change."""
        for name in changes:
            if name not in self._fields:
                raise ConfigurationError(f'EstimatorSpec has no field `{name}`. {errors.nearest(name, self._fields)}')
        if changes.get('mode', self.mode) != self.mode:
            raise ConfigurationError(
                f'mode of EstimatorSpec cannot be changed. It is [{self.mode}], given: [{changes["mode"]}]. '
                'Call model_fn with the other mode.'
            )
        return type(self)(**{**self._asdict(), **changes})


def check_mode(mode: object, name: str) -> None:
    """Refuses what isn't one of `ModeKeys`.

    Args:
        mode: The value.
        name: What the message calls it.

    Raises:
        ConfigurationError: It isn't.
    """
    if not isinstance(mode, str) or mode not in _MODES:
        raise ConfigurationError(
            f'`{name}` [{mode!r}] must be one of ModeKeys: TRAIN ({ModeKeys.TRAIN!r}), EVAL ({ModeKeys.EVAL!r}) or '
            f'PREDICT ({ModeKeys.PREDICT!r}). Pass on the `mode` that model_fn was called with.'
        )


# Fields of the spec.


def _checked_predictions(predictions: Any, mode: str) -> Any:
    if predictions is None:
        if mode == ModeKeys.PREDICT:
            raise ConfigurationError(
                'Missing predictions. A spec of mode PREDICT needs them: `predictions=` a tensor or a dict of tensors.'
            )
        return {}
    if isinstance(predictions, Mapping):
        return {key: tensors.checked_tensor(value, f'predictions[{key}]') for key, value in predictions.items()}
    return tensors.checked_tensor(predictions, 'predictions')


def _checked_loss(loss: Any, mode: str) -> Any:
    if loss is None:
        if mode in (ModeKeys.TRAIN, ModeKeys.EVAL):
            raise ConfigurationError(f'Missing loss. A spec of mode [{mode}] needs `loss=` a scalar tensor.')
        return None
    loss = tensors.dense_tensor(loss, 'loss')
    if loss.shape.rank is not None and any(size not in (None, 1) for size in loss.shape.as_list()):
        raise ConfigurationError(
            f'Loss must be scalar, given: [{loss}]. Reduce it over the batch, for example by `tf.reduce_mean`.'
        )
    return loss if loss.shape.is_compatible_with([]) else tf.reshape(loss, [])


def _checked_train_op(train_op: Any, mode: str) -> Any:
    if train_op is None:
        if mode == ModeKeys.TRAIN:
            raise ConfigurationError(
                'Missing train_op. A spec of mode TRAIN needs it: `train_op=optimizer.minimize(loss, global_step)`.'
            )
        return None
    if not isinstance(train_op, (tf.Operation, tf.Tensor, tf.Variable)):
        raise ConfigurationTypeError(
            f'train_op must be Operation or Tensor, given: [{train_op!r}]. Join several by `tf.group(*ops)`; with an '
            'optimizer of Keras 3 use one of `tf.compat.v1.train` or `tf_keras.optimizers.legacy`.'
        )
    tensors.check_graph(train_op, 'train_op')
    operation = train_op.op if isinstance(train_op, tf.Variable) else train_op
    _refuse_new_style_optimizer(operation)
    return operation


def _refuse_new_style_optimizer(train_op: Any) -> None:
    # In a graph, `apply_gradients` of tf_keras's new optimizers returns the count of its iterations alone: the step
    # would run, count, and change no weight. A user's own counter waits for the updates by control inputs.
    operation = getattr(train_op, 'op', train_op)
    if operation.type != 'AssignAddVariableOp':
        return
    waits = any(op.control_inputs for op in (operation, *(tensor.op for tensor in operation.inputs)))
    if not waits and re.search(r'(^|/)iteration(_\d+)?$', operation.inputs[0].op.name):
        raise ConfigurationError(
            f'train_op [{operation.name}] only counts the iterations of a new-style Keras optimizer, so no weight '
            'would change. Use an optimizer of `tf.compat.v1.train` or `tf_keras.optimizers.legacy`.'
        )


def _checked_hooks(hooks: Any, name: str) -> tuple[Any, ...]:
    every = tuple(hooks) if isinstance(hooks, Iterable) else ()
    wrong = [hook for hook in every if not isinstance(hook, tf.compat.v1.train.SessionRunHook)]
    if wrong or not isinstance(hooks, Iterable | None):
        raise ConfigurationTypeError(
            f'All hooks must be SessionRunHook instances, given: [{(wrong or [hooks])[0]!r}]. `{name}` takes a list or '
            'tuple of instances of `tf.compat.v1.train.SessionRunHook`.'
        )
    return every


def _checked_scaffold(scaffold: Any) -> Any:
    if scaffold is None:
        return tf.compat.v1.train.Scaffold()
    if not isinstance(scaffold, tf.compat.v1.train.Scaffold):
        raise ConfigurationTypeError(
            f'scaffold must be tf.train.Scaffold, given: [{scaffold!r}]. Make it by `tf.compat.v1.train.Scaffold(...)`.'
        )
    return scaffold


def _checked_export_outputs(export_outputs: Any, predictions: Any, mode: str) -> Any:
    if mode != ModeKeys.PREDICT:
        return export_outputs
    if export_outputs is None:
        return {_DEFAULT_SIGNATURE: PredictOutput(predictions)}
    if not isinstance(export_outputs, Mapping):
        raise ConfigurationTypeError(
            f'export_outputs must be dict, given: [{export_outputs!r}]. '
            'Write `{"serving_default": PredictOutput(...)}`.'
        )
    for name, output in export_outputs.items():
        _check_export_output(name, output)
    return _with_default_signature(dict(export_outputs))


def _check_export_output(name: object, output: object) -> None:
    if not isinstance(output, ExportOutput):
        raise ConfigurationTypeError(
            f'Values in export_outputs must be ExportOutput objects, given: [{output!r}] for key: [{name}]. Wrap it '
            'in `PredictOutput(...)`.'
        )
    for part, tensor in output.tensors().items():
        tensors.check_graph(tensor, f'export_outputs[{name}].{part}')


def _with_default_signature(outputs: dict[str, ExportOutput]) -> dict[str, ExportOutput]:
    if len(outputs) == 1:
        return {**outputs, _DEFAULT_SIGNATURE: next(iter(outputs.values()))}
    if outputs and _DEFAULT_SIGNATURE not in outputs:
        raise ConfigurationError(
            f'Multiple export_outputs were provided, given: {sorted(outputs)}, but none of them is the default. Name '
            f'one of them {_DEFAULT_SIGNATURE!r} (`tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY`).'
        )
    return outputs


# The function.


def check_model_fn(model_fn: Any, *, has_params: bool, bound: Collection[str] = ()) -> None:
    """Checks the arguments of a model_fn before anything is built.

    Args:
        model_fn: Takes `features` and any of `labels`, `mode`, `params` and `config`, by keyword. Further arguments
            need a default or a binding.
        has_params: Whether params will be passed.
        bound: The arguments that gin binds, in whatever scope.

    Raises:
        ConfigurationError: It can't be called in that way.
    """
    signature = CallSignature.of(model_fn, name='model_fn')
    _check_takes_features(signature)
    _check_takes_params(signature, has_params, bound)
    unexpected = [arg for arg in signature.required if arg not in _MODEL_FN_ARGUMENTS and arg not in bound]
    if unexpected:
        raise ConfigurationError(
            f'model_fn ({signature.label}) has following not expected args: {unexpected}. They are required, and '
            f'nothing supplies them: give each a default or bind it in gin. '
            f'{errors.nearest(unexpected[0], _MODEL_FN_ARGUMENTS)}'
        )


def _check_takes_features(signature: CallSignature) -> None:
    if 'features' not in signature.named and not signature.takes_any:
        taken = ', '.join(signature.named) or 'nothing'
        raise ConfigurationError(
            f'model_fn ({signature.label}) must include features argument. It takes [{taken}]; arguments are passed '
            'by keyword: write `def model_fn(features, labels, mode):`.'
        )


def _check_takes_params(signature: CallSignature, has_params: bool, bound: Collection[str]) -> None:
    if has_params and 'params' not in signature.named and not signature.takes_any:
        raise ConfigurationError(
            f'model_fn ({signature.label}) does not include params argument, but params are passed to it. Add the '
            'argument, or remove the params.'
        )
    if 'params' in signature.named and not has_params and 'params' not in bound:
        logging.warning('model_fn (%s) includes params argument, but params are not passed to it.', signature.label)


def call_model_fn(
    model_fn: Callable[..., Any], *, features: Any, labels: Any, mode: str, params: Any, config: Any
) -> EstimatorSpec:
    """Calls a model_fn with those of the five arguments that it names; with all of them where it is `**kwargs` only.

    Args:
        model_fn: Passed `check_model_fn`.
        features: Tensor or structure of tensors.
        labels: The same or None; in PREDICT, None is passed.
        mode: One of `ModeKeys`.
        params: Any object, copied deeply for this call. None means that none were given.
        config: The run configuration.

    Returns:
        The validated spec.

    Raises:
        ConfigurationError: There are labels that it doesn't take, gin lacks a binding, or it returned something else
            than a spec of this mode.
    """
    signature = CallSignature.of(model_fn, name='model_fn')
    arguments = {
        'features': features,
        'labels': None if mode == ModeKeys.PREDICT else labels,
        'mode': mode,
        'config': config,
        **signature.params_argument(params),
    }
    if 'features' in signature.named:
        _check_labels(signature, arguments['labels'])
        arguments = {name: value for name, value in arguments.items() if name in signature.named}
    logging.info('Calling model_fn.')
    result = call_by_keyword(model_fn, arguments, name='model_fn')
    logging.info('Done calling model_fn.')
    return _checked_result(result, mode, signature.label)


def _check_labels(signature: CallSignature, labels: Any) -> None:
    if labels is not None and 'labels' not in signature.named:
        raise ConfigurationError(
            f'model_fn does not take labels, but input_fn returns labels. Add `labels` to the arguments of model_fn '
            f'({signature.label}), or return the features alone from input_fn. (A Dataset of two features is read as '
            'features and labels: put them into a dict.)'
        )


def _checked_result(result: Any, mode: str, label: str) -> EstimatorSpec:
    spec = result.as_estimator_spec() if hasattr(result, 'as_estimator_spec') else result
    if not isinstance(spec, EstimatorSpec):
        raise ConfigurationError(
            f'model_fn should return an EstimatorSpec. ({label}) returned [{type(result).__name__}] in mode [{mode}]. '
            'Does every branch of it end in `return EstimatorSpec(mode, ...)`?'
        )
    if spec.mode != mode:
        raise ConfigurationError(
            f'model_fn ({label}) returned an EstimatorSpec of mode [{spec.mode}] when called with mode [{mode}]. Pass '
            'its `mode` argument on to the spec.'
        )
    return spec
