"""When two ways of computing an answer may be said to agree."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .models import LLM
from .runner import decode, prefill

# Largest difference of logits along one sequence, in units of the logits' spread. A step
# alone and a whole prompt are summed in different orders; half precision shows it.
TOLERANCE = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}


def assert_agree(
    llm: LLM, prompt_ids: Sequence[int], first: Sequence[int], second: Sequence[int]
) -> None:
    """Assert that two greedy answers to one prompt are the same, as far as the format can tell.

    In float32 the ids are equal. In half precision near-ties fall either way and the
    answers part, so there the logits along `first` are compared, cached against
    uncached, within a tolerance. Raises AssertionError.
    """
    if llm.dtype == torch.float32:
        assert list(first) == list(second), f"ids differ: {list(first)} and {list(second)}"
        return
    whole = _logits_at_once(llm, prompt_ids, first)  # [N, V]
    steps = _logits_by_steps(llm, prompt_ids, first)  # [N, V]
    difference = ((whole - steps).abs().max() / whole.std()).item()
    limit = TOLERANCE[llm.dtype]
    assert difference <= limit, f"logits differ by {difference:.3g} spreads, more than {limit}"


@torch.no_grad()
def _logits_at_once(llm: LLM, prompt_ids: Sequence[int], answer: Sequence[int]) -> Tensor:
    ids = torch.tensor([[*prompt_ids, *answer]], device=llm.device)  # [1, T + N]
    logits = llm.model(input_ids=ids, logits_to_keep=len(answer) + 1).logits
    return logits[0, :, : llm.vocab_size].float()  # [N + 1, V]


def _logits_by_steps(llm: LLM, prompt_ids: Sequence[int], answer: Sequence[int]) -> Tensor:
    logits, cache = prefill(llm.model, torch.tensor([prompt_ids], device=llm.device))
    rows = [logits]
    for token in answer:
        logits, cache = decode(llm.model, torch.tensor([[token]], device=llm.device), cache)
        rows.append(logits)
    return torch.cat(rows)[:, : llm.vocab_size].float()  # [N + 1, V]
