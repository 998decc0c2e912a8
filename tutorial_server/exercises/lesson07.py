"""Cases of lesson 07: what is let in, what goes out, and when work is stopped."""

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

from fastapi import Request

from ..answering import cancel_when_gone, stream_events
from ..errors import GenerationFailed
from ..schemas import GenerateRequest
from ..sequence import Completion
from ..sse import read_events, sse_event
from .compare import Diagnosis, equal, expect
from .show import kind
from .task import Stage, Task, Words, Wrong

PATIENCE = 2.0  # seconds until something that should have happened counts as never


# GenerateRequest. Bodies are the bytes that a client sends.
def _verdict(model: Any, body: str) -> str:
    """What the learner's model says to a body: `taken` or `refused`."""
    from pydantic import ValidationError

    try:
        model.model_validate_json(body)
    except ValidationError:
        return "refused"
    return "taken"


def _request_type(model: Any) -> None:
    from pydantic import BaseModel

    good = inspect.isclass(model) and issubclass(model, BaseModel)
    expect(
        good,
        "GenerateRequest must be a class that inherits from pydantic's BaseModel.",
        expected=Words("class GenerateRequest(BaseModel)"),
        got=Words(kind(model)),
    )
    if "__init__" in vars(model):
        _verdict(model, '{"prompt": "Hi"}')  # the stub raises here


def _request_fields(model: Any) -> None:
    from pydantic import ValidationError

    body = '{"prompt": "Hi"}'
    try:
        found = model.model_validate_json(body)
    except ValidationError as error:
        missing = error.errors()[0]["loc"]
        raise Wrong(
            "A prompt alone is enough; the other fields have defaults. Which have yours?",
            expected=Words("taken"),
            got=Words(f"refused, because of {missing}"),
            given={"body": Words(body)},
        ) from None
    defaults = {"prompt": "Hi", "token_limit": 128, "temperature": 0.0, "top_k": None}
    got = {name: getattr(found, name, Words("missing")) for name in defaults}
    expect(
        got == defaults,
        "A prompt alone is enough; the other fields have these defaults.",
        expected=defaults,
        got=got,
    )


def _request_kept(model: Any) -> None:
    body = '{"prompt": "  Hi\\n"}'
    hint = "The prompt was changed: white space at its ends was typed, too. Refuse, or leave it."
    equal(model.model_validate_json(body).prompt, "  Hi\n", "prompt", hint)


def _says(name: str, about: str, cases: dict[str, str], hint: str, taken: bool = False) -> Stage:
    """A stage of bodies that must be refused (or taken); `cases` has a hint for each body."""

    def run(model: Any) -> None:
        right = "taken" if taken else "refused"
        for body, own in cases.items():
            got = _verdict(model, body)
            if got != right:
                raise Wrong(
                    own or hint,
                    expected=Words(right),
                    got=Words(got),
                    given={"body": Words(body)},
                )

    return Stage(name, about, run)


