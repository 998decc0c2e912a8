"""What a transformer layer does with numbers: normalise, rotate, attend, gate."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention, silu


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Bring each vector to a common length, so that no layer's numbers run away.

    `x [..., D]`, `weight [D]` → `[..., D]`: divided by the root of the mean square (plus
    `eps`), in fp32 whatever the model's format, then scaled. Source: arXiv:1910.07467.
    """
    x32 = x.float()
    scale = torch.rsqrt(x32.square().mean(-1, keepdim=True) + eps)  # [..., 1]
    return weight * (x32 * scale).to(x.dtype)


def rotate(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Write positions into queries or keys: their product then depends on the distance.

    `x [N, H, D]`, `positions [N]` → `[N, H, D]`; `theta` sets the slowest turn.
    Source: arXiv:2104.09864, with the pairs laid out as in Llama's published weights.
    """
    return Angles.at(positions, frequencies(x.shape[-1], theta, x.device)).turn(x)


def frequencies(head_dim: int, theta: float, device: torch.device | None = None) -> Tensor:
    """How far each pair of values turns from one position to the next, in radians: `[D / 2]`."""
    exponents = torch.arange(0, head_dim, 2, device=device).float() / head_dim
    return 1.0 / theta**exponents


@dataclass(frozen=True)
class Angles:
    """How far the heads at some positions are turned: made once a pass, for all its layers.

    `cos, sin [N, 1, D]`; the sine of a pair's first value is negative.
    """

    cos: Tensor
    sin: Tensor

    @classmethod
    def at(cls, positions: Tensor, frequencies: Tensor, scale: float = 1.0) -> "Angles":
        """`positions [N]`, `frequencies [D / 2]` in radians a position."""
        turns = positions.float()[:, None] * frequencies  # [N, D / 2]
        cos, sin = turns.cos() * scale, turns.sin() * scale
        return cls(torch.cat((cos, cos), -1)[:, None], torch.cat((-sin, sin), -1)[:, None])

    def turn(self, x: Tensor) -> Tensor:
        """Turn `x [N, H, D]`, where value i makes a pair with value i + D / 2."""
        swapped = x.roll(x.shape[-1] // 2, -1)  # [N, H, D]
        return (x * self.cos + swapped * self.sin).to(x.dtype)


def attend(q: Tensor, keys: Tensor, values: Tensor, lengths: Tensor) -> Tensor:
    """Attention for one new token a row, over caches of different age in one product.

    `q [B, H, D]`, `keys, values [B, K, S, D]`, `lengths [B]` → `[B, H, D]`. A row sees its
    first `lengths` positions; H / K queries share each key. What lies behind may be stale,
    but must be finite in `values`. Source: arXiv:1706.03762, arXiv:2305.13245.
    """
    B, H, D = q.shape
    K, S = keys.shape[1:3]
    q = q.view(B, K, H // K, D)
    scores = q @ keys.transpose(-1, -2) * D**-0.5  # [B, K, H / K, S]
    unseen = torch.arange(S, device=q.device) >= lengths[:, None]  # [B, S]
    scores = scores.masked_fill(unseen[:, None, None], float("-inf"))
    weights = scores.softmax(-1, dtype=torch.float32).to(q.dtype)  # [B, K, H / K, S]
    return (weights @ values).view(B, H, D)


def attend_rows(q: Tensor, keys: Tensor, values: Tensor, seen: Tensor) -> Tensor:
    """Do as `attend` does in one kernel, with the mask `seen [B, 1, 1, S]` made once a pass.

    The queries that share a key stand where the kernel expects tokens.
    """
    B, H, D = q.shape
    K = keys.shape[1]
    out = scaled_dot_product_attention(q.view(B, K, H // K, D), keys, values, attn_mask=seen)
    return out.reshape(B, H, D)


def attend_prompt(q: Tensor, keys: Tensor, values: Tensor, seen: Tensor | None) -> Tensor:
    """Attention for many new tokens of one row: each sees itself and what came before.

    `q [T, H, D]`, `keys, values [K, S, D]`, of whose positions the last T are q's own
    → `[T, H, D]`. `seen [T, S]` is None where nothing came before them (T = S).
    """
    out = scaled_dot_product_attention(
        q.transpose(0, 1)[None],  # [1, H, T, D]
        keys[None],
        values[None],
        attn_mask=seen,
        is_causal=seen is None,
        enable_gqa=True,
    )
    return out[0].transpose(0, 1)  # [T, H, D]


def gate(x: Tensor) -> Tensor:
    """Let one half of an MLP's values open or close the other: `[N, 2 M]` → `[N, M]`."""
    opening, passing = x.chunk(2, dim=-1)  # [N, M] each
    return silu(opening) * passing
