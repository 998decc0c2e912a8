"""The bytes of a cache are what a real one takes; the bandwidth is what a clock says."""

import pytest
import torch
from tiny import tiny
from transformers import GPT2Config, LlamaConfig, Qwen3Config

from tutorial_server import memory
from tutorial_server.memory import kv_cache_bytes, measured_bandwidth
from tutorial_server.runner import prefill

QWEN3_4B = Qwen3Config(
    hidden_size=2560,
    num_hidden_layers=36,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
)


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
@pytest.mark.parametrize("tokens", [1, 7])
def test_cache_bytes_are_those_of_a_real_cache(kind: str, tokens: int) -> None:
    llm = tiny(kind)
    _, cache = prefill(llm.model, torch.arange(tokens)[None])
    tensors = [t for layer in cache.layers for t in (layer.keys, layer.values)]
    held = sum(t.numel() * t.element_size() for t in tensors)
    assert kv_cache_bytes(llm.model.config, tokens, 4) == held


def test_cache_bytes_of_models_one_can_look_up() -> None:
    assert kv_cache_bytes(QWEN3_4B, 1, 2) == 36 * 8 * 128 * 2 * 2 == 147_456
    assert kv_cache_bytes(QWEN3_4B, 0, 2) == 0


def test_cache_bytes_where_the_config_is_silent() -> None:
    llama = LlamaConfig(hidden_size=64, num_hidden_layers=3, num_attention_heads=4)
    assert kv_cache_bytes(llama, 5, 4) == 2 * 3 * 4 * 16 * 5 * 4
    gpt2 = GPT2Config(n_embd=64, n_layer=3, n_head=4)
    assert kv_cache_bytes(gpt2, 5, 4) == 2 * 3 * 4 * 16 * 5 * 4


def test_bandwidth_is_bytes_over_the_best_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, times = [], iter([9.0, 0.5, 0.25, 1.0])

    def seconds(matrix: torch.Tensor, vector: torch.Tensor) -> float:
        seen.append(matrix.numel() * matrix.element_size())
        assert torch.mv(matrix, vector).shape == (matrix.shape[0],)
        return next(times)

    monkeypatch.setattr(memory, "_seconds", seconds)
    assert measured_bandwidth(nbytes=2**20, rounds=3) == 2**20 / 0.25
    assert seen == [2**20] * 4


def test_bandwidth_is_a_positive_number() -> None:
    assert 0 < measured_bandwidth("cpu", nbytes=2**20, rounds=1) < float("inf")
