"""Which runner serves a model: the one for many rows where it can, and the log says why not."""

import logging
from typing import Any

import pytest
import torch
from opened import variant
from tiny import CONTEXT_LENGTH, tiny_llama, tiny_qwen3
from transformers import GPT2Config, GPT2LMHeadModel

from tutorial_server import runner as runner_module
from tutorial_server.config import Settings
from tutorial_server.decoding import generate_cached, new_sequence, run
from tutorial_server.models import LLM
from tutorial_server.runner import TransformersRunner
from tutorial_server.runners import choose_runner
from tutorial_server.sequence import SamplingParams
from tutorial_server.slot_runner import SlotRunner
from tutorial_server.steps import Steps


def my_prefill(model: Any, input_ids: torch.Tensor) -> tuple[torch.Tensor, Any]:
    return runner_module.prefill(model, input_ids)


def my_decode(model: Any, token: torch.Tensor, cache: Any) -> tuple[torch.Tensor, Any]:
    return runner_module.decode(model, token, cache)


def answer(runner: Any, prompt: str = "hello", tokens: int = 12) -> list[int]:
    sequence = new_sequence(runner.llm, prompt, SamplingParams(tokens))
    for _ in run(runner, sequence):
        pass
    return sequence.token_ids


@pytest.mark.parametrize("make", [tiny_llama, tiny_qwen3])
def test_the_family_gets_many_rows(make: Any) -> None:
    settings = Settings(max_running=3, kv_cache_gb=0.01)
    chosen = choose_runner(make(), settings, Steps())
    assert isinstance(chosen, SlotRunner)
    assert chosen.rows == 3
    assert chosen.llm.context_length == CONTEXT_LENGTH
    assert answer(chosen) == generate_cached(make(), "hello", 12).token_ids
    assert chosen.cache.free == 3


def test_the_budget_is_the_settings_and_in_gigabytes() -> None:
    per_token = 2 * 2 * 2 * 16 * 4
    chosen = choose_runner(tiny_llama(), Settings(kv_cache_gb=per_token * 900 / 1e9), Steps())
    assert isinstance(chosen, SlotRunner)
    assert chosen.rows * chosen.cache.length <= 900


@pytest.mark.parametrize("steps", [Steps(prefill=my_prefill), Steps(decode=my_decode)])
def test_a_learner_s_prefill_or_decode_runs_one_row(
    steps: Steps, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "tutorial_server"):
        chosen = choose_runner(tiny_llama(), Settings(), steps)
    assert isinstance(chosen, TransformersRunner)
    assert chosen.rows == 1
    assert "one answer at a time: prefill or decode is not the package's own" in caplog.messages
    assert answer(chosen) == generate_cached(tiny_llama(), "hello", 12).token_ids


def test_other_steps_of_a_learner_s_keep_the_many_rows() -> None:
    steps = Steps(render_chat=lambda messages, add_generation_prompt=True: "a")
    assert isinstance(choose_runner(tiny_llama(), Settings(kv_cache_gb=0.01), steps), SlotRunner)


def test_another_family_runs_one_row_and_the_log_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=300, eos_token_id=0)
    other = LLM.of(tiny_llama().tokenizer, GPT2LMHeadModel(config), "other")
    chosen = choose_runner(other, Settings(), Steps())
    assert isinstance(chosen, TransformersRunner)
    (record,) = [r for r in caplog.records if r.name == "tutorial_server"]
    assert record.getMessage() == (
        "one answer at a time, through transformers' own forward: "
        "its type is gpt2, not llama or qwen3"
    )
    assert record.levelno == logging.WARNING
    assert len(answer(chosen, tokens=3)) <= 3


def test_a_window_runs_one_row_and_the_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    llm = variant("qwen3", use_sliding_window=True, sliding_window=8, layer_types=None)
    llm.model.config.layer_types[1] = "sliding_attention"
    assert isinstance(choose_runner(llm, Settings(), Steps()), TransformersRunner)
    assert "some of its layers attend to a window only" in caplog.text
