"""assert_agree knows when ids must be equal, and when only logits can be compared."""

import dataclasses

import pytest
import torch
from tiny import tiny_llama

from tutorial_server import agreement
from tutorial_server.agreement import assert_agree
from tutorial_server.chat import prepare_inputs
from tutorial_server.decoding import generate_cached, generate_uncached

PROMPT = "hello there"


def answers(llm):
    return [f(llm, PROMPT, 12).token_ids for f in (generate_cached, generate_uncached)]


def prompt_ids(llm):
    return prepare_inputs(llm, PROMPT)["input_ids"][0].tolist()


def test_equal_ids_agree_in_float32():
    llm = tiny_llama()
    cached, uncached = answers(llm)
    assert len(cached) == 12
    assert_agree(llm, prompt_ids(llm), cached, uncached)


def test_one_other_id_does_not_agree_in_float32():
    llm = tiny_llama()
    cached, uncached = answers(llm)
    uncached[-1] += 1
    with pytest.raises(AssertionError, match="ids differ"):
        assert_agree(llm, prompt_ids(llm), cached, uncached)


@pytest.fixture
def half_llama():
    llm = tiny_llama()
    config = llm.model.config
    model = type(llm.model)(config).to(torch.bfloat16).eval()
    model.load_state_dict(llm.model.state_dict())
    return dataclasses.replace(llm, model=model, dtype=torch.bfloat16)


def test_half_precision_compares_logits_and_forgives_other_ids(half_llama):
    ids = generate_cached(half_llama, PROMPT, 12).token_ids
    assert_agree(half_llama, prompt_ids(half_llama), ids, [*ids[:-1], ids[-1] + 1])


def test_half_precision_notices_a_cache_that_forgets(half_llama, monkeypatch):
    ids = generate_cached(half_llama, PROMPT, 12).token_ids

    def forgetful(model, token, cache):
        logits, _ = agreement.prefill(model, token)
        return logits, cache

    monkeypatch.setattr(agreement, "decode", forgetful)
    with pytest.raises(AssertionError, match="logits differ"):
        assert_agree(half_llama, prompt_ids(half_llama), ids, ids)
