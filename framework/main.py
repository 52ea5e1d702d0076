"""The binary: `python -m framework.main --gin_file=F --model_dir=D`, and the pieces for an absl `main` of your own.

from absl import app, flags
from framework import main as framework_main

flags.DEFINE_string('note', '', 'A flag of my own.')
framework_main.define_flags()


def main(argv):
    raise SystemExit(framework_main.run())


if __name__ == '__main__':
    app.run(main, flags_parser=framework_main.parse_flags)
"""

import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from absl import app, flags, logging

from framework import config, errors, rerun
from framework.experiment import Experiment
from framework.session import holding

_FILE_FLAGS = ('gin_file', 'gin_files')
_GIVEN = ('model_dir', 'resume', 'progress', 'profile_steps', 'strict_bindings')  # to `Experiment`, over what gin binds
_BINDING_FLAGS = ('gin_param', 'gin_params', 'gin_bindings')
USAGE_EXIT_CODE = errors.ConfigurationError.exit_code


def _train_and_evaluate(experiment: Experiment, _: flags.FlagValues) -> int:
    return experiment.train_and_evaluate().exit_code


def _train(experiment: Experiment, _: flags.FlagValues) -> int:
    return experiment.train().exit_code


def _evaluate(experiment: Experiment, values: flags.FlagValues) -> int:
    return experiment.evaluate(values.sets or None, _checkpoint(values), values['all'].value).exit_code


def _predict(experiment: Experiment, values: flags.FlagValues) -> int:
    if len(values.sets) > 1:
        raise errors.ConfigurationError(
            f'`--sets` [{",".join(values.sets)}] names several sets, and `--mode=predict` writes one file. Name one.'
        )
    if not values.output:
        raise errors.missing('--output', 'prediction', 'Pass `--output=predictions.jsonl` or `--output=p.npz`.')
    source = values.sets[0] if values.sets else None
    return experiment.predict(values.output, source, _checkpoint(values)).exit_code


def _export(experiment: Experiment, values: flags.FlagValues) -> int:
    sys.stdout.write(f'{experiment.export(_checkpoint(values))}\n')
    return 0


def _smoke(experiment: Experiment, _: flags.FlagValues) -> int:
    return experiment.smoke().exit_code


def _describe(experiment: Experiment, _: flags.FlagValues) -> int:
    sys.stdout.write(experiment.describe())
    return 0


def _config(_: Experiment, __: flags.FlagValues) -> int:
    overridden = ''.join(f'# {each}.\n' for each in config.overridden())
    sys.stdout.write(f'{config.config_text()}\n{overridden}\n{config.overview()}')
    return 0


def _checkpoint(values: flags.FlagValues) -> str:
    return values.checkpoint or holding.LATEST


class _Mode(NamedTuple):
    run: Callable[[Experiment, flags.FlagValues], int]
    flags: tuple[str, ...] = ()  # that are for this mode, beside those of all


_MODES = {
    'train_and_evaluate': _Mode(_train_and_evaluate, ('rerun', 'profile_steps', 'strict_bindings')),
    'train': _Mode(_train, ('rerun', 'profile_steps')),
    'evaluate': _Mode(_evaluate, ('sets', 'checkpoint', 'all')),
    'predict': _Mode(_predict, ('sets', 'checkpoint', 'output')),
    'export': _Mode(_export, ('checkpoint',)),
    'smoke': _Mode(_smoke, ('strict_bindings',)),
    'describe': _Mode(_describe, ('strict_bindings',)),
    'config': _Mode(_config),
}


