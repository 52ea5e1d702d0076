"""What a served signature returns: the values of `EstimatorSpec.export_outputs`."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from framework.errors import ConfigurationError

_ONE_STRING_INPUT = (
    '{kind} signatures can only accept a single tensor input of type tf.string, given: [{given}]. Let the '
    'serving_input_receiver_fn create one string placeholder and call `tf.io.parse_example` on it, or export a '
    '`PredictOutput`, which takes any inputs.'
)


class ExportOutput:
    """The output of one served signature.

    Subclasses say which tensors they serve and how TensorFlow's SignatureDef describes them.
    """

    def tensors(self) -> dict[str, tf.Tensor]:
        """Returns the tensors that are served, by name; `EstimatorSpec` checks where they were made."""
        return {}

    def as_signature_def(self, receiver_tensors: Mapping[str, tf.Tensor]) -> Any:
        """Returns the SignatureDef proto.

        Args:
            receiver_tensors: Name to input placeholder.
        """
        raise NotImplementedError(f'`{type(self).__name__}.as_signature_def` is not implemented.')


class ClassificationOutput(ExportOutput):
    """The output of a classification: scores, string labels, or both.

    With classes alone they are the top k, best first. With scores alone there is one score for every class, in the
    order of class ids. With both, each score belongs to the class at the same index.

    Attributes:
        scores: Floats `[B, K]`, B examples and K classes, or None.
        classes: Strings `[B, K]`, labels and not ids, or None.
    """

    def __init__(self, scores: tf.Tensor | None = None, classes: tf.Tensor | None = None):
        if scores is not None and not _is_floating(scores):
            raise ConfigurationError(f'Classification scores must be a float32 Tensor; got [{scores}].')
        if classes is not None and not (isinstance(classes, tf.Tensor) and classes.dtype == tf.string):
            raise ConfigurationError(
                f'Classification classes must be a string Tensor; got [{classes}]. Convert ids by `tf.as_string`.'
            )
        if scores is None and classes is None:
            raise ConfigurationError(
                'Cannot create a ClassificationOutput with empty arguments. At least one of `scores` and `classes` '
                'must be defined.'
            )
        self.scores = scores
        self.classes = classes

    def tensors(self) -> dict[str, tf.Tensor]:
        """Returns those of `scores` and `classes` that are given."""
        both = {'scores': self.scores, 'classes': self.classes}
        return {name: tensor for name, tensor in both.items() if tensor is not None}

    def as_signature_def(self, receiver_tensors: Mapping[str, tf.Tensor]) -> Any:
        """Returns a `classify` SignatureDef over one placeholder of serialized `tf.train.Example`s."""
        examples = _one_string_input('Classification', receiver_tensors)
        return tf.compat.v1.saved_model.classification_signature_def(examples, self.classes, self.scores)


class RegressionOutput(ExportOutput):
    """The output of a regression.

    Attributes:
        value: Floats `[B]` or `[B, 1]`, B examples.
    """

    def __init__(self, value: tf.Tensor):
        if not _is_floating(value):
            raise ConfigurationError(f'Regression output value must be a float32 Tensor; got [{value}].')
        self.value = value

    def tensors(self) -> dict[str, tf.Tensor]:
        """Returns the value."""
        return {'value': self.value}

    def as_signature_def(self, receiver_tensors: Mapping[str, tf.Tensor]) -> Any:
        """Returns a `regress` SignatureDef over one placeholder of serialized `tf.train.Example`s."""
        examples = _one_string_input('Regression', receiver_tensors)
        return tf.compat.v1.saved_model.regression_signature_def(examples, self.value)


class PredictOutput(ExportOutput):
    """Any named tensors.

    Attributes:
        outputs: Name to tensor; a single tensor is named `output`, and the parts of a tuple are joined by `/`.
    """

    def __init__(self, outputs: tf.Tensor | Mapping[str, tf.Tensor]):
        named = outputs if isinstance(outputs, Mapping) else {'output': outputs}
        self.outputs = {_output_name(key): _output_value(value) for key, value in named.items()}

    def tensors(self) -> dict[str, tf.Tensor]:
        """Returns the outputs."""
        return self.outputs

    def as_signature_def(self, receiver_tensors: Mapping[str, tf.Tensor]) -> Any:
        """Returns a `predict` SignatureDef."""
        return tf.compat.v1.saved_model.predict_signature_def(receiver_tensors, self.outputs)


class SupervisedOutput(ExportOutput):
    """The output of a graph that trains or evaluates: loss, predictions and metrics.

    Attributes:
        outputs: `loss`, `predictions/<name>`, `metrics/<name>/value` and `metrics/<name>/update_op` to tensors.
    """

    method_name = ''

    def __init__(
        self,
        loss: tf.Tensor | None = None,
        predictions: tf.Tensor | Mapping[str, tf.Tensor] | None = None,
        metrics: Mapping[str, tuple[tf.Tensor, Any]] | None = None,
    ):
        self.outputs: dict[str, tf.Tensor] = {}
        for name, value in (('loss', loss), ('predictions', predictions)):
            if value is not None:
                named = value if isinstance(value, Mapping) else {name: value}
                self.outputs |= {_below(name, _output_name(key)): _output_value(part) for key, part in named.items()}
        for name, (value, update) in (metrics or {}).items():
            place = _below('metrics', name)
            self.outputs |= {f'{place}/value': _output_value(value), f'{place}/update_op': _as_tensor(update)}

    def tensors(self) -> dict[str, tf.Tensor]:
        """Returns the outputs."""
        return self.outputs

    def as_signature_def(self, receiver_tensors: Mapping[str, tf.Tensor]) -> Any:
        """Returns a SignatureDef of the kind of `method_name`."""
        info = tf.compat.v1.saved_model.build_tensor_info
        return tf.compat.v1.saved_model.build_signature_def(
            {name: info(tensor) for name, tensor in receiver_tensors.items()},
            {name: info(tensor) for name, tensor in self.outputs.items()},
            self.method_name,
        )


class TrainOutput(SupervisedOutput):
    """The output of a graph that trains."""

    method_name = 'tensorflow/supervised/training'


class EvalOutput(SupervisedOutput):
    """The output of a graph that evaluates."""

    method_name = 'tensorflow/supervised/eval'


def _below(place: str, name: str) -> str:
    return name if name.startswith(place) else f'{place}/{name}'


def _as_tensor(update: Any) -> tf.Tensor:
    """Returns a tensor that is there once an update was made: an output of a signature is no op."""
    if isinstance(update, tf.Tensor):
        return update
    with tf.control_dependencies([update]):
        return tf.constant([], name='metric_op_wrapper')


def _is_floating(value: object) -> bool:
    return isinstance(value, tf.Tensor) and value.dtype.is_floating


def _output_name(key: object) -> str:
    name = '/'.join(map(str, key)) if isinstance(key, tuple) else key
    if not isinstance(name, str):
        raise ConfigurationError(
            f'Prediction output key must be a string; got [{key!r}]. Signatures name their outputs: use string keys.'
        )
    return name


def _output_value(value: object) -> tf.Tensor:
    if not isinstance(value, tf.Tensor):
        raise ConfigurationError(
            f'Prediction output value must be a Tensor; got [{value!r}]. Convert it by `tf.convert_to_tensor`, and a '
            'sparse or ragged one by `tf.sparse.to_dense` or `.to_tensor()`.'
        )
    return value


def _one_string_input(kind: str, receiver_tensors: Mapping[str, tf.Tensor]) -> tf.Tensor:
    tensors = list(receiver_tensors.values())
    if len(tensors) != 1 or tensors[0].dtype != tf.string:
        given = ', '.join(f'{name}: {tensor.dtype.name}' for name, tensor in receiver_tensors.items())
        raise ConfigurationError(_ONE_STRING_INPUT.format(kind=kind, given=given))
    return tensors[0]
