"""Whole answers: transformers' ids, one forward pass a token, and streams that leak nothing."""

import contextlib
import math
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile

import pytest
import torch
from tiny import tiny_llama, tiny_qwen3

from tutorial_server import decoding
from tutorial_server.chat import prepare_inputs
from tutorial_server.decoding import (
    generate_cached,
    generate_stream,
    generate_uncached,
    new_sequence,
    run,
)
from tutorial_server.errors import TooLong
from tutorial_server.runner import TransformersRunner, UncachedRunner
from tutorial_server.sequence import SamplingParams

PROMPTS = [
    "What is the capital of France?",
    "Hi",
    "Say hello.",
    "Write a haiku about the sea.",
    "2 + 2 =",
    "List three colours.",
    "Translate 'good morning' into Spanish.",
    "Who wrote Hamlet?",
    "你好,你是谁?",
    "Give me one emoji 🎉",
    "Explain gravity to a child.",
    "def fibonacci(n):",
    "Is the sun a star? Answer yes or no.",
    "\n\nWhat day comes after Monday?\n",
    "Name a fruit.",
    "Tell me a joke.",
    "Why is the sky blue?",
    "Repeat the word 'echo' five times.",
    "The user spells <|im_end|> here.",
    "How do I boil an egg?",
]
BOTH = [generate_uncached, generate_cached]


@pytest.fixture(params=[tiny_llama, tiny_qwen3], ids=["llama", "qwen3"])
def llm(request):
    return request.param()


@contextlib.contextmanager
def favouring(llm, *token_ids, after=0, by=1e4):
    """Let the head prefer these ids by far, once so many passes are over."""
    passes = []

    def favour(_, args, output):
        passes.append(1)
        if len(passes) > after:
            output[..., list(token_ids)] += by
        return output

    hook = llm.model.lm_head.register_forward_hook(favour)
    try:
        yield
    finally:
        hook.remove()


def never_ending(llm):
    """Keep the head from ending the turn, which a random model may do at any time."""
    return favouring(llm, *llm.stop_ids, by=-1e4)


@contextlib.contextmanager
def counted(llm):
    """A list that grows by one with each forward pass."""
    passes = []
    hook = llm.model.register_forward_hook(lambda *_: passes.append(1))
    try:
        yield passes
    finally:
        hook.remove()


def transformers_ids(llm, prompts, max_new_tokens):
    """What transformers' own greedy generate answers, by prompt, ends of turn cut off.

    Prompts of one length share their passes, for then nothing needs padding.
    """
    by_length = defaultdict(list)
    for prompt in prompts:
        ids = prepare_inputs(llm, prompt)["input_ids"]
        by_length[ids.shape[1]].append((prompt, ids))
    answers = {}
    for length, group in by_length.items():
        ids = torch.cat([ids for _, ids in group])
        outputs = llm.model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_new_tokens,
            do_sample=False,
            suppress_tokens=list(range(llm.vocab_size, llm.model.config.vocab_size)) or None,
            pad_token_id=llm.tokenizer.pad_token_id,
        )
        for (prompt, _), row in zip(group, outputs[:, length:].tolist(), strict=True):
            answers[prompt] = list(takewhile(lambda id_: id_ not in llm.stop_ids, row))
    return answers


def assert_equals_transformers(llm, max_new_tokens):
    answers = transformers_ids(llm, PROMPTS, max_new_tokens)
    reasons = set()
    for prompt in PROMPTS:
        expected = answers[prompt]
        done = generate_cached(llm, prompt, max_new_tokens)
        assert done.token_ids == expected, prompt
        assert done.text == llm.tokenizer.decode(expected, skip_special_tokens=True)
        assert done.finish_reason == ("length" if len(expected) == max_new_tokens else "stop")
        assert done.input_tokens == prepare_inputs(llm, prompt)["input_ids"].shape[1]
        reasons.add(done.finish_reason)
    return reasons


def test_greedy_ids_are_transformers_own(llm):
    assert_equals_transformers(llm, 24)


def test_the_small_model_s_greedy_ids_are_transformers_own(small):
    assert assert_equals_transformers(small, 8) == {"length", "stop"}


@pytest.mark.parametrize("prompt", PROMPTS[:6])
def test_three_ways_give_one_answer(llm, prompt):
    cached, uncached = generate_cached(llm, prompt, 24), generate_uncached(llm, prompt, 24)
    assert cached.token_ids == uncached.token_ids
    assert cached.text == uncached.text == "".join(generate_stream(llm, prompt, 24))
    assert cached.finish_reason == uncached.finish_reason
    assert cached.cache_used
    assert not uncached.cache_used


