"""Calls of configurables: what gin binds in them, what it says when they lack arguments, and what they have used."""

import contextlib
import functools
import inspect
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gin
from absl import logging
from gin import config as gin_config

from framework import errors
from framework.config import places, registry


def build(selector: str, /, **overrides: Any) -> Any:
    """Calls a configurable under the loaded configuration.

    Args:
        selector: The configurable, perhaps in a scope: `Experiment`, `valid/digits.input_fn`.
        **overrides: Arguments that win over the configuration.

    Returns:
        What the configurable returns.

    Raises:
        ConfigurationError: There is no such configurable, or an argument that it needs is not bound.
    """
    registry.resolve(selector.rsplit('/', 1)[-1], gin_config.ParseContext())
    with gin_errors():
        return gin.get_configurable(selector)(**overrides)


@contextlib.contextmanager
def gin_errors() -> Iterator[None]:
    """Translates what gin raises when a configurable is called without its arguments, or bound after loading.

    The sentence that gin adds to whatever passes through a configurable is taken off our own errors, which already
    explain themselves; where the value that they are about is bound in a text, they begin with its place. Any other
    error passes through.

    Yields:
        None, once.

    Raises:
        ConfigurationError: A required argument is not bound, or gin is locked.
    """
    try:
        yield
    except Exception as error:
        original = registry.original_error(error)
        if isinstance(original, errors.FrameworkError):
            original.args = (places.begin_for(str(original)) + str(original),)
            raise original from original.__cause__
        sentence = _missing_arguments(error) or _bound_after_loading(error)
        if sentence is None:
            raise
        raise errors.ConfigurationError(sentence) from error


def bound_parameters(configurable: Callable[..., Any]) -> frozenset[str]:
    """Returns the names of the parameters that gin binds when a function is called.

    Args:
        configurable: Any callable: a configurable, a scoped reference to one as gin hands it out (`@train/f`), a
            partial or a decorated one. gin knows nothing about others, and the result is empty.
    """
    references = list(gin_config.iterate_references(registry.BOUND))
    wrappers = [known for _, known in registry.REGISTRY.items()]
    for layer in _layers(configurable):
        for reference in references:
            if reference.scoped_configurable_fn is layer:
                return _bound_to('/'.join([*reference.scopes, reference.configurable.selector]))
        for known in wrappers:
            if known.wrapper is layer:
                return _bound_to(known.selector)
    return frozenset()


def operative_text() -> str:
    """Returns the values that calls have used so far, defaults included, or '' where gin is not used."""
    return gin.operative_config_str() if registry.is_used() else ''


def unused_bindings() -> list[str]:
    """Returns the bindings, macros included, that no call has used so far, for example `valid/digits.input_fn.split`.

    A call uses the binding of its innermost scope, and none where the caller gave the argument.
    """
    # A copy, for other threads may call configurables meanwhile.
    calls = list(registry.OPERATIVE.items())
    used = {registry.binding_of(scope, selector, name) for (scope, selector), values in calls for name in list(values)}
    return sorted(registry.binding_name(*binding) for binding in registry.bindings() if binding not in used)


def check_all_used(strict: bool = False) -> None:
    """Says in a warning which bindings no call has used so far, once all has been called that will be.

    Args:
        strict: Whether that is refused.

    Raises:
        ConfigurationError: If `strict`, and there are such bindings.
    """
    unused = unused_bindings()
    if unused and strict:
        raise errors.ConfigurationError(
            f'{unused_report(unused)} `Experiment.strict_bindings` refuses that: correct {_it(unused)} or take '
            f'{_it(unused)} out.'
        )
    if unused:
        logging.warning('%s', unused_report(unused))


def _it(things: Sequence[Any]) -> str:
    return 'it' if len(things) == 1 else 'them'


def unused_report(unused: Sequence[str]) -> str:
    """Returns a sentence for a warning about unused bindings, or '' where there are none."""
    if not unused:
        return ''
    subject = 'This gin binding was' if len(unused) == 1 else f'These {len(unused)} gin bindings were'
    return (
        f'{subject} never used: {registry.listed(unused)}. Nothing was called under that name in that scope, or the '
        'caller or an inner scope gave another value.'
    )


def _missing_arguments(error: Exception) -> str | None:
    """Returns the sentence about arguments that a call of gin's lacked, or None for any other error.

    A call that lacks arguments fails in the frame of the caller. So an error of gin's call has gin's frame innermost,
    where an error of the user's body, whatever its text, has the user's.
    """
    message = str(registry.original_error(error))
    found = re.match(r'Required bindings for `.*` not provided|.* missing \d+ required ', message)
    calls = [frame.f_locals for frame, _ in traceback.walk_tb(error.__traceback__)]
    calls = [values for values in calls if {'current_selector', 'scope_str'} <= values.keys()]  # of `gin_wrapper`
    if not (found and calls and registry.is_raised_by_gin(error) and isinstance(error, TypeError | RuntimeError)):
        return None
    selector, scope = calls[-1]['current_selector'], calls[-1]['scope_str']
    names = re.findall(r"'(\w+)'", message[found.end() :])
    if not names or not set(names) <= set(registry.parameters(registry.REGISTRY[selector])):
        return None
    bindings = [f'{registry.binding_name(scope, selector, name)} = ...' for name in names]
    where = places.begin_for_call(selector, scope)
    if where and not inspect.isclass(registry.REGISTRY[selector].wrapped):
        reference = '/'.join(filter(None, (scope, registry.short_name(selector))))
        return (
            f'{where}`@{reference}()` is a call, and nothing gives it {registry.listed(names)}. Write `@{reference}`, '
            f'without the parentheses, for the function itself, or bind {registry.listed(bindings)}.'
        )
    return (
        f'{where}`{registry.short_name(selector)}` needs {registry.listed(names)}, and neither the gin configuration '
        f'nor the caller gives {_it(names)}. Bind {registry.listed(bindings)}.'
    )


def _bound_after_loading(error: Exception) -> str | None:
    """Returns the sentence about code that binds or registers after gin was locked, or None for any other error."""
    message = str(registry.original_error(error))
    refused = re.match('Attempted to (modify locked|add a new configurable)', message)
    if not (refused and isinstance(error, RuntimeError) and registry.is_raised_by_gin(error)):
        return None
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != gin_config.__file__]
    place = f'{frames[-1].filename}:{frames[-1].lineno}, `{frames[-1].line}`'
    return (
        f'In {place}: gin is locked once the configuration is loaded, so that what a run was told stays what it did. '
        'Bind it in a gin file or on the command line, register it where its module is imported, or write '
        '`with gin.unlock_config():` around it.'
    )


def _bound_to(scoped_selector: str) -> frozenset[str]:
    return frozenset(gin.get_bindings(scoped_selector, resolve_references=False))


def _layers(function: Any) -> Iterator[Any]:
    """Yields a callable, then what it wraps, layer by layer."""
    while function is not None:
        yield function
        if isinstance(function, functools.partial):
            function = function.func
        else:
            function = getattr(function, '__func__', None) or getattr(function, '__wrapped__', None)
