"""A profile of some train steps, for TensorBoard's profiler."""

import contextlib
import re
from typing import Any

import tensorflow as tf
from absl import logging

from framework import errors

_NEVER = 2**62  # steps


def checked_profile_steps(given: Any) -> tuple[int, int] | None:
    """Returns `Experiment.profile_steps` as a pair; raises a `ConfigurationError` unless it is such, or None."""
    if given is None:
        return None
    match = re.fullmatch(r'(\d{1,18}):(\d{1,18})', given) if isinstance(given, str) else None
    if match is None or int(match[1]) >= int(match[2]):
        raise errors.ConfigurationError(
            f"`Experiment.profile_steps` [{given!r}] must be the steps after which a profile begins and ends: '10:20'."
        )
    return int(match[1]), int(match[2])


class Profile:
    """Traces the ops of the steps of a range, with the passes and commits between them.

    Nothing of the graph or the options of a run is another one while it traces, so bits stay as they are.

    Args:
        steps: The global steps after which it begins and ends; None for no profile.
        directory: The run directory. The profile comes into `plugins/profile/<time>/`, where TensorBoard looks.
    """

    def __init__(self, steps: tuple[int, int] | None, directory: str):
        self._steps = steps
        self._directory = directory
        self._traces = False

    def left(self, step: int) -> int:
        """Returns how many steps can be made in one run of the session: none before the range with one inside it."""
        if self._steps is None:
            return _NEVER
        return next((boundary - step for boundary in self._steps if boundary > step), _NEVER)

    def begin(self, step: int) -> None:
        """Begins before a train run, if it is time.

        Args:
            step: The global step.

        Raises:
            RunError: If something else profiles the process.
        """
        if self._steps is None or self._traces or step < self._steps[0]:
            return
        if step >= self._steps[1]:
            logging.warning('There is no profile of the steps %d to %d: the run is at step %d.', *self._steps, step)
            self._steps = None
            return
        try:
            tf.profiler.experimental.start(self._directory)
        except tf.errors.AlreadyExistsError as error:
            raise errors.RunError(
                '`Experiment.profile_steps`: something else profiles this process already, a hook perhaps. Leave one '
                'of them out.'
            ) from error
        self._traces = True

    def marked(self, step: int) -> contextlib.AbstractContextManager[object]:
        """Marks a run of the session as a step, while it traces.

        Args:
            step: The global step before it.
        """
        return (
            tf.profiler.experimental.Trace('train', step_num=step, _r=1) if self._traces else contextlib.nullcontext()
        )

    def end(self, step: int) -> None:
        """Ends after a train run, if it is time.

        Args:
            step: The global step.
        """
        if self._traces and self._steps is not None and step >= self._steps[1]:
            self.close()
            logging.info(
                'The profile of the steps %d to %d lies in %s/plugins/profile. TensorBoard shows it where its plugin '
                'is installed (`pip install tensorboard-plugin-profile`).',
                *self._steps,
                self._directory,
            )
            self._steps = None

    def close(self) -> None:
        """Ends and writes what was traced, also where the run ends inside of the range."""
        if self._traces:
            self._traces = False
            tf.profiler.experimental.stop()
