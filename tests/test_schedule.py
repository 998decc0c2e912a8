"""Steps of static and of continuous batching, counted by hand."""

import pytest

from tutorial_server.schedule import continuous_steps, static_steps

CASES = {
    "nobody": ([], 4, 0, 0),
    "one": ([7], 4, 7, 7),
    "one slot": ([3, 1, 2], 1, 6, 6),
    "equal rows": ([5, 5, 5, 5], 2, 10, 10),
    "one batch": ([9, 2, 4], 3, 9, 9),
    "a hole is filled": ([8, 2, 2, 2], 2, 10, 8),
    "the last is long": ([2, 2, 9], 2, 11, 11),
    "order counts": ([1, 1, 6, 1, 1, 6], 2, 13, 9),
}


@pytest.mark.parametrize(("lengths", "slots", "static", "continuous"), CASES.values(), ids=CASES)
def test_steps(lengths, slots, static, continuous):
    assert static_steps(lengths, slots) == static
    assert continuous_steps(lengths, slots) == continuous
