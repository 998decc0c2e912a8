"""The opened model against transformers' own forward, block for block and whole."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from opened import assert_close, read, row, slot_runner, some_ids, theirs, variant
from tiny import tiny_llama, tiny_qwen3
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, Qwen2Config, Qwen2ForCausalLM

from tutorial_server import layers
from tutorial_server import linear as linear_module
from tutorial_server.linear import PackedLinear, PlainLinear
from tutorial_server.models import LLM
from tutorial_server.slot_runner import SlotPlan, SlotRunner
from tutorial_server.transformer import Transformer, why_not

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}
YARN["original_max_position_embeddings"] = 128
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "qwen3": ("qwen3", {}),
    "one key for all": ("llama", {"num_key_value_heads": 1}),
    "a key for each": ("qwen3", {"num_key_value_heads": 4}),
    "nine queries, three keys": (
        "llama",
        {"hidden_size": 54, "num_attention_heads": 9, "num_key_value_heads": 3},
    ),
    "hidden is heads × size": ("llama", {"hidden_size": 64}),
    "no head_dim": ("llama", {"hidden_size": 64, "head_dim": None}),
    "bias": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "qwen3 with bias": ("qwen3", {"attention_bias": True}),
    "tied": ("llama", {"tie_word_embeddings": True}),
    "tied qwen3": ("qwen3", {"tie_word_embeddings": True}),
    "linear": (
        "llama",
        {"rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 1e4}},
    ),
    "llama3": ("llama", {"rope_parameters": LLAMA3}),
    "yarn": ("qwen3", {"rope_parameters": YARN}),
    "theta": ("qwen3", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
    "eps": ("llama", {"rms_norm_eps": 0.1}),
    "one layer": ("llama", {"num_hidden_layers": 1}),
}


@pytest.fixture(params=["packed", "plain"])
def layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "plain":
        monkeypatch.setattr(linear_module, "can_pack", lambda device, dtype: False)
    return request.param


def all_logits(runner: SlotRunner, ids: list[int], prompt: int, limit: int | None) -> torch.Tensor:
    """Read `prompt` ids and then write the others, as if each had been chosen: `[T, V]`."""
    sequence = row(runner.llm, ids[:prompt])
    found = [read(runner, sequence, limit)]
    for id_ in ids[prompt:]:
        sequence.token_ids.append(id_)
        found.append(runner.decode([sequence]))
    runner.release(sequence)
    return torch.cat(found)


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_theirs(name: str, layout: str) -> None:
    kind, changes = MODELS[name]
    llm = variant(kind, **changes)
    assert why_not(llm) is None
    ids = some_ids(llm, 40, seed=3)
    wanted = theirs(llm, ids)
    runner = slot_runner(llm)
    for prompt, limit in ((37, None), (38, 7), (32, 32), (1, None)):
        found = all_logits(runner, ids, prompt, limit)
        assert found.shape == (40 - prompt + 1, llm.vocab_size)
        assert_close(found, wanted[prompt - 1 :])
    made = PackedLinear if layout == "packed" else PlainLinear
    if layout == "plain" or linear_module.can_pack(llm.device, llm.dtype):
        assert isinstance(runner.model.layers[0].qkv, made)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_half_precision_agrees_loosely(kind: str, dtype: torch.dtype, layout: str) -> None:
    llm = variant(kind, dtype=dtype, initializer_range=0.05)
    ids = some_ids(llm, 40)
    runner = slot_runner(llm)
    assert runner.cache.keys.dtype == dtype
    for prompt, limit in ((30, None), (30, 7)):
        found = all_logits(runner, ids, prompt, limit)
        assert found.dtype == dtype
        assert_close(found, theirs(llm, ids)[prompt - 1 :], atol=0.05)


def test_the_small_model_s_logits_are_theirs(small: LLM) -> None:
    ids = small.tokenizer.encode("The sea is blue because water takes the red out of light. " * 6)
    wanted = theirs(small, ids)
    runner = slot_runner(small, slots=2)
    for prompt, limit in ((len(ids) - 2, None), (len(ids) - 2, 33)):
        assert_close(all_logits(runner, ids, prompt, limit), wanted[prompt - 1 :])


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_anyone_s_rotate_and_attend_run_the_model(kind: str) -> None:
    llm = variant(kind)
    calls: list[str] = []

    def rotate(x: Any, positions: Any, theta: float) -> Any:
        calls.append("rotate")
        return layers.rotate(x, positions, theta)

    def attend(q: Any, keys: Any, values: Any, lengths: Any) -> Any:
        calls.append("attend")
        return layers.attend(q, keys, values, lengths)

    model = Transformer(llm, rotate=rotate, attend=attend)
    runner = SlotRunner(llm, SlotPlan(2, 64, 1), model)
    ids = some_ids(llm, 12)
    assert_close(all_logits(runner, ids, 10, None), theirs(llm, ids)[9:])
    assert calls == ["rotate"] * 2 + ["rotate", "attend"] * 4


# What is not opened.


def looks_like(**changes: Any) -> LLM:
    """A tiny Llama whose config says something else; its weights stay."""
    return variant("llama", **changes)


def test_the_family_is_opened() -> None:
    assert why_not(tiny_llama()) is None
    assert why_not(tiny_qwen3()) is None


@pytest.mark.parametrize(
    ("model_class", "config"),
    [
        (GPT2LMHeadModel, GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=300)),
        (
            Qwen2ForCausalLM,
            Qwen2Config(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=300),
        ),
    ],
    ids=["gpt2", "qwen2"],
)
def test_another_family_is_not(model_class: Any, config: Any) -> None:
    llm = LLM.of(tiny_llama().tokenizer, model_class(config), "other")
    assert why_not(llm) == f"its type is {config.model_type}, not llama or qwen3"


def test_another_activation_is_not() -> None:
    assert why_not(looks_like(hidden_act="gelu")) == "its MLP opens with gelu, not silu"


def test_a_sliding_window_is_not() -> None:
    llm = variant(
        "qwen3", use_sliding_window=True, sliding_window=8, max_window_layers=1, layer_types=None
    )
    assert "sliding_attention" in llm.model.config.layer_types
    assert why_not(llm) == "some of its layers attend to a window only"


def test_positions_that_change_with_the_length_are_not() -> None:
    dynamic = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    reason = why_not(looks_like(rope_parameters=dynamic))
    assert reason == "its rotary positions are of the type dynamic"


def with_projection(module: nn.Module) -> LLM:
    llm = variant("llama")
    llm.model.model.layers[1].mlp.down_proj = module
    return llm


class Adapted(nn.Linear):
    """As an adapter's: it has a weight, and adds something to its product."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + 1


