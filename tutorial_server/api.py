"""The HTTP face: validate, submit, answer. Nothing here knows a tensor."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from .answer import Answer
from .config import Settings
from .engine import Engine
from .errors import Busy, GenerationFailed, NotReady, TookTooLong, TooLong, TutorialServerError
from .models import load_model
from .runner import Runner
from .runners import choose_runner
from .schemas import GenerateRequest, GenerateResponse, StreamEnd, Timing, faults
from .sse import DONE, error_event
from .steps import Steps

STATUS = {TooLong: 422, Busy: 429, NotReady: 503, TookTooLong: 504, GenerationFailed: 500}
FAILED = "The server failed while answering; its log says why."
EVENT_STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
BODY_DOCS: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": GenerateRequest.model_json_schema()}},
    }
}


async def read_body(request: Request) -> GenerateRequest:
    """Read and validate a body, up to the limit.

    FastAPI would parse it first and validate after, which lets through some text that
    cannot be encoded again; pydantic reads the bytes themselves, and refuses all that
    is not UTF-8 JSON of the right shape in one way. Raises 413 and 422.
    """
    try:
        body = await _read_bytes(request, request.app.state.settings.max_body_bytes)
        return GenerateRequest.model_validate_json(body)
    except ValidationError as error:
        raise RequestValidationError(faults(error)) from None
    except ClientDisconnect:
        raise HTTPException(400, "The body broke off.") from None  # nobody is there to read it


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


async def submit(
    request: Request, body: Annotated[GenerateRequest, Depends(read_body)]
) -> AsyncIterator[Answer]:
    """Have a request answered for as long as its client stays.

    Code after `yield` runs when the response is out or the client has gone, on both
    routes: that is where the work is stopped.
    """
    answer = await request.app.state.engine.submit(body.to_request())
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


Submitted = Annotated[Answer, Depends(submit)]


async def generate(request: Request, answer: Submitted) -> GenerateResponse:
    """Answer a prompt whole."""
    done = await answer.finished()
    return GenerateResponse(
        text=done.text,
        timing=Timing.of(done),
        token_count=len(done.token_ids),
        prompt_tokens=done.input_tokens,
        throughput=round(len(done.token_ids) / (done.latency_ms / 1e3), 3),
        cache_usage=done.cache_used,
        finish_reason=done.finish_reason,
        model=request.app.state.engine.state().model,
        request_id=answer.request_id,
    )


async def stream(request: Request, answer: Submitted) -> StreamingResponse:
    """Answer a prompt piece by piece, as Server-Sent Events."""
    events = stream_events(answer, request.app.state.engine.steps.sse_event)
    return StreamingResponse(events, media_type="text/event-stream", headers=EVENT_STREAM_HEADERS)


async def stream_events(answer: Answer, sse_event: Callable[[Any], str]) -> AsyncIterator[bytes]:
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


async def health(request: Request) -> JSONResponse:
    """Say that the process is alive, whatever the model is doing; 503 once nothing can help."""
    if error := request.app.state.engine.state().error:
        return JSONResponse({"status": "stopped", "detail": error}, 503)
    return JSONResponse({"status": "ok"})


async def ready(request: Request) -> JSONResponse:
    """Say whether a request would be taken now; 503 until the model has answered once."""
    state = request.app.state.engine.state()
    content = {"status": state.status, "model": state.model}
    return JSONResponse(content, 200 if state.status == "ready" else 503)


async def refuse(request: Request, error: Exception) -> JSONResponse:
    """Answer our own errors with their status and their sentence."""
    status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 500)
    headers = {"Retry-After": "1"} if status in (429, 503) else None
    return JSONResponse({"detail": str(error)}, status, headers)


async def refuse_invalid(request: Request, error: Exception) -> JSONResponse:
    """Answer what `faults` found in a body."""
    assert isinstance(error, RequestValidationError)
    return JSONResponse({"detail": error.errors()}, 422)


async def fail(request: Request, error: Exception) -> JSONResponse:
    """Answer a fault of our own, or of a learner's step, as JSON too; uvicorn logs it."""
    return JSONResponse({"detail": FAILED}, 500)


def create_app(
    settings: Settings | None = None,
    steps: Steps | None = None,
    load: Callable[[], Runner] | None = None,
) -> FastAPI:
    """Put the server together; the model loads once the app has started.

    `steps` replaces steps of the way (`serve --mine`), `load` the runner.
    """
    settings = settings or Settings()
    steps = steps or Steps()
    engine = Engine(
        load or _loader(settings, steps),
        steps,
        max_waiting=settings.max_waiting,
        prefill_chunk=settings.prefill_chunk,
        request_seconds=settings.request_seconds,
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engine.start()
        yield
        engine.stop()

    app = FastAPI(title="Tutorial Server", lifespan=lifespan)
    app.state.settings = settings
    app.state.engine = engine
    app.post("/generate", openapi_extra=BODY_DOCS)(generate)
    app.post("/stream", openapi_extra=BODY_DOCS, response_class=StreamingResponse)(stream)
    app.get("/health")(health)
    app.get("/ready")(ready)
    app.exception_handler(TutorialServerError)(refuse)
    app.exception_handler(RequestValidationError)(refuse_invalid)
    app.exception_handler(Exception)(fail)
    return app


def _loader(settings: Settings, steps: Steps) -> Callable[[], Runner]:
    def load() -> Runner:
        llm = load_model(settings.model, settings.device, settings.dtype, cache=settings.cache)
        return choose_runner(llm, settings, steps)

    return load
