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
            assert (expected[probabilities > 0] > 0).all()
            assert (probabilities[expected > 1e-30] > 0).all()  # smaller ones are 0 in float32
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
    ("weights", "top_k", "top_p", "expected"),
    [
        ([4, 2, 2, 1], 2, None, [1 / 2, 1 / 4, 1 / 4, 0]),  # two tie for the second place
        ([2, 2, 2, 2], 1, None, [1 / 4, 1 / 4, 1 / 4, 1 / 4]),
        ([1, 2, 1, 4], 3, None, [1 / 8, 1 / 4, 1 / 8, 1 / 2]),
        ([1, 2, 1, 4], None, 0.45, [0, 0, 0, 1]),
        ([1, 2, 1, 4], None, 0.55, [0, 1 / 3, 0, 2 / 3]),  # the token that crosses stays
        ([1, 2, 1, 4], None, 0.80, [1 / 7, 2 / 7, 0, 4 / 7]),  # of two that tie, the first
        ([1, 2, 1, 4], None, 0.95, [1 / 8, 1 / 4, 1 / 8, 1 / 2]),
        ([4, 2, 1, 1], 2, 0.60, [1, 0, 0, 0]),  # p counts what k has left: 2/3 and 1/3
        ([4, 2, 1, 1], None, 0.60, [2 / 3, 1 / 3, 0, 0]),
    ],
)
def test_by_hand(drawn_from, weights, top_k, top_p, expected):
    found = drawn_from(torch.tensor([weights], dtype=torch.float32).log(), 1.0, top_k, top_p)
    torch.testing.assert_close(found, torch.tensor([expected], dtype=torch.float32))


def test_each_step_by_itself():
    logits = torch.tensor([[1.0, 3.0, 2.0], [5.0, 5.0, 0.0]])
    halved = apply_temperature(logits, 2.0)
    assert halved.tolist() == [[-1.0, 0.0, -0.5], [0.0, 0.0, -2.5]]
    assert keep_top_k(logits, 1).tolist() == [[-INF, 3.0, -INF], [5.0, 5.0, -INF]]
    assert keep_top_k(logits, 2).tolist() == [[-INF, 3.0, 2.0], [5.0, 5.0, -INF]]
    assert keep_top_k(logits, 9).tolist() == logits.tolist()
    assert keep_top_p(logits, 0.5).tolist() == [[-INF, 3.0, -INF], [5.0, 5.0, -INF]]
    assert keep_top_p(logits, 0.0).tolist() == [[-INF, 3.0, -INF], [5.0, -INF, -INF]]


@pytest.mark.parametrize("temperature", [0.0, 1e-30, 1e-40, 1e-320, 5e-324])
@pytest.mark.parametrize(("top_k", "top_p"), [(None, None), (3, 0.5), (0, 1.0), (1, 0.0)])
def test_a_temperature_too_small_to_divide_by_is_argmax(temperature, top_k, top_p):
    logits = torch.tensor([[0.0, 2.0, -INF, 1.999], [-5.0, -7.0, -5.001, -9.0], [1e4, 0, -1e4, 0]])
    token = select_next_token(logits, temperature, top_k, top_p)
    assert token.tolist() == [[1], [0], [0]]
    assert token.dtype == torch.int64


def test_greedy_takes_the_first_of_a_tie_and_draws_nothing():
    generator = torch.Generator().manual_seed(3)
    before = generator.get_state()
    token = select_next_token(torch.tensor([[1.0, 7.0, 7.0]]), generator=generator)
    assert token.tolist() == [[1]]
    assert torch.equal(generator.get_state(), before)


@pytest.mark.parametrize("temperature", [1e30, 1e39, 1e308])
def test_a_huge_temperature_is_the_uniform_distribution(drawn_from, temperature):
    found = drawn_from(torch.tensor([[9.0, -9.0, 0.0, -INF]]), temperature)
    torch.testing.assert_close(found, torch.tensor([[1 / 3, 1 / 3, 1 / 3, 0]]))