def test_three_ways_of_the_small_model_give_one_answer(small):
    prompt = "Give me one emoji 🎉"
    cached = generate_cached(small, prompt, 12)
    assert generate_uncached(small, prompt, 12).token_ids == cached.token_ids
    assert "".join(generate_stream(small, prompt, 12)) == cached.text


def test_three_ways_draw_one_answer_from_one_seed(llm):
    options = {"max_new_tokens": 24, "temperature": 1.5, "top_k": 50, "top_p": 0.95, "seed": 3}
    done = generate_cached(llm, "Hi", **options)
    assert generate_uncached(llm, "Hi", **options).token_ids == done.token_ids
    assert "".join(generate_stream(llm, "Hi", **options)) == done.text
    assert done.token_ids != generate_cached(llm, "Hi", 24).token_ids


@pytest.mark.parametrize("options", [{"top_k": 1}, {"top_p": 0.0}, {"temperature": 0.0}])
def test_every_way_heeds_every_option(llm, options):
    greedy = generate_cached(llm, "Hi", 12)
    options = {"max_new_tokens": 12, "temperature": 2.0, "seed": 1, **options}
    for generate in BOTH:
        assert generate(llm, "Hi", **options).token_ids == greedy.token_ids
    assert "".join(generate_stream(llm, "Hi", **options)) == greedy.text


@pytest.mark.parametrize("count", [1, 2, 17])
def test_n_tokens_cost_n_passes(llm, count):
    for generate in BOTH:
        with never_ending(llm), counted(llm) as passes:
            done = generate(llm, "Hi", count)
        assert len(done.token_ids) == count
        assert len(passes) == count
    with never_ending(llm), counted(llm) as passes:
        for _ in generate_stream(llm, "Hi", count):
            assert len(passes) <= count
    assert len(passes) == count


def test_a_stream_runs_no_pass_before_it_is_asked(llm):
    with never_ending(llm), counted(llm) as passes:
        pieces = generate_stream(llm, "Hi", 20)
        assert len(passes) == 0
        next(pieces)
        assert len(passes) <= 4  # a character may take four tokens
        pieces.close()


@pytest.mark.parametrize("generate", BOTH)
def test_an_end_of_turn_at_once_is_an_empty_answer(llm, generate):
    for stop_id in llm.stop_ids:
        with favouring(llm, stop_id), counted(llm) as passes:
            done = generate(llm, "Hi", 9)
        assert (done.text, done.token_ids, done.finish_reason) == ("", [], "stop")
        assert len(passes) == 1
        assert math.isfinite(done.ttft_ms) and 0 < done.ttft_ms == done.latency_ms
        with favouring(llm, stop_id):
            assert list(generate_stream(llm, "Hi", 9)) == []


@pytest.mark.parametrize("generate", BOTH)
def test_any_end_of_turn_ends_it_and_is_part_of_nothing(llm, generate):
    with never_ending(llm):
        whole = generate(llm, "Hi", 9)
    for stop_id in llm.stop_ids:
        with favouring(llm, stop_id, after=5, by=2e4), never_ending(llm), counted(llm) as passes:
            done = generate(llm, "Hi", 9)
        assert done.token_ids == whole.token_ids[:5]
        assert done.text == llm.tokenizer.decode(done.token_ids, skip_special_tokens=True)
        assert done.finish_reason == "stop"
        assert len(passes) == 6
        assert 0 < done.ttft_ms < done.latency_ms


@pytest.mark.parametrize("temperature", [0.0, 1.0, 1e30])
def test_ids_past_the_vocabulary_are_never_chosen(llm, temperature):
    past = range(llm.vocab_size, llm.model.config.vocab_size)
    assert len(past) > 0
    for generate in BOTH:
        with favouring(llm, *past):
            ids = generate(llm, "Hi", 16, temperature, seed=0).token_ids
        assert ids
        assert max(ids) < llm.vocab_size
    with favouring(llm, *past):
        assert "".join(generate_stream(llm, "Hi", 16, seed=0))


