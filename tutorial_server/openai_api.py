"""OpenAI's routes under /v1, for the clients that people have already.

An app of its own, mounted into ours: so errors have OpenAI's shape here and nowhere else.
Source: OpenAI's API reference, chat completions and models.
"""

import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.datastructures import State
from starlette.exceptions import HTTPException

from . import sse
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
from .errors import BadConversation, TooLong, TutorialServerError
from .openai_schemas import ChatRequest, Wording

KINDS = {429: "rate_limit_error", 500: "server_error", 503: "server_error", 504: "server_error"}
CODES = {
    401: "invalid_api_key",
    404: "not_found",
    413: "body_too_large",
    429: "rate_limit_exceeded",
    503: "service_unavailable",
    504: "timeout",
}


class NoSuchModel(TutorialServerError):
    """A request is for another model than the one that is served."""


async def read_chat(request: Request) -> ChatRequest:
    """Read a body, and refuse one for another model."""
    chat = await read_as(ChatRequest, request)
    if chat.model is not None:
        _check_model(request, chat.model)
    return chat


Chat = Annotated[ChatRequest, Depends(read_chat)]


async def submit(request: Request, chat: Chat) -> AsyncIterator[Answer]:
    """Have a conversation gone on with, for as long as its client stays."""
    async with answered(request, chat.to_request()) as answer:
        yield answer


async def complete(
    request: Request, chat: Chat, answer: Annotated[Answer, Depends(submit)]
) -> Response:
    """Answer a conversation, whole or piece by piece."""
    engine = request.app.state.engine
    wording = Wording(answer, engine.state().model, chat.include_usage)
    if not chat.stream:
        return JSONResponse(wording.whole(await answer.finished()))

    def sse_event(payload: dict[str, Any]) -> str:
        return "".join(map(engine.steps.sse_event, wording.chunks(payload)))

    events = stream_events(answer, sse_event, error_event)
    return StreamingResponse(events, media_type="text/event-stream", headers=EVENT_STREAM_HEADERS)


async def models(request: Request) -> dict[str, Any]:
    """List what is served: one model, and none while it loads."""
    name = request.app.state.engine.state().model
    return {"object": "list", "data": [_model(request, name)] if name else []}


async def model(request: Request, name: str) -> dict[str, Any]:
    """Describe the model that is served, if it is this one."""
    _check_model(request, name)
    return _model(request, name)


def _model(request: Request, name: str) -> dict[str, Any]:
    created = request.app.state.created
    return {"id": name, "object": "model", "created": created, "owned_by": "tutorial-server"}


def _check_model(request: Request, name: str) -> None:
    served = request.app.state.engine.state().model
    if served is not None and name != served:  # one that is not there yet is no other one
        raise NoSuchModel(f"There is no such model here; this server has {served}.")


def error_body(
    status: int, sentence: str, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """Shape an error as OpenAI does; `param` names the field that is at fault."""
    kind = KINDS.get(status, "invalid_request_error")
    code = code or CODES.get(status)
    return {"error": {"message": sentence, "type": kind, "param": param, "code": code}}


def error_event(sentence: str) -> str:
    """Frame a failure after the 200 is out, without a name: OpenAI's clients look into the data."""
    return sse.sse_event(error_body(500, sentence))


def error_response(
    status: int,
    sentence: str,
    param: str | None = None,
    code: str | None = None,
    headers: dict[str, str] | None = None,
) -> JSONResponse:
    """Answer with an error before anything else was sent."""
    headers = headers or retry_after(status)
    return JSONResponse(error_body(status, sentence, param, code), status, headers)


async def refuse(request: Request, error: Exception) -> JSONResponse:
    """Answer our own errors."""
    if isinstance(error, TooLong):
        return error_response(400, str(error), "messages", "context_length_exceeded")
    if isinstance(error, BadConversation):
        return error_response(400, str(error), "messages")
    if isinstance(error, NoSuchModel):
        return error_response(404, str(error), "model", "model_not_found")
    return error_response(status_of(error), str(error))


async def refuse_invalid(request: Request, error: Exception) -> JSONResponse:
    """Answer the first fault of a body: OpenAI's shape has room for one."""
    assert isinstance(error, RequestValidationError)
    fault = error.errors()[0]
    param = "".join(f"[{at}]" if isinstance(at, int) else f".{at}" for at in fault["loc"])
    param = param.removeprefix(".")
    sentence = fault["msg"].removeprefix("Value error, ")
    return error_response(400, f"{param}: {sentence}" if param else sentence, param or None)


async def refuse_http(request: Request, error: Exception) -> JSONResponse:
    """Answer what has a status already, such as an address that is not there."""
    assert isinstance(error, HTTPException)
    return error_response(error.status_code, error.detail, headers=dict(error.headers or {}))


async def fail(request: Request, error: Exception) -> JSONResponse:
    """Answer a fault of our own, or of a learner's step; uvicorn logs it."""
    return error_response(500, FAILED)


def create_openai_app(state: State) -> FastAPI:
    """Put OpenAI's routes together, around the engine and the settings in `state`."""
    app = FastAPI(title="Tutorial Server, OpenAI's routes")
    app.state = state
    app.state.created = int(time.time())
    app.post("/chat/completions", openapi_extra=body_docs(ChatRequest))(complete)
    app.get("/models")(models)
    app.get("/models/{name:path}")(model)
    app.exception_handler(TutorialServerError)(refuse)
    app.exception_handler(RequestValidationError)(refuse_invalid)
    app.exception_handler(HTTPException)(refuse_http)
    app.exception_handler(Exception)(fail)
    return app
