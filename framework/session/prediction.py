"""Predictions of a checkpoint: for the batches of an input_fn, or for features that a caller hands over."""

import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf
from absl import logging
from tensorflow.compat import v1

from framework import errors, run_config
from framework.graph import movement
from framework.graph.prediction import Data, Prediction
from framework.reporting import predictions as reporting
from framework.session import ends, feeding, loading
from framework.session.hooks import Hook, HookedRuns
from framework.warm_start import WarmStartSettings

Batches = Generator[dict[str, Any], None, None]

_WHERE = 'a prediction'
_OF_A_HOOK = 'a hook of a prediction'


def predict(
    prediction: Prediction,
    checkpoint: loading.Checkpoint,
    *,
    keys: Sequence[str] | None = None,
    hooks: Sequence[Hook] = (),
    steps: int | None = None,
    session_config: v1.ConfigProto | None = None,
    warm_start: WarmStartSettings | None = None,
    any_number: bool = False,
) -> Batches:
    """Yields the predictions `[B, ...]` of each batch by name.

    Nothing runs before the first `next`, and the session ends with the generator, also when that is closed early.
    Between two batches nothing is the default graph or session, so any number of generators may take turns.

    Args:
        prediction: A graph with an input_fn. It may be used again, where no hook adds to it in `begin`.
        checkpoint: The prefix of the checkpoint's files, or a function that returns it, asked again where a training
            beside this removes them; None for initial values, with a warning.
        keys: The names of the predictions to make, None for all.
        hooks: SessionRunHooks that see each batch, before those of the model (`EstimatorSpec.prediction_hooks`).
        steps: How many batches, None for as many as the `EvalSet` says, and all where it says nothing. Tensors
            without an iterator make one batch.
        session_config: The session's configuration, None for the default.
        warm_start: What a model without a checkpoint begins with, None for its initial values.
        any_number: Whether data without end, and data without a batch, is no error: the caller takes what it needs.

    Raises:
        ConfigurationError: At once for unknown keys; with the first batch for an infinite Dataset without `steps`, and
            for data without a batch.
        CheckpointError: With the first batch, if the checkpoint isn't there, is damaged or of another model.
        RunError: If an op other than the input's iterator reports the end of its data.
    """
    if prediction.data is None:
        raise errors.ConfigurationError('A graph with a receiver has no batches of its own. Make a `Predictor` of it.')
    run_config.positive('steps', steps)
    chosen = _chosen(prediction.predictions, keys)
    both = [*run_config.hooks_tuple('hooks', hooks), *prediction.spec.prediction_hooks]
    batches = _Pass(prediction, prediction.data, chosen, both, steps, any_number)
    return _batches(batches, checkpoint, session_config, warm_start)


def single_examples(batches: Batches) -> Batches:
    """Yields the predictions of each example of some batches, split along the first axis.

    Args:
        batches: What `predict` returned; closed at the end.

    Raises:
        ConfigurationError: If the predictions of a batch are not of equally many examples.
    """
    with contextlib.closing(batches):
        for batch in batches:
            yield from reporting.split(batch)


def _chosen(predictions: Mapping[str, Any], keys: Sequence[str] | None) -> dict[str, Any]:
    if isinstance(keys, str):
        raise errors.ConfigurationTypeError(f"`keys` [{keys!r}] must be a list of names. Write ['{keys}'].")
    for key in keys or ():
        if key not in predictions:
            raise errors.ConfigurationError(f'`keys` [{key}]: no such prediction. {errors.nearest(key, predictions)}')
    return {key: predictions[key] for key in keys or predictions}


def _batches(
    batches: '_Pass',
    checkpoint: loading.Checkpoint,
    session_config: v1.ConfigProto | None,
    warm_start: WarmStartSettings | None,
) -> Batches:
    with contextlib.closing(batches.start(checkpoint, session_config, warm_start)):
        made = 0
        while batches.goes_on(made):
            batch = batches.next()
            if batch is None:
                break
            made += 1
            yield batch
        batches.end(made)


