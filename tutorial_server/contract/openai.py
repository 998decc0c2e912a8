"""OpenAI's routes, where the server has them."""

from typing import Any

from .check import check, is_count
from .client import Client, NotHere, Unmet

GROUP = "OpenAI's routes"
CHAT = "/v1/chat/completions"
SHAPE = "Compare with OpenAI's API reference; clients read these fields without asking."


def _model(client: Client) -> str:
    reply = client.get("/v1/models")
    if reply.status != 200:
        raise NotHere("the server has no /v1/models")
    try:
        return str(reply.object()["data"][0]["id"])
    except (Unmet, LookupError, TypeError):
        raise NotHere("/v1/models names no model") from None


def _asked(client: Client, text: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
    body = {"model": _model(client), "messages": messages, "max_tokens": 8, "temperature": 0}
    return {**body, **fields}


@check(
    GROUP,
    'GET /v1/models lists models: {"object": "list", "data": [{"id": …, "object": "model"}]}.',
    SHAPE,
)
def openai_models(client: Client) -> None:
    """Look at the list."""
    reply = client.get("/v1/models")
    if reply.status != 200:
        raise NotHere("the server has no /v1/models")
    found = reply.object()
    data = found.get("data")
    models = data if isinstance(data, list) else []
    right = all(isinstance(m, dict) and m.get("object") == "model" and m.get("id") for m in models)
    if found.get("object") != "list" or not models or not right:
        raise Unmet(str(reply))


@check(
    GROUP,
    "A chat completion has id, object, created, model, choices with message and "
    "finish_reason, and usage.",
    SHAPE,
)
def openai_completion(client: Client) -> None:
    """Look at one completion."""
    found = client.post(CHAT, _asked(client, "Name a flower.")).need(200).object()
    faults = [f"no `{name}`" for name in ("id", "created", "model") if not found.get(name)]
    if found.get("object") != "chat.completion":
        faults.append(f"`object` is {found.get('object')!r}")
    faults += _choice_faults(found.get("choices")) + _usage_faults(found.get("usage"))
    if faults:
        raise Unmet("; ".join(faults) + ".")


def _choice_faults(choices: Any) -> list[str]:
    try:
        message, reason = choices[0]["message"], choices[0]["finish_reason"]
        right = message["role"] == "assistant" and isinstance(message["content"], str)
    except (LookupError, TypeError):
        return ["no choices[0] with message.role, message.content and finish_reason"]
    faults = [] if right else [f"the message is {message!r}"]
    return faults if reason in ("stop", "length") else [*faults, f"finish_reason {reason!r}"]


def _usage_faults(usage: Any) -> list[str]:
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    found = usage if isinstance(usage, dict) else {}
    counts = [count for name in names if is_count(count := found.get(name))]
    if len(counts) != len(names) or counts[0] + counts[1] != counts[2]:
        return [f"`usage` is {usage!r}, not {' + '.join(names[:2])} = {names[2]}"]
    return []


@check(
    GROUP,
    "A streamed chat: chat.completion.chunk each, the role first, finish_reason last, [DONE].",
    SHAPE,
)
def openai_stream(client: Client) -> None:
    """Look at the chunks."""
    asked = _asked(client, "Name a fish.", stream=True)
    data = [payload for _, payload in client.stream_body(CHAT, asked).events]
    if data[-1:] != ["[DONE]"]:
        raise Unmet(f"at the end {data[-1:]}, not [DONE].")
    chunks = [chunk for chunk in data[:-1] if isinstance(chunk, dict)]
    if not chunks or any(c.get("object") != "chat.completion.chunk" for c in chunks):
        raise Unmet("an event that is no chat.completion.chunk.")
    try:
        choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
        role, reasons = choices[0]["delta"].get("role"), [c["finish_reason"] for c in choices]
    except (LookupError, TypeError, AttributeError):
        raise Unmet("a chunk without choices[0].delta and finish_reason.") from None
    if role != "assistant":
        raise Unmet(f"the first chunk's delta has the role {role!r}.")
    if reasons[-1] not in ("stop", "length") or any(reasons[:-1]):
        raise Unmet(f"finish_reasons {reasons}.")


@check(
    GROUP,
    "A streamed chat's pieces, joined, are the whole completion's content (temperature 0).",
    "Feed both from the same pieces.",
)
def openai_stream_equals_completion(client: Client) -> None:
    """Ask both ways."""
    asked = _asked(client, "Name a planet.")
    found = client.post(CHAT, asked).need(200).object()
    try:
        whole = found["choices"][0]["message"]["content"]
        events = client.stream_body(CHAT, {**asked, "stream": True}).events
        parts = [e["choices"][0] for _, e in events if isinstance(e, dict) and e["choices"]]
        joined = "".join(part["delta"].get("content") or "" for part in parts)
    except (LookupError, TypeError, AttributeError):
        raise NotHere("the shapes are not OpenAI's") from None
    if whole != joined:
        raise Unmet(f"whole {whole!r}, joined {joined!r}.")


@check(
    GROUP,
    'An error has OpenAI\'s shape: 4xx and {"error": {"message", "type", …}}.',
    "Give these routes error handlers of their own; SDKs read error.message.",
)
def openai_error(client: Client) -> None:
    """Send a conversation that is none."""
    reply = client.post(CHAT, _asked(client, "", messages="hello"))
    error = reply.object().get("error")
    shaped = isinstance(error, dict) and all(
        isinstance(error.get(name), str) for name in ("message", "type")
    )
    if not 400 <= reply.status < 500 or not shaped:
        raise Unmet(str(reply))


@check(
    GROUP,
    "A field that OpenAI has and the server does not know is passed over on this route.",
    "Ignore unknown fields here: SDKs send new ones before servers know them.",
)
def openai_unknown_field(client: Client) -> None:
    """Send one."""
    client.post(CHAT, _asked(client, "Name a stone.", service_tier="auto")).need(200)


CHECKS = (
    openai_models,
    openai_completion,
    openai_stream,
    openai_stream_equals_completion,
    openai_error,
    openai_unknown_field,
)
