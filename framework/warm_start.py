"""What a fresh run begins with: `WarmStartSettings` (those of `tf.estimator`, and `strict`) and `VocabInfo`."""

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import gin
from tensorflow.compat import v1

from framework import errors

VocabInfo = v1.train.VocabInfo
gin.external_configurable(VocabInfo, name='VocabInfo', module='framework')


@gin.configurable(module='framework')
@dataclasses.dataclass(frozen=True)
class WarmStartSettings:
    """Which variables of a fresh run take their values from which checkpoint.

    A regular expression is matched at the beginning of a variable's name with its `:0`, as in `tf.estimator`: `dense`
    means `dense/kernel` and `dense_1/kernel` too. Names in the two dicts are whole names, without `/part_0` and `:0`.

    Attributes:
        ckpt_to_initialize_from: The prefix of a checkpoint's files, a run directory or any other one with a file
            `checkpoint`, whose newest is taken, or a directory with a SavedModel.
        vars_to_warm_start: A regular expression means trainable variables only, so neither slots of optimizers nor
            moving averages. A list of them means all global variables, `global_step` among them. None: only the
            trainable variables that `var_name_to_vocab_info` names.
        var_name_to_vocab_info: Variables along whose rows or columns stands a vocabulary that has changed. Entries
            that are new get zeros, or what `backup_initializer` makes.
        var_name_to_prev_var_name: The name in the checkpoint, for variables that have another name there.
        strict: Whether a variable that can't be loaded, and an expression that means no variable, is an error. False:
            the variable keeps its initial value, and the log says so.
    """

    ckpt_to_initialize_from: str | os.PathLike[str]
    vars_to_warm_start: str | Sequence[str] | None = '.*'
    var_name_to_vocab_info: Mapping[str, Any] | None = None
    var_name_to_prev_var_name: Mapping[str, str] | None = None
    strict: bool = True

    def __post_init__(self) -> None:
        vocabularies = _by_name('var_name_to_vocab_info', self.var_name_to_vocab_info, VocabInfo, 'VocabInfo')
        previous = _by_name('var_name_to_prev_var_name', self.var_name_to_prev_var_name, str, 'names in the checkpoint')
        for name, info in vocabularies.items():
            _check_backup(name, info)
        checked = {
            'ckpt_to_initialize_from': _path('WarmStartSettings.ckpt_to_initialize_from', self.ckpt_to_initialize_from),
            'vars_to_warm_start': _expressions(self.vars_to_warm_start),
            'var_name_to_vocab_info': vocabularies,
            'var_name_to_prev_var_name': previous,
        }
        for field, value in checked.items():
            object.__setattr__(self, field, value)
        if not isinstance(self.strict, bool):
            raise errors.ConfigurationTypeError(f'`WarmStartSettings.strict` [{self.strict!r}] must be True or False.')


def as_settings(value: Any) -> WarmStartSettings | None:
    """Returns settings for what a user gave as `warm_start_from`.

    Args:
        value: None, a path, which means all trainable variables of that checkpoint, or settings.

    Raises:
        ConfigurationTypeError: If it is none of these.
    """
    if value is None or isinstance(value, WarmStartSettings):
        return value
    if isinstance(value, (str, os.PathLike)):
        return WarmStartSettings(_path('warm_start_from', value))
    raise errors.ConfigurationTypeError(
        f'`warm_start_from` [{value!r}] must be a path, a WarmStartSettings or None. In gin: `@WarmStartSettings()`, '
        'with the parentheses.'
    )


def _path(name: str, value: Any) -> str:
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else value
    if not isinstance(path, str):
        raise errors.ConfigurationTypeError(
            f'`{name}` [{value!r}] must be a path: the prefix of a checkpoint, a run directory or a SavedModel.'
        )
    if not path:
        raise errors.ConfigurationError(
            f"`{name}` [''] must name a checkpoint, a run directory or a SavedModel. For a cold start, leave it out."
        )
    return path


def _expressions(value: Any) -> str | list[str] | None:
    """Returns the regular expressions; a list for any sequence, because TensorFlow takes no other."""
    if value is None:
        return None
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, (list, tuple)) or not all(isinstance(one, str) for one in listed):
        raise errors.ConfigurationTypeError(
            f'`WarmStartSettings.vars_to_warm_start` [{value!r}] must be a regular expression, a list of them, or None.'
        )
    if not listed or not all(listed):
        raise errors.ConfigurationError(
            f"`WarmStartSettings.vars_to_warm_start` [{value!r}] must not be empty. Write '.*' for all trainable "
            'variables, None for only those with a vocabulary.'
        )
    for one in listed:
        _check_expression(one)
    return value if isinstance(value, str) else list(listed)


def _check_expression(expression: str) -> None:
    try:
        re.compile(expression)
    except re.error as error:
        raise errors.ConfigurationError(
            f'`WarmStartSettings.vars_to_warm_start` [{expression}] is no regular expression: {error}.'
        ) from error


def _by_name(field: str, value: Any, kind: type, what: str) -> dict[str, Any]:
    if value is None:
        return {}
    whole = isinstance(value, Mapping)
    if not whole or not all(isinstance(key, str) and isinstance(one, kind) for key, one in value.items()):
        raise errors.ConfigurationTypeError(
            f"`WarmStartSettings.{field}` [{value!r}] must be a dict from variables' names to {what}."
        )
    return dict(value)


def _check_backup(name: str, info: Any) -> None:
    backup = info.backup_initializer
    if backup is not None and not callable(backup):
        raise errors.ConfigurationTypeError(
            f'`VocabInfo.backup_initializer` of `{name}` [{backup!r}] must be an initializer such as '
            '`tf.compat.v1.truncated_normal_initializer()`, or None for zeros.'
        )
