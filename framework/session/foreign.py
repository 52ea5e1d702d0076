"""Checkpoints of a run before there were commits: what `tf.estimator` left in a run directory."""

import os

from absl import logging
from tensorflow.compat import v1

from framework import errors
from framework.session import reading
from framework.session.records import Commit


def commit_of(directory: str, now: float) -> Commit | None:
    """Returns the checkpoint that TensorFlow's own file names, None where there is no such file.

    Args:
        directory: The run directory.
        now: Seconds since the epoch.

    Raises:
        RunDirectoryError: If it names none that is there, or one of another run.
    """
    if not os.path.exists(os.path.join(directory, 'checkpoint')):
        return None
    try:
        checkpoint = v1.train.latest_checkpoint(directory)
    except ValueError:  # of an empty file, or of one that is no text
        checkpoint = None
    if checkpoint is None:
        raise errors.RunDirectoryError(
            f'`{directory}/checkpoint` names no checkpoint that is there. Put the files back, mend its paths, or start '
            'in a new run directory.'
        )
    prefix = _prefix_within(directory, checkpoint)
    step = reading.global_step(checkpoint)
    logging.info('No commits in %s: going on from the checkpoint of step %d.', directory, step)
    return Commit(step, step, prefix, stayed_at=now, foreign=True)


def _prefix_within(directory: str, checkpoint: str) -> str:
    """Returns a prefix relative to the run directory, which may be spelled by way of links."""
    folder, name = os.path.split(checkpoint)
    relative = os.path.relpath(os.path.realpath(folder), os.path.realpath(directory))
    if relative.split(os.sep)[0] == os.pardir:
        raise errors.RunDirectoryError(
            f'`{directory}/checkpoint` names `{checkpoint}`, which lies outside the run directory and may be another '
            f'run\'s. Copy `{checkpoint}.*` into the run directory and write `model_checkpoint_path: "{name}"` into '
            'its file `checkpoint`, or start in a new run directory.'
        )
    return os.path.normpath(os.path.join(relative, name))