GENERATE_REQUEST = Task(
    name="GenerateRequest",
    lesson=7,
    minutes=15,
    difficulty="medium",
    statement="Write the pydantic model that lets good requests in, and nothing else.",
    solution=GenerateRequest,
    hints=(
        "pydantic refuses what a field's type and limits forbid; limits stand in Field(...). "
        "What is wanted for all fields alike stands once in model_config.",
        "prompt: str; token_limit: int of at least 1; temperature: float of at least 0; top_k: "
        "int of at least 0, or None. ConfigDict knows strict, extra and allow_inf_nan. White "
        "space alone needs a field_validator, or Field's pattern.",
        'model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False); '
        'prompt: str = Field(pattern=r"\\S"); token_limit: int = Field(128, ge=1); and so on.',
    ),
    stages=(
        Stage("type", "a pydantic model", _request_type),
        Stage("fields", "four fields and their defaults", _request_fields),
        _says(
            "good",
            "good requests are taken",
            {
                '{"prompt": "Hi", "token_limit": 1, "temperature": 2, "top_k": 0}': "",
                '{"prompt": "  Hi\\n", "temperature": 0.0, "top_k": null}': "",
                '{"prompt": "你好 🥳"}': "",
                '{"prompt": "Hi", "token_limit": 99999, "temperature": 99, "top_k": 99999}': "",
            },
            "This request is a good one, and yours refuses it. A limit is too narrow.",
            taken=True,
        ),
        Stage("kept", "the prompt as it was typed", _request_kept),
        _says(
            "types",
            "nothing is converted",
            {
                '{"prompt": "Hi", "token_limit": "12"}': "",
                '{"prompt": "Hi", "temperature": true}': "",
                '{"prompt": "Hi", "token_limit": 5.0}': "",
                '{"prompt": 5}': "",
                '{"prompt": null}': "A prompt of null was taken. It must be text, so str alone.",
            },
            "A value of another type was converted. A client's mistake should be said, not "
            "guessed away: ask for strict.",
        ),
        _says(
            "ranges",
            "numbers within their limits",
            {
                '{"prompt": "Hi", "token_limit": 0}': "A limit of 0 tokens asks for no answer: "
                "token_limit is at least 1.",
                '{"prompt": "Hi", "temperature": -0.1}': "A temperature below 0 was taken.",
                '{"prompt": "Hi", "top_k": -1}': "A negative top_k was taken.",
            },
            "A number outside its limits was taken.",
        ),
        _says(
            "finite",
            "numbers that are numbers",
            {
                '{"prompt": "Hi", "temperature": 1e999}': "",
                '{"prompt": "Hi", "temperature": NaN}': "",
            },
            "An infinite temperature, or none at all, was taken: ge=0 alone allows it. See "
            "allow_inf_nan.",
        ),
        _says(
            "unknown",
            "no field that nobody reads",
            {'{"prompt": "Hi", "temprature": 0.9}': ""},
            "A misspelt field was passed over in silence, so the client never learns of it. "
            "Forbid extra fields.",
        ),
        _says(
            "blank",
            "a prompt that says something",
            {
                '{"prompt": ""}': "An empty prompt was taken.",
                '{"prompt": " \\n\\t "}': "A prompt of white space alone was taken. Length alone "
                "does not show that.",
            },
            "A prompt that says nothing was taken.",
        ),
    ),
)


# stream_events
class FakeAnswer:
    """An answer that needs no engine: gives its pieces, then ends or breaks off."""

    def __init__(self, *pieces: str, error: Exception | None = None, gate: Any = None):
        self.request_id = "0" * 32
        self.cancelled = 0
        self._pieces, self._error, self._gate = pieces, error, gate
        self._over = False

    def __repr__(self) -> str:
        broken = f", then {type(self._error).__name__}" if self._error else ""
        return f"<answer of {len(self._pieces)} pieces{broken}>"

    async def __aiter__(self) -> AsyncIterator[str]:
        for number, piece in enumerate(self._pieces):
            if number and self._gate:
                await self._gate.wait()
            await asyncio.sleep(0)
            yield piece
        if self._error:
            raise self._error
        self._over = True

    @property
    def result(self) -> Completion:
        if not self._over:
            raise ValueError("the answer is not finished; there is nothing to sum up yet")
        return Completion("".join(self._pieces), [11, 12, 13], 27, 5.0, 9.0, "stop")

    def cancel(self) -> None:
        self.cancelled += 1


def _call(fn: Any, answer: FakeAnswer) -> AsyncIterator[Any]:
    got = fn(answer, sse_event)
    if not hasattr(got, "__anext__"):
        if inspect.iscoroutine(got):
            got.close()
        hint = "An async generator is asked for: an async def with yield in it."
        if inspect.isgenerator(got):
            hint = "It is a plain generator, and cannot wait for the answer. Write async def."
        raise Wrong(hint, expected=Words("an async generator"), got=Words(kind(got)))
    return got


async def _all(fn: Any, answer: FakeAnswer) -> list[tuple[str, str]]:
    """Everything that a client would read; a chunk may be str or bytes."""
    chunks = []
    async for chunk in _call(fn, answer):
        if not isinstance(chunk, str | bytes):
            raise Wrong(
                f"It gives {kind(chunk)}. Give what sse_event returns.",
                expected=Words("str or bytes"),
                got=chunk,
            )
        chunks.append(chunk.encode() if isinstance(chunk, str) else chunk)
    return list(read_events(chunks))


