"""The errors that a user can cause, each with the exit code of the binary."""

import difflib
from collections.abc import Iterable, Sequence


class FrameworkError(Exception):
    """A failure that its message explains: the binary prints it without a traceback.

    A message names the thing in backticks, gives the value in brackets, the rule and the remedy.
    """

    exit_code = 1


class ConfigurationError(FrameworkError, ValueError):
    """What the user configured or returned breaks a rule; nothing was trained."""

    exit_code = 2


class ConfigurationTypeError(ConfigurationError, TypeError):
    """A `ConfigurationError` about a type, which `tf.estimator` raised as `TypeError`."""


class RunDirectoryError(FrameworkError):
    """The run directory can't be used: in use, damaged, or of another run."""

    exit_code = 3


class RunError(FrameworkError):
    """The run itself failed, for example because the loss was not finite."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """Returns the end of a message about an unknown name: the nearest valid name, or all of them.

    Args:
        name: The name that is not known.
        valid: The names that are.
    """
    names = sorted(set(valid))
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f'Did you mean `{close[0]}`?'
    if not names:
        return 'There are none.'
    return 'Valid names: ' + ', '.join(f'`{n}`' for n in names) + '.'


def missing(name: str, purpose: str, remedy: str) -> ConfigurationError:
    """Returns the error about a collaborator that was not given.

    Args:
        name: The argument, for example `Experiment.model_fn`.
        purpose: What needs it, for example `training`.
        remedy: What to write, for example a gin binding.
    """
    return ConfigurationError(f'`{name}` is missing, and {purpose} needs it. {remedy}')


def checked_choice(name: str, value: object, choices: Sequence[str]) -> str:
    """Returns a setting that is one of some words; raises a `ConfigurationError` for anything else."""
    if value not in choices:
        raise ConfigurationError(f'`{name}` [{value!r}] is no such choice. {nearest(str(value), choices)}')
    return str(value)
