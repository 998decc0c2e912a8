"""What a layer does with numbers, against transformers' own and against plain sums."""

import math

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import (
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
)
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from tutorial_server.layers import (
    Angles,
    attend,
    attend_prompt,
    attend_rows,
    frequencies,
    gate,
    rms_norm,
    rotate,
)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# Norm.


def test_rms_norm_by_hand() -> None:
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    root = math.sqrt((9 + 16) / 2)
    found = rms_norm(x, torch.tensor([1.0, 10.0]), 0.0 + 1e-12)
    torch.testing.assert_close(found, torch.tensor([[3 / root, 40 / root], [0.0, 0.0]]))


@pytest.mark.parametrize("norm", [LlamaRMSNorm, Qwen3RMSNorm])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rms_norm_is_theirs(norm: type, dtype: torch.dtype) -> None:
    module = norm(24, eps=1e-5).to(dtype)
    module.weight.data = normal(24, seed=1).to(dtype)
    x = normal(2, 5, 24).to(dtype)
    assert torch.equal(rms_norm(x, module.weight, 1e-5), module(x))


def test_rms_norm_squares_in_fp32() -> None:
    """300² alone is more than fp16 can hold."""
    x = torch.full((4,), 300.0, dtype=torch.float16)
    assert rms_norm(x, torch.ones(4, dtype=torch.float16), 1e-6).tolist() == [1.0] * 4


# Rotary positions.


def test_frequencies() -> None:
    assert frequencies(8, 10_000.0).tolist() == pytest.approx([1.0, 0.1, 0.01, 0.001])


def test_rotate_by_hand() -> None:
    """Value i makes a pair with value i + D / 2: a quarter turn takes (1, 0) to (0, 1)."""
    quarter = Angles.at(torch.tensor([1]), torch.tensor([math.pi / 2, math.pi]))
    found = quarter.turn(torch.tensor([[[1.0, 5.0, 0.0, 7.0]]]))
    torch.testing.assert_close(found, torch.tensor([[[0.0, -5.0, 1.0, -7.0]]]))


def test_rotate_is_theirs() -> None:
    q, k = normal(6, 4, 16), normal(6, 2, 16, seed=1)
    positions = torch.tensor([0, 3, 1, 100, 7, 511])
    config = LlamaConfig(hidden_size=64, num_attention_heads=4, head_dim=16, rope_theta=5000.0)
    cos, sin = LlamaRotaryEmbedding(config)(q[None], positions[None])
    theirs = apply_rotary_pos_emb(q.transpose(0, 1)[None], k.transpose(0, 1)[None], cos, sin)
    for ours, wanted in zip((q, k), theirs, strict=True):
        found = rotate(ours, positions, config.rope_parameters["rope_theta"])
        torch.testing.assert_close(found, wanted[0].transpose(0, 1), atol=1e-5, rtol=1e-5)


def test_rotate_keeps_position_0_and_lengths_and_tells_distances() -> None:
    x = normal(1, 1, 16)
    assert torch.equal(rotate(x, torch.tensor([0]), 1e4), x)
    many = rotate(x.expand(50, 1, 16), torch.arange(50), 1e4)
    torch.testing.assert_close(many.norm(dim=-1), x.norm(dim=-1).expand(50, 1))
    products = many[:, 0] @ many[:, 0].T  # [50, 50]
    for distance in (1, 5, 20):
        along = products.diagonal(distance)
        torch.testing.assert_close(along, along[:1].expand_as(along), atol=1e-4, rtol=1e-4)


def test_rotate_gives_the_format_it_gets() -> None:
    x = normal(3, 2, 8).bfloat16()
    assert rotate(x, torch.arange(3), 1e4).dtype == torch.bfloat16


# Attention.


def one_by_one(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, lengths: list[int]):
    """A loop over rows and heads, `[B, H, D]`."""
    B, H, D = q.shape
    out = torch.zeros_like(q)
    for b in range(B):
        for h in range(H):
            k = keys[b, h // (H // keys.shape[1]), : lengths[b]]
            v = values[b, h // (H // keys.shape[1]), : lengths[b]]
            out[b, h] = (q[b, h] @ k.T / math.sqrt(D)).softmax(-1) @ v
    return out


@pytest.mark.parametrize(("queries", "shared"), [(4, 2), (6, 2), (3, 3), (4, 1), (9, 3)])
def test_attend_is_a_loop_over_rows_and_heads(queries: int, shared: int) -> None:
    B, S, D, H, K = 3, 11, 8, queries, shared
    q, keys, values = normal(B, H, D), normal(B, K, S, D, seed=1), normal(B, K, S, D, seed=2)
    lengths = [1, 11, 6]
    wanted = one_by_one(q, keys, values, lengths)
    found = attend(q, keys, values, torch.tensor(lengths))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    seen = torch.arange(S) < torch.tensor(lengths)[:, None]
    rows = attend_rows(q, keys, values, seen[:, None, None])
    torch.testing.assert_close(rows, wanted, atol=1e-5, rtol=1e-5)


def test_attend_does_not_see_what_lies_behind() -> None:
    q, keys, values = normal(2, 4, 8), normal(2, 2, 9, 8, seed=1), normal(2, 2, 9, 8, seed=2)
    lengths = torch.tensor([4, 1])
    wanted = attend(q, keys, values, lengths)
    stale_keys, stale_values = keys.clone(), values.clone()
    stale_keys[0, :, 4:], stale_keys[1, :, 1:] = torch.nan, -torch.inf
    stale_values[0, :, 4:], stale_values[1, :, 1:] = 1e30, -1e30
    assert torch.equal(attend(q, stale_keys, stale_values, lengths), wanted)
    torch.testing.assert_close(wanted[1], values[1, :, 0].repeat_interleave(2, dim=0))


def test_attend_prompt_is_attend_token_by_token() -> None:
    T, H, K, D, before = 5, 6, 2, 8, 3
    q = normal(T, H, D)
    keys, values = normal(K, before + T, D, seed=1), normal(K, before + T, D, seed=2)
    lengths = list(range(before + 1, before + T + 1))
    wanted = one_by_one(q, keys.expand(T, -1, -1, -1), values.expand(T, -1, -1, -1), lengths)
    seen = torch.arange(before + T) < torch.tensor(lengths)[:, None]
    found = attend_prompt(q, keys, values, seen)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    first = attend_prompt(q, keys[:, :T], values[:, :T], None)
    wanted = one_by_one(
        q, keys.expand(T, -1, -1, -1), values.expand(T, -1, -1, -1), list(range(1, T + 1))
    )
    torch.testing.assert_close(first, wanted, atol=1e-5, rtol=1e-5)


def test_gate() -> None:
    found = gate(torch.tensor([[0.0, 2.0, 5.0, 3.0]]))
    torch.testing.assert_close(found, torch.tensor([[0.0, 3 * 2 / (1 + math.exp(-2))]]))
