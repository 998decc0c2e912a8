"""Percentiles: the same as numpy's, and no others where there are none."""

import random

import numpy
import pytest

from tutorial_server.percentile import percentile


@pytest.mark.parametrize(
    ("values", "q", "expected"),
    [
        ([7.0], 0, 7.0),
        ([7.0], 99, 7.0),
        ([1, 2], 50, 1.5),
        ([1, 2, 3, 4], 0, 1),
        ([1, 2, 3, 4], 100, 4),
        ([4, 1, 3, 2], 50, 2.5),
        ([10, 20, 30, 40, 50], 90, 46.0),
        ([0, 100], 99, 99.0),
        ([5, 5, 5], 33.3, 5.0),
        (range(101), 37, 37),
        ((1, -1), 25, -0.5),
    ],
    ids=str,
)
def test_by_hand(values, q, expected):
    assert percentile(values, q) == pytest.approx(expected, abs=1e-12)


def test_numpys_default():
    draw = random.Random(0)
    for count in (1, 2, 3, 10, 101, 1000):
        values = [draw.gauss(0, 1) for _ in range(count)]
        for q in (0, 0.1, 25, 50, 90, 99, 99.9, 100):
            assert percentile(values, q) == pytest.approx(float(numpy.percentile(values, q)))


def test_takes_an_array_and_changes_nothing():
    values = [3.0, 1.0, 2.0]
    assert percentile(values, 50) == 2.0
    assert values == [3.0, 1.0, 2.0]
    assert percentile(numpy.array(values), 50) == 2.0


@pytest.mark.parametrize("q", [-0.1, 100.1, float("nan"), float("inf")])
def test_another_q_is_refused(q):
    with pytest.raises(ValueError, match=r"q is .*0 to 100"):
        percentile([1.0], q)


def test_nothing_has_no_percentiles():
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)
