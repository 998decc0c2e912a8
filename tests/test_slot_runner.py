"""Many sequences over the slots of one cache: each gets what it would get alone."""

import logging
import random
from typing import Any

import pytest
import torch
from opened import assert_close, endless, read, row, slot_runner, some_ids, theirs, variant
from tiny import CONTEXT_LENGTH, tiny_llama, tiny_qwen3
from transformers import LlamaConfig, Qwen3Config

from tutorial_server import linear as linear_module
from tutorial_server import slot_runner as module
from tutorial_server.errors import ModelError, TooLong
from tutorial_server.models import LLM
from tutorial_server.sequence import Sequence
from tutorial_server.slot_runner import SlotPlan, SlotRunner

PROMPTS = [31, 1, 12, 50]  # tokens


@pytest.fixture(params=[tiny_llama, tiny_qwen3], ids=["llama", "qwen3"])
def llm(request: pytest.FixtureRequest) -> LLM:
    return request.param()


def rows_of(llm: LLM, lengths: list[int] = PROMPTS, **params: Any) -> list[Sequence]:
    return [row(llm, some_ids(llm, n, seed=n), **params) for n in lengths]


def wanted_logits(llm: LLM, sequence: Sequence) -> torch.Tensor:
    return theirs(llm, sequence.prompt_ids + sequence.token_ids)[-1:]


def write(runner: SlotRunner, sequences: list[Sequence], steps: int = 1) -> None:
    """Add tokens to all, and compare each row's logits with what it would get alone."""
    for step in range(steps):
        for number, sequence in enumerate(sequences):
            sequence.token_ids.append((7 * number + 3 * step) % runner.llm.vocab_size)
        logits = runner.decode(sequences)
        assert logits.shape == (len(sequences), runner.llm.vocab_size)
        for sequence, found in zip(sequences, logits, strict=True):
            assert_close(found[None], wanted_logits(runner.llm, sequence))


# Prefill.


def test_several_prompts_in_one_pass(llm: LLM) -> None:
    runner = slot_runner(llm)
    sequences = rows_of(llm)
    for sequence, found in zip(sequences, runner.prefill(sequences), strict=True):
        assert found is not None
        assert_close(found, wanted_logits(llm, sequence))
        assert sequence.prompt_read == len(sequence.prompt_ids)
        assert sequence.cache_used
    assert [sequence.cache for sequence in sequences] == [0, 1, 2, 3]
    write(runner, sequences, 3)