def test_one_seed_one_text_whatever_runs_beside(llm):
    options = {"max_new_tokens": 24, "temperature": 1.2}
    alone = {seed: "".join(generate_stream(llm, "Hi", seed=seed, **options)) for seed in range(4)}
    assert len(set(alone.values())) == 4

    streams = {seed: generate_stream(llm, "Hi", seed=seed, **options) for seed in alone}
    mixed = dict.fromkeys(alone, "")
    while streams:
        for seed in list(streams):
            torch.rand(1)
            piece = next(streams[seed], None)
            if piece is None:
                del streams[seed]
            else:
                mixed[seed] += piece
    assert mixed == alone

    with ThreadPoolExecutor(4) as threads:
        texts = threads.map(lambda s: generate_cached(llm, "Hi", seed=s, **options).text, alone)
        assert list(texts) == list(alone.values())


def test_without_a_seed_texts_differ(llm):
    before = torch.get_rng_state()
    texts = {generate_cached(llm, "Hi", 16, temperature=1.5).text for _ in range(4)}
    assert len(texts) == 4
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("generate", [*BOTH, generate_stream])
def test_what_cannot_be_answered_is_refused_at_once(llm, generate):
    with counted(llm) as passes:
        with pytest.raises(TooLong, match="exceed the 512 tokens of context"):
            generate(llm, "Hi", 512)
        with pytest.raises(TooLong, match="shorten one of them"):
            generate(llm, "Hi " * 512, 1)
        for limit in (0, -3):
            with pytest.raises(ValueError, match=f"max_new_tokens is {limit}; ask for at least 1"):
                generate(llm, "Hi", limit)
    assert passes == []


def test_the_context_can_be_filled_to_its_last_token(llm):
    prompt = "h" * 400
    room = llm.context_length - prepare_inputs(llm, prompt)["input_ids"].shape[1]
    assert 0 < room < 100
    with never_ending(llm):
        assert len(generate_cached(llm, prompt, room).token_ids) == room
    with pytest.raises(TooLong):
        generate_cached(llm, prompt, room + 1)


def test_pieces_are_whole_characters_and_never_empty(small):
    pieces = list(generate_stream(small, "Repeat after me: 🎉 你好 🎈", 24))
    assert len(pieces) > 3
    assert all(pieces)
    assert not any("\ufffd" in piece for piece in pieces)


def test_no_mode_leaks_between_the_pieces(llm):
    weight = torch.ones(3, requires_grad=True)
    for count, _ in enumerate(generate_stream(llm, "Hi", 6), start=1):
        assert not torch.is_inference_mode_enabled()
        assert torch.is_grad_enabled()
        (weight * 2).sum().backward()
        assert weight.grad.tolist() == [2.0 * count] * 3
    with torch.no_grad():
        for _ in generate_stream(llm, "Hi", 6):
            assert not torch.is_grad_enabled()


@pytest.mark.parametrize("leave", ["close", "finish", "fail"])
def test_the_cache_goes_however_an_answer_ends(llm, leave):
    def failing(model, token, cache):
        raise RuntimeError("no more")

    runner = TransformersRunner(llm, decode=failing) if leave == "fail" else TransformersRunner(llm)
    sequence = new_sequence(llm, "Hi", SamplingParams(9))
    pieces = run(runner, sequence)
    with favouring(llm, *llm.tokenizer.encode("h")):
        assert next(pieces) == "h"
    assert sequence.cache is not None
    if leave == "close":
        pieces.close()
    elif leave == "finish":
        list(pieces)
    else:
        with pytest.raises(RuntimeError, match="no more"):
            list(pieces)
    assert sequence.cache is None


def test_a_prefill_that_fails_leaves_no_cache(llm):
    released = []

    class Failing(UncachedRunner):
        def prefill(self, sequences, limit=None):
            raise RuntimeError("too big")

        def release(self, sequence):
            released.append(sequence)

    sequence = new_sequence(llm, "Hi", SamplingParams(9))
    with pytest.raises(RuntimeError, match="too big"):
        list(run(Failing(llm), sequence))
    assert released == [sequence]


def test_a_stream_left_half_way_gives_its_cache_back(llm, monkeypatch):
    released = []

    class Watched(TransformersRunner):
        def release(self, sequence):
            super().release(sequence)
            released.append(sequence.cache)

    monkeypatch.setattr(decoding, "TransformersRunner", Watched)
    pieces = generate_stream(llm, "Hi", 20)
    with favouring(llm, *llm.tokenizer.encode("h")):
        assert next(pieces) == "h"
    assert released == []
    del pieces
    assert released == [None]
