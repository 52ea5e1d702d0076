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

import sys
from collections.abc import Callable, Sequence

from absl import app, flags, logging

from framework import config, errors
from framework.experiment import Experiment
from framework.reporting.rows import RunResult

_FILE_FLAGS = ('gin_file', 'gin_files')
_BINDING_FLAGS = ('gin_param', 'gin_params', 'gin_bindings')
_EVALUATION_FLAGS = ('sets', 'checkpoint')
_MODES: dict[str, Callable[[Experiment, flags.FlagValues], RunResult]] = {
    'train_and_evaluate': lambda experiment, _: experiment.train_and_evaluate(),
    'train': lambda experiment, _: experiment.train(),
    'evaluate': lambda experiment, values: experiment.evaluate(values.sets or None, values.checkpoint or None),
    'smoke': lambda experiment, _: experiment.smoke(),
}
USAGE_EXIT_CODE = errors.ConfigurationError.exit_code


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
        ('checkpoint', None, 'With --mode=evaluate: a checkpoint prefix, the newest by default.'),
    ):
        flags.DEFINE_string(name, default, text, flag_values=flag_values)
    flags.DEFINE_list('sets', [], 'With --mode=evaluate: the sets, all by default.', flag_values=flag_values)


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
        return _run(flag_values).exit_code
    except errors.FrameworkError as error:
        _complain(str(error))
        return error.exit_code


def _run(flag_values: flags.FlagValues) -> RunResult:
    if flag_values.mode not in _MODES:
        raise errors.ConfigurationError(
            f'`--mode` [{flag_values.mode}] is none of the modes. {errors.nearest(flag_values.mode, _MODES)}'
        )
    _check_evaluation_flags(flag_values)
    config.load(_all(flag_values, _FILE_FLAGS), _all(flag_values, _BINDING_FLAGS))
    given = {'model_dir': flag_values.model_dir} if flag_values.model_dir else {}
    experiment = config.build('Experiment', **given)
    with config.gin_errors():
        return _MODES[flag_values.mode](experiment, flag_values)


def _check_evaluation_flags(flag_values: flags.FlagValues) -> None:
    for name in _EVALUATION_FLAGS if flag_values.mode != 'evaluate' else ():
        if value := flag_values[name].value:
            given = ','.join(value) if isinstance(value, list) else value
            raise errors.ConfigurationError(
                f'`--{name}` [{given}] is for `--mode=evaluate`, and the mode is [{flag_values.mode}]. Leave it out, '
                'or pass `--mode=evaluate`.'
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