@pytest.mark.parametrize("limit", [1, 3, 7, 31, 32, 1000])
def test_prompts_in_pieces(llm: LLM, limit: int) -> None:
    runner = slot_runner(llm)
    sequences = rows_of(llm, [31, 1, 12])
    left, passes = list(sequences), 0
    while left:
        before = sum(sequence.prompt_read for sequence in sequences)
        found = runner.prefill(left, limit)
        passes += 1
        assert sum(s.prompt_read for s in sequences) == min(before + limit, 44)
        for sequence, logits in zip(left, found, strict=True):
            done = sequence.prompt_read == len(sequence.prompt_ids)
            assert (logits is not None) == done
            if logits is not None:
                assert_close(logits, wanted_logits(llm, sequence))
        left = [s for s, logits in zip(left, found, strict=True) if logits is None]
    assert passes == -(-44 // limit)
    write(runner, sequences, 2)


def test_the_limit_goes_to_the_first_ones_in_the_order_given(llm: LLM) -> None:
    runner = slot_runner(llm)
    long, short, late = rows_of(llm, [31, 12, 5])
    found = runner.prefill([short, long, late], 20)
    assert [logits is not None for logits in found] == [True, False, False]
    assert [s.prompt_read for s in (short, long, late)] == [12, 8, 0]
    found = runner.prefill([late, long], 20)
    assert [logits is not None for logits in found] == [True, False]
    assert [s.prompt_read for s in (late, long)] == [5, 23]
    (logits,) = runner.prefill([long], 8)
    assert logits is not None
    assert_close(logits, wanted_logits(llm, long))


def test_a_prompt_read_while_others_write(llm: LLM) -> None:
    runner = slot_runner(llm)
    sequences = rows_of(llm, [9, 14])
    runner.prefill(sequences)
    late = row(llm, some_ids(llm, 40, seed=5))
    for _ in range(8):
        (logits,) = runner.prefill([late], 5)
        write(runner, sequences)
    assert logits is not None
    assert_close(logits, wanted_logits(llm, late))
    write(runner, [late, *sequences])


@pytest.mark.parametrize("limit", [None, 13, 9, 4])
def test_reading_and_writing_in_one_pass(llm: LLM, limit: int | None) -> None:
    runner = slot_runner(llm, 5)
    first, gone, second = rows_of(llm, [9, 3, 14])
    runner.prefill([first, gone, second])
    runner.release(gone)  # so that the next prompt stands between those who write
    short, long = rows_of(llm, [6, 7])
    passes = []
    forward = runner.model.forward
    runner.model.forward = lambda *args: (passes.append(1), forward(*args))[1]  # type: ignore
    first.token_ids, second.token_ids = [4], [5]
    read, written = runner.step([short, long], [second, first], limit)
    assert len(passes) == 1
    assert [s.prompt_read for s in (short, long)] == {
        None: [6, 7],
        13: [6, 7],
        9: [6, 3],
        4: [4, 0],
    }[limit]
    for sequence, logits in zip((short, long), read, strict=True):
        done = sequence.prompt_read == len(sequence.prompt_ids)
        assert (logits is not None) == done
        if logits is not None:
            assert_close(logits, wanted_logits(llm, sequence))
    for sequence, logits in zip((second, first), written, strict=True):
        assert_close(logits[None], wanted_logits(llm, sequence))
    write(runner, [first, second], 2)


def test_an_empty_prompt_is_refused_and_takes_no_slot(llm: LLM) -> None:
    runner = slot_runner(llm)
    other = row(llm, [1, 2])
    for sequences in ([row(llm, [])], [row(llm, []), other], [other, row(llm, [])]):
        with pytest.raises(ValueError, match="empty"):
            runner.prefill(sequences, 8)
    runner.release(other)
    assert runner.cache.free == 4


# Decode.


def test_rows_of_different_age_in_any_order(llm: LLM) -> None:
    runner = slot_runner(llm)
    sequences = rows_of(llm)
    for sequence in sequences:
        read(runner, sequence)
        write(runner, [sequence], 2)
    write(runner, sequences[::-1], 2)
    write(runner, [sequences[2], sequences[0], sequences[3]], 2)
    write(runner, [sequences[1]], 1)
    write(runner, sequences, 1)


def test_rows_of_very_different_age(llm: LLM) -> None:
    runner = slot_runner(llm, length=512)
    sequences = rows_of(llm, [450, 2, 3, 400])
    runner.prefill(sequences)
    write(runner, sequences, 2)


def test_slots_with_holes_and_slots_used_again(llm: LLM) -> None:
    runner = slot_runner(llm)
    first = rows_of(llm)
    runner.prefill(first)
    write(runner, first, 5)
    runner.release(first[1])
    runner.release(first[2])
    write(runner, [first[0], first[3]], 2)
    late = rows_of(llm, [3, 20])
    runner.prefill(late[:1])
    assert late[0].cache == 1
    write(runner, [first[0], late[0], first[3]], 2)
    runner.prefill(late[1:], 7)
    assert late[1].cache == 2
    runner.prefill(late[1:])
    write(runner, [first[3], *late, first[0]], 2)


def test_alone_and_among_others_are_the_same(llm: LLM) -> None:
    alone = slot_runner(llm)
    (sequence,) = rows_of(llm, [17])
    wanted = [read(alone, sequence)]
    for id_ in (5, 9):
        sequence.token_ids.append(id_)
        wanted.append(alone.decode([sequence]))
    runner = slot_runner(llm)
    others = rows_of(llm, [40, 3, 25])
    (sequence,) = rows_of(llm, [17])
    found = [runner.prefill([others[0], sequence, *others[1:]])[1]]
    for id_ in (5, 9):
        for any_row in (sequence, *others):
            any_row.token_ids.append(id_)
        found.append(runner.decode([*others, sequence])[-1:])
    for ours, theirs_ in zip(found, wanted, strict=True):
        assert ours is not None
        assert_close(ours, theirs_)


def test_plain_weights_do_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_module, "can_pack", lambda device, dtype: False)
    llm = variant("qwen3")
    runner = slot_runner(llm)
    sequences = rows_of(llm)
    runner.prefill(sequences, 50)
    runner.prefill(sequences[2:])
    write(runner, sequences, 2)