def _texts(events: list[tuple[str, str]]) -> list[str]:
    found = []
    for _, data in events:
        try:
            value = json.loads(data)
        except ValueError:
            continue
        if isinstance(value, dict) and "text" in value:
            found.append(value["text"])
    return found


def _stream_type(fn: Any) -> None:
    asyncio.run(_all(fn, FakeAnswer("Hi")))


def _stream_pieces(fn: Any) -> None:
    events = asyncio.run(_all(fn, FakeAnswer("One", " two\n", " three")))
    hint = 'Each piece is one event, sse_event({"text": piece}), in the order of the pieces.'
    if _texts(events) == ["One two\n three"]:
        hint = "All pieces came as one event. Send each as soon as it is there."
    elif events and events[0][0] == "error":
        hint = (
            "Something in your generator failed before the first piece, and it sent the error "
            "event. answer.result, for one, is there only when the pieces are through."
        )
    elif not _texts(events):
        hint = 'No event holds a text. Frame each piece: sse_event({"text": piece}).'
    known: list[Diagnosis] = [
        (
            ["One", "One two\n", "One two\n three"],
            "Each event holds all the text so far. Send the new piece alone.",
        ),
        (["One", "two", "three"], "You strip the pieces, and words will stick together."),
    ]
    equal(_texts(events), ["One", " two\n", " three"], "the texts", hint, known)


def _stream_arrives(fn: Any) -> None:
    async def first() -> Any:
        gate = asyncio.Event()
        events = _call(fn, FakeAnswer("One", " two", gate=gate))
        try:
            return await asyncio.wait_for(anext(events), PATIENCE)
        except TimeoutError:
            return Words("nothing, until the second piece was there too")

    got = asyncio.run(first())
    hint = "The first piece waited for the others: you collect, then send. Yield inside the loop."
    expect(
        not isinstance(got, Words),
        hint,
        expected=Words("the first event at once"),
        got=got,
    )


def _stream_end(fn: Any) -> None:
    events = asyncio.run(_all(fn, FakeAnswer("Hi")))
    expected = [
        ("message", '{"text": "Hi"}'),
        ("message", '{"finish_reason": "stop", "token_count": 3, "prompt_tokens": 27}'),
        ("message", "[DONE]"),
    ]
    if not events or events[-1][1] != "[DONE]":
        hint = "The stream does not say that it is complete: its last event is [DONE]."
        if events and events[-1][1] == '"[DONE]"':
            hint = "[DONE] came as JSON, in quotes. It is no payload: yield DONE as it stands."
        raise Wrong(hint, expected=expected, got=events)
    ends = [json.loads(d) for _, d in events[:-1] if "finish_reason" in d]
    wanted = {"finish_reason": "stop", "token_count": 3, "prompt_tokens": 27}
    hint = "Before [DONE] comes one event with finish_reason, token_count and prompt_tokens."
    got = {k: v for k, v in ends[0].items() if k in wanted} if ends else {}
    if got.get("token_count") == 27:
        hint = "token_count holds the prompt's tokens. Those generated are in result.token_ids."
    elif got.get("token_count") == 1:
        hint = "token_count holds the number of pieces. A piece may be of several tokens."
    expect(len(ends) == 1 and got == wanted, hint, expected=expected, got=events)


def _stream_failure(fn: Any) -> None:
    failing = FakeAnswer("The answer is", error=GenerationFailed("The model failed."))
    try:
        events = asyncio.run(_all(fn, failing))
    except GenerationFailed:
        raise Wrong(
            "The failure gets out of your generator, so the client's connection just breaks. "
            "Catch it, and send error_event.",
            expected=Words("an event called error"),
            got=Words("GenerationFailed was raised"),
            given={"answer": failing},
        ) from None
    shown = {"answer": failing}
    if any(data == "[DONE]" for _, data in events):
        hint = "A broken answer ends with [DONE], so it looks complete. After an error, stop."
        raise Wrong(hint, expected=Words("no [DONE]"), got=events, given=shown)
    if not events or events[-1][0] != "error":
        hint = "The answer broke off, and nothing says so. The last event must be error_event."
        raise Wrong(hint, expected=Words("an event called error"), got=events, given=shown)
    hint = "What came before the failure is lost. Send pieces as they come."
    equal(_texts(events), ["The answer is"], "the texts", hint)


