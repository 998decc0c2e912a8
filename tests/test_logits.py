"""The row that counts, and probabilities as logarithms."""

import math

import pytest
import torch
from tiny import tiny_qwen3

from tutorial_server.logits import answer_log_prob, last_logits, log_probs
from tutorial_server.padding import pad_left, position_ids

SCORES = torch.arange(24.0).reshape(2, 4, 3)  # [B, T, V]


@pytest.mark.parametrize(
    ("mask", "columns"),
    [
        ([[1, 1, 1, 1], [1, 1, 1, 1]], [3, 3]),
        ([[0, 0, 1, 1], [0, 0, 0, 1]], [3, 3]),
        ([[1, 1, 0, 0], [1, 0, 0, 0]], [1, 0]),
        ([[0, 1, 1, 0], [1, 1, 1, 0]], [2, 2]),
    ],
)
def test_the_last_real_token_counts_wherever_the_pads_are(mask, columns):
    expected = [SCORES[row, column].tolist() for row, column in enumerate(columns)]
    for dtype in (torch.int64, torch.bool):
        assert last_logits(SCORES, torch.tensor(mask, dtype=dtype)).tolist() == expected


def test_in_a_batch_the_last_logits_are_those_of_each_row_alone():
    llm = tiny_qwen3()
    rows = [[5, 6, 7, 8], [9], [10, 11]]
    ids, mask = pad_left(rows, 0)
    with torch.no_grad():
        batch = llm.model(input_ids=ids, attention_mask=mask, position_ids=position_ids(mask))
        alone = [llm.model(input_ids=torch.tensor([row])).logits[0, -1] for row in rows]
    torch.testing.assert_close(last_logits(batch.logits, mask), torch.stack(alone))


def test_log_probs_of_a_quarter_and_three_quarters():
    got = log_probs(torch.tensor([[0.0, math.log(3)], [5.0, 5.0]]))
    expected = [[math.log(0.25), math.log(0.75)], [math.log(0.5), math.log(0.5)]]
    torch.testing.assert_close(got, torch.tensor(expected))


def test_log_probs_neither_overflow_nor_vanish():
    got = log_probs(torch.tensor([1e4, 0.0, -1e4, float("-inf")]))
    assert got.tolist() == [0.0, -1e4, -2e4, float("-inf")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_log_probs_are_torchs_own_in_float32(dtype):
    logits = (10 * torch.randn(2, 3, 50, generator=torch.Generator().manual_seed(0))).to(dtype)
    got = log_probs(logits)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, logits.float().log_softmax(dim=-1))


def test_an_answers_log_prob_is_the_sum_over_its_tokens():
    llm = tiny_qwen3()
    prompt, answer = [5, 6, 7], [8, 9]
    ids = torch.tensor([prompt + answer])
    with torch.no_grad():
        logits = llm.model(input_ids=ids).logits
        steps = [
            llm.model(input_ids=torch.tensor([prompt + answer[:n]])).logits[0, -1].log_softmax(-1)
            for n in range(2)
        ]
    expected = sum(step[token].item() for step, token in zip(steps, answer, strict=True))
    assert answer_log_prob(logits, ids, 3) == pytest.approx(expected, abs=1e-4)
    assert answer_log_prob(logits, ids, 5) == 0.0  # no answer is certain
