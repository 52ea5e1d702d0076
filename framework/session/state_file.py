"""TensorFlow's own file of names, `checkpoint`, for other readers."""

import json
import os
from collections.abc import Sequence

from framework import run_dir


def write(directory: str | os.PathLike[str], names: Sequence[str]) -> None:
    """Writes the file `checkpoint` of a directory.

    By hand, because TensorFlow's own function warns that it will go.

    Args:
        directory: The directory.
        names: The prefixes of the checkpoints, relative to it so that it can be moved; the newest is the last.
    """
    quoted = [json.dumps(name, ensure_ascii=False) for name in names]
    lines = [f'model_checkpoint_path: {quoted[-1]}', *(f'all_model_checkpoint_paths: {name}' for name in quoted)]
    run_dir.write_atomically(os.path.join(directory, 'checkpoint'), '\n'.join(lines) + '\n')
