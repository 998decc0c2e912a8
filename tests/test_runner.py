"""Prefill, decode and the runners: one pass a token, one position's logits, one cache a row."""

import contextlib

import pytest
import torch
from tiny import HEAD_IDS_UNKNOWN, tiny_llama, tiny_qwen3

from tutorial_server.runner import TransformersRunner, UncachedRunner, decode, prefill
from tutorial_server.sequence import SamplingParams, Sequence

PROMPTS = [[1, 2, 3, 4, 5], [9], [7, 7, 30, 100, 200, 250, 12]]


@pytest.fixture(params=[tiny_llama, tiny_qwen3], ids=["llama", "qwen3"])
def llm(request):
    return request.param()


@contextlib.contextmanager
def shapes_seen(llm):
    """Lists of the shapes that go into the model and come out of its head, call by call."""
    read, computed = [], []
    hooks = [
        llm.model.register_forward_pre_hook(
            lambda _, args, kwargs: read.append(tuple(kwargs["input_ids"].shape)),
            with_kwargs=True,
        ),
        llm.model.lm_head.register_forward_hook(
            lambda _, args, output: computed.append(tuple(output.shape))
        ),
    ]
    try:
        yield read, computed
    finally:
        for hook in hooks:
            hook.remove()


def all_logits(llm, ids):
    """The plain forward pass over one row: logits `[T, V]` cut to the known ids."""
    with torch.no_grad():
        return llm.model(torch.tensor([ids]), use_cache=False).logits[0, :, : llm.vocab_size]


def sequences(llm, prompts=PROMPTS):
    return [Sequence(llm, prompt, SamplingParams(8)) for prompt in prompts]


def assert_same(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_prefill_and_decode_give_the_whole_pass_s_logits(llm):
    ids, width = [5, 6, 7, 8, 9, 10], llm.model.config.vocab_size
    expected = all_logits(llm, ids)
    logits, cache = prefill(llm.model, torch.tensor([ids[:3]]))
    assert logits.shape == (1, width)
    assert_same(logits[0, : llm.vocab_size], expected[2])
    for seen in range(3, 6):
        assert cache.get_seq_length() == seen
        logits, cache = decode(llm.model, torch.tensor([[ids[seen]]]), cache)
        assert logits.shape == (1, width)
        assert not logits.requires_grad
        assert_same(logits[0, : llm.vocab_size], expected[seen])


def test_prefill_computes_one_position_s_logits_and_decode_reads_one_token(llm):
    width = llm.model.config.vocab_size
    with shapes_seen(llm) as (read, computed):
        _, cache = prefill(llm.model, torch.tensor([[1] * 40]))
        decode(llm.model, torch.tensor([[2]]), cache)
    assert read == [(1, 40), (1, 1)]
    assert computed == [(1, 1, width), (1, 1, width)]


@pytest.mark.parametrize("runner_class", [TransformersRunner, UncachedRunner])
def test_both_runners_give_the_whole_pass_s_logits_cut_to_known_ids(llm, runner_class):
    runner = runner_class(llm)
    assert llm.model.config.vocab_size - llm.vocab_size == HEAD_IDS_UNKNOWN
    for seq in sequences(llm):
        (logits,) = runner.prefill([seq])
        for token in (11, 222, 33):
            assert logits.shape == (1, llm.vocab_size)
            assert_same(logits[0], all_logits(llm, seq.prompt_ids + seq.token_ids)[-1])
            seq.token_ids.append(token)
            logits = runner.decode([seq])
        runner.release(seq)


@pytest.mark.parametrize("runner_class", [TransformersRunner, UncachedRunner])
def test_decode_answers_row_by_row_in_order(llm, runner_class):
    runner, rows = runner_class(llm), sequences(llm)
    for seq, token in zip(rows, (3, 1, 2), strict=True):
        runner.prefill([seq])
        seq.token_ids.append(token)
    for order in ([0, 1, 2], [2, 0], [1]):
        logits = runner.decode([rows[i] for i in order])
        assert logits.shape == (len(order), llm.vocab_size)
        for row, i in zip(logits, order, strict=True):
            assert_same(row, all_logits(llm, rows[i].prompt_ids + rows[i].token_ids)[-1])
            rows[i].token_ids.append(40 + i)


@pytest.mark.parametrize(
    ("runner_class", "read"),
    [
        (TransformersRunner, [(1, 5), (1, 1), (1, 1)]),
        (UncachedRunner, [(1, 5), (1, 6), (1, 7)]),
    ],
)
def test_what_each_runner_reads(llm, runner_class, read):
    runner, (seq, *_) = runner_class(llm), sequences(llm)
    with shapes_seen(llm) as (seen, computed):
        runner.prefill([seq])
        for token in (4, 5):
            seq.token_ids.append(token)
            runner.decode([seq])
    assert seen == read
    assert {shape[:2] for shape in computed} == {(1, 1)}


def test_the_cache_is_the_sequence_s_own_and_goes_when_released(llm):
    runner, (one, other, _) = TransformersRunner(llm), sequences(llm)
    assert one.cache is None
    runner.prefill([one])
    runner.prefill([other])
    assert one.cache is not other.cache
    assert (one.cache.get_seq_length(), other.cache.get_seq_length()) == (5, 1)
    runner.release(one)
    runner.release(one)
    assert one.cache is None
    assert other.cache.get_seq_length() == 1


def test_the_naive_runner_keeps_nothing(llm):
    runner, (seq, *_) = UncachedRunner(llm), sequences(llm)
    runner.prefill([seq])
    assert seq.cache is None
    assert not seq.cache_used
    runner.release(seq)


def test_anyone_s_prefill_and_decode_can_run(llm):
    calls = []

    def my_prefill(model, input_ids):
        calls.append(("prefill", input_ids.tolist()))
        return torch.arange(300.0)[None], "my cache"

    def my_decode(model, token, cache):
        calls.append(("decode", token.tolist(), cache))
        return torch.arange(300.0)[None] + 1, "my next cache"

    runner, seq = TransformersRunner(llm, my_prefill, my_decode), sequences(llm)[0]
    assert runner.prefill([seq])[0].tolist() == [list(range(llm.vocab_size))]
    assert (seq.cache, seq.cache_used) == ("my cache", True)
    seq.token_ids += [8, 9]
    assert runner.decode([seq]).tolist() == [list(range(1, llm.vocab_size + 1))]
    assert seq.cache == "my next cache"
    assert calls == [("prefill", [PROMPTS[0]]), ("decode", [[9]], "my cache")]


@pytest.mark.parametrize("runner_class", [TransformersRunner, UncachedRunner])
def test_a_step_leaves_no_mode_behind(llm, runner_class):
    runner, seq = runner_class(llm), sequences(llm)[0]
    assert not runner.prefill([seq])[0].requires_grad
    seq.token_ids.append(3)
    assert not runner.decode([seq]).requires_grad
    assert not torch.is_inference_mode_enabled()
    assert torch.is_grad_enabled()
