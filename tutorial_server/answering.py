"""What all routes that answer share: read a body, have it answered, stream it, refuse it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from fastapi import HTTPException
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from . import engine, sse
from .answer import Answer
from .errors import (
    BadConversation,
    Busy,
    CutShort,
    GenerationFailed,
    NotReady,
    TookTooLong,
    TooLong,
    TutorialServerError,
)
from .schemas import StreamEnd, Timing, faults
from .sse import DONE

Shape = TypeVar("Shape", bound=BaseModel)
STATUS: dict[type[TutorialServerError], int] = {
    TooLong: 422,
    BadConversation: 422,
    Busy: 429,
    NotReady: 503,
    CutShort: 503,
    TookTooLong: 504,
    GenerationFailed: 500,
}
FAILED = "The server failed while answering; its log says why."
EVENT_STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def body_docs(shape: type[BaseModel]) -> dict[str, Any]:
    """Describe a body to /docs: FastAPI does not read it itself, and would not know."""
    content = {"application/json": {"schema": shape.model_json_schema()}}
    return {"requestBody": {"required": True, "content": content}}


async def read_as(shape: type[Shape], request: Request) -> Shape:
    """Read and validate a body, up to the limit.

    FastAPI would parse it first and validate after, which lets through some text that
    cannot be encoded again; pydantic reads the bytes themselves, and refuses all that
    is not UTF-8 JSON of the right shape in one way. Raises RequestValidationError, 408 and 413.
    """
    try:
        settings = request.app.state.settings
        async with asyncio.timeout(settings.request_seconds):
            body = await _read_bytes(request, settings.max_body_bytes)
        return shape.model_validate_json(body)
    except ValidationError as error:
        raise RequestValidationError(faults(error, shape)) from None
    except ClientDisconnect:
        raise HTTPException(400, "The body broke off.") from None  # nobody is there to read it
    except TimeoutError:
        seconds = settings.request_seconds
        sentence = f"The body was not complete after {seconds:g} s."
        raise HTTPException(408, sentence, {"Connection": "close"}) from None


async def _read_bytes(request: Request, limit: int) -> bytes:
    """Read up to `limit` bytes; a body that says it is larger is refused unread."""
    too_large = HTTPException(413, f"The body is larger than {limit} bytes.")
    if int(request.headers.get("content-length", 0)) > limit:
        raise too_large
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise too_large
    return bytes(body)


@asynccontextmanager
async def answered(request: Request, asked: engine.Request) -> AsyncIterator[Answer]:
    """Have a request answered for as long as its client stays.

    What comes after `yield` runs when the response is out or the client has gone, on every
    route: that is where the work is stopped.
    """
    answer = await request.app.state.engine.submit(asked)
    watcher = asyncio.create_task(cancel_when_gone(request, answer))
    try:
        yield answer
    finally:
        watcher.cancel()
        answer.cancel()


async def cancel_when_gone(request: Request, answer: Answer) -> None:
    """Wait for the client to leave; nobody else does while an answer is being made."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    answer.cancel()


async def stream_events(
    answer: Answer,
    sse_event: Callable[[Any], str],
    error_event: Callable[[str], str] = sse.error_event,
) -> AsyncIterator[bytes]:
    """Write an answer as events; one that breaks off ends with an error, and never with [DONE]."""
    try:
        async for piece in answer:
            yield sse_event({"text": piece}).encode()
        done = answer.result
        end = StreamEnd(
            finish_reason=done.finish_reason,
            timing=Timing.of(done),
            token_count=len(done.token_ids),
            prompt_tokens=done.input_tokens,
        )
        yield sse_event(end.model_dump()).encode()
        yield DONE.encode()
    except GenerationFailed as error:
        yield error_event(str(error)).encode()
    except Exception:
        logging.getLogger("tutorial_server").exception("stream %s broke off", answer.request_id)
        yield error_event(FAILED).encode()


def status_of(error: Exception) -> int:
    """Give the status that says what kind of error this is."""
    return next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)


def retry_after(status: int) -> dict[str, str] | None:
    """Give the headers that go with a status: when to ask again, where that may help."""
    return {"Retry-After": "1"} if status in (429, 503) else None
