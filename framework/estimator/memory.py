"""The metrics of evaluations that this process made, for those who follow them."""

from collections.abc import Callable, Mapping
from typing import Any

Results = Mapping[int, Mapping[str, Any]]


class Memory:
    """By the directory of an evaluation's events its metrics, by step.

    Attributes:
        count: How many evaluations were made.
    """

    def __init__(self) -> None:
        self.count = 0
        self._made: dict[str, dict[int, dict[str, Any]]] = {}
        self._before: dict[str, Results] = {}

    def add(self, directory: str, step: int, metrics: Mapping[str, Any]) -> None:
        """Takes the metrics of an evaluation."""
        self.count += 1
        self._made.setdefault(directory, {})[step] = dict(metrics)

    def results(self, directory: str, read: Callable[[str], Results]) -> Results:
        """Returns the metrics of all evaluations, those of earlier processes among them.

        Args:
            directory: The directory of the events.
            read: Reads what is in it. That is done again and again only while this process evaluates nothing there.
        """
        if directory not in self._made:
            return read(directory)
        if directory not in self._before:
            self._before[directory] = read(directory)
        return dict(sorted({**self._before[directory], **self._made[directory]}.items()))
