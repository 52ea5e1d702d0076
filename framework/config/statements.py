"""Gin files and single bindings, read and parsed into statements; a slip of syntax is told with its file and line."""

import dataclasses
import os
import re
import sys
import tokenize
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from gin import config as gin_config
from gin import config_parser, resource_reader

from framework import errors
from framework.config import registry, symbols
from framework.config.places import Place

_VALUE_FORM = (
    "A value is a Python literal (`1e-3`, `'text'`, `[1, 2]`, `{'a': 1}`, `True`, `None`), a reference (`@name`, "
    '`@name()`) or a macro (`%NAME`); there is no arithmetic.'
)


@dataclasses.dataclass(frozen=True)
class Source:
    """A text that gin parses: a file, or a single binding, which has no `path`."""

    text: str
    path: str = ''

    def place(self, line: int) -> Place:
        """Returns the place of the statement in a line (from 1)."""
        if not self.path:
            return Place(self.text.strip())
        lines = self.text.splitlines()
        return Place(lines[line - 1].strip() if line <= len(lines) else '', self.path, line)

    def at(self, line: int) -> str:
        """Returns how a message about a line (from 1) begins."""
        return self.place(line).begin()

    def at_statement(self, line: int) -> str:
        """Returns how a message about the first statement from a line on begins."""
        rest = enumerate(self.text.splitlines()[line - 1 :], start=line)
        return self.at(next((number for number, text in rest if text.strip() and text.strip()[0] != '#'), line))


def read(name: str, folder: str, where: str) -> Source:
    """Reads a gin file, looking beside the including file, then where gin and Python look."""
    prefixes = [folder, *registry.SEARCH_PATHS, *sys.path]  # the first of gin's is '', the working directory
    for reader, exists in [*registry.FILE_READERS, (tf.io.gfile.GFile, _is_remote_file)]:
        # This one fails on folders without `__init__.py` and logs an error per path; `sys.path` stands in for it.
        if reader is resource_reader.system_path_reader:
            continue
        for path in (os.path.join(prefix, name) for prefix in prefixes):
            if exists(path):
                return Source(_content(path, reader, where), path)
    raise errors.ConfigurationError(where + _no_file(name, folder))


def _is_remote_file(path: str) -> bool:
    """Whether there is a file on a file system that TensorFlow knows by the beginning of its paths, `gs://`."""
    return '://' in path and tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path)


def _content(path: str, reader: Callable[[str], Any], where: str) -> str:
    try:
        with reader(path) as file:
            text = file.read()
            return text.decode() if isinstance(text, bytes) else text
    except (OSError, UnicodeDecodeError, tf.errors.OpError) as error:
        raise errors.ConfigurationError(where + f"`{path}` can't be read ({error}).") from error


def _no_file(name: str, folder: str) -> str:
    looked = f'`{os.getcwd()}`' if os.path.abspath(folder) == os.getcwd() else f'`{folder}` or in `{os.getcwd()}`'
    beside = os.path.dirname(name)
    files: list[str] = []
    for parent in {os.path.join(folder, beside), beside or '.'}:
        if tf.io.gfile.isdir(parent):
            files += (os.path.join(beside, file) for file in tf.io.gfile.listdir(parent) if file.endswith('.gin'))
    return f'`{name}` is no gin file in {looked}. {errors.nearest(name, files) if files else ""}'.rstrip()


def parse(source: Source, context: Any) -> Iterator[Any]:
    """Yields gin's statements, each parsed after the one before was applied, for it may need its import."""
    parser = None
    while True:
        start = parser.current_token.start[0] if parser else 1
        try:
            parser = parser or config_parser.ConfigParser(source.text, _Delegate(context))
            statement = parser.parse_statement()
        except errors.ConfigurationError as error:  # of `_Delegate`; gin added text without the file
            where = source.at(parser.current_token.start[0]) if parser else ''
            raise errors.ConfigurationError(where + str(registry.original_error(error))) from None
        except (SyntaxError, tokenize.TokenError, ValueError, TypeError) as error:
            line = getattr(error, 'lineno', None)
            where = source.at(line) if line else source.at_statement(start)
            problem = _syntax_problem(registry.original_error(error), not source.path)
            raise errors.ConfigurationError(where + problem) from error
        if statement is None:
            return
        yield statement


class _Delegate(gin_config.ParserDelegate):
    """Makes gin's references, and explains unknown ones."""

    def __init__(self, context: Any) -> None:
        super().__init__()
        self._context = context

    def configurable_reference(self, scoped_selector: str, evaluate: bool) -> Any:
        *scopes, selector = scoped_selector.split('/')
        known = symbols.resolve(selector, self._context, sign='@')
        return super().configurable_reference('/'.join([*scopes, symbols.written(known, selector)]), evaluate)

    def macro(self, name: str) -> Any:
        return super().macro(name if registry.is_dynamic(self._context) else symbols.constant_known_as(name))


def _syntax_problem(error: BaseException, on_command_line: bool) -> str:
    message = str(getattr(error, 'msg', None) or error.args[0])
    token = re.search(r"Failed to parse token '([A-Za-z_]\w*)'", message)
    if token:
        return _no_literal(token[1], on_command_line)
    if isinstance(error, tokenize.TokenError):
        return f'a bracket or a quote is not closed ({message}).'
    if message.startswith("Couldn't parse statement"):
        return f'there is no `=` where gin expects one. {registry.BINDING_FORM}'
    return f"gin can't read it ({message.splitlines()[0].rstrip('.')}). {_VALUE_FORM}"


def _no_literal(word: str, on_command_line: bool) -> str:
    capital = {'null': 'None'}.get(word.lower(), word.capitalize())
    if capital in ('True', 'False', 'None'):
        return f'`{word}` is not a Python literal. Did you mean `{capital}`?'
    shell = f' A shell takes one pair of quotes away: write `"name.parameter=\'{word}\'"`.' if on_command_line else ''
    return (
        f"`{word}` is not a Python literal. Write a text in quotes (`'{word}'`), a configurable as `@{word}`, a macro "
        f'as `%{word}`.{shell}'
    )
