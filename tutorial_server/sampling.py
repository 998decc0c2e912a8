"""Logits → one token: temperature, top-k, top-p and the draw."""

import torch
from torch import Tensor

# Below this float32 has only subnormal numbers, which many devices flush to zero.
SMALLEST_TEMPERATURE = torch.finfo(torch.float32).tiny
LARGEST_TEMPERATURE = 1 / SMALLEST_TEMPERATURE  # beyond it −inf / temperature may be NaN


def apply_temperature(logits: Tensor, temperature: float) -> Tensor:
    """Sharpen (below 1) or flatten (above 1) the distribution; `temperature` is above 0.

    The maximum is taken off first: the softmax is the same, and nothing overflows
    however small the temperature. `[..., V]` → `[..., V]`.
    """
    below_top = logits - logits.max(dim=-1, keepdim=True).values
    return below_top / min(temperature, LARGEST_TEMPERATURE)


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Set all but the `k` highest logits to −inf, so that they are never drawn.

    Logits equal to the k-th highest stay. `k` above V restricts nothing.
    `[..., V]` → `[..., V]`.
    """
    k = min(k, logits.shape[-1])
    kth = logits.topk(k, dim=-1).values[..., -1:]  # [..., 1]
    return logits.masked_fill(logits < kth, float("-inf"))


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Keep the fewest tokens whose probabilities reach `p` together; the rest get −inf.

    The token that crosses `p` stays, and so does at least one. `[..., V]` → `[..., V]`.
    Source: Holtzman et al., The Curious Case of Neural Text Degeneration (2020).
    """
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    probabilities = ordered.softmax(dim=-1)  # [..., V]
    before = probabilities.cumsum(dim=-1) - probabilities  # mass of all that rank higher
    dropped = before >= p
    dropped[..., 0] = False
    return logits.masked_fill(dropped.scatter(-1, order, dropped), float("-inf"))


def select_next_token(
    logits: Tensor,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Choose the next token of each row: the highest logit, or a draw.

    `logits [B, V]` → int64 `[B, 1]`. Temperature 0 is greedy, and so is one too small to
    divide by. Then top-k (None or 0: off), then top-p (None or 1: off), each on what the
    step before left over. The draw uses `generator` and nothing else.
    """
    logits = logits.float()
    if temperature < SMALLEST_TEMPERATURE:
        return logits.argmax(dim=-1, keepdim=True)  # [B, 1]
    logits = apply_temperature(logits, temperature)
    if top_k:
        logits = keep_top_k(logits, top_k)
    if top_p is not None and top_p < 1:
        logits = keep_top_p(logits, top_p)
    return torch.multinomial(logits.softmax(dim=-1), num_samples=1, generator=generator)
