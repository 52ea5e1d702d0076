"""The files that a run appends to: how much of them belongs to a commit, and how the rest is cut off.

Whoever goes on from a commit makes the steps behind it again, and writes of them again: what the process before had
written of them must go, or the curves have those steps twice.
"""

import os
import pathlib
from collections.abc import Mapping

from absl import logging

from framework import run_dir
from framework.reporting import tensorboard


class Journal:
    """The files of one run directory.

    Args:
        directory: The run directory.
    """

    def __init__(self, directory: run_dir.RunDir):
        self._directory = directory

    def lengths(self) -> dict[str, int]:
        """Makes the files last as they are, and returns their lengths in bytes by their names."""
        found = {}
        for path in self._files():
            with open(path, 'rb') as file:
                os.fsync(file.fileno())
                found[os.path.relpath(path, self._directory.path)] = os.fstat(file.fileno()).st_size
        return found

    def cut(self, lengths: Mapping[str, int]) -> None:
        """Takes the files back to the lengths that they had; removes those that were not there.

        Args:
            lengths: What `lengths` returned.
        """
        for path in self._files():
            name = os.path.relpath(path, self._directory.path)
            size = os.path.getsize(path)
            if name not in lengths:
                os.remove(path)
            elif size > lengths[name]:
                os.truncate(path, lengths[name])
            elif size < lengths[name]:
                logging.warning('`%s` is shorter than it was [%d of %d bytes].', path, size, lengths[name])

    def _files(self) -> list[str]:
        """Returns the files that are ours, whatever else lies there."""
        directory = self._directory
        lines = [directory.metrics_file, directory.timeline_file, directory.csv_file]
        streams = [directory.path, *map(str, pathlib.Path(directory.path).glob('eval_*')), directory.events_dir('eval')]
        streams.append(directory.hparams)
        return [path for path in lines if os.path.exists(path)] + [
            path for stream in streams for path in tensorboard.own_files(stream)
        ]
