"""CheckpointSaverListeners around the commits of a run."""

from collections.abc import Sequence
from typing import TypeAlias

from tensorflow.compat import v1

Listener: TypeAlias = v1.train.CheckpointSaverListener


class Listeners:
    """Those of a run, told in their order.

    Args:
        listeners: The listeners.
    """

    def __init__(self, listeners: Sequence[Listener] = ()):
        self._listeners = tuple(listeners)

    def begin(self) -> None:
        """Tells them that the session will be opened; the default graph is not finalized yet."""
        for listener in self._listeners:
            listener.begin()

    def before_save(self, session: v1.Session, step: int) -> None:
        """Tells them that the weights of a step are about to be saved."""
        for listener in self._listeners:
            listener.before_save(session, step)

    def after_save(self, session: v1.Session, step: int) -> bool:
        """Tells them that the weights of a step are saved, and returns whether one asks for the end of training."""
        asks = [listener.after_save(session, step) for listener in self._listeners]
        return any(asks)

    def end(self, session: v1.Session, step: int) -> None:
        """Tells them that training has ended."""
        for listener in self._listeners:
            listener.end(session, step)
