"""Functions of the user: what they take, seen through wrappers, and how they are called by keyword."""

import copy
import dataclasses
import functools
import inspect
import re
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Self

from framework.errors import ConfigurationError, ConfigurationTypeError


@dataclasses.dataclass(frozen=True)
class CallSignature:
    """What a function takes by keyword, seen through partials, methods, callable objects and decorators.

    Attributes:
        label: The function, as messages show it.
        named: The arguments that a caller may give; those that a partial has given are left out.
        required: The arguments without a default.
        takes_any: Whether it has `**kwargs`.
        by_gin: Whether gin wraps it, so that bindings may supply what is required.
    """

    label: str
    named: tuple[str, ...]
    required: tuple[str, ...]
    takes_any: bool
    by_gin: bool

    @classmethod
    def of(cls, function: Any, *, name: str) -> Self:
        """Reads the signature of a function.

        Args:
            function: What the user gave.
            name: The argument that holds it, for example `Experiment.model_fn`.

        Raises:
            ConfigurationError: It is no callable, or has no readable signature.
        """
        if not callable(function):
            raise ConfigurationTypeError(
                f'`{name}` must be callable, given: [{function!r}]. Give the function itself, '
                'in gin `@module.function`.'
            )
        layers = list(_layers(function))
        parameters = _parameters(function, name)
        given = {key for layer in layers if isinstance(layer, functools.partial) for key in layer.keywords}
        by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        return cls(
            label=_label(layers[-1]),
            named=tuple(p.name for p in parameters if p.kind in by_keyword and p.name not in given),
            required=tuple(p.name for p in parameters if _is_required(p)),
            takes_any=any(p.kind is p.VAR_KEYWORD for p in parameters),
            by_gin=any(_is_gin_wrapper(layer) for layer in layers),
        )

    def params_argument(self, params: Any) -> dict[str, Any]:
        """Returns the `params` argument of one call: a copy, so that a function can't leak its changes.

        None means that no params were given: then a default or a binding holds, else an empty dict is passed.
        """
        if params is not None:
            return {'params': _copied(params)}
        return {'params': {}} if 'params' in self.required and not self.by_gin else {}


def _copied(params: Any) -> Any:
    try:
        return copy.deepcopy(params)
    except Exception as error:  # what is copied may be of any class, and raise anything
        raise ConfigurationTypeError(
            f'`Experiment.params` [{type(params).__name__}] can not be copied [{error}], and each function gets a copy '
            'of its own. Leave locks, files, sessions and the like out of them, or make them inside the function.'
        ) from error


def _layers(function: Any) -> Iterator[Any]:
    while function is not None:
        yield function
        is_partial = isinstance(function, functools.partial)
        function = function.func if is_partial else getattr(function, '__wrapped__', None)


def _parameters(function: Any, name: str) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise ConfigurationTypeError(
            f'`{name}` [{function!r}] has no signature that Python can read. Wrap it in a `def`.'
        ) from error


def _is_required(parameter: inspect.Parameter) -> bool:
    variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not variadic


def _is_gin_wrapper(layer: Any) -> bool:
    call = layer if hasattr(layer, '__globals__') else type(layer).__call__
    return getattr(call, '__globals__', {}).get('__name__') == 'gin.config'


def _label(function: Any) -> str:
    named = function if hasattr(function, '__qualname__') else type(function)
    return f'{named.__module__}.{named.__qualname__}'


def call_by_keyword(function: Callable[..., Any], arguments: Mapping[str, Any], *, name: str) -> Any:
    """Calls a function of the user and explains what gin could not supply.

    Args:
        function: What the user gave.
        arguments: Passed by keyword.
        name: The argument that holds the function, for example `Experiment.model_fn`.

    Raises:
        ConfigurationError: gin wraps the function, and nobody supplies an argument that it requires. Whatever the
            function itself raises passes unchanged.
    """
    try:
        return function(**arguments)
    except (TypeError, RuntimeError) as error:
        lacking = _not_supplied(error)
        if not lacking:
            raise
        target = CallSignature.of(function, name=name).label.rpartition('.')[-1]
        raise ConfigurationError(
            f'`{name}` [{target}] requires {_in_backticks(lacking)}, and neither gin nor the caller supplies a value. '
            f'Bind it in gin, for example `{target}.{lacking[0]} = ...` (mind the scope of the reference), or give the '
            'argument a default.'
        ) from error


def _not_supplied(error: Exception) -> list[str]:
    # Only when the call failed in gin's own frames: beneath the user's first line the error is the user's.
    frames = list(traceback.walk_tb(error.__traceback__))[1:]
    modules = {frame.f_globals.get('__name__') for frame, _ in frames}
    if not modules or not modules <= {'gin.config', 'gin.utils'}:
        return []
    text = str(error).splitlines()[0]
    by_python = re.search(r'missing \d+ required (?:positional|keyword-only) arguments?: (.*)', text)
    by_gin = re.search(r'Required bindings for `[^`]*` not provided in config: (.*)', text)
    found = by_python or by_gin
    return re.findall(r"'(\w+)'", found.group(1)) if found else []


def _in_backticks(names: Collection[str]) -> str:
    return ', '.join(f'`{name}`' for name in names)
