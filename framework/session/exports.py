"""The interface of what writes models out after passes, as a part of the commit that holds their weights."""

from collections.abc import Mapping
from typing import Any

from framework.reporting.rows import PassRow


class Exports:
    """Is told of passes, and exports the weights that they were made with when these are saved.

    What it remembers is in the commits, so that a run that goes on exports as one that was never stopped.
    """

    def saw(self, row: PassRow) -> None:
        """Takes notice of a pass with the weights that the next commit holds."""
        raise NotImplementedError

    def wants_commit(self, final: bool) -> bool:
        """Whether there is something to export.

        Args:
            final: Whether training has ended.
        """
        raise NotImplementedError

    def export(self, checkpoint: str, final: bool) -> None:
        """Exports what there is to export.

        Args:
            checkpoint: The prefix of the files that hold the weights.
            final: Whether training has ended.
        """
        raise NotImplementedError

    def get(self) -> Mapping[str, Any]:
        """Returns what the commits keep, as JSON has it, by a name of its own."""
        raise NotImplementedError

    def set(self, state: Mapping[str, Any]) -> None:
        """Takes what the newest commit keeps, of all names."""
        raise NotImplementedError
