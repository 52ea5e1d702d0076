"""A run repeated in a new directory, from what its own directory records."""

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from framework import comparison, config, errors, provenance
from framework.run_dir import RunDir

_DIRECTORY = re.compile(r'(.*[/.])?RunConfig\.model_dir')
_SEED = re.compile(r'Experiment\.seed|(.*[/.])?RunConfig\.tf_random_seed')
_OF_THE_MACHINE = ('python', 'platform', 'tensorflow', 'packages', 'cpu_count', 'environment', 'git_commit', 'git_diff')


@dataclasses.dataclass(frozen=True)
class Recorded:
    """What a run directory says about how to repeat its run.

    Attributes:
        config_file: Its gin file.
        bindings: Bindings to load after it, which take its directory back.
        seed: The seed that it ran with.
        started_with: Its provenance.
        left_out: Names of bindings that its code made, and that its gin file can't hold.
    """

    config_file: str
    bindings: Sequence[str]
    seed: int
    started_with: Mapping[str, Any]
    left_out: Sequence[str]

    def arguments(self) -> dict[str, Any]:
        """Returns what to give `Experiment` once the configuration is loaded: the seed, unless that binds one."""
        bound = config.bound_values()
        for name in self.left_out:
            if name not in bound:
                logging.warning('`%s` is not set here: the recorded run had its value from code, not from gin.', name)
        bound_to = [value for name, value in bound.items() if _SEED.fullmatch(name)]
        return {} if any(value is not None for value in bound_to) else {'seed': self.seed}

    def warn(self) -> None:
        """Warns of what is not as it was when the run was started, a line each."""
        here = provenance.collect([], self.seed)
        now = {name: here[name] for name in _OF_THE_MACHINE}
        # Threads and determinism are settings, which are repeated with the others.
        now['numerics'] = {**self.started_with.get('numerics', {}), **provenance.machine_numerics()}
        for difference in comparison.provenance_differences(self.started_with, now):
            logging.warning('Not as recorded: %s: %s, now %s', difference.name, difference.a, difference.b)


def read(path: str, model_dir: str | None) -> Recorded:
    """Reads what a run directory records.

    Args:
        path: The run directory.
        model_dir: Where the run shall be repeated.

    Raises:
        ConfigurationError: If there is no other directory to repeat it in.
        RunDirectoryError: If the directory does not say how to repeat its run.
    """
    if not model_dir:
        raise errors.missing('--model_dir', '`--rerun`', 'Name a new directory: `--model_dir=runs/again`.')
    if os.path.realpath(path) == os.path.realpath(model_dir):
        raise errors.ConfigurationError(
            f'`--rerun` [{path}] and `--model_dir` [{model_dir}] are the same directory, and a run is repeated in a '
            'new one. Name another `--model_dir`.'
        )
    run = RunDir(path)
    text = _config_text(run)
    started_with = comparison.provenance_of(run)
    return Recorded(
        run.config_file,
        [f'{name} = None' for name in config.bindings_in(text) if _DIRECTORY.fullmatch(name)],
        _seed(run, started_with),
        started_with,
        config.left_out(text),
    )


def _config_text(run: RunDir) -> str:
    try:
        with open(run.config_file, encoding='utf-8') as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise errors.RunDirectoryError(
            f"`--rerun` [{run.path}]: `{run.config_file}` can't be read [{error}]. Name the directory of a run that "
            'was configured by gin.'
        ) from error
    if not text.strip():
        raise errors.RunDirectoryError(
            f'`--rerun` [{run.path}]: `{run.config_file}` is empty, so the run was not configured by gin. Repeat it by '
            'the code that made its `Experiment`.'
        )
    return text


def _seed(run: RunDir, started_with: Mapping[str, Any]) -> int:
    seed = started_with.get('seed')
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise errors.RunDirectoryError(
            f'`--rerun` [{run.path}]: `{run.provenance_file}` records no seed [{seed}]. Bind `Experiment.seed` and run '
            f'`{run.config_file}` by `--gin_file`.'
        )
    return seed
