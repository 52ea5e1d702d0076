"""Where each binding stands, so that what is wrong with its value is told with file, line and text.

It goes with gin's configuration, which belongs to the process, and is forgotten with it.
"""

import dataclasses
import re

import gin
from gin import config as gin_config

from framework.config import registry

_BindingKey = tuple[str, str, str]


@dataclasses.dataclass(frozen=True)
class Place:
    """A statement in a file, or of the command line.

    Attributes:
        text: Its first line, or all of it where it is from the command line.
        path: The file, '' for the command line.
        line: The line, from 1.
    """

    text: str
    path: str = ''
    line: int = 1

    def begin(self) -> str:
        """Returns how a message about it begins."""
        if not self.path:
            return f'In the binding `{self.text}`: '
        return f'In {self.path}, line {self.line}, `{self.text}`: '

    def __str__(self) -> str:
        return f'{self.path}, line {self.line}' if self.path else 'the command line'


@dataclasses.dataclass(frozen=True)
class Overridden:
    """A binding that a later one has replaced.

    Attributes:
        name: The binding, for example `train/digits.input_fn.batch_size`.
        before: Where it was bound before.
        now: Where the one stands that holds.
    """

    name: str
    before: Place
    now: Place

    def __str__(self) -> str:
        return f'`{self.before.text}` ({self.before}) is overridden by `{self.now.text}` ({self.now})'


_places: dict[_BindingKey, Place] = {}
_overridden: list[Overridden] = []


def clear() -> None:
    """Forgets all bindings, macros, constants and singletons, and unlocks gin; registered configurables stay."""
    gin.clear_config(clear_constants=True)
    _places.clear()
    _overridden.clear()


def note(key: _BindingKey, place: Place) -> None:
    """Notes where a binding stands, which may have been bound before.

    Args:
        key: Its scope, the full selector and the parameter.
        place: The statement.
    """
    if key in _places:
        _overridden.append(Overridden(registry.binding_name(*key), _places[key], place))
    _places[key] = place


def of(key: _BindingKey) -> Place | None:
    """Returns where a binding stands, None for one that code made."""
    return _places.get(key)


def overridden() -> list[Overridden]:
    """Returns the bindings that later ones have replaced, in the order in which that happened."""
    return list(_overridden)


def begin_of(key: _BindingKey) -> str:
    """Returns how a message about a binding begins: '' where it is in no text."""
    place = of(key)
    return '' if place is None else place.begin()


def begin_for(message: str) -> str:
    """Returns how a message about a value begins, where that is bound in a text.

    Args:
        message: It names the value first, as `Experiment.train_steps`, perhaps with the value in brackets after it.
    """
    named = re.match(r'`([\w.]+)`(?: \[(.*?)\])?', message)
    if named is None:
        return ''
    names = {named[1], f'Experiment.{named[1]}'}
    keys = [key for key in _places if registry.binding_name('', *key[1:]) in names and key in registry.bindings()]
    if len(keys) > 1:  # in several scopes
        keys = [key for key in keys if repr(registry.bindings()[key]) == named[2]]
    return begin_of(keys[0]) if len(keys) == 1 else ''


def begin_for_call(selector: str, scope: str) -> str:
    """Returns how a message about a call begins that a text makes by `@name()`; '' where none does, or several do.

    Args:
        selector: The full selector of what is called.
        scope: The scope of the call.
    """
    found = [
        key
        for key, value in registry.bindings().items()
        for reference in gin_config.iterate_references(value)
        if reference.evaluate and reference.configurable.selector == selector and '/'.join(reference.scopes) == scope
    ]
    return begin_of(found[0]) if len(found) == 1 else ''
