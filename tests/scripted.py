"""A server that says what a test tells it to: the page's other side, without a model."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from tutorial_server.page import mount_page

GAUGES = """\
# HELP tutorial_server:num_requests_running Requests that run now.
# TYPE tutorial_server:num_requests_running gauge
tutorial_server:num_requests_running{model_name="scripted"} 3.0
tutorial_server:num_requests_running_ever{model_name="scripted"} 99.0
tutorial_server:num_requests_waiting{model_name="scripted"} 2.0
tutorial_server:kv_cache_usage_perc{model_name="scripted"} 0.625
"""


@dataclass(frozen=True)
class Refusal:
    """An answer that is none: its status, its body, its headers."""

    status: int
    message: str
    headers: dict[str, str] = field(default_factory=dict)


class Hold:
    """Waits in the middle of an answer until the test lets it go on."""


BREAK = object()  # the answer ends here without its end
Line = str | float | Hold | dict[str, Any] | object


class Script:
    """What is answered, in order, and what was asked; `answer` is used when `replies` is empty.

    Of an answer's parts a text is a chunk, a number a pause in seconds, a dict an event.
    """

    def __init__(self, *answer: Line):
        self.begin(*answer)

    def begin(self, *answer: Line) -> None:
        """Forget what was said and asked."""
        self.answer: tuple[Line, ...] = answer or ("Hello", ", you.")
        self.replies: list[Refusal | tuple[Line, ...]] = []
        self.asked: list[dict[str, Any]] = []
        self.authorizations: list[str | None] = []
        self.left = 0  # clients that went before the end
        self.status = "ready"
        self.gauges: str | None = GAUGES
        self.timing: dict[str, float] | None = {"queue_ms": 0, "ttft_ms": 0, "latency_ms": 0}
        self.released = False

    def app(self) -> FastAPI:
        app = FastAPI()
        app.get("/ready")(self._ready)
        app.get("/metrics")(self._metrics)
        app.post("/v1/chat/completions")(self._complete)
        mount_page(app)
        return app

    async def _ready(self) -> Response:
        content = {"status": self.status, "model": "scripted" if self.status == "ready" else None}
        return JSONResponse(content, 200 if self.status == "ready" else 503)

    async def _metrics(self) -> Response:
        return PlainTextResponse(self.gauges or "", 200 if self.gauges else 404)

    async def _complete(self, request: Request) -> Response:
        self.asked.append(await request.json())
        self.authorizations.append(request.headers.get("authorization"))
        reply = self.replies.pop(0) if self.replies else self.answer
        if isinstance(reply, Refusal):
            error = {"error": {"message": reply.message, "type": "x", "param": None, "code": None}}
            return JSONResponse(error, reply.status, reply.headers)
        return StreamingResponse(self._events(reply), media_type="text/event-stream")

    async def _events(self, lines: tuple[Line, ...]) -> AsyncIterator[str]:
        try:
            yield _chunk({"role": "assistant", "content": ""})
            for line in lines:
                if line is BREAK:
                    return
                if isinstance(line, Hold):
                    await self._hold()
                elif isinstance(line, float):
                    await asyncio.sleep(line)
                else:
                    yield _chunk({"content": line}) if isinstance(line, str) else _event(line)
            for event in self._end(lines):
                yield event
        except asyncio.CancelledError:
            self.left += 1
            raise

    async def _hold(self) -> None:
        for _ in range(2000):
            if self.released:
                return
            await asyncio.sleep(0.01)
        raise AssertionError("nobody released the answer")

    def _end(self, lines: tuple[Line, ...]) -> list[str]:
        count = sum(isinstance(line, str) for line in lines)
        usage = {"prompt_tokens": 5, "completion_tokens": count, "total_tokens": 5 + count}
        end = {"choices": [], "usage": usage}
        if self.timing:
            end["timing"] = self.timing
        return [_chunk({}, "stop"), _event(end), "data: [DONE]\n\n"]


def _chunk(delta: dict[str, Any], finish_reason: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return _event({"object": "chat.completion.chunk", "choices": [choice], "usage": None})


def _event(payload: Any) -> str:
    return f"data: {json.dumps(payload)}\n\n"