@pytest.mark.parametrize("top_p", [0.0, 1e-12, 1e-320])
def test_a_top_p_too_small_to_matter_keeps_one_token(drawn_from, top_p):
    found = drawn_from(torch.tensor([[1.0, 4.0, 4.0], [0.0, 0.0, 0.0]]), 1.0, None, top_p)
    assert found.tolist() == [[0, 1, 0], [1, 0, 0]]


@pytest.mark.parametrize(("top_k", "top_p"), [(None, None), (2, None), (9, 0.9), (5, 1e-9)])
def test_logits_of_minus_infinity_are_never_drawn(drawn_from, top_k, top_p):
    logits = torch.tensor([[-INF, 1.0, -INF, 0.0, -INF], [-INF, -INF, -INF, 0.5, -INF]])
    found = drawn_from(logits, 1.0, top_k, top_p)
    assert found.isfinite().all()
    assert (found[logits == -INF] == 0).all()
    assert found[1].tolist() == [0, 0, 0, 1, 0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_it_computes_in_float32_whatever_comes_in(drawn_from, dtype):
    logits = (torch.randn(2, 50, generator=torch.Generator().manual_seed(1)) * 4).to(dtype)
    found = drawn_from(logits, 0.7, 20, 0.9)
    assert found.dtype == torch.float32
    for row, probabilities in zip(logits.tolist(), found.tolist(), strict=True):
        assert probabilities == pytest.approx(textbook(row, 0.7, 20, 0.9), abs=1e-6)


def test_rows_do_not_know_of_each_other(drawn_from):
    logits = torch.randn(5, 20, generator=torch.Generator().manual_seed(2)) * 3
    logits[2] = 1e4
    together = drawn_from(logits, 0.8, 7, 0.8)
    alone = [drawn_from(logits[i : i + 1], 0.8, 7, 0.8) for i in range(5)]
    torch.testing.assert_close(together, torch.cat(alone))


def test_draws_are_as_frequent_as_they_are_probable():
    logits, count = torch.tensor([2.0, 1.0, 0.0, -1.0, -6.0, 1.5]), 40_000
    expected = textbook(logits.tolist(), 0.9, 5, 0.95)
    generator = torch.Generator().manual_seed(11)
    tokens = select_next_token(logits.expand(count, -1), 0.9, 5, 0.95, generator)
    found = tokens.flatten().bincount(minlength=6) / count
    assert expected.count(0.0) == 2
    for frequency, p in zip(found.tolist(), expected, strict=True):
        # five standard deviations: a right sampler fails for one seed in 300,000 or so
        assert abs(frequency - p) <= 5 * math.sqrt(p * (1 - p) / count)


def test_the_generator_decides_and_nothing_global_is_touched():
    logits = torch.zeros(1, 1000)

    def draws(seed):
        generator = torch.Generator().manual_seed(seed)
        return [int(select_next_token(logits, 1.0, 900, 0.99, generator)) for _ in range(8)]

    torch_state, python_state = torch.get_rng_state(), random.getstate()
    numpy_state = np.random.get_state()[1].tolist()
    first, other = draws(5), draws(6)
    torch.rand(3)
    assert draws(5) == first != other
    torch.set_rng_state(torch_state)
    draws(7)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert random.getstate() == python_state
    assert np.random.get_state()[1].tolist() == numpy_state


def test_logits_stay_as_they_were():
    logits = torch.randn(2, 9, generator=torch.Generator().manual_seed(4))
    before = logits.clone()
    for temperature, top_k, top_p in grid():
        select_next_token(logits, temperature, top_k, top_p, torch.Generator())
    keep_top_k(logits, 2)
    keep_top_p(logits, 0.5)
    apply_temperature(logits, 0.5)
    assert torch.equal(logits, before)


def test_a_real_vocabulary_s_width():
    logits = torch.randn(1, 151_669, generator=torch.Generator().manual_seed(8)) * 2
    kept = keep_top_p(logits, 0.9).isfinite()
    exact = logits.double().softmax(-1)
    mass, smallest = float(exact[kept].sum()), float(exact[kept].min())
    assert mass - smallest - 1e-4 <= 0.9 <= mass + 1e-4  # float32 sums of 150,000 terms
    assert float(exact[~kept].max()) <= smallest
