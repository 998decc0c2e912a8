"""The distribution that a token is drawn from is the textbook one, and nothing else is touched."""

import math
import random

import numpy as np
import pytest
import torch
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from tutorial_server import sampling
from tutorial_server.sampling import (
    apply_temperature,
    keep_top_k,
    keep_top_p,
    select_next_token,
)

INF = float("inf")
TEMPERATURES = [0.1, 0.7, 1.0, 1.3, 5.0]
TOP_KS = [None, 0, 1, 2, 5, 1000]
TOP_PS = [None, 0.0, 1e-12, 0.3, 0.9, 0.999, 1.0]


def textbook(logits, temperature=1.0, top_k=None, top_p=None):
    """Probabilities of one row in float64, a token at a time; NaN where rounding decides."""
    scaled = [x / temperature for x in logits]
    order = sorted(range(len(logits)), key=lambda i: -scaled[i])  # ties: lower id first
    if top_k and top_k < len(order):
        order = [i for i in order if scaled[i] >= scaled[order[top_k - 1]]]
    weights = {i: math.exp(scaled[i] - scaled[order[0]]) for i in order}
    total = math.fsum(weights.values())
    if top_p is not None and top_p < 1:
        kept, mass = [], 0.0
        for i in order:
            kept.append(i)
            mass += weights[i] / total
            if abs(mass - top_p) < 1e-5:
                return [math.nan] * len(logits)
            if mass >= top_p:
                break
        order = kept
    total = math.fsum(weights[i] for i in order)
    return [weights[i] / total if i in order else 0.0 for i in range(len(logits))]


@pytest.fixture
def drawn_from(monkeypatch):
    """A function: the distribution `[B, V]` that select_next_token hands to its one draw."""
    seen = []
    multinomial = torch.multinomial

    def spy(probabilities, num_samples, generator=None):
        seen.append(probabilities.clone())
        return multinomial(probabilities, num_samples, generator=generator)

    monkeypatch.setattr(sampling.torch, "multinomial", spy)

    def distribution(logits, *args):
        seen.clear()
        token = select_next_token(logits, *args, generator=torch.Generator().manual_seed(0))
        (probabilities,) = seen
        assert token.shape == (len(logits), 1)
        assert token.dtype == torch.int64
        assert (probabilities.gather(1, token) > 0).all()
        return probabilities

    return distribution


def grid():
    return [(t, k, p) for t in TEMPERATURES for k in TOP_KS for p in TOP_PS]


@pytest.mark.parametrize("width", [1, 2, 7, 40])
def test_the_distribution_is_the_textbook_one(drawn_from, width):
    generator = torch.Generator().manual_seed(width)
    decided = 0
    for temperature, top_k, top_p in grid():
        logits = torch.randn(3, width, generator=generator) * 3
        found = drawn_from(logits, temperature, top_k, top_p).numpy()
        for row, probabilities in zip(logits.tolist(), found, strict=True):
            expected = np.array(textbook(row, temperature, top_k, top_p))
            if np.isnan(expected).any():
                continue
            decided += 1
            assert ((probabilities > 0) == (expected > 0)).all()
            np.testing.assert_allclose(probabilities, expected, atol=1e-6, rtol=1e-4)
    assert decided > 0.95 * 3 * len(grid())


def test_it_agrees_with_transformers_own_warpers(drawn_from):
    generator = torch.Generator().manual_seed(0)
    for temperature, top_k, top_p in grid():
        logits = torch.randn(2, 30, generator=generator) * 2
        warped = TemperatureLogitsWarper(temperature)(None, logits)
        if top_k:
            warped = TopKLogitsWarper(top_k)(None, warped)
        if top_p is not None and top_p < 1:
            warped = TopPLogitsWarper(top_p)(None, warped)
        found = drawn_from(logits, temperature, top_k, top_p)
        torch.testing.assert_close(found, warped.softmax(-1), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(
    ("top_k", "top_p", "expected"),
    [
        (2, None, [4 / 7, 2 / 7, 1 / 7, 0]),  # 0.2 and 0.2 tie for the second place
        (1, None, [1, 0, 0, 0]),
        (None, 0.45, [1, 0, 0, 0]),
        (None, 0.55, [2 / 3, 1 / 3, 0, 0]),  # the token that crosses stays
        (2, 0.6, [2 / 3, 1 / 3, 0, 0]),  # p counts what k has left: 1/2, 1/4, 1/4
        (None, 0.95, [0.5, 0.25, 0.125, 0.125]),
    ],
)
def test_by_hand(drawn_from, top_k, top_p, expected):
    weights = [0.5, 0.25, 0.125, 0.125] if top_k is None else [0.4, 0.2, 0.2, 0.2]
    if top_k == 2 and top_p is None:
        weights, expected = [0.4, 0.2, 0.2, 0.1], [0.5, 0.25, 0.25, 0]
    if top_k == 2 and top_p:
        weights = [0.4, 0.2, 0.2, 0.1]
    found = drawn_from(torch.tensor([weights]).log(), 1.0, top_k, top_p)
    torch.testing.assert_close(found, torch.tensor([expected], dtype=torch.float32))