def _stream_any_failure(fn: Any) -> None:
    secret = "prompt: my password is 1234"
    failing = FakeAnswer("So", error=RuntimeError(secret))
    try:
        events = asyncio.run(_all(fn, failing))
    except RuntimeError:
        raise Wrong(
            "Only GenerationFailed is caught. Whatever fails, the client must be told.",
            expected=Words("an event called error"),
            got=Words("RuntimeError was raised"),
            given={"answer": failing},
        ) from None
    expect(
        secret not in str(events),
        "The error's own text went to the client. What an unknown error says may be anything, "
        "even a prompt: send a sentence of your own.",
        expected=Words("an error event that says nothing from inside"),
        got=events,
    )
    expect(
        bool(events) and events[-1][0] == "error",
        "An unknown failure ends the stream without an error event.",
        expected=Words("an event called error"),
        got=events,
    )


def _stream_left(fn: Any) -> None:
    async def leave() -> None:
        events: Any = _call(fn, FakeAnswer("One", " two", " three"))
        await anext(events)
        await events.aclose()

    try:
        asyncio.run(leave())
    except RuntimeError as error:
        raise Wrong(
            "The client left, and your generator goes on sending: it catches the signal to "
            "close as if it were a failure. Catch Exception, not everything.",
            expected=Words("closes quietly"),
            got=Words(str(error)),
            given={"answer": Words("an answer that is closed after its first event")},
        ) from None


def _stream_socket(fn: Any) -> None:
    """The whole over a real socket."""
    import httpx
    from fastapi import FastAPI
    from fastapi.responses import StreamingResponse

    from ..background import background

    app = FastAPI()

    @app.post("/stream")
    async def stream() -> StreamingResponse:
        return StreamingResponse(fn(FakeAnswer("né", " 🥳"), sse_event))

    with background(app) as url:
        reply = httpx.post(f"{url}/stream", timeout=10)
    events = list(read_events([reply.content]))
    hint = "Over a real socket the events are others than before."
    equal(_texts(events), ["né", " 🥳"], "the texts", hint)


STREAM_EVENTS = Task(
    name="stream_events",
    lesson=7,
    minutes=15,
    difficulty="medium",
    statement="Write the heart of the /stream endpoint: an answer becomes events.",
    solution=stream_events,
    hints=(
        "Go over the answer with async for, and yield an event for each piece at once. After "
        "the loop yield what the result says, and then DONE. Failures become one last event.",
        "answer gives str; sse_event(dict) → str. answer.result has finish_reason, token_ids "
        "(a list) and input_tokens. DONE is a finished event; error_event(sentence) makes one.",
        "try: async for piece in answer: yield sse_event({'text': piece}); then result = "
        "answer.result, one more sse_event with its three fields, and yield DONE. except "
        "Exception: yield error_event('…').",
    ),
    stages=(
        Stage(
            "type",
            "an async generator of events",
            _stream_type,
            raises=((TypeError, "not iterable", "The pieces have to be waited for: async for."),),
        ),
        Stage("pieces", "an event for each piece", _stream_pieces),
        Stage("arrives", "each at once", _stream_arrives),
        Stage("end", "what it took, then [DONE]", _stream_end),
        Stage("failure", "an answer that breaks off", _stream_failure),
        Stage("any failure", "whatever breaks, without its insides", _stream_any_failure),
        Stage("left", "closed in the middle", _stream_left),
        Stage("socket", "over a real socket", _stream_socket),
    ),
)


# cancel_when_gone
class Inbox:
    """A request whose messages arrive when the check says so."""

    def __init__(self) -> None:
        self.asked = 0
        self.queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        scope = {"type": "http", "method": "POST", "path": "/stream", "headers": []}
        self.request = Request(scope, self._next)

    async def _next(self) -> dict[str, Any]:
        self.asked += 1
        return await self.queue.get()

    def put(self, type_: str) -> None:
        self.queue.put_nowait({"type": type_, "body": b"", "more_body": False})


