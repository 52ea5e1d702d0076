"""Rounds of several contenders, interleaved: what each cost, and how that compares."""

import gc
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import agreement
from benchmarks.contenders.rounds import Contender, Cost

WARM_UP = 2  # rounds, which build and trace
Costs = dict[str, list[Cost]]  # of each round, by contender


def measure(contenders: Mapping[str, Contender], rounds: int, reference: str, exact: frozenset[str]) -> Costs:
    """Makes rounds of all contenders, first those that are not measured, and returns what each cost.

    Args:
        contenders: By name.
        rounds: How many are measured.
        reference: Whose figures the others are compared with.
        exact: The contenders that have to agree to the bit.

    Raises:
        DisagreementError: If two did not compute the same.
    """
    costs: Costs = {name: [] for name in contenders}
    for number in range(WARM_UP + rounds):
        if number == WARM_UP:  # what stays is not walked through again, in whosever round Python thinks of it
            gc.collect()
            gc.freeze()
        figures = {}
        for name in _order(list(contenders), number):
            figures[name], cost = contenders[name].measured_round()
            costs[name].append(cost)
        agreement.check(reference, figures, exact, number)
    return {name: of_rounds[WARM_UP:] for name, of_rounds in costs.items()}


def _order(names: list[str], number: int) -> list[str]:
    """Returns the names, each of them first in its turn, and after another one every second time."""
    first = number % len(names)
    order = names[first:] + names[:first]
    return order[::-1] if number % 2 else order


def summary(costs: Costs, reference: str) -> dict[str, dict[str, Any]]:
    """Returns medians and ratios by contender, in rounds: the ratios are those of the reference to the contender.

    Args:
        costs: At least one round of each.
        reference: Whose cost is divided by that of the others.
    """
    return {
        name: {
            'cpu_ms': 1000 * statistics.median(cost.cpu_secs for cost in own),
            'wall_ms': 1000 * statistics.median(cost.wall_secs for cost in own),
            'ratio_cpu': _spread([a.cpu_secs / b.cpu_secs for a, b in zip(costs[reference], own, strict=True)]),
            'ratio_wall': _spread([a.wall_secs / b.wall_secs for a, b in zip(costs[reference], own, strict=True)]),
        }
        for name, own in costs.items()
    }


def _spread(values: Sequence[float]) -> dict[str, Any]:
    quartiles = statistics.quantiles(values, n=4, method='inclusive') if len(values) > 1 else [values[0]] * 3
    return {'median': statistics.median(values), 'quartiles': quartiles}
