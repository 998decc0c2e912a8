"""A request on its way: what ends it, what its text is, what it counts and what it owns."""

import dataclasses
import random

import numpy as np
import pytest
import torch
from tiny import CONTEXT_LENGTH, tiny_llama

from tutorial_server.detokenize import StreamDecoder
from tutorial_server.errors import TooLong
from tutorial_server.sequence import SamplingParams, Sequence

PROMPT = [1, 2, 3]


def sequence(**params):
    return Sequence(tiny_llama(), PROMPT, SamplingParams(**params))


def favour(token_id):
    """Logits `[1, V]` of which greedy takes this one."""
    logits = torch.zeros(1, tiny_llama().vocab_size)
    logits[0, token_id] = 9.0
    return logits


def ids_of(text):
    return tiny_llama().tokenizer.encode(text, add_special_tokens=False)


def feed(seq, ids):
    """Let a sequence accept these ids while it lasts; the pieces it gave."""
    pieces = []
    for id_ in ids:
        if seq.finish_reason:
            break
        pieces.append(seq.accept(favour(id_)))
    return pieces


@pytest.mark.parametrize("stop_id", sorted(tiny_llama().stop_ids))
def test_every_end_of_turn_ends_it_and_is_part_of_nothing(stop_id):
    seq = sequence()
    ids = ids_of("hello 🎉")
    pieces = feed(seq, [*ids, stop_id, *ids])
    done = seq.completion()
    assert done.text == "".join(pieces) == "hello 🎉"
    assert done.token_ids == ids
    assert done.finish_reason == "stop"


@pytest.mark.parametrize("stop_id", sorted(tiny_llama().stop_ids))
def test_an_end_of_turn_at_once_is_an_empty_answer_with_times(stop_id):
    seq = sequence(max_new_tokens=1)
    assert seq.accept(favour(stop_id)) == ""
    done = seq.completion()
    assert (done.text, done.token_ids, done.finish_reason) == ("", [], "stop")
    assert 0 <= done.ttft_ms == done.latency_ms < 60_000


def test_the_limit_ends_it_with_what_was_held_back():
    ids = ids_of("hi 🎉")
    seq = sequence(max_new_tokens=len(ids) - 1)
    pieces = feed(seq, ids)
    assert seq.finish_reason == "length"
    assert seq.token_ids == ids[:-1]
    assert "".join(pieces) == seq.completion().text == "hi \ufffd"


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_the_limit_counts_tokens(limit):
    seq = sequence(max_new_tokens=limit)
    pieces = feed(seq, ids_of("h" * 20))
    assert len(pieces) == len(seq.token_ids) == limit
    assert seq.completion().text == "h" * limit


def test_an_end_of_turn_after_the_limit_s_last_token_is_never_asked_for():
    seq = sequence(max_new_tokens=2)
    feed(seq, [*ids_of("ab"), *tiny_llama().stop_ids])
    assert (seq.finish_reason, seq.completion().text) == ("length", "ab")


@pytest.mark.parametrize(
    ("stop", "text", "reason"),
    [
        (("lo",), "hel", "stop"),
        (("o w", "zzz"), "hell", "stop"),
        (("d",), "hello worl", "stop"),  # with the limit's last token
        (("h",), "", "stop"),
        (("world!",), "hello world", "length"),  # begun only: it comes out at the end
        ((), "hello world", "length"),
    ],
)
def test_stop_strings_cut_the_text(stop, text, reason):
    ids = ids_of("hello world")
    seq = sequence(max_new_tokens=len(ids), stop=stop)
    pieces = feed(seq, ids)
    done = seq.completion()
    assert (done.text, done.finish_reason) == (text, reason)
    assert "".join(pieces) == text
    assert done.token_ids == ids[: len(pieces)]


def test_a_stop_string_begun_comes_out_when_the_turn_ends():
    seq = sequence(stop=("lot",))
    pieces = feed(seq, [*ids_of("hel"), *ids_of("lo"), min(tiny_llama().stop_ids)])
    assert seq.completion().text == "".join(pieces) == "hello"
    assert seq.finish_reason == "stop"


