"""What a forward pass says about the next token: which row counts, and how sure it is."""

import torch
from torch import Tensor


def last_logits(logits: Tensor, mask: Tensor) -> Tensor:
    """Pick each row's scores for its next token: those at its own last real token.

    `logits [B, T, V]`, `mask [B, T]` with 1 for real tokens, pads on either side
    → `[B, V]`.
    """
    columns = torch.arange(mask.shape[-1], device=mask.device)  # [T]
    last = (columns * mask.long()).amax(dim=-1)  # [B]
    rows = torch.arange(len(logits), device=logits.device)  # [B]
    return logits[rows, last.to(logits.device)]  # [B, V]


def log_probs(logits: Tensor) -> Tensor:
    """Turn logits into the logarithms of probabilities, which add up where those multiply.

    The maximum is taken off first, so nothing overflows, and the logarithm of a tiny
    probability is never taken. Natural logarithms; `[..., V]` → float32 `[..., V]`.
    """
    logits = logits.float()
    shifted = logits - logits.max(dim=-1, keepdim=True).values  # [..., V]
    return shifted - shifted.exp().sum(dim=-1, keepdim=True).log()  # [..., V]


def answer_log_prob(logits: Tensor, input_ids: Tensor, prompt_tokens: int) -> float:
    """Say how probable a whole answer is, as the natural logarithm of its probability.

    `input_ids [1, T]` is a prompt of `prompt_tokens` ids with the answer behind it, and
    `logits [1, T, V]` what the model made of it. The logits at a token score the next one.
    """
    scores = log_probs(logits[:, prompt_tokens - 1 : -1])  # [1, T - prompt_tokens, V]
    answer = input_ids[:, prompt_tokens:, None]  # [1, T - prompt_tokens, 1]
    return scores.gather(dim=-1, index=answer).sum().item()