def define_flags(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the flags of the binary; call it before the flags are parsed, at most once.

    Args:
        flag_values: Where to define them.
    """
    for name in _FILE_FLAGS:
        flags.DEFINE_multi_string(name, [], 'A gin file. May be repeated.', flag_values=flag_values)
    for name in _BINDING_FLAGS:
        flags.DEFINE_multi_string(name, [], "A gin binding, 'a.b = 1'. May be repeated.", flag_values=flag_values)
    for name, default, text in (
        ('model_dir', None, 'The run directory; wins over Experiment.model_dir.'),
        ('mode', 'train_and_evaluate', f'One of {", ".join(_MODES)}.'),
        ('checkpoint', None, 'The weights to evaluate, predict or export: latest (the default), best or a path.'),
        ('resume', None, 'Where the directory holds a run: auto (the default) refuses another one, force, never.'),
        ('progress', None, 'On a terminal: auto (the default), bar, plain lines, off.'),
        ('profile_steps', None, 'A range of steps, 10:20, for a profile that TensorBoard shows.'),
        ('output', None, 'With --mode=predict: the file to write, .jsonl or .npz.'),
        ('rerun', None, 'A run directory: its run is repeated in --model_dir, with its configuration and its seed.'),
    ):
        flags.DEFINE_string(name, default, text, flag_values=flag_values)
    flags.DEFINE_list(
        'sets', [], 'The sets to evaluate, all by default; the set to predict for.', flag_values=flag_values
    )
    flags.DEFINE_boolean('strict_bindings', False, 'Refuses gin bindings that nothing uses.', flag_values=flag_values)
    flags.DEFINE_boolean('all', False, 'With --mode=evaluate: every commit in turn.', flag_values=flag_values)


def parse_flags(argv: Sequence[str]) -> list[str]:
    """Parses the command line for `app.run`; a slip is one line and the exit code of a configuration error."""
    try:
        return flags.FLAGS(list(argv))
    except flags.Error as error:
        _complain(str(error))
        sys.exit(USAGE_EXIT_CODE)


def run(flag_values: flags.FlagValues = flags.FLAGS) -> int:
    """Loads the configuration that the flags name, runs the `Experiment` that it binds, and returns the exit code.

    Args:
        flag_values: The parsed flags of `define_flags`.

    Returns:
        0 when the run ended as it may, 1 when it failed, 2 for a slip in the configuration, 3 for a run directory that
        can't be used, 128 + N after signal N. Errors of the user's own code go through.
    """
    if 'verbosity' not in flag_values or not flag_values['verbosity'].present:
        logging.set_verbosity(logging.INFO)
    try:
        return _run(flag_values)
    except errors.FrameworkError as error:
        _complain(str(error))
        return error.exit_code


def _run(flag_values: flags.FlagValues) -> int:
    if flag_values.mode not in _MODES:
        raise errors.ConfigurationError(
            f'`--mode` [{flag_values.mode}] is none of the modes. {errors.nearest(flag_values.mode, _MODES)}'
        )
    _check_flags_of_modes(flag_values)
    mode, given = _load(flag_values)
    given |= {name: flag_values[name].value for name in _GIVEN if flag_values[name].value}
    experiment = config.build('Experiment', **given)
    with config.gin_errors():
        return _MODES[mode].run(experiment, flag_values)


def _load(flag_values: flags.FlagValues) -> tuple[str, dict[str, Any]]:
    """Loads the configuration, and returns the mode and what else `Experiment` is given."""
    files, bindings = _all(flag_values, _FILE_FLAGS), _all(flag_values, _BINDING_FLAGS)
    if not flag_values.rerun:
        config.load(files, bindings)
        return flag_values.mode, {}
    if files:
        raise errors.ConfigurationError(
            f'`--rerun` [{flag_values.rerun}] and `--gin_file` [{files[0]}] both say what is configured. Leave one of '
            'them out; `--gin_param` may change what the recorded run had.'
        )
    recorded = rerun.read(flag_values.rerun, flag_values.model_dir)
    recorded.warn()
    config.load([recorded.config_file], [*recorded.bindings, *bindings])
    mode = flag_values.mode if flag_values['mode'].present else _mode_of(recorded.started_with.get('argv') or ['main'])
    return mode, recorded.arguments()


def _mode_of(argv: Sequence[str]) -> str:
    """Returns the mode that a command line asks for, as far as a run can be repeated in it."""
    repeatable = [name for name, known in _MODES.items() if 'rerun' in known.flags]
    values = flags.FlagValues()
    define_flags(values)
    with contextlib.suppress(flags.Error):  # of a binary with flags of its own
        values(argv, known_only=True)
        if values.mode in repeatable:
            return values.mode
    return repeatable[0]


def _check_flags_of_modes(flag_values: flags.FlagValues) -> None:
    mode = flag_values.mode
    for name in {name: None for known in _MODES.values() for name in known.flags}:
        value = flag_values[name].value
        if value and name not in _MODES[mode].flags:
            given = ','.join(value) if isinstance(value, list) else value
            modes = [f'`--mode={other}`' for other, known in _MODES.items() if name in known.flags]
            raise errors.ConfigurationError(
                f'`--{name}` [{given}] is for {" and ".join(modes)}, and the mode is [{mode}]. Leave it out, or pass '
                f'{" or ".join(modes)}.'
            )
    if flag_values['all'].value and flag_values.checkpoint:
        raise errors.ConfigurationError(
            f'`--all` and `--checkpoint` [{flag_values.checkpoint}] say different things about what is evaluated. '
            'Leave one of them out.'
        )


def _all(flag_values: flags.FlagValues, names: Sequence[str]) -> list[str]:
    return [value for name in names for value in flag_values[name].value]


def _complain(message: str) -> None:
    # Not through the log: a user's handlers and verbosity must not hide why nothing ran.
    sys.stderr.write(f'error: {message}\n')


def main(argv: Sequence[str]) -> None:
    """Runs the experiment and exits; what `app.run` calls.

    Args:
        argv: The command line after parsing: the program's name, and words that are no flags.
    """
    if len(argv) > 1:
        _complain(f'`{argv[1]}` is no flag. Flags begin with `--`.')
        sys.exit(USAGE_EXIT_CODE)
    sys.exit(run())


if __name__ == '__main__':
    define_flags()
    app.run(main, flags_parser=parse_flags)
