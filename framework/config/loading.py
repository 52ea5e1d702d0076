"""Loading: statements are applied one by one, with their includes and imports, then gin is checked and locked."""

import graphlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from typing import Any

import gin
from absl import logging
from gin import config as gin_config
from gin import config_parser

from framework import errors
from framework.config import places, registry, statements, symbols
from framework.config.places import Place
from framework.config.statements import Source


def load(files: Sequence[str], bindings: Sequence[str] = ()) -> None:
    """Parses gin files, then single bindings, imports what they import, and locks gin.

    A path is looked for beside the including file, then in the working directory, in gin's search paths and in those
    of Python. Where a parameter is bound twice, the later binding wins.

    Args:
        files: Paths of gin files.
        bindings: Bindings as they stand on a command line, for example `digits.model_fn.hidden = 64`.

    Raises:
        ConfigurationError: Something in the files or the bindings breaks a rule of gin, or gin is already locked.
            What an imported module raises while it is imported passes through.
    """
    if gin.config_is_locked():
        raise errors.ConfigurationError(
            'The gin configuration is already loaded and locked: it is loaded once per process. In a test, call '
            '`framework.config.clear()` first.'
        )
    loader = _Loader()
    for file in files:
        loader.load_file(file)
    for binding in bindings:
        loader.load_source(Source(binding))
    loader.check_references()
    loader.check_macros()
    for overridden in places.overridden():
        logging.info('%s.', overridden)
    _lock()


class _Loader:
    """Applies the statements of gin texts one by one, and notes where each binding stands."""

    def load_file(self, name: str, where: str = '', includers: tuple[str, ...] = ()) -> None:
        source = statements.read(name, os.path.dirname(includers[-1]) if includers else '', where)
        chain = (*includers, source.path)
        if os.path.realpath(source.path) in map(os.path.realpath, includers):
            rounds = ' -> '.join(f'`{path}`' for path in chain)
            raise errors.ConfigurationError(where + f'the includes go in a circle: {rounds}. Remove one of them.')
        self.load_source(source, chain)

    def load_source(self, source: Source, includers: tuple[str, ...] = ()) -> None:
        with registry.parse_scope() as context:
            for statement in statements.parse(source, context):
                where = source.at(statement.location.line_num)
                match statement:
                    case config_parser.IncludeStatement():
                        self.load_file(statement.filename, where, includers)
                    case config_parser.ImportStatement():
                        _import(statement, context, where)
                    case config_parser.BlockDeclaration():
                        symbols.resolve(statement.selector, context, where)
                    case _:
                        self._bind(statement, context, source.place(statement.location.line_num))
            registry.IMPORTS.update(context.imports)

    def _bind(self, statement: Any, context: Any, place: Place) -> None:
        where = place.begin()
        scope, selector, name = statement.scope, statement.selector, statement.arg_name
        if not name:  # `LR = 0.1`, which gin reads as the selector `LR` without a parameter
            scope, selector, name = '/'.join(filter(None, (scope, selector))), registry.MACRO, 'value'
        configurable = symbols.resolve(selector, context, where, name)
        try:
            gin.bind_parameter((scope, symbols.written(configurable, selector), name), statement.value)
        except ValueError as error:
            raise errors.ConfigurationError(where + _no_parameter(configurable, selector, name, error)) from error
        places.note((scope, configurable.selector, name), place)

    def check_references(self) -> None:
        """Refuses macros that nothing defines, and `%gin.REQUIRED` that nothing overrides."""
        for binding, value in registry.bindings().items():
            where = places.begin_of(binding)
            for reference in gin_config.iterate_references(value):
                selector = reference.configurable.selector
                if selector == registry.MACRO and reference.config_key not in registry.BOUND:
                    raise errors.ConfigurationError(where + _no_macro('/'.join(reference.scopes)))
                if selector == registry.CONSTANT and reference.scoped_configurable_fn() is gin.REQUIRED:
                    raise errors.ConfigurationError(where + _no_value(registry.binding_name(*binding)))

    def check_macros(self) -> None:
        """Refuses macros that refer to each other in a circle, which gin would follow without end."""
        try:
            graphlib.TopologicalSorter(_macros_of_macros()).prepare()
        except graphlib.CycleError as error:
            circle = error.args[1][::-1]  # it holds a macro after those that it refers to
            where = places.begin_of((circle[0], registry.MACRO, 'value'))
            rounds = ' -> '.join(f'`%{name}`' for name in circle)
            raise errors.ConfigurationError(
                where + f'the macros go in a circle: {rounds}. Give one of them a value of its own.'
            ) from None


def _macros_of_macros() -> dict[str, list[str]]:
    """Returns for each macro the macros that its value refers to."""
    return {
        scope: [
            '/'.join(reference.scopes)
            for reference in gin_config.iterate_references(value)
            if reference.configurable.selector == registry.MACRO
        ]
        for (scope, selector, _), value in registry.bindings().items()
        if selector == registry.MACRO
    }


def _import(statement: Any, context: Any, where: str) -> None:
    """Imports a module; only that it doesn't exist is our error, any other is the module's own."""
    for_gin = statement.module.startswith('__gin__.') or statement.bound_name() == 'gin'
    try:
        context.process_import(statement)
    except ModuleNotFoundError as error:
        if not f'{statement.module}.'.startswith(f'{error.name}.'):
            raise
        raise errors.ConfigurationError(where + _no_module(str(error.name))) from error
    except (SyntaxError, ValueError) as error:
        if not for_gin:
            raise
        raise errors.ConfigurationError(where + f"gin can't import it ({error}).") from error


def _no_module(name: str) -> str:
    parent, _, _ = name.rpartition('.')
    folders = getattr(sys.modules.get(parent), '__path__', []) if parent else [os.getcwd()]
    modules = [f'{parent}.{module.name}'.lstrip('.') for module in pkgutil.iter_modules(folders)]
    place = '' if parent else ' in the working directory or among the installed packages'
    return f'there is no module `{name}`{place}. {errors.nearest(name, modules) if modules else ""}'.rstrip()


def _no_parameter(configurable: Any, selector: str, name: str, error: ValueError) -> str:
    parameters = registry.parameters(configurable)
    if name in parameters:  # a method without the name of its class
        return f'gin refuses the binding ({error})'
    if name in registry.named_parameters(configurable):
        return f'`{selector}` keeps its parameter `{name}` from gin. {errors.nearest(name, parameters)}'
    return f'`{selector}` has no parameter `{name}`. {errors.nearest(name, parameters)}'


def _no_macro(name: str) -> str:
    macros = [scope for scope, selector in registry.BOUND if selector == registry.MACRO]
    constants = [constant for constant, _ in registry.CONSTANTS.items() if constant != 'gin.REQUIRED']
    known = [f'%{other}' for other in [*macros, *registry.endings(constants, name)]]
    near = errors.nearest(f'%{name}', known) if known else f'A line `{name} = ...` would.'
    return f'`%{name}` is a macro that nothing defines. {near}'


def _no_value(binding: str) -> str:
    return f'`{binding}` is required, and nothing gives it a value. Bind it in a later file or on the command line.'


def _lock() -> None:
    try:
        gin.finalize()
    except ValueError as error:
        if not registry.is_raised_by_gin(error):  # of a hook that the user registered
            raise
        raise errors.ConfigurationError(f'gin refuses the configuration ({str(error).splitlines()[0]})') from error