class Packed(nn.Module):
    """As GPTQ's: integers in a buffer, and no weight at all."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("qweight", torch.zeros(12, 48, dtype=torch.int32))


def float8() -> nn.Linear:
    layer = nn.Linear(96, 48, bias=False)
    layer.weight = nn.Parameter(layer.weight.to(torch.float8_e4m3fn), requires_grad=False)
    return layer


def int8() -> nn.Linear:
    layer = nn.Linear(96, 48, bias=False)
    layer.weight = nn.Parameter(torch.zeros(48, 96, dtype=torch.int8), requires_grad=False)
    return layer


@pytest.mark.parametrize(
    "module",
    [Adapted(96, 48, bias=False), Packed(), float8(), int8()],
    ids=["an adapter", "packed integers", "float8", "int8"],
)
def test_weights_that_are_no_plain_matrices_are_not(module: nn.Module) -> None:
    assert (
        why_not(with_projection(module))
        == "its weights are quantised, adapted, or spread over devices"
    )


def test_weights_elsewhere_are_not() -> None:
    spread = with_projection(nn.Linear(96, 48, bias=False, device="meta"))
    assert why_not(spread) == "its weights are quantised, adapted, or spread over devices"
    nowhere = replace(tiny_llama(), model=variant("llama").model.to("meta"))
    assert why_not(nowhere) == "its weights are quantised, adapted, or spread over devices"
    meta = replace(nowhere, device=torch.device("meta"))
    assert why_not(meta) == "its weights are quantised, adapted, or spread over devices"


def test_a_config_without_rotary_positions_is_not() -> None:
    config = SimpleNamespace(model_type="mamba")
    llm = replace(tiny_llama(), model=SimpleNamespace(config=config))  # type: ignore[arg-type]
    assert why_not(llm) == "its type is mamba, not llama or qwen3"