def _watched(fn: Any, script: Callable[[Inbox, FakeAnswer, Any], Awaitable[None]]) -> None:
    """Run the learner's watcher beside a script that plays the client."""

    async def play() -> None:
        inbox, answer = Inbox(), FakeAnswer("Hi")
        task = asyncio.ensure_future(fn(inbox.request, answer))
        try:
            await script(inbox, answer, task)
        finally:
            task.cancel()
            await asyncio.wait([task], timeout=PATIENCE)
        if task.done() and not task.cancelled() and task.exception():
            raise task.exception()

    asyncio.run(play())


async def _a_moment(task: Any) -> None:
    await asyncio.wait([task], timeout=0.3)


def _gone_type(fn: Any) -> None:
    expect(
        inspect.iscoroutinefunction(fn),
        "It has to wait while others work, so it must be an async def.",
        expected=Words("an async def"),
        got=Words(kind(fn)),
    )

    async def script(inbox: Inbox, answer: FakeAnswer, task: Any) -> None:
        inbox.put("http.disconnect")
        await _a_moment(task)

    _watched(fn, script)


def _gone_waits(fn: Any) -> None:
    async def script(inbox: Inbox, answer: FakeAnswer, task: Any) -> None:
        await _a_moment(task)
        expect(
            not answer.cancelled,
            "The answer is cancelled although the client is still there. Wait for the message.",
            expected=Words("no cancel while the inbox is empty"),
            got=Words("answer.cancel() was called"),
        )

    _watched(fn, script)


def _gone_leaves(fn: Any) -> None:
    async def script(inbox: Inbox, answer: FakeAnswer, task: Any) -> None:
        await _a_moment(task)
        inbox.put("http.disconnect")
        await asyncio.wait([task], timeout=PATIENCE)
        expect(
            answer.cancelled > 0,
            "The client left, and the answer was not cancelled.",
            expected=Words("answer.cancel() after http.disconnect"),
            got=Words("no cancel"),
        )
        expect(
            task.done(),
            "The answer was cancelled, and your function goes on asking. A server says "
            "http.disconnect again and again, without a pause: return after the first.",
            expected=Words("your function returns"),
            got=Words("it still runs"),
        )

    _watched(fn, script)


def _gone_other_messages(fn: Any) -> None:
    async def script(inbox: Inbox, answer: FakeAnswer, task: Any) -> None:
        inbox.put("http.request")
        await _a_moment(task)
        expect(
            not answer.cancelled,
            "You cancel at the first message, whatever it says. The rest of a body comes the "
            "same way: look at the message's type.",
            expected=Words("no cancel after a message of type http.request"),
            got=Words("answer.cancel() was called"),
        )
        inbox.put("http.disconnect")
        await asyncio.wait([task], timeout=PATIENCE)
        expect(
            answer.cancelled > 0,
            "You read one message only. After another one, go on waiting.",
            expected=Words("answer.cancel() after http.request, then http.disconnect"),
            got=Words("no cancel"),
        )

    _watched(fn, script)


def _gone_is_polite(fn: Any) -> None:
    async def script(inbox: Inbox, answer: FakeAnswer, task: Any) -> None:
        loop = asyncio.get_running_loop()
        longest, last = 0.0, loop.time()
        for _ in range(30):
            await asyncio.sleep(0.01)
            longest, last = max(longest, loop.time() - last), loop.time()
            if longest > 0.5:
                break
        expect(
            longest < 0.5,
            "While it waits, nothing else runs: it holds the event loop. Wait with await, and "
            "never with time.sleep.",
            expected=Words("the event loop stays free"),
            got=Words("the event loop stood still"),
        )
        expect(
            inbox.asked < 150,
            "It asks again and again without a pause, which keeps a whole core busy. Wait for "
            "the next message: await request.receive().",
            expected=Words("a few looks at the inbox, or one long one"),
            got=Words(f"{inbox.asked} looks in a third of a second"),
        )

    _watched(fn, script)


CANCEL_WHEN_GONE = Task(
    name="cancel_when_gone",
    lesson=7,
    minutes=10,
    difficulty="medium",
    statement="Notice that the client has left, and stop the work.",
    solution=cancel_when_gone,
    hints=(
        "Messages from the client's side arrive in the request's inbox. Somebody has to read "
        "it while the answer is made. One message says that the connection is closed.",
        "await request.receive() gives the next message, a dict; its 'type' is "
        "'http.disconnect' when the client has left. Other types may come before.",
        "while True: message = await request.receive(); if its type is 'http.disconnect', "
        "call answer.cancel() and return.",
    ),
    stages=(
        Stage("type", "an async def", _gone_type),
        Stage("waits", "nothing happens while the client stays", _gone_waits),
        Stage("leaves", "the client leaves", _gone_leaves),
        Stage("other messages", "not every message is a farewell", _gone_other_messages),
        Stage("polite", "others run while it waits", _gone_is_polite),
    ),
)


