"""generate_greedy: the ids of the naive loop, one forward pass for each."""

import pytest
import torch
from tiny import tiny

from tutorial_server.agreement import assert_agree
from tutorial_server.decoding import generate_greedy
from tutorial_server.models import LLM

PROMPT = [72, 101, 108, 108, 111]


def naive(llm: LLM, count: int) -> list[int]:
    """Read everything anew for each token, and never stop early."""
    ids = list(PROMPT)
    for _ in range(count):
        with torch.no_grad():
            ids.append(int(llm.model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    return ids[len(PROMPT) :]


def passes(llm: LLM, count: int, stop_ids: set[int]) -> tuple[list[int], list[int]]:
    """Give the answer, and how many positions each forward pass read."""
    read: list[int] = []
    hook = llm.model.register_forward_pre_hook(
        lambda _, args, kwargs: read.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    try:
        return generate_greedy(llm.model, torch.tensor([PROMPT]), count, stop_ids), read
    finally:
        hook.remove()


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_ids_are_the_naive_loop_s_at_one_pass_each(kind: str) -> None:
    llm = tiny(kind)
    ids, read = passes(llm, 12, set())
    assert_agree(llm, PROMPT, naive(llm, 12), ids)
    assert len(ids) == 12
    assert read == [len(PROMPT)] + [1] * 11


def test_a_stop_id_ends_the_answer_and_is_not_in_it() -> None:
    llm = tiny("llama")
    whole = naive(llm, 12)
    at = next(i for i, id_ in enumerate(whole) if i > 2 and id_ not in whole[:i])
    ids, read = passes(llm, 12, {whole[at], -1})
    assert ids == whole[:at]
    assert len(read) == at + 1


def test_a_stop_id_at_once_is_an_empty_answer() -> None:
    llm = tiny("llama")
    ids, read = passes(llm, 12, set(naive(llm, 1)))
    assert ids == []
    assert len(read) == 1


def test_one_token_is_the_prefill_s_alone() -> None:
    llm = tiny("llama")
    ids, read = passes(llm, 1, set())
    assert ids == naive(llm, 1)
    assert read == [len(PROMPT)]