class _Pass:
    """One pass over the input: each call makes the graph the default one while it lasts."""

    def __init__(
        self,
        prediction: Prediction,
        data: Data,
        chosen: Mapping[str, Any],
        hooks: Sequence[Hook],
        steps: int | None,
        any_number: bool,
    ):
        self._any_number = any_number
        self._graph = prediction.graph
        self._prediction = prediction
        self._input = data.batch
        self._source = data.source
        self._hooks = hooks
        limit = steps or data.steps
        self._limit = 1 if limit is None and not self._input.ends else limit
        # Also where the predictions don't depend on the batch, the next run must find the next one.
        parts = tf.nest.flatten(self._input.features, expand_composites=True)
        read = movement.ancestors(part for part in parts if isinstance(part, tf.Tensor))
        self._fetches = [dict(chosen), [op for op in read if op.name in self._input.ends]]

    def start(
        self, checkpoint: loading.Checkpoint, config: v1.ConfigProto | None, warm_start: WarmStartSettings | None
    ) -> loading.Loaded:
        with self._graph.as_default(), ends.named_stop(_OF_A_HOOK):
            for hook in self._hooks:
                hook.begin()
        loaded = loading.load(self._prediction, checkpoint, config, warm_start)
        try:
            with self._graph.as_default(), ends.named_stop(_OF_A_HOOK):
                self._start_input(loaded.session)
                for hook in self._hooks:
                    hook.after_create_session(loaded.session, loaded.coordinator)
        except BaseException:
            loaded.close()
            raise
        self._session = loaded.session
        self._runs = HookedRuns(loaded.session, self._hooks, loaded.coordinator)
        return loaded

    def _start_input(self, session: v1.Session) -> None:
        if (
            self._limit is None
            and not self._any_number
            and session.run(self._source.cardinality) == tf.data.INFINITE_CARDINALITY
        ):
            raise errors.ConfigurationError(
                f'`steps` [None] of the prediction for `{self._source.stream}`: its Dataset is infinite, so it would '
                'never end. Set `steps`, or leave out `repeat()` in its input_fn unless `mode` is ModeKeys.TRAIN.'
            )
        session.run(self._input.initializers[self._source.stream])

    def goes_on(self, made: int) -> bool:
        return (self._limit is None or made < self._limit) and not self._runs.should_stop

    def next(self) -> dict[str, Any] | None:
        """Returns the next batch, None at the end of the data."""
        try:
            with self._graph.as_default(), ends.named_stop(_OF_A_HOOK):
                values, _ = self._runs.run(self._fetches)
        except tf.errors.OutOfRangeError as error:
            if not self._input.ended(error):
                raise ends.unnamed_end(error, _WHERE) from error
            return None
        return values

    def end(self, made: int) -> None:
        if not made and not self._any_number and not self._runs.should_stop:
            raise errors.ConfigurationError(
                f'`{self._source.stream}` gave no batch: there is nothing to predict. Check what its input_fn reads, '
                'and whether `drop_remainder` drops its only batch.'
            )
        with self._graph.as_default(), ends.named_stop(_OF_A_HOOK):
            for hook in self._hooks:
                hook.end(self._session)


class Predictor:
    """A model that stays loaded: called with features, it returns predictions.

    Several threads may call it. They may go on doing so while `reload` changes the weights: each call is made with
    those of one checkpoint. After `close` it may not be called. Hooks of the model are not called.

    Args:
        prediction: A graph with a receiver, for example that of `serving.receiver_of_spec`.
        checkpoint: The prefix of the checkpoint's files; None for initial values, with a warning.
        session_config: The session's configuration, None for the default.

    Raises:
        CheckpointError: If the checkpoint isn't there, is damaged or of another model.
    """

    def __init__(
        self, prediction: Prediction, checkpoint: loading.Checkpoint, *, session_config: v1.ConfigProto | None = None
    ):
        if prediction.receiver is None:
            raise errors.ConfigurationError('A `Predictor` needs a graph with a receiver. Build it for one.')
        if prediction.spec.prediction_hooks:
            logging.warning('`EstimatorSpec.prediction_hooks` are not called by a `Predictor`.')
        self._prediction = prediction
        self._fed: Mapping[str, Any] = prediction.receiver.receiver_tensors
        self._config = session_config
        self._loaded: loading.Loaded | None = loading.load(prediction, checkpoint, session_config)

    def __call__(self, features: Any) -> dict[str, np.ndarray]:
        """Returns the predictions `[B, ...]` by name; a single tensor of predictions is called `predictions`.

        Args:
            features: Arrays `[B, ...]` in the structure of the features of an input_fn, a single one where the model
                takes one tensor.

        Raises:
            ConfigurationError: If a name, a shape or a dtype is not what the model takes.
        """
        loaded = self._open()
        # In a thread of its own a caller has no default graph, and outside of graphs tensors are no keys of a dict.
        with self._prediction.graph.as_default(), feeding.explained(self._fed, features):
            feeds = feeding.feeds(self._fed, features)
            return loaded.session.run(dict(self._prediction.predictions), feed_dict=feeds)

    @property
    def step(self) -> int:
        """The global step of the weights."""
        return self._open().step

    @property
    def checkpoint(self) -> str | None:
        """The prefix of the checkpoint's files; None for initial values."""
        return self._open().checkpoint

    def reload(self, checkpoint: str | Callable[[], str]) -> None:
        """Takes the weights of another checkpoint; when that fails, the former ones stay.

        Args:
            checkpoint: The prefix of the checkpoint's files.

        Raises:
            CheckpointError: If the checkpoint isn't there, is damaged or of another model.
        """
        self._open()
        # The former session isn't closed: it ends when the last call in it does, and nothing refers to it any more.
        self._loaded = loading.load(self._prediction, checkpoint, self._config)

    def close(self) -> None:
        """Ends the session; calling it again does nothing."""
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            loaded.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _open(self) -> loading.Loaded:
        if self._loaded is None:
            raise errors.RunError('The `Predictor` is closed. Make a new one.')
        return self._loaded
