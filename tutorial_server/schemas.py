"""What travels over HTTP, and what is refused."""

from functools import cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from .chat import build_messages
from .request import Request
from .sequence import Completion, SamplingParams


def _is_unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, as from a terminal that is not UTF-8
        raise ValueError("should be valid Unicode") from None
    return text


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("should hold more than white space")
    return text


Text = Annotated[str, AfterValidator(_is_unicode)]
NotBlank = Annotated[Text, AfterValidator(_not_blank)]
StopString = Annotated[Text, Field(min_length=1, max_length=1000)]
MOST_FAULTS = 20  # to list more takes long, and helps nobody


class GenerateRequest(BaseModel):
    """A question to the model, for /generate and /stream alike."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    prompt: NotBlank
    token_limit: int = Field(128, ge=1, description="tokens to generate at most")
    temperature: float = Field(0.0, ge=0, description="0 is greedy")
    top_k: int | None = Field(None, ge=0, description="null or 0: off")
    top_p: float | None = Field(None, ge=0, le=1, description="null or 1: off")
    seed: int | None = Field(None, ge=0, lt=2**63, description="null: another answer each time")
    system: Text | None = Field(None, description="null: the server's; empty: none of ours")
    stop: list[StopString] = Field(default=[], max_length=16)

    def to_request(self) -> Request:
        """Say the same in the engine's terms, which know nothing of HTTP."""
        params = SamplingParams(
            max_new_tokens=self.token_limit,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            seed=self.seed,
            stop=tuple(self.stop),
        )
        return Request(tuple(build_messages(self.prompt, self.system)), params)


def faults(
    error: ValidationError, shape: type[BaseModel] = GenerateRequest
) -> list[dict[str, Any]]:
    """Name what is wrong with a body, `type, loc, msg` each, and repeat nothing it held.

    A key that is none of ours is left out as values are: a client may put anything there.
    """
    known = _field_names(shape)
    if (count := error.error_count()) > MOST_FAULTS:
        return [{"type": "too_many_faults", "loc": [], "msg": f"The body has {count} faults."}]
    found = error.errors(include_url=False, include_context=False, include_input=False)
    for fault in found:
        fault["loc"] = tuple(at for at in fault["loc"] if isinstance(at, int) or at in known)
        if fault["type"] == "extra_forbidden":
            fault["msg"] = f"Unknown field; the known ones are {', '.join(known)}."
    return [dict(fault) for fault in found]


@cache
def _field_names(shape: type[BaseModel]) -> tuple[str, ...]:
    """Name the fields of a body, those of its inner objects after its own."""
    schema = shape.model_json_schema()
    return tuple(n for s in (schema, *schema.get("$defs", {}).values()) for n in s["properties"])


class Timing(BaseModel):
    """Milliseconds since the request arrived, read when the device had finished."""

    latency_ms: float
    ttft_ms: float
    queue_ms: float

    @classmethod
    def of(cls, done: Completion) -> "Timing":
        """Round to what a clock can tell."""
        return cls(
            latency_ms=round(done.latency_ms, 3),
            ttft_ms=round(done.ttft_ms, 3),
            queue_ms=round(done.queue_ms, 3),
        )


class GenerateResponse(BaseModel):
    """The whole answer to /generate."""

    text: str
    timing: Timing
    token_count: int = Field(description="tokens generated")
    prompt_tokens: int
    throughput: float = Field(description="generated tokens per second since arrival")
    cache_usage: bool = Field(description="whether a KV cache was used")
    finish_reason: Literal["stop", "length"]
    status_code: int = 200
    model: str
    request_id: str


class StreamEnd(BaseModel):
    """The last event of a complete /stream, before [DONE]."""

    finish_reason: Literal["stop", "length"]
    timing: Timing
    token_count: int
    prompt_tokens: int