def test_a_slot_to_its_last_position(llm: LLM) -> None:
    runner = slot_runner(endless(llm), slots=2, length=24)
    with pytest.raises(TooLong, match="exceed the 24 tokens of context"):
        row(runner.llm, range(1, 21), tokens=5)
    neighbour = row(runner.llm, range(3))
    runner.prefill([neighbour])
    sequence = row(runner.llm, range(1, 21), tokens=4)
    logits = read(runner, sequence)
    while True:
        sequence.accept(logits)
        if sequence.finish_reason:
            break
        logits = runner.decode([sequence])
        assert_close(logits, wanted_logits(llm, sequence))
    assert len(sequence.token_ids) == 4
    runner.release(sequence)
    write(runner, [neighbour])


def test_random_orders(llm: LLM) -> None:
    """Forty steps of joining, reading on, writing and leaving, each compared."""
    rng = random.Random(11)
    runner = slot_runner(llm, slots=5)
    reading: list[Sequence] = []
    writing: list[Sequence] = []
    for step in range(40):
        if len(reading) + len(writing) < 5 and rng.random() < 0.5:
            reading.append(row(llm, some_ids(llm, rng.choice([1, 2, 9, 30]), seed=step)))
        if reading:
            rng.shuffle(reading)
            found = runner.prefill(reading, rng.choice([1, 4, 11, None]))
            done = [s for s, logits in zip(reading, found, strict=True) if logits is not None]
            for sequence, logits in zip(reading, found, strict=True):
                if logits is not None:
                    assert_close(logits, wanted_logits(llm, sequence))
            writing += done
            reading = [sequence for sequence in reading if sequence not in done]
        if writing:
            rng.shuffle(writing)
            write(runner, writing[: rng.randint(1, len(writing))])
        for group in (reading, writing):
            if group and rng.random() < 0.2:
                runner.release(group.pop())
        assert runner.cache.free == 5 - sum(s.cache is not None for s in reading + writing)


# What is left behind.


def test_release_frees_once(llm: LLM) -> None:
    runner = slot_runner(llm, slots=2)
    (sequence,) = rows_of(llm, [9])
    runner.release(sequence)
    assert runner.cache.free == 2
    runner.prefill([sequence], 4)
    assert runner.cache.free == 1
    runner.release(sequence)
    runner.release(sequence)
    assert runner.cache.free == 2
    assert sequence.cache is None
    assert not runner.cache.values.any()


@pytest.mark.parametrize("poison", [torch.nan, torch.inf, 1e38])
def test_what_a_broken_row_left_does_not_reach_the_next(llm: LLM, poison: float) -> None:
    """The next one is younger than its neighbour, so both read over stale positions."""
    runner = slot_runner(llm)
    old, broken = rows_of(llm, [40, 38])
    runner.prefill([old, broken])
    for _ in range(2):
        broken.token_ids.append(1)
        old.token_ids.append(2)
        runner.decode([broken, old])
    runner.cache.keys[:, broken.cache, :, :40] = poison
    runner.cache.values[:, broken.cache, :, :40] = poison
    write(runner, [old])  # beside a broken row that still runs
    runner.release(broken)
    young = row(llm, [3, 4])
    assert_close(read(runner, young, 1), wanted_logits(llm, young))
    assert young.cache == 1
    write(runner, [old, young], 3)


def test_a_prompt_left_half_read_leaves_nothing(llm: LLM) -> None:
    runner = slot_runner(llm, slots=1)
    first, second = rows_of(llm, [50, 12])
    runner.prefill([first], 33)
    runner.release(first)
    assert_close(read(runner, second, 5), wanted_logits(llm, second))
    write(runner, [second], 2)


# The plan.

SMALL = LlamaConfig(
    hidden_size=576,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    max_position_embeddings=8192,
)
QWEN3_4B = Qwen3Config(
    hidden_size=2560,
    num_hidden_layers=36,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    max_position_embeddings=40960,
)


