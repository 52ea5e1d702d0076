"""The configuration as text: loading it again binds the same values.

gin's own text does not always do so: it sorts the keys of dicts, writes an infinity as a name, and is silent about
values that it can't write. So each binding is read again from its text, and written anew where its value is another.
"""

import contextlib
import re
from collections.abc import Callable
from typing import Any

import gin
from gin import config as gin_config
from gin import config_parser

from framework import errors
from framework.config import registry, statements, symbols
from framework.config.statements import Source

_STATEMENT = re.compile(r'\n(?=\S)')  # what goes on over several lines is indented
_BINDING = re.compile(r'([\w./]+) = (?:\\\n)?')
_LEFT_OUT = "# Left out, for gin can't write their values:"
_Key = tuple[str, str, str]


def config_text() -> str:
    """Returns the whole configuration as gin text, or '' where gin is not used.

    The names of bindings whose values can't be written stand in a comment at its end, see `left_out`.
    """
    if not registry.is_used():
        return ''
    with registry.parse_scope() as context:
        return _Text(context).whole()


def dropped_bindings() -> list[str]:
    """Returns the bindings that `config_text` leaves out: lambdas, numpy values, nan."""
    return left_out(config_text())


def left_out(text: str) -> list[str]:
    """Returns the names of the bindings that `config_text` left out of a text."""
    return [line[2:] for line in text.partition(f'{_LEFT_OUT}\n')[2].splitlines()]


def bindings_in(text: str) -> dict[str, str]:
    """Returns the bindings in a text of `config_text` or `operative_text`, as text by name, in their order."""
    found = {}
    for chunk in _STATEMENT.split(text):
        if match := _BINDING.match(chunk):
            found[match[1]] = ' '.join(chunk[match.end() :].split())
    return found


def imports_in(text: str) -> list[str]:
    """Returns the imports in a text of `config_text` or `operative_text`, in their order."""
    return [chunk.strip() for chunk in _STATEMENT.split(text) if chunk.startswith(('import ', 'from '))]


def bound_values() -> dict[str, Any]:
    """Returns the values of all bindings by name, for example `Experiment.seed` or `valid/EvalSet.name`."""
    return {registry.binding_name(*key): value for key, value in registry.bindings().items()}


class _Text:
    """Makes the text, in a parse scope that knows the imports."""

    def __init__(self, context: Any):
        self._context = context
        self._left = registry.bindings()  # what no line binds yet
        self._names = {key: registry.binding_name(*key) for key in self._left}

    def whole(self) -> str:
        chunks = [self._checked(chunk) for chunk in _STATEMENT.split(gin.config_str())]
        lost = []
        for key, name in sorted((key, self._names[key]) for key in self._left):
            line = f'{name} = {value_text(self._left[key])}'
            if self._binds(line, key):
                chunks.append(line)
            else:
                lost.append(name)
        end = [_LEFT_OUT, *(f'# {name}' for name in sorted(lost))] if lost else []
        return '\n'.join([*chunks, *end])

    def _checked(self, chunk: str) -> str:
        """Returns a statement of gin's text, or a comment where loading it would not bind the value."""
        match = _BINDING.match(chunk)
        if match is None:
            if not chunk.startswith('#'):
                self._import(chunk)
            return chunk
        key, _ = self._parsed(f'{match[1]} = None')
        if self._binds(chunk, key):
            del self._left[key]
            return chunk
        self._names[key] = match[1]
        return f'# {match[1]}: see the end.' + '\n' * (len(chunk) - len(chunk.rstrip('\n')))

    def _import(self, chunk: str) -> None:
        for statement in statements.parse(Source(chunk), self._context):
            self._context.process_import(statement)

    def _binds(self, text: str, key: _Key) -> bool:
        """Whether a text binds the value that is bound now; equal is not enough, for the order in a dict may count."""
        with contextlib.suppress(errors.ConfigurationError):
            return self._parsed(text) == (key, value_text(self._left[key], _identified))
        return False

    def _parsed(self, text: str) -> tuple[_Key, str]:
        """Returns the binding that a text makes, and its value as text."""
        (statement,) = statements.parse(Source(text), self._context)
        if not isinstance(statement, config_parser.BindingStatement):
            raise errors.ConfigurationError(f'`{text}` is no binding.')
        value = value_text(statement.value, _identified)
        if not statement.arg_name:
            return ('/'.join(filter(None, (statement.scope, statement.selector))), registry.MACRO, 'value'), value
        selector = symbols.resolve(statement.selector, self._context).selector
        return (statement.scope, selector, statement.arg_name), value


def value_text(value: Any, leaf: Callable[[Any], str] = repr) -> str:
    """Returns a value as gin reads it, with the order of dicts and infinities, for which there is no literal.

    Args:
        value: The value.
        leaf: Writes what is no dict, list, tuple or infinity.
    """
    if type(value) is dict:
        items = (f'{value_text(key, leaf)}: {value_text(item, leaf)}' for key, item in value.items())
        return '{' + ', '.join(items) + '}'
    if type(value) is list:
        return '[' + ', '.join(value_text(item, leaf) for item in value) + ']'
    if type(value) is tuple:
        return '(' + ''.join(f'{value_text(item, leaf)}, ' for item in value).rstrip() + ')'
    if type(value) is float and abs(value) == float('inf'):
        return '1e999' if value > 0 else '-1e999'
    return leaf(value)


def _identified(value: Any) -> str:
    """Returns a leaf so that two are the same if their texts are: a reference may be spelled in several ways."""
    if isinstance(value, gin_config.ConfigurableReference):
        return f'@{"/".join([*value.scopes, value.configurable.selector])}{"()" if value.evaluate else ""}'
    return repr(value)
