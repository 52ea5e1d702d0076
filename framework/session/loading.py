"""Sessions on a graph of predictions, with the weights of a checkpoint."""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import TypeAlias
from unittest import mock

from absl import logging
from tensorflow.compat import v1

from framework import run_config
from framework.graph.prediction import Prediction
from framework.session import holding, initial, opening
from framework.warm_start import WarmStartSettings

Checkpoint: TypeAlias = str | Callable[[], str] | None


@dataclasses.dataclass(frozen=True)
class Loaded:
    """A session with weights.

    Attributes:
        session: The session.
        checkpoint: The prefix of the checkpoint's files, None for initial values.
        step: The global step of the weights.
        queues: The threads that fill its queues.
    """

    session: v1.Session
    checkpoint: str | None
    step: int
    queues: opening.Queues

    @property
    def coordinator(self) -> v1.train.Coordinator:
        """What hooks may ask to stop."""
        return self.queues.coordinator

    def close(self) -> None:
        """Ends the threads and the session."""
        try:
            self.queues.close()
        finally:
            self.session.close()


def completed_scaffold(prediction: Prediction, *, freeze: bool = True) -> v1.train.Scaffold:
    """Returns the Scaffold of a graph of predictions with all of its ops and its saver.

    Args:
        prediction: The graph.
        freeze: Whether the graph is finalized, so that nothing can be added to it any more.
    """
    graph = prediction.graph
    scaffold = prediction.spec.scaffold
    # Scaffold has no other way to make its ops; an export adds assets to the graph afterwards.
    kept_open = contextlib.nullcontext() if freeze else mock.patch.object(graph, 'finalize')
    with graph.as_default(), kept_open:
        opening.give_saver(scaffold)
        return scaffold.finalize()


def load(
    prediction: Prediction,
    checkpoint: Checkpoint,
    config: v1.ConfigProto | None,
    warm_start: WarmStartSettings | None = None,
) -> Loaded:
    """Opens a session and puts the weights of a checkpoint into it; the default graph and session stay as they are.

    Args:
        prediction: The graph, which is finalized.
        checkpoint: The prefix of the checkpoint's files, or a function that returns it, asked again where a training
            beside this removes them; None gives the model its initial values, with a warning.
        config: The session's configuration, None for the default.
        warm_start: What a model without a checkpoint begins with, None for its initial values.

    Raises:
        CheckpointError: If the checkpoint isn't there, is damaged or of another model.
        ConfigurationError: If the model's saver leaves variables without a value.
    """
    initialise = None
    if checkpoint is None:
        initialise = initial.prepare(warm_start, prediction.graph, prediction.spec.scaffold)
    scaffold = completed_scaffold(prediction)
    session = v1.Session(graph=prediction.graph, config=config or run_config.default_session_config())
    try:
        with prediction.graph.as_default():
            if not callable(checkpoint):
                if initialise is not None:
                    _tell_fresh(warm_start)
                    initialise(session)
                return _loaded(prediction, scaffold, session, checkpoint)
            with holding.held(checkpoint) as held:
                loaded = _loaded(prediction, scaffold, session, held)
                return dataclasses.replace(loaded, checkpoint=holding.original(held))
    except BaseException:
        session.close()
        raise


def _loaded(prediction: Prediction, scaffold: v1.train.Scaffold, session: v1.Session, checkpoint: str | None) -> Loaded:
    if checkpoint is not None:
        opening.restore(session, scaffold.saver, checkpoint)
    session.run(prediction.init, feed_dict=scaffold.local_init_feed_dict)
    opening.check_ready(session, scaffold, 'prediction')
    step = int(session.run(prediction.global_step))
    return Loaded(session, checkpoint, step, opening.Queues(session))


def _tell_fresh(warm_start: WarmStartSettings | None) -> None:
    if warm_start is None:
        logging.warning('There is no checkpoint: predictions are those of a model with its initial values.')
