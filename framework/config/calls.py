"""Calls of configurables: what gin binds in them, what it says when they lack arguments, and what they have used."""

import contextlib
import functools
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gin
from gin import config as gin_config

from framework import errors
from framework.config import registry


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
    """Translates what gin raises when a configurable is called without its arguments.

    The sentence that gin adds to whatever passes through a configurable is taken off our own errors, which already
    explain themselves. Any other error passes through.

    Yields:
        None, once.

    Raises:
        ConfigurationError: A required argument is not bound.
    """
    try:
        yield
    except Exception as error:
        original = registry.original_error(error)
        if isinstance(original, errors.FrameworkError):
            raise original from original.__cause__
        sentence = _missing_arguments(error)
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
    return (
        f'`{registry.short_name(selector)}` needs {registry.listed(names)}, and neither the gin configuration nor the '
        f'caller gives {"it" if len(names) == 1 else "them"}. Bind {registry.listed(bindings)}.'
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