# The bug hunt. What a learner is given ends the watcher only after a good ending.
async def answered(answer: Any, watch: Callable[[Any], Coroutine[Any, Any, None]]) -> str:
    """Collect a whole answer while `watch(answer)` looks out for the client."""
    watcher = asyncio.create_task(watch(answer))
    try:
        return "".join([piece async for piece in answer])
    finally:
        watcher.cancel()


async def _left_over(fn: Any, answer: FakeAnswer, cancel: bool = False) -> tuple[str, int]:
    """What came of one call, and how many watchers are still running after it."""
    watching, started = 0, 0

    async def watch(_: Any) -> None:
        nonlocal watching, started
        watching, started = watching + 1, started + 1
        try:
            await asyncio.Event().wait()
        finally:
            watching -= 1

    call = asyncio.create_task(fn(answer, watch))
    if cancel:
        await asyncio.sleep(0.02)
        call.cancel()
    await asyncio.wait([call], timeout=PATIENCE)
    await asyncio.sleep(0.02)
    if not call.done():
        call.cancel()
        hint = "It does not end. A watcher waits for ever: let it run beside, as a task."
        raise Wrong(hint, expected=Words("the answer"), got=Words("nothing"))
    if call.cancelled():
        return "cancelled", watching
    error = call.exception()
    if not started and not isinstance(error, NotImplementedError):
        hint = "Nobody watches now, so a client that leaves is not noticed. Keep the watcher."
        raise Wrong(hint, expected=Words("watch(answer) runs"), got=Words("it was never started"))
    return (type(error).__name__ if error else str(call.result())), watching


def _hunt(name: str, about: str, make: Callable[[], FakeAnswer], outcome: str, hint: str) -> Stage:
    def run(fn: Any) -> None:
        got, watching = asyncio.run(_left_over(fn, make()))
        if got == "NotImplementedError":
            raise NotImplementedError("answered")
        equal(got, outcome, "the outcome", "The answer, or its failure, must come out as before.")
        expect(watching == 0, hint, expected=Words("no watcher left"), got=Words("1 left"))

    return Stage(name, about, run)


def _hunt_cancelled(fn: Any) -> None:
    async def slow() -> tuple[str, int]:
        return await _left_over(fn, FakeAnswer("a", "b", gate=asyncio.Event()), cancel=True)

    got, watching = asyncio.run(slow())
    equal(got, "cancelled", "the outcome", "A cancelled task must end as cancelled: re-raise.")
    hint = "When the task itself is cancelled its watcher stays. Use finally, not except."
    expect(watching == 0, hint, expected=Words("no watcher left"), got=Words("1 left"))


ANSWERED = Task(
    name="answered",
    lesson=7,
    minutes=5,
    difficulty="medium",
    statement="Mend the function that leaves something running behind it.",
    solution=answered,
    hunt=True,
    hints=(
        "Which line ends the watcher, and in which cases is that line reached?",
        "An exception in the middle leaves the function at once. What must happen on every way "
        "out stands in a finally.",
        "Put the loop and the return into try:, and watcher.cancel() into finally:.",
    ),
    stages=(
        _hunt(
            "good",
            "a complete answer",
            lambda: FakeAnswer("a", "b"),
            "ab",
            "The watcher runs on after a good answer.",
        ),
        _hunt(
            "failure",
            "an answer that breaks off",
            lambda: FakeAnswer("a", error=GenerationFailed("no")),
            "GenerationFailed",
            "After a failure the watcher runs on for ever: the line that ends it was never "
            "reached.",
        ),
        Stage("cancelled", "a caller that gives up", _hunt_cancelled),
    ),
)

TASKS = (GENERATE_REQUEST, STREAM_EVENTS, CANCEL_WHEN_GONE, ANSWERED)
