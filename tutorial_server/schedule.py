"""How many steps a number of answers takes, by the way in which they share the slots."""

import heapq
from collections.abc import Sequence


def static_steps(lengths: Sequence[int], slots: int) -> int:
    """Count the steps of static batching, where a batch ends with its longest row.

    `lengths` are the steps of each answer, in the order in which they came. `slots` of them
    start together, and nobody comes in before all of these are done.
    """
    batches = [lengths[start : start + slots] for start in range(0, len(lengths), slots)]
    return sum(max(batch) for batch in batches)


def continuous_steps(lengths: Sequence[int], slots: int) -> int:
    """Count the steps of continuous batching, where a free slot goes to the next in line.

    `lengths` are the steps of each answer, in the order in which they came.
    """
    free_at = [0] * slots  # a heap: after how many steps each slot is free
    for length in lengths:
        heapq.heapreplace(free_at, free_at[0] + length)
    return max(free_at)
