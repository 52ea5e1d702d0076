"""What gin knows and holds, and the questions that it doesn't answer itself.

A binding is named by its scope, the full selector of its configurable and its parameter. gin keeps a macro as the
binding of `gin.macro.value` in a scope of the macro's name.
"""

import inspect
import traceback
from collections.abc import Iterable, Sequence
from typing import Any

from gin import config as gin_config

from framework import errors

# gin can't list what it knows or holds, and its own reading of files resolves includes against the working directory
# only. These are the private names that we need for both, all of them here. gin changes these containers in place.
REGISTRY = gin_config._REGISTRY
CONSTANTS = gin_config._CONSTANTS
BOUND = gin_config._CONFIG
OPERATIVE = gin_config._OPERATIVE_CONFIG
IMPORTS = gin_config._IMPORTS
SEARCH_PATHS = gin_config._LOCATION_PREFIXES
FILE_READERS = gin_config._FILE_READERS
parse_scope = gin_config._parse_scope

MACRO = 'gin.macro'
CONSTANT = 'gin.constant'
BINDING_FORM = 'A binding reads `configurable.parameter = value`.'
_ARGS = inspect.Parameter.VAR_POSITIONAL
_KWARGS = inspect.Parameter.VAR_KEYWORD


def is_used() -> bool:
    """Returns whether anything was bound or imported."""
    return bool(BOUND or IMPORTS)


def bindings() -> dict[tuple[str, str, str], Any]:
    """Returns all bound values by scope, selector and parameter; a macro's scope is its name."""
    return {(*key, name): value for key, values in BOUND.items() for name, value in values.items()}


def is_dynamic(context: Any) -> bool:
    """Returns whether names in a file are those of its imports, as gin's dynamic registration has it."""
    return context._dynamic_registration  # gin doesn't tell


def binding_of(scope: str, selector: str, name: str) -> tuple[str, str, str] | None:
    """Returns the binding that a call in a scope takes its value from: that of the innermost scope."""
    parts = scope.split('/') if scope else []
    for end in range(len(parts), -1, -1):
        outer = '/'.join(parts[:end])
        if name in BOUND.get((outer, selector), {}):
            return outer, selector, name
    return None


def resolve(selector: str, context: Any, where: str = '', name: str = '', sign: str = '') -> Any:
    """Returns gin's record of the configurable that a selector means in a file.

    Args:
        selector: The selector, without scope.
        context: The parse context of the file, for gin's dynamic registration.
        where: How the message begins.
        name: The parameter that follows the selector, where one does.
        sign: '@' where the selector stands in a reference.
    """
    try:
        configurable = context.get_configurable(selector)
    except KeyError as error:
        matches = listed(sorted(REGISTRY.matching_selectors(selector)))
        raise errors.ConfigurationError(
            where + f'`{sign}{selector}` is ambiguous: it may be {matches}. Write one of them.'
        ) from error
    except (NameError, AttributeError) as error:  # dynamic registration: a name must come from an import of its file
        raise errors.ConfigurationError(where + f'`{sign}{selector}` is unknown ({error}).') from error
    if configurable is None:
        raise errors.ConfigurationError(where + _no_configurable(selector, name, sign))
    return configurable


def _no_configurable(selector: str, name: str, sign: str) -> str:
    whole = f'{selector}.{name}'
    if name and REGISTRY.matching_selectors(whole):
        return f'`{whole}` is a configurable, not a parameter. {BINDING_FORM}'
    known = [known for known, _ in REGISTRY.items() if known not in (MACRO, CONSTANT)]
    near = errors.nearest(sign + selector, (sign + ending for ending in endings(known, selector)))
    return f'`{sign}{selector}` is not a configurable. {near} Or is the `import` of its module missing?'


def parameters(configurable: Any) -> list[str]:
    """Returns the names of the parameters of a configurable that gin may bind."""
    named = named_parameters(configurable)
    allowed, denied = configurable.allowlist or named, configurable.denylist or ()
    return [name for name in named if name in allowed and name not in denied]


def named_parameters(configurable: Any) -> list[str]:
    """Returns the names of all parameters of a configurable, `*args` and `**kwargs` left out."""
    try:
        signature = inspect.signature(configurable.wrapped)
    except ValueError:  # a builtin without a signature
        return []
    return [known.name for known in signature.parameters.values() if known.kind not in (_ARGS, _KWARGS)]


def binding_name(scope: str, selector: str, name: str) -> str:
    """Returns a binding as people write it: `valid/digits.input_fn.split`, or the name of a macro."""
    if selector == MACRO:
        return scope
    return f'{scope}/{short_name(selector)}.{name}'.lstrip('/')


def short_name(selector: str) -> str:
    """Returns a full selector as people write it: `Experiment`, `digits.model_fn`.

    A function keeps the module that its author chose, for there is a `model_fn` in every experiment; a mere Python path
    is left out.
    """
    known = REGISTRY[selector]
    if known.is_method:
        return '.'.join(selector.split('.')[-2:])
    chosen = known.module != getattr(known.wrapped, '__module__', None)
    return selector if chosen and not inspect.isclass(known.wrapped) else REGISTRY.minimal_selector(selector)


def endings(names: Iterable[str], like: str) -> set[str]:
    """Returns the ends of dotted names, with as many parts as the name that was written."""
    return {'.'.join(name.split('.')[-1 - like.count('.') :]) for name in names}


def listed(names: Sequence[str]) -> str:
    """Returns names in backticks, with commas between them."""
    return ', '.join(f'`{name}`' for name in names)


def is_raised_by_gin(error: Exception) -> bool:
    """Returns whether an error was raised in gin's own code, or by calling from there with wrong arguments."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and frames[-1].f_code.co_filename == gin_config.__file__


def original_error(error: BaseException) -> BaseException:
    """Returns the error inside the proxies that gin makes to add text to whatever passes through it."""
    while getattr(type(error).__init__, '__module__', '') == 'gin.utils' and error.__context__ is not None:
        error = error.__context__
    return error
