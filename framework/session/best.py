"""The checkpoints in `best/`: those of the best passes, which stay when others go."""

import dataclasses
import os
import pathlib
import re
import shutil
from collections.abc import Collection, Sequence

from framework import run_dir
from framework.session import integrity, state_file

_STEP = re.compile(r'model\.ckpt-(\d+)\.')


@dataclasses.dataclass(frozen=True)
class BestSteps:
    """The best of a run, as a commit finds them.

    Attributes:
        kept: Their steps, best first.
        new: Those of them that came since the commit before: whatever lies there under their names goes.
    """

    kept: Sequence[int] = ()
    new: Collection[int] = ()


class BestCheckpoints:
    """The best checkpoints of one run directory.

    Args:
        directory: The run directory.
    """

    def __init__(self, directory: run_dir.RunDir):
        self._path = pathlib.Path(directory.best)

    def path(self, step: int) -> str:
        """Returns the prefix of the files of a step."""
        return str(self._path / f'model.ckpt-{step}')

    def add(self, step: int, checkpoint: str) -> None:
        """Keeps a checkpoint: a second name of its files, or a copy where the file system has no such names.

        Args:
            step: Its step.
            checkpoint: The prefix of its files.
        """
        self._path.mkdir(exist_ok=True)
        for part in integrity.files_of(checkpoint):
            target = self.path(step) + part.removeprefix(checkpoint)
            _link(part, f'{target}.tmp')
            os.replace(f'{target}.tmp', target)
        run_dir.sync_directory(str(self._path))

    def holds(self, step: int) -> bool:
        """Whether the checkpoint of a step is there."""
        return os.path.exists(self.path(step) + '.index')

    def write(self, kept: Sequence[int], named: Collection[int]) -> None:
        """Writes TensorFlow's `checkpoint` file, whose newest is the best, then removes what no commit names.

        Args:
            kept: The steps that are the best now, best first.
            named: The steps that stay, because a commit names them.
        """
        if not self._path.exists():
            return
        if kept:
            state_file.write(self._path, [f'model.ckpt-{step}' for step in reversed(kept)])
        for path in self._path.glob('model.ckpt-*'):
            match = _STEP.match(path.name)
            if match and int(match.group(1)) not in named:
                path.unlink()


def _link(source: str, target: str) -> None:
    if os.path.exists(target):
        os.remove(target)  # of a process that was killed here
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
