"""Whether contenders computed the same: only then may their costs be compared."""

import math
from collections.abc import Iterator, Mapping

from benchmarks.contenders.rounds import Figures

TOLERANCE = 1e-3  # relative; of other kernels, another order of sums, another release of TensorFlow


class DisagreementError(Exception):
    """Two contenders computed something else."""


def check(reference: str, figures: Mapping[str, Figures], exact: frozenset[str], number: int) -> None:
    """Compares the figures of a round with those of one contender.

    Args:
        reference: That contender.
        figures: All figures by contender.
        exact: The contenders that have to agree to the bit among each other; others to `TOLERANCE`. Counts always
            have to be equal, where both have them.
        number: The number of the round, for the message.

    Raises:
        DisagreementError: With the contender, the round and the values.
    """
    expected = dict(_values(figures[reference]))
    for name, found in figures.items():
        tolerance = 0.0 if {name, reference} <= exact else TOLERANCE
        for what, value in _values(found):
            if not _agree(value, expected[what], tolerance):
                raise DisagreementError(
                    f'`{name}` disagrees with `{reference}` in round {number}: {what} [{value}], not '
                    f'[{expected[what]}], with a relative tolerance of {tolerance:g}.'
                )


def _values(figures: Figures) -> Iterator[tuple[str, float | None]]:
    yield 'step', figures.step
    yield 'train_examples', figures.train_examples
    yield 'eval_examples', figures.eval_examples
    yield 'loss', figures.loss
    for name, value in figures.metrics.items():
        yield f'metric {name}', value


def _agree(value: float | None, expected: float | None, tolerance: float) -> bool:
    if value is None or expected is None:
        return True
    if isinstance(value, int):
        return value == expected
    return math.isclose(value, expected, rel_tol=tolerance, abs_tol=0.0)
