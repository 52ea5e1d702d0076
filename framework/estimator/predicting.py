"""Calls of prediction: a generator with a graph and a session of its own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tensorflow.compat import v1

from framework import errors
from framework.estimator.input_calls import with_tensors
from framework.graph.prediction import PREDICTIONS, Prediction
from framework.session import opening, prediction


def predict(
    estimator: Any,
    input_fn: Callable[..., Any],
    predict_keys: Sequence[str] | None,
    hooks: Sequence[Any],
    checkpoint_path: str | None,
    yield_single_examples: bool,
) -> Iterator[Any]:
    """Yields predictions; nothing is built before the first `next`.

    Args:
        estimator: The Estimator.
        input_fn: Returns the data.
        predict_keys: The predictions to make, None for all.
        hooks: The caller's hooks.
        checkpoint_path: The prefix of the checkpoint's files, None for the newest.
        yield_single_examples: Whether batches are split along their first axis.
    """
    checkpoint = estimator._checkpoint(checkpoint_path, 'predict')
    saved = None if checkpoint is None else opening.saved_names(checkpoint)
    built = estimator._graphs(estimator.config.tf_random_seed).predicting(with_tensors(input_fn), saved)
    if built.data is not None and not built.data.batch.ends:
        v1.logging.warning(
            'Input graph does not use tf.data.Dataset or contain a QueueRunner. Its tensors make one batch.'
        )
    named = isinstance(built.spec.predictions, Mapping)
    batches = prediction.predict(
        built,
        checkpoint,
        keys=_chosen(built, predict_keys),
        hooks=hooks,
        session_config=estimator._engine_config().session_proto,
        warm_start=estimator._warm_start_settings,
        any_number=True,
    )
    for values in prediction.single_examples(batches) if yield_single_examples else batches:
        yield values if named else values[PREDICTIONS]


def _chosen(built: Prediction, keys: Sequence[str] | None) -> list[str] | None:
    """Returns those of the names that the model predicts."""
    if not keys:
        return None
    if not isinstance(built.spec.predictions, Mapping):
        raise errors.ConfigurationError('predict_keys argument is not valid in case of non-dict predictions.')
    wanted = [keys] if isinstance(keys, str) else list(keys)
    found = [key for key in wanted if key in built.predictions]
    if not found:
        raise errors.ConfigurationError(
            f'Expected to run at least one output from {list(built.predictions)}, provided {keys}.'
        )
    return found


def predictor(
    estimator: Any, receiver_fn: Callable[[], Any] | None, checkpoint_path: str | None, like: Any
) -> prediction.Predictor:
    """Returns the model, loaded.

    Args:
        estimator: The Estimator.
        receiver_fn: Says what it is fed; None for features as an input_fn has them.
        checkpoint_path: The prefix of the checkpoint's files, None for the newest.
        like: That input_fn.
    """
    checkpoint = estimator._checkpoint(checkpoint_path, 'predict')
    saved = None if checkpoint is None else opening.saved_names(checkpoint)
    graphs = estimator._graphs(estimator.config.tf_random_seed)
    built = graphs.served(receiver_fn or graphs.receiver_fn(with_tensors(like)), saved)
    return prediction.Predictor(built, checkpoint, session_config=estimator._engine_config().session_proto)
