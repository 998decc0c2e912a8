"""Wrong and right solutions of lesson 07."""

import asyncio
import time

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, field_validator
from solutions import right, wrong

from tutorial_server.errors import GenerationFailed
from tutorial_server.sse import DONE, error_event

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Good(BaseModel):
    model_config = STRICT
    prompt: str = Field(pattern=r"\S")
    token_limit: int = Field(128, ge=1)
    temperature: float = Field(0.0, ge=0)
    top_k: int | None = Field(None, ge=0)


@wrong("GenerateRequest", "inherits from pydantic")
class NoModel:
    prompt: str


@wrong("GenerateRequest", "have these defaults")
class OtherDefaults(Good):
    token_limit: int = Field(32, ge=1)


@wrong("GenerateRequest", "limit is too narrow")
class TooNarrow(Good):
    temperature: float = Field(0.0, ge=0, le=1)


@wrong("GenerateRequest", "ask for strict")
class NotStrict(Good):
    model_config = ConfigDict(strict=False, extra="forbid", allow_inf_nan=False)


@wrong("GenerateRequest", "temperature below 0")
class NegativeTemperature(Good):
    temperature: float = 0.0


@wrong("GenerateRequest", "0 tokens")
class NoTokens(Good):
    token_limit: int = Field(128, ge=0)


@wrong("GenerateRequest", "negative top_k")
class NegativeTopK(Good):
    top_k: int | None = None


@wrong("GenerateRequest", "infinite temperature")
class Infinite(Good):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=True)


@wrong("GenerateRequest", "misspelt field")
class IgnoresExtra(Good):
    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


@wrong("GenerateRequest", "empty prompt")
class EmptyPrompt(Good):
    prompt: str


@wrong("GenerateRequest", "white space alone")
class BlankPrompt(Good):
    prompt: str = Field(min_length=1)


@wrong("GenerateRequest", "prompt was changed")
class StripsThePrompt(Good):
    model_config = ConfigDict(
        strict=True, extra="forbid", allow_inf_nan=False, str_strip_whitespace=True
    )
    prompt: str = Field(min_length=1)


@wrong("GenerateRequest", "limit is too narrow")
class CapsTheLimit(Good):
    token_limit: int = Field(128, ge=1, le=512)


@wrong("GenerateRequest", "Which have yours")
class NoDefault(Good):
    token_limit: int = Field(ge=1)


@wrong("GenerateRequest", "prompt of null")
class TakesNoPrompt(Good):
    prompt: str | None = Field(pattern=r"\S")