def test_a_stop_string_that_the_last_flush_completes_is_cut_too():
    byte = tiny_llama().tokenizer.convert_tokens_to_ids("ð")  # the first byte of an emoji
    for end in ([], [min(tiny_llama().stop_ids)]):
        seq = sequence(max_new_tokens=2 + len(end), stop=("\ufffd",))
        feed(seq, [*ids_of("h"), byte, *end])
        assert (seq.completion().text, seq.finish_reason) == ("h", "stop")


@pytest.mark.parametrize("limit", [0, -1, -5])
def test_an_answer_has_at_least_one_token(limit):
    with pytest.raises(ValueError, match=f"max_new_tokens is {limit}; ask for at least 1"):
        SamplingParams(max_new_tokens=limit)


def test_params_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SamplingParams().seed = 1  # type: ignore[misc]


def test_the_context_may_be_filled_and_not_passed():
    llm = tiny_llama()
    fits = Sequence(llm, [1] * (CONTEXT_LENGTH - 5), SamplingParams(5))
    assert len(fits.prompt_ids) + fits.params.max_new_tokens == llm.context_length
    for prompt, limit in [(CONTEXT_LENGTH - 5, 6), (CONTEXT_LENGTH, 1), (1, 10**9)]:
        with pytest.raises(TooLong, match=f"prompt's {prompt} tokens.*{limit}.*{CONTEXT_LENGTH}"):
            Sequence(llm, [1] * prompt, SamplingParams(limit))


def test_there_is_nothing_to_sum_up_before_the_end():
    seq = sequence()
    feed(seq, ids_of("hi"))
    with pytest.raises(ValueError, match="not finished"):
        seq.completion()


def test_times_are_milliseconds_since_arrival():
    seq = sequence(max_new_tokens=3)
    seq.arrived, seq.started = 100.0, 100.25
    feed(seq, ids_of("abc"))
    assert seq.token_times == sorted(seq.token_times)
    assert len(seq.token_times) == 3
    seq.token_times = [100.5, 100.75, 102.0]
    done = seq.completion()
    assert (done.queue_ms, done.ttft_ms, done.latency_ms) == (250.0, 500.0, 2000.0)
    assert done.input_tokens == len(PROMPT)


def test_nothing_is_shared_with_what_came_in():
    prompt = [1, 2, 3]
    seq = Sequence(tiny_llama(), prompt, SamplingParams(max_new_tokens=1))
    prompt.append(4)
    assert seq.prompt_ids == [1, 2, 3]
    feed(seq, ids_of("a"))
    seq.completion().token_ids.append(99)
    assert seq.token_ids == ids_of("a")


def drawn(seed, beside=None):
    """Twenty tokens drawn from a flat distribution, with another sequence taking turns."""
    flat = torch.zeros(1, 250)
    seq = sequence(max_new_tokens=20, temperature=1.0, seed=seed)
    while seq.finish_reason is None:
        seq.accept(flat)
        if beside is not None:
            beside.accept(flat)
            torch.rand(1)
    return seq.token_ids


def test_a_seed_means_the_same_whatever_runs_beside():
    alone = drawn(5)
    assert drawn(5, sequence(max_new_tokens=99, temperature=1.0, seed=5)) == alone
    assert drawn(5, sequence(max_new_tokens=99, temperature=1.0)) == alone
    assert len({tuple(drawn(seed)) for seed in (5, 6, 0, 2**63 - 1)}) == 4


def test_without_a_seed_answers_differ_and_no_global_state_moves():
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    assert len({tuple(drawn(None)) for _ in range(5)}) == 5
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states[1:]


def test_the_steps_can_be_anyone_s():
    asked = []

    def last(logits, temperature, top_k, top_p, generator):
        asked.append((temperature, top_k, top_p, type(generator)))
        return torch.tensor([[logits.shape[1] - 1]])

    llm, token = tiny_llama(), ids_of("q")[0]
    decoder = StreamDecoder(llm.tokenizer, new_text=lambda *_, **__: "?")
    params = SamplingParams(max_new_tokens=2, temperature=0.5, top_k=3, top_p=0.9)
    seq = Sequence(llm, PROMPT, params, select=last, decoder=decoder)
    seq.accept(torch.zeros(1, token + 1))
    seq.accept(torch.zeros(1, token + 1))
    assert asked == [(0.5, 3, 0.9, torch.Generator)] * 2
    assert seq.token_ids == [token, token]
    assert seq.completion().text.startswith("??")
