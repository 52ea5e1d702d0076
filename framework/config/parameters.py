"""Every parameter that gin may bind: its value, where that comes from, its default, and what its author says of it."""

import inspect
import os
import re
from collections.abc import Iterator
from typing import Any

import gin

from framework.config import places, registry, symbols
from framework.config.texts import value_text

_NO_DEFAULT = inspect.Parameter.empty
_INDENT = '    '
_DESCRIPTION = re.compile(r'^ {2,4}\*{0,2}(\w+)(?: \([^)]*\))?:((?:.*\n?)(?:^ {5,}.*\n?)*)', re.MULTILINE)


def overview() -> str:
    """Returns the text of `--mode=config`: each configurable with its parameters, and each macro.

    A parameter has a line for each scope that binds it, with the value and where that was bound, one for its default,
    and the first sentence of its description. TensorFlow's symbols are listed where a text names them.
    """
    macros = [
        f'{scope} = {value_text(value)}    # {_place((scope, registry.MACRO, name))}'
        for (scope, selector, name), value in registry.bindings().items()
        if selector == registry.MACRO
    ]
    chunks = ['\n'.join(['Macros', *(_INDENT + line for line in macros)])] if macros else []
    return '\n\n'.join([*chunks, *(_configurable(selector, known) for selector, known in _listed())]) + '\n'


def _listed() -> list[tuple[str, Any]]:
    """Returns the configurables of users and of the framework, those with bindings first."""
    bound = {selector for _, selector, _ in registry.bindings()}
    found = [
        (selector, known)
        for selector, known in registry.REGISTRY.items()
        if not selector.startswith('gin.') and not symbols.is_second_name(selector)
    ]
    return sorted(found, key=lambda each: (each[0] not in bound, registry.short_name(each[0])))


def _configurable(selector: str, known: Any) -> str:
    about = _first_sentence(known.wrapped)
    head = f'{registry.short_name(selector)}    # {_source(known.wrapped)}'
    lines = [head, *([f'{_INDENT}# {about}'] if about else [])]
    descriptions = _descriptions(known.wrapped)
    defaults = _defaults(known)
    for name in registry.parameters(known):
        lines += (_INDENT + line for line in _parameter(selector, name, defaults.get(name, _NO_DEFAULT)))
        if name in descriptions:
            lines.append(f'{_INDENT}{_INDENT}# {descriptions[name]}')
    return '\n'.join(lines)


def _parameter(selector: str, name: str, default: Any) -> Iterator[str]:
    """Yields the lines of a parameter: its default, or the bindings in place of it, one for each scope."""
    told = 'no default' if default in (_NO_DEFAULT, gin.REQUIRED) else f'default {default!r}'
    bound = [(key, value) for key, value in registry.bindings().items() if key[1:] == (selector, name)]
    for (scope, *_), value in bound:
        written = '/'.join(filter(None, (scope, name)))
        yield f'{written} = {value_text(value)}    # {_place((scope, selector, name))}; {told}'
    if not any(not scope for (scope, *_), _ in bound):
        yield f'{name}    # {told}'


def _place(key: tuple[str, str, str]) -> str:
    place = places.of(key)
    return 'bound by code' if place is None else str(place)


def _defaults(known: Any) -> dict[str, Any]:
    try:
        signature = inspect.signature(known.wrapped)
    except ValueError:
        return {}
    return {name: parameter.default for name, parameter in signature.parameters.items()}


def _source(wrapped: Any) -> str:
    try:
        path = inspect.getsourcefile(inspect.unwrap(wrapped)) or ''
        _, line = inspect.getsourcelines(inspect.unwrap(wrapped))
    except (TypeError, OSError):  # of C, or of a text
        return str(getattr(wrapped, '__module__', ''))
    shown = os.path.relpath(path)
    return f'{path if shown.startswith("..") else shown}:{line}'


def _first_sentence(wrapped: Any) -> str:
    return (inspect.getdoc(wrapped) or '').split('\n', maxsplit=1)[0]


def _descriptions(wrapped: Any) -> dict[str, str]:
    """Returns the first sentence of what a docstring says of each parameter, under `Args:` or `Attributes:`."""
    of_class = [wrapped.__init__] if inspect.isclass(wrapped) else []
    found: dict[str, str] = {}
    for documented in (wrapped, *of_class):
        text = inspect.getdoc(documented) or ''
        for section in re.findall(r'^(?:Args|Attributes):\n((?:[ \t]+.*\n?|\n)+)', text, re.MULTILINE):
            for name, description in _DESCRIPTION.findall(section):
                found.setdefault(name, ' '.join(re.split(r'(?<=\.)\s', description, maxsplit=1)[0].split()))
    return found
