"""Percentiles: what most callers see, and what the unluckiest do."""

from collections.abc import Sequence
from math import ceil, floor


def percentile(values: Sequence[float], q: float) -> float:
    """Say what `q` per cent of the values do not exceed: a mean hides the slow few.

    The values stand in order on ranks 0 … n - 1; between two ranks the result moves in a
    straight line, as numpy's default does. `q` is in 0 … 100. Raises ValueError for another
    `q`, and where there are no values.
    """
    if not 0 <= q <= 100:
        raise ValueError(f"q is {q}; it should be in 0 to 100")
    if len(values) == 0:
        raise ValueError("there are no values")
    ordered = sorted(values)
    rank = q * (len(ordered) - 1) / 100
    below, above = ordered[floor(rank)], ordered[ceil(rank)]
    return below + (above - below) * (rank - floor(rank))