@pytest.mark.parametrize(
    ("budget", "most", "slots", "length"),
    [
        (4e9, 16, 10, 8192),
        (4e9, 4, 4, 8192),
        (4e9, 1, 1, 8192),
        (1e12, 16, 16, 8192),
        (1e12, 1000, 1000, 8192),
        (2e9, 16, 8, 5425),  # eight, shorter than the context
        (1e9, 16, 5, 4096),  # fewer than eight, no shorter than 4096
        (0.2e9, 16, 1, 4096),
        (46_080 * 100, 16, 1, 100),
        (46_080, 16, 1, 1),
        (46_079, 16, 1, 1),
        (0, 16, 1, 1),
    ],
)
def test_a_budget_for_the_small_model(budget: float, most: int, slots: int, length: int) -> None:
    plan = SlotPlan.fit(SMALL, torch.float32, budget, most)
    assert plan == SlotPlan(slots, length, 46_080)
    assert plan.bytes == slots * length * 46_080
    assert plan.bytes <= max(budget, 46_080)


@pytest.mark.parametrize(
    ("budget", "most", "slots", "length"),
    [
        (4e9, 16, 6, 4096),
        (4e9, 2, 2, 13563),
        (4e9, 1, 1, 27126),
        (20e9, 16, 8, 16954),
        (60e9, 16, 9, 40960),
        (1e12, 16, 16, 40960),
    ],
)
def test_a_budget_for_qwen3_4b(budget: float, most: int, slots: int, length: int) -> None:
    plan = SlotPlan.fit(QWEN3_4B, torch.bfloat16, budget, most)
    assert plan == SlotPlan(slots, length, 147_456)
    assert plan.bytes <= budget


def test_the_small_model_s_own_config(small: LLM) -> None:
    plan = SlotPlan.fit(small.model.config, small.dtype, 4e9)
    assert plan == SlotPlan(10, 8192, 46_080)


def test_no_budget_is_overdrawn_and_none_is_wasted() -> None:
    for tokens in [*range(1, 300), 4095, 4096, 4097, 8191, 33_000, 65_535, 65_536, 10**6]:
        for most in (1, 3, 8, 16):
            plan = SlotPlan.fit(SMALL, torch.float32, tokens * 46_080, most)
            assert 1 <= plan.slots <= most
            assert 1 <= plan.length <= 8192
            assert plan.slots * plan.length <= tokens
            assert plan.length == 8192 or plan.slots == most or plan.bytes > tokens * 46_080 // 2


def test_within_a_budget(llm: LLM, caplog: pytest.LogCaptureFixture) -> None:
    per_token = 2 * 2 * 2 * 16 * 4
    with caplog.at_level(logging.INFO, "tutorial_server"):
        runner = SlotRunner.within(llm, 3 * CONTEXT_LENGTH * per_token, most=2)
    assert (runner.rows, runner.llm.context_length) == (2, CONTEXT_LENGTH)
    assert runner.cache.keys.shape == (2, 2, 2, CONTEXT_LENGTH, 16)
    assert runner.cache.keys.nbytes + runner.cache.values.nbytes == 2 * CONTEXT_LENGTH * per_token
    assert caplog.messages == [f"KV cache: 2 slots of {CONTEXT_LENGTH} tokens"]
    shorter = SlotRunner.within(llm, 300 * per_token)
    assert (shorter.rows, shorter.llm.context_length) == (1, 300)
    assert llm.context_length == CONTEXT_LENGTH


def test_no_more_than_what_is_free(
    llm: LLM, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "free_bytes", lambda device: 400 * 512 / 0.8)
    runner = SlotRunner.within(llm, 4e9)
    assert (runner.rows, runner.llm.context_length) == (1, 400)
    assert "only 0.0 GB are free for the KV cache of 4.0" in caplog.text


@pytest.mark.parametrize("budget", [0.1, 512, 255 * 512])
def test_a_budget_that_holds_no_conversation(llm: LLM, budget: float) -> None:
    with pytest.raises(ModelError, match="--kv-cache-gb"):
        SlotRunner.within(llm, budget)
