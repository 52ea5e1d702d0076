"""What differs between two runs: configuration, provenance, and the first line, commit and variable that do.

Where two runs part is known as closely as they wrote: a line a log period, a pass or a commit.
"""

import os

from framework import errors
from framework.comparison import lines, starts, weights
from framework.comparison.parts import Comparison, Difference, Part
from framework.comparison.starts import provenance_differences, provenance_of
from framework.run_dir import RunDir

__all__ = ['Comparison', 'Difference', 'Part', 'compare', 'provenance_differences', 'provenance_of']


def compare(a: str | os.PathLike[str], b: str | os.PathLike[str]) -> Comparison:
    """Compares two run directories.

    Args:
        a: The first.
        b: The second.

    Raises:
        RunDirectoryError: If one of them holds no run, or a file that can't be read.
    """
    runs = _checked(a), _checked(b)
    return Comparison([*starts.compare(*runs), *lines.compare(*runs), weights.compare(*runs)])


def _checked(path: str | os.PathLike[str]) -> RunDir:
    run = RunDir(path)
    traces = (run.config_file, run.provenance_file, run.metrics_file, run.timeline_file, run.commits)
    if not any(map(os.path.exists, traces)):
        raise errors.RunDirectoryError(f'`{run.path}` holds no run. Name a run directory: the `--model_dir` of a run.')
    return run
