"""A chat completion in OpenAI's words: what is asked, what is answered, what went wrong."""

import time
from collections.abc import Sequence as Turns
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from .answer import Answer
from .chat import Message
from .request import Request
from .schemas import StopString, Text, Timing
from .sequence import Completion, SamplingParams

StopStrings = Annotated[list[StopString], Field(max_length=16)]
DEFAULT_MAX_TOKENS = 1024  # fewer where the context has no room for so many


def _joined(content: Any) -> Any:
    """Make one text of a list of text parts; a picture or a sound is not read here."""
    if not isinstance(content, list):
        return content
    parts = [part.get("text") for part in content if _is_text(part)]
    if len(parts) < len(content):
        raise ValueError("should be text, or a list of parts of the type text")
    return "\n".join(parts)


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and type(part.get("text")) is str


def _listed(stop: Any) -> Any:
    return [stop] if isinstance(stop, str) else stop


class Lenient(BaseModel):
    """Takes null for what is not said, and passes over fields that it does not know."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, allow_inf_nan=False)


class ChatMessage(Lenient):
    """One turn of a conversation; `developer` is a newer name of `system`."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[Text, BeforeValidator(_joined)] = Field(
        description="text, or a list of {type: text, text: …}, which become lines of one text"
    )

    def to_message(self) -> Message:
        """Say the same in a chat template's words."""
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": self.content}


class StreamOptions(Lenient):
    """What a stream tells beside the text."""

    include_usage: bool | None = Field(None, description="a last chunk with the tokens' count")


class ChatRequest(Lenient):
    """A conversation to be gone on with, for /v1/chat/completions.

    Fields that are not listed here (`tools`, `logprobs`, penalties …) are passed over. The
    answer is a turn of the assistant's own, after one of the assistant's too.
    """

    messages: list[ChatMessage] = Field(min_length=1)
    model: Text | None = Field(None, description="null: the one that is served, as is its name")
    max_completion_tokens: int | None = Field(None, ge=1, description="wins over max_tokens")
    max_tokens: int | None = Field(
        None, ge=1, description=f"null: {DEFAULT_MAX_TOKENS}, or what the context has room for"
    )
    temperature: float | None = Field(None, ge=0, description="null: 1; 0 is greedy")
    top_p: float | None = Field(None, ge=0, le=1, description="null or 1: off")
    top_k: int | None = Field(None, ge=-1, description="null, 0 or -1: off; not OpenAI's")
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: Annotated[StopStrings | None, BeforeValidator(_listed)] = Field(
        None, description="a text, or up to 16"
    )
    n: int | None = Field(None, ge=1, le=1, description="answers to one request: 1")
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with the tokens' count."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def to_request(self) -> Request:
        """Say the same in the engine's terms, with OpenAI's defaults."""
        limit = self.max_completion_tokens or self.max_tokens
        params = SamplingParams(
            max_new_tokens=limit or DEFAULT_MAX_TOKENS,
            temperature=1.0 if self.temperature is None else self.temperature,
            top_k=self.top_k if self.top_k and self.top_k > 0 else None,
            top_p=self.top_p,
            seed=self.seed,
            stop=tuple(self.stop or ()),
        )
        messages = tuple(message.to_message() for message in self.messages)
        return Request(messages, params, shorten=limit is None)


class Wording:
    """How one answer is told: its id, its model and its hour are in every chunk."""

    def __init__(self, answer: Answer, model: str | None, include_usage: bool):
        self._head = {
            "id": f"chatcmpl-{answer.request_id}",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": None,
        }
        self._include_usage = include_usage
        self._opened = False

    def whole(self, done: Completion) -> dict[str, Any]:
        """Tell a whole answer."""
        message = {"role": "assistant", "content": done.text, "refusal": None}
        choices = [_choice({"message": message}, done.finish_reason)]
        timing = Timing.of(done).model_dump()
        count = _count(done.input_tokens, len(done.token_ids), timing)
        return {"object": "chat.completion", **self._head, "choices": choices, **count}

    def chunks(self, payload: dict[str, Any]) -> list[dict[str, Any]]:
        """Tell what /stream says in one payload: a piece, or the end; before all, who speaks."""
        told = self._piece(payload) if "text" in payload else self._end(payload)
        if self._opened:
            return told
        self._opened = True
        return [self._chunk([_choice({"delta": {"role": "assistant", "content": ""}})]), *told]

    def _piece(self, payload: dict[str, Any]) -> list[dict[str, Any]]:
        return [self._chunk([_choice({"delta": {"content": payload["text"]}})])]

    def _end(self, payload: dict[str, Any]) -> list[dict[str, Any]]:
        last = self._chunk([_choice({"delta": {}}, payload["finish_reason"])])
        if not self._include_usage:
            return [last]
        count = _count(payload["prompt_tokens"], payload["token_count"], payload["timing"])
        return [last, self._chunk([]) | count]

    def _chunk(self, choices: Turns[dict[str, Any]]) -> dict[str, Any]:
        chunk = {"object": "chat.completion.chunk", **self._head, "choices": choices}
        return chunk | {"usage": None} if self._include_usage else chunk


def _choice(content: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, **content, "logprobs": None, "finish_reason": finish_reason}


def _count(prompt: int, answer: int, timing: dict[str, float]) -> dict[str, Any]:
    """Count the tokens as OpenAI does; `timing` is ours, and other clients pass over it."""
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": answer,
        "total_tokens": prompt + answer,
    }
    return {"usage": usage, "timing": timing}
