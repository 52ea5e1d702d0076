"""The result of a comparison, and how it reads."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from framework import errors

ABSENT = 'not there'
_LONGEST_VALUE = 60


@dataclasses.dataclass(frozen=True)
class Difference:
    """Something that has two values.

    Attributes:
        name: What it is.
        a: Its value in the first run, as text.
        b: Its value in the second.
        step: The global step at which it is seen, None where it has none.
    """

    name: str
    a: str
    b: str
    step: int | None = None

    def __str__(self) -> str:
        return f'{"" if self.step is None else f"step {self.step}, "}{self.name}: {self.a} / {self.b}'


@dataclasses.dataclass(frozen=True)
class Part:
    """One thing that was compared.

    Attributes:
        name: What it is, for example the name of a file.
        differences: What differs in it: all of it where it has no steps, else the first.
        compared: How much was compared, as text.
        of_values: Whether it tells what came out, not what was asked for or how the run went.
        equal_to: The last global step at which values were equal, before any difference.
    """

    name: str
    differences: Sequence[Difference]
    compared: str
    of_values: bool = False
    equal_to: int | None = None

    def __str__(self) -> str:
        head = f'{self.name}: {"" if self.differences else "equal, "}{self.compared}'
        return '\n'.join([head, *(f'  {difference}' for difference in self.differences)])


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two runs, part by part."""

    parts: Sequence[Part]

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return not any(part.differences for part in self.parts)

    @property
    def first(self) -> tuple[Part, Difference] | None:
        """The difference of values at the smallest step; where no values differ, that of the ways of the runs."""
        found = [(part, d) for part in self.parts for d in part.differences if d.step is not None]
        return min(found, key=lambda item: (not item[0].of_values, item[1].step or 0), default=None)

    @property
    def equal_to(self) -> int | None:
        """The last global step before the first difference at which values were equal."""
        limit = None if self.first is None else self.first[1].step
        steps = [part.equal_to for part in self.parts if part.equal_to is not None]
        return max((step for step in steps if limit is None or step < limit), default=None)

    def __str__(self) -> str:
        return '\n'.join([*map(str, self.parts), self._end()])

    def _end(self) -> str:
        if self.equal:
            return 'No difference.'
        if self.first is None:
            return 'What came out is equal.'
        part, difference = self.first
        if not part.of_values:
            return f'The runs go different ways at step {difference.step} ({part.name}); what came out is equal.'
        before = 'nothing before it to compare' if self.equal_to is None else f'equal at step {self.equal_to}'
        return f'First difference at step {difference.step} ({part.name}); {before}.'


def flat_differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """Returns what differs between two mappings of plain values."""
    names = [name for name in {**a, **b} if a.get(name, ABSENT) != b.get(name, ABSENT)]
    return [Difference(name, *_from_the_change(_shown(a, name), _shown(b, name))) for name in names]


def _shown(values: Mapping[str, Any], name: str) -> str:
    return ' '.join(str(values[name]).split()) or 'empty' if name in values else ABSENT


def _from_the_change(a: str, b: str) -> tuple[str, str]:
    """Cuts long texts to where they begin to differ."""
    start = 0
    if max(len(a), len(b)) > _LONGEST_VALUE:
        same = next((i for i, pair in enumerate(zip(a, b, strict=False)) if len(set(pair)) > 1), min(len(a), len(b)))
        start = max(same - _LONGEST_VALUE // 3, 0)
    dots = '...' if start else ''
    return dots + short(a[start:]), dots + short(b[start:])


def short(value: Any) -> str:
    """Returns a value as a text that fits a line."""
    text = str(value)
    return text if len(text) <= _LONGEST_VALUE else f'{text[: _LONGEST_VALUE - 3]}...'


def text_of(path: str) -> str:
    """Returns the text of a file, '' where there is none.

    Raises:
        RunDirectoryError: If it can't be read.
    """
    try:
        return pathlib.Path(path).read_text(encoding='utf-8')
    except FileNotFoundError:
        return ''
    except (OSError, UnicodeDecodeError) as error:
        raise errors.RunDirectoryError(f"`{path}` can't be read [{error}]. Mend it, or remove it.") from error