@right("GenerateRequest")
class WithItsOwnInit(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    prompt: str = Field(pattern=r"\S")
    token_limit: int = Field(128, ge=1)
    temperature: float = Field(0.0, ge=0)
    top_k: int | None = Field(None, ge=0)

    def __init__(self, **fields):
        super().__init__(**fields)


@right("GenerateRequest")
class WithAValidator(BaseModel):
    model_config = ConfigDict(extra="forbid")
    prompt: str = Field(strict=True)
    token_limit: StrictInt = Field(default=128, gt=0)
    temperature: StrictFloat = Field(default=0.0, ge=0, allow_inf_nan=False)
    top_k: StrictInt | None = Field(default=None, ge=0)

    @field_validator("prompt")
    @classmethod
    def says_something(cls, prompt):
        if prompt.isspace() or not prompt:
            raise ValueError("the prompt is blank")
        return prompt


FAILED = "The server failed; its log says why."


def end_of(answer, sse_event):
    done = answer.result
    return sse_event(
        {
            "finish_reason": done.finish_reason,
            "token_count": len(done.token_ids),
            "prompt_tokens": done.input_tokens,
        }
    )


@wrong("stream_events", "plain generator")
def not_async(answer, sse_event):
    yield sse_event({"text": "Hi"})


@wrong("stream_events", "async def with yield")
async def returns_a_list(answer, sse_event):
    return [sse_event({"text": piece}) async for piece in answer]


@wrong("stream_events", "No event holds a text")
async def bare_pieces(answer, sse_event):
    async for piece in answer:
        yield piece
    yield end_of(answer, sse_event)
    yield DONE


@wrong("stream_events", "came as one event")
async def one_event(answer, sse_event):
    text = "".join([piece async for piece in answer])
    yield sse_event({"text": text})
    yield end_of(answer, sse_event)
    yield DONE


@wrong("stream_events", "collect, then send")
async def collects(answer, sse_event):
    for piece in [piece async for piece in answer]:
        yield sse_event({"text": piece})
    yield end_of(answer, sse_event)
    yield DONE


@wrong("stream_events", "does not say that it is complete")
async def no_done(answer, sse_event):
    async for piece in answer:
        yield sse_event({"text": piece})
    yield end_of(answer, sse_event)


@wrong("stream_events", "in quotes")
async def done_as_json(answer, sse_event):
    async for piece in answer:
        yield sse_event({"text": piece})
    yield end_of(answer, sse_event)
    yield sse_event("[DONE]")


@wrong("stream_events", "holds the prompt's tokens")
async def counts_the_prompt(answer, sse_event):
    async for piece in answer:
        yield sse_event({"text": piece})
    done = answer.result
    count = done.input_tokens
    yield sse_event({"finish_reason": "stop", "token_count": count, "prompt_tokens": count})
    yield DONE


@wrong("stream_events", "one event with finish_reason")
async def says_nothing_of_the_end(answer, sse_event):
    async for piece in answer:
        yield sse_event({"text": piece})
    yield DONE


@wrong("stream_events", "connection just breaks")
async def lets_failures_out(answer, sse_event):
    async for piece in answer:
        yield sse_event({"text": piece})
    yield end_of(answer, sse_event)
    yield DONE


@wrong("stream_events", "looks complete")
async def done_in_finally(answer, sse_event):
    try:
        async for piece in answer:
            yield sse_event({"text": piece})
        yield end_of(answer, sse_event)
    except Exception:
        yield error_event(FAILED)
    yield DONE


@wrong("stream_events", "nothing says so")
async def swallows(answer, sse_event):
    try:
        async for piece in answer:
            yield sse_event({"text": piece})
        yield end_of(answer, sse_event)
        yield DONE
    except Exception:
        return


@wrong("stream_events", "Only GenerationFailed is caught")
async def catches_one_kind(answer, sse_event):
    try:
        async for piece in answer:
            yield sse_event({"text": piece})
        yield end_of(answer, sse_event)
        yield DONE
    except GenerationFailed:
        yield error_event(FAILED)


@wrong("stream_events", "own text went to the client")
async def tells_all(answer, sse_event):
    try:
        async for piece in answer:
            yield sse_event({"text": piece})
        yield end_of(answer, sse_event)
        yield DONE
    except Exception as error:
        yield error_event(str(error))


@wrong("stream_events", "Catch Exception, not everything")
async def catches_everything(answer, sse_event):
    try:
        async for piece in answer:
            yield sse_event({"text": piece})
        yield end_of(answer, sse_event)
        yield DONE
    except BaseException:
        yield error_event(FAILED)


@wrong("stream_events", "waited for: async for")
async def plain_for(answer, sse_event):
    for piece in answer:
        yield sse_event({"text": piece})


@wrong("stream_events", "all the text so far")
async def sends_all_so_far(answer, sse_event):
    text = ""
    async for piece in answer:
        text += piece
        yield sse_event({"text": text})
    yield end_of(answer, sse_event)
    yield DONE


@wrong("stream_events", "strip the pieces")
async def strips_pieces(answer, sse_event):
    async for piece in answer:
        yield sse_event({"text": piece.strip()})
    yield end_of(answer, sse_event)
    yield DONE


@wrong("stream_events", "when the pieces are through")
async def asks_for_the_result_first(answer, sse_event):
    try:
        end = end_of(answer, sse_event)
        async for piece in answer:
            yield sse_event({"text": piece})
        yield end
        yield DONE
    except Exception:
        yield error_event("The answer broke off.")


@wrong("stream_events", "number of pieces")
async def counts_pieces(answer, sse_event):
    count = 0
    async for piece in answer:
        count += 1
        yield sse_event({"text": piece})
    result = answer.result
    numbers = {"token_count": count, "prompt_tokens": result.input_tokens}
    yield sse_event({"finish_reason": result.finish_reason, **numbers})
    yield DONE


@right("stream_events")
async def as_bytes(answer, sse_event):
    try:
        async for piece in answer:
            yield sse_event({"text": piece}).encode("utf-8")
    except Exception:
        yield error_event(FAILED).encode("utf-8")
        return
    yield end_of(answer, sse_event).encode("utf-8")
    yield DONE.encode("utf-8")


@right("stream_events")
async def by_hand(answer, sse_event):
    pieces = aiter(answer)
    try:
        while (piece := await anext(pieces, None)) is not None:
            yield sse_event({"text": piece})
        yield end_of(answer, sse_event)
    except (GenerationFailed, Exception):
        yield "event: error\n" + sse_event({"error": "It failed."})
    else:
        yield "data: [DONE]\n\n"


@wrong("cancel_when_gone", "must be an async def")
def plain(request, answer):
    answer.cancel()


@wrong("cancel_when_gone", "the client is still there")
async def at_once(request, answer):
    answer.cancel()


@wrong("cancel_when_gone", "was not cancelled")
async def only_waits(request, answer):
    while (await request.receive())["type"] != "http.disconnect":
        pass


@wrong("cancel_when_gone", "first message, whatever it says")
async def any_message(request, answer):
    await request.receive()
    answer.cancel()


@wrong("cancel_when_gone", "one message only")
async def looks_once(request, answer):
    message = await request.receive()
    if message["type"] == "http.disconnect":
        answer.cancel()


@wrong("cancel_when_gone", "holds the event loop")
async def sleeps_hard(request, answer):
    while not await request.is_disconnected():
        time.sleep(0.6)
        await asyncio.sleep(0)
    answer.cancel()


@wrong("cancel_when_gone", "return after the first")
async def never_returns(request, answer):
    while True:
        if (await request.receive())["type"] == "http.disconnect":
            answer.cancel()


@wrong("cancel_when_gone", "keeps a whole core busy")
async def asks_without_a_pause(request, answer):
    while not await request.is_disconnected():
        pass
    answer.cancel()


@right("cancel_when_gone")
async def asks_now_and_then(request, answer):
    while not await request.is_disconnected():
        await asyncio.sleep(0.05)
    answer.cancel()


@right("cancel_when_gone")
async def step_by_step(request, answer):
    while True:
        message = await request.receive()
        if message.get("type") == "http.disconnect":
            answer.cancel()
            return


@wrong("answered", "never reached")
async def as_given(answer, watch):
    watcher = asyncio.create_task(watch(answer))
    text = "".join([piece async for piece in answer])
    watcher.cancel()
    return text


@wrong("answered", "finally, not except")
async def on_exceptions_only(answer, watch):
    watcher = asyncio.create_task(watch(answer))
    try:
        text = "".join([piece async for piece in answer])
    except Exception:
        watcher.cancel()
        raise
    watcher.cancel()
    return text


@wrong("answered", "must come out as before")
async def hides_failures(answer, watch):
    watcher = asyncio.create_task(watch(answer))
    try:
        return "".join([piece async for piece in answer])
    except GenerationFailed:
        return ""
    finally:
        watcher.cancel()


@wrong("answered", "after a good answer")
async def never_ends_it(answer, watch):
    asyncio.create_task(watch(answer))  # noqa: RUF006
    return "".join([piece async for piece in answer])


@wrong("answered", "Nobody watches now")
async def without_a_watcher(answer, watch):
    return "".join([piece async for piece in answer])


@wrong("answered", "It does not end")
async def waits_for_the_watcher(answer, watch):
    await watch(answer)
    return "".join([piece async for piece in answer])


@right("answered")
async def with_a_loop(answer, watch):
    watcher, text = asyncio.ensure_future(watch(answer)), ""
    try:
        async for piece in answer:
            text += piece
    finally:
        watcher.cancel()
    return text
