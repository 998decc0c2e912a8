"""Padding, positions and masks: a row of a batch means what it means alone."""

import random

import pytest
import torch
from tiny import tiny_llama, tiny_qwen3

from tutorial_server.chat import build_messages, encode_chat
from tutorial_server.padding import may_attend, pad_left, position_ids

PAD = 99
RAGGED = [[5], [1, 2, 3, 4], [7, 8], [PAD, PAD, PAD]]  # the last row's tokens look like pads
STEPS = 8


def masks(count=200):
    """Random left-padded masks, `[B, T]` each, rows of no token at all among them."""
    rng = random.Random(0)
    for _ in range(count):
        width, rows = rng.randint(1, 7), rng.randint(1, 4)
        lengths = [rng.randint(0, width) for _ in range(rows)]
        yield torch.tensor([[0] * (width - n) + [1] * n for n in lengths])


def test_pads_go_to_the_left_and_the_mask_comes_from_the_lengths():
    ids, mask = pad_left(RAGGED, PAD)
    assert ids.tolist() == [
        [PAD, PAD, PAD, 5],
        [1, 2, 3, 4],
        [PAD, PAD, 7, 8],
        [PAD, PAD, PAD, PAD],
    ]
    assert mask.tolist() == [[0, 0, 0, 1], [1, 1, 1, 1], [0, 0, 1, 1], [0, 1, 1, 1]]
    assert ids.dtype == mask.dtype == torch.int64


@pytest.mark.parametrize(
    ("sequences", "ids", "mask"),
    [
        ([[3]], [[3]], [[1]]),
        ([[3, 4, 5]], [[3, 4, 5]], [[1, 1, 1]]),
        ([[1, 2], [3, 4]], [[1, 2], [3, 4]], [[1, 1], [1, 1]]),
        ([[], [8]], [[PAD], [8]], [[0], [1]]),
        (((1,), range(2, 4)), [[PAD, 1], [2, 3]], [[0, 1], [1, 1]]),
    ],
)
def test_edges(sequences, ids, mask):
    padded = pad_left(sequences, PAD)
    assert [t.tolist() for t in padded] == [ids, mask]


@pytest.mark.parametrize(("sequences", "shape"), [([], (0, 0)), ([[]], (1, 0)), ([[], []], (2, 0))])
def test_nothing_to_pad_has_shapes_too(sequences, shape):
    ids, mask = pad_left(sequences, PAD)
    assert ids.shape == mask.shape == position_ids(mask).shape == shape
    assert may_attend(mask).shape == (shape[0], 1, 0, 0)


def test_inputs_stay_as_they_were():
    sequences = [list(row) for row in RAGGED]
    _, mask = pad_left(sequences, PAD)
    before = mask.clone()
    position_ids(mask)
    may_attend(mask)
    assert sequences == RAGGED
    assert torch.equal(mask, before)


def test_each_row_counts_its_own_tokens():
    for mask in masks():
        positions = position_ids(mask)
        assert positions.dtype == torch.int64
        for row, real in zip(positions.tolist(), mask.tolist(), strict=True):
            length = sum(real)
            assert row == [0] * (len(row) - length) + list(range(length))


def test_a_token_sees_the_real_ones_up_to_itself():
    for mask in masks():
        rows, width = mask.shape
        seen = may_attend(mask)
        assert seen.dtype == torch.bool
        assert seen.shape == (rows, 1, width, width)
        for row in range(rows):
            for query in range(width):
                expected = [key <= query and mask[row, key] == 1 for key in range(width)]
                assert seen[row, 0, query].tolist() == expected


def test_a_mask_of_bools_means_the_same():
    for mask in masks(20):
        assert torch.equal(position_ids(mask.bool()), position_ids(mask))
        assert torch.equal(may_attend(mask.bool()), may_attend(mask))


def rows_of(llm):
    """Prompts of four lengths, the last of them the pad id alone."""
    prompts = ["Hi", "What is the capital of France?", "hello the user, singing"]
    return [encode_chat(llm, build_messages(p, "Be kind.")) for p in prompts] + [
        [llm.tokenizer.pad_token_id]
    ]


@torch.inference_mode()
def greedy_alone(llm, ids, steps):
    """The plain way: logits `[steps, V]` and the chosen ids of one unpadded row."""
    ids, logits = list(ids), []
    for _ in range(steps):
        inputs = torch.tensor([ids])
        last = llm.model(input_ids=inputs, use_cache=False, logits_to_keep=1).logits[0, -1]
        logits.append(last)
        ids.append(int(last.argmax()))
    return torch.stack(logits), ids[-steps:]


@torch.inference_mode()
def greedy_padded(llm, sequences, steps):
    """The same for all rows at once, padded anew before each step."""
    sequences, logits = [list(s) for s in sequences], []
    for _ in range(steps):
        ids, mask = pad_left(sequences, llm.tokenizer.pad_token_id)
        outputs = llm.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=position_ids(mask),
            use_cache=False,
            logits_to_keep=1,
        )
        last = outputs.logits[:, -1]  # [B, V]
        logits.append(last)
        for sequence, token in zip(sequences, last.argmax(dim=-1).tolist(), strict=True):
            sequence.append(token)
    return torch.stack(logits, dim=1), [s[-steps:] for s in sequences]


def assert_batch_equals_rows(llm, steps):
    rows = rows_of(llm)
    logits, answers = greedy_padded(llm, rows, steps)
    for row, sequence in enumerate(rows):
        logits_alone, answer_alone = greedy_alone(llm, sequence, steps)
        assert answers[row] == answer_alone
        torch.testing.assert_close(logits[row], logits_alone, atol=1e-3, rtol=1e-3)
    return answers


@pytest.mark.parametrize("make", [tiny_llama, tiny_qwen3])
def test_a_padded_batch_answers_as_its_rows_do_alone(make):
    answers = assert_batch_equals_rows(make(), STEPS)
    assert len({tuple(answer) for answer in answers}) == len(answers)  # rows are told apart


def test_a_padded_batch_of_the_small_model_answers_as_its_rows_do_alone(small):
    assert_batch_equals_rows(small, 2)


@pytest.mark.parametrize("make", [tiny_llama, tiny_qwen3])
def test_may_attend_is_the_mask_that_the_model_makes_itself(make):
    llm = make()
    ids, mask = pad_left(rows_of(llm), llm.tokenizer.pad_token_id)
    with torch.inference_mode():
        own, ours = (
            llm.model(
                ids, attention_mask=m, position_ids=position_ids(mask), use_cache=False
            ).logits
            for m in (mask, may_attend(mask))
        )
    real = mask.bool()
    torch.testing.assert_close(ours[real], own[real], atol=1e-4, rtol=1e-4)
