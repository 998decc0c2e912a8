"""The HTTP face: validate, submit, answer. Nothing here knows a tensor."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse

from .answer import Answer
from .answering import (
    EVENT_STREAM_HEADERS,
    FAILED,
    answered,
    body_docs,
    read_as,
    retry_after,
    status_of,
    stream_events,
)
from .auth import CHALLENGE, BearerKey
from .config import Settings
from .engine import Engine
from .errors import TutorialServerError
from .metrics import CONTENT_TYPE, Metrics
from .models import load_model
from .openai_api import create_openai_app, error_response
from .page import mount_page, page_routes
from .runner import Runner
from .runners import choose_runner
from .schemas import GenerateRequest, GenerateResponse, Timing
from .steps import Steps

OPEN_PATHS = {"/health", "/ready", *page_routes()}  # probes and the page's files: no secrets


async def read_body(request: Request) -> GenerateRequest:
    """Read and validate a body, up to the limit. Raises RequestValidationError and 413."""
    return await read_as(GenerateRequest, request)


async def submit(
    request: Request, body: Annotated[GenerateRequest, Depends(read_body)]
) -> AsyncIterator[Answer]:
    """Have a request answered for as long as its client stays."""
    async with answered(request, body.to_request()) as answer:
        yield answer


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


async def show_metrics(request: Request) -> Response:
    """Show all numbers, for a Prometheus server to read."""
    return Response(request.app.state.metrics.render(), headers={"Content-Type": CONTENT_TYPE})


async def refuse(request: Request, error: Exception) -> JSONResponse:
    """Answer our own errors with their status and their sentence."""
    status = status_of(error)
    return JSONResponse({"detail": str(error)}, status, retry_after(status))


async def refuse_invalid(request: Request, error: Exception) -> JSONResponse:
    """Answer what `faults` found in a body."""
    assert isinstance(error, RequestValidationError)
    return JSONResponse({"detail": error.errors()}, 422)


async def fail(request: Request, error: Exception) -> JSONResponse:
    """Answer a fault of our own, or of a learner's step, as JSON too; uvicorn logs it."""
    return JSONResponse({"detail": FAILED}, 500)


def refuse_key(path: str, sentence: str) -> JSONResponse:
    """Answer who has not the key, in the form that the address's clients read."""
    if path.startswith("/v1/"):
        return error_response(401, sentence, headers=CHALLENGE)
    return JSONResponse({"detail": sentence}, 401, CHALLENGE)


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
    metrics = Metrics()
    engine = Engine(
        load or _loader(settings, steps),
        steps,
        max_waiting=settings.max_waiting,
        prefill_chunk=settings.prefill_chunk,
        request_seconds=settings.request_seconds,
        observer=metrics,
    )
    metrics.watch(engine.state)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engine.start()
        yield
        engine.stop()

    app = FastAPI(title="Tutorial Server", lifespan=lifespan)
    app.state.settings = settings
    app.state.engine = engine
    app.state.metrics = metrics
    _add_routes(app)
    if settings.api_key is not None:
        key = settings.api_key.get_secret_value()
        app.add_middleware(BearerKey, key=key, open_paths=OPEN_PATHS, refuse=refuse_key)
    return app


def _add_routes(app: FastAPI) -> None:
    docs = body_docs(GenerateRequest)
    app.post("/generate", openapi_extra=docs)(generate)
    app.post("/stream", openapi_extra=docs, response_class=StreamingResponse)(stream)
    app.get("/health")(health)
    app.get("/ready")(ready)
    app.get("/metrics", response_class=Response)(show_metrics)
    app.mount("/v1", create_openai_app(app.state))
    mount_page(app)
    app.exception_handler(TutorialServerError)(refuse)
    app.exception_handler(RequestValidationError)(refuse_invalid)
    app.exception_handler(Exception)(fail)


def _loader(settings: Settings, steps: Steps) -> Callable[[], Runner]:
    def load() -> Runner:
        llm = load_model(settings.model, settings.device, settings.dtype, cache=settings.cache)
        return choose_runner(llm, settings, steps)

    return load
