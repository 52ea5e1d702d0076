"""CheckpointSaverHooks of a user that save into the run directory: they lend the run their cadence and listeners.

Saving itself is the commits' business: such a hook would delete files that commits name.
"""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from absl import logging
from tensorflow.compat import v1

from framework.graph.calls import Compiled
from framework.session.hooks import Hook
from framework.session.listeners import Listener


@dataclasses.dataclass(frozen=True)
class Lent:
    """What a hook lends.

    Attributes:
        steps: Steps between two saves, None where seconds count.
        secs: Seconds between two saves.
        listeners: Its listeners.
        saver: Its saver, None where that is the Scaffold's.
    """

    steps: int | None
    secs: float | None
    listeners: Sequence[Listener]
    saver: v1.train.Saver | None


def lent(compiled: Compiled, hooks: Sequence[Hook], directory: str) -> Lent | None:
    """Returns what the first of these hooks lends, None where there is none.

    Args:
        compiled: The graph, with the hooks of the model.
        hooks: The caller's.
        directory: The run directory.
    """
    spec = None if compiled.train is None else compiled.train.spec
    of_model = () if spec is None else (*spec.training_hooks, *spec.training_chief_hooks)
    found: list[Any] = [hook for hook in (*hooks, *of_model) if saves_into(hook, directory)]
    for hook in found[1:]:
        logging.warning(
            '`%s` [%s] is left out, with its listeners: another one saves there. Join the two, or give one a '
            'directory of its own.',
            type(hook).__name__,
            directory,
        )
    if not found:
        return None
    # TensorFlow gives no public way to ask a hook for what it was made with.
    first, timer = found[0], found[0]._timer
    logging.info('`%s` says when the run saves, and lends its listeners.', type(first).__name__)
    return Lent(timer._every_steps, timer._every_secs, tuple(first._listeners), first._saver)


def saves_into(hook: Any, directory: str) -> bool:
    """Whether a hook is one that saves into a directory."""
    target = getattr(hook, '_checkpoint_dir', None)
    same = target is not None and os.path.realpath(target) == os.path.realpath(directory)
    return isinstance(hook, v1.train.CheckpointSaverHook) and same
