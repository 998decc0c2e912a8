"""One request on its way from prompt to answer, with everything that changes meanwhile."""

from collections.abc import Callable
from collections.abc import Sequence as Ids
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal

import torch
from torch import Tensor

from .detokenize import StreamDecoder
from .errors import TooLong
from .models import LLM
from .sampling import select_next_token

FinishReason = Literal["stop", "length"]
SelectNextToken = Callable[..., Tensor]


@dataclass(frozen=True)
class SamplingParams:
    """How an answer is chosen and when it ends, fixed when the request arrives.

    `max_new_tokens` is at least 1; `stop` strings end the answer and are not part of it.
    """

    max_new_tokens: int = 32
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens is {self.max_new_tokens}; ask for at least 1")


@dataclass(frozen=True)
class Completion:
    """A finished answer and what it took; times are milliseconds since the request arrived."""

    text: str
    token_ids: list[int]
    input_tokens: int
    ttft_ms: float
    latency_ms: float
    finish_reason: FinishReason
    queue_ms: float = 0.0
    cache_used: bool = False


class Sequence:
    """A request's ids, generator, decoder and clocks: nothing of it is shared.

    `accept` is the only place where a token is chosen, an ending noticed and text
    released, so every way of running the model gives the same answer. Raises TooLong
    where prompt and limit together exceed the context there is, before any work is done.
    """

    def __init__(
        self,
        llm: LLM,
        prompt_ids: Ids[int],
        params: SamplingParams,
        *,
        select: SelectNextToken = select_next_token,
        decoder: StreamDecoder | None = None,
        arrived: float | None = None,
    ):
        _check_length(llm, len(prompt_ids), params.max_new_tokens)
        self.prompt_ids = list(prompt_ids)
        self.token_ids: list[int] = []
        self.params = params
        self.cache: Any = None  # the runner's; empty before prefill and after release
        self.prompt_read = 0  # tokens of the prompt that are in the cache
        self.cache_used = False
        self.cancelled = False
        self.finish_reason: FinishReason | None = None
        self.arrived = perf_counter() if arrived is None else arrived
        self.started = self.arrived  # when a runner took it up
        self.token_times: list[float] = []  # when each token was chosen, an end of turn included
        self._stop_ids = llm.stop_ids
        self._select = select
        self._decoder = decoder or StreamDecoder(llm.tokenizer, params.stop)
        self._pieces: list[str] = []
        self._generator = torch.Generator(llm.device)
        if params.seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(params.seed)

    def accept(self, logits: Tensor) -> str:
        """Choose the next token from `logits [1, V]`; give the text that became certain."""
        p = self.params
        chosen = self._select(logits, p.temperature, p.top_k, p.top_p, self._generator)
        token = int(chosen)  # waits for the device, so the clock read next is true
        self.token_times.append(perf_counter())
        piece = self._take(token)
        self._pieces.append(piece)
        return piece

    def completion(self) -> Completion:
        """Sum up a finished answer."""
        if self.finish_reason is None:
            raise ValueError("the answer is not finished; there is nothing to sum up yet")
        return Completion(
            text="".join(self._pieces),
            token_ids=list(self.token_ids),
            input_tokens=len(self.prompt_ids),
            ttft_ms=(self.token_times[0] - self.arrived) * 1e3,
            latency_ms=(self.token_times[-1] - self.arrived) * 1e3,
            finish_reason=self.finish_reason,
            queue_ms=(self.started - self.arrived) * 1e3,
            cache_used=self.cache_used,
        )

    def _take(self, token: int) -> str:
        if token in self._stop_ids:
            self.finish_reason = "stop"
            return self._decoder.flush()
        self.token_ids.append(token)
        piece = self._decoder.push(token)
        if not self._decoder.stopped and len(self.token_ids) == self.params.max_new_tokens:
            self.finish_reason = "length"
            piece += self._decoder.flush()
        if self._decoder.stopped:
            self.finish_reason = "stop"
        return piece


def _check_length(llm: LLM, prompt_tokens: int, max_new_tokens: int) -> None:
    if prompt_tokens + max_new_tokens > llm.context_length:
        raise TooLong(
            f"The prompt's {prompt_tokens} tokens and an answer of up to {max_new_tokens} "
            f"exceed the {llm.context_length} tokens of context that there is room for; "
            "shorten one of them."
        )
