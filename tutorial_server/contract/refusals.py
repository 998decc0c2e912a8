"""What is refused, on both routes alike, before the first byte of an answer."""

import json
from collections.abc import Iterator
from typing import Any

from .check import Check, check
from .client import Client, Reply, Unmet

GROUP = "refusals"
ROUTES = ("/generate", "/stream")
SECRET = "PERSIMMON"
SIZES = (2_000_000, 40_000_000)  # bytes; a server may be set to take more than 1 MB


def _with(**fields: Any) -> bytes:
    return json.dumps({"prompt": "hello", "token_limit": 2, **fields}).encode()


BODIES: dict[str, tuple[str, bytes]] = {
    "unknown_field": ("a field that is not known", _with(temprature=0.5)),
    "wrong_type": ('a number as a string ("token_limit": "4")', _with(token_limit="4")),
    "missing_prompt": ("no prompt", b'{"token_limit": 2}'),
    "blank_prompt": ("a prompt of white space", _with(prompt=" \n ")),
    "out_of_range": ("a negative temperature", _with(temperature=-1)),
    "no_tokens": ("token_limit 0", _with(token_limit=0)),
    "bad_json": ("a body that is no JSON", b'{"prompt": "good-bye"'),
    "no_object": ("JSON that is no object", b'["hello"]'),
    "bad_utf8": ("a body that is not UTF-8", b'{"prompt": "\xff\xfe"}'),
    "nan": ("NaN", b'{"prompt": "hello", "temperature": NaN}'),
    "infinite": ("a number too large for a float", b'{"prompt": "hello", "temperature": 1e999}'),
    "half_a_surrogate": ("half a surrogate pair", b'{"prompt": "hello \\ud800"}'),
}
ADVICE = (
    "Validate the body before the response begins, and answer 422 with a list of what is "
    "wrong: type, loc and msg each."
)


def _refused(name: str, what: str, body: bytes) -> Check:
    def run(client: Client) -> None:
        for route in ROUTES:
            reply = client.post(route, body)
            if fault := _is_no_refusal(reply):
                raise Unmet(f"{route}: {fault}")

    expects = f"{what[0].upper()}{what[1:]} is refused: 422, `detail` lists type, loc and msg."
    return Check(f"refuses-{name.replace('_', '-')}", GROUP, expects, ADVICE, run)


def _is_no_refusal(reply: Reply) -> str:
    if reply.status != 422:
        return str(reply)
    detail = reply.object().get("detail")
    if not isinstance(detail, list) or not detail:
        return f"`detail` is no list of faults: {reply}"
    for fault in detail:
        if not isinstance(fault, dict) or not {"type", "loc", "msg"} <= set(fault):
            return f"a fault without type, loc or msg: {reply}"
    return ""


@check(
    GROUP,
    "A refusal repeats nothing of what was sent: prompts are private, and logs are read.",
    "Give type, loc and msg alone; frameworks add `input` by themselves.",
)
def refusals_echo_nothing(client: Client) -> None:
    """Send a word where it is refused, and look for it."""
    bodies = (
        _with(prompt=SECRET, token_limit=SECRET),
        _with(**{SECRET: 1}),
        f'{{"prompt": "{SECRET}'.encode(),
    )
    for route in ROUTES:
        for body in bodies:
            reply = client.post(route, body)
            if SECRET.encode() in reply.body:
                raise Unmet(f"{route} repeats it: {reply}")


@check(
    GROUP,
    "A token_limit beyond the model's context is refused: 422 with a `detail`.",
    "Compare prompt tokens + token_limit with the context before anything is sent.",
)
def refuses_over_context(client: Client) -> None:
    """Ask for more than any model holds."""
    for route in ROUTES:
        reply = client.post(route, _with(token_limit=10**9))
        if reply.status != 422 or not reply.object().get("detail"):
            raise Unmet(f"{route}: {reply}")


def _padded(size: int) -> Iterator[bytes]:
    yield b'{"prompt": "hello", "token_limit": 1'
    for _ in range(size // 50_000):
        yield b" " * 50_000
    yield b"}"


def _check_size(client: Client, chunked: bool) -> None:
    for route in ROUTES:
        for size in SIZES:
            body = _padded(size)
            reply = client.post(route, body if chunked else b"".join(body))
            if reply.status == 413:
                break
        else:
            raise Unmet(f"{route} took {size} bytes: {reply}")
        reply.object()


@check(
    GROUP,
    "A body over the limit (1 MB unless set) is refused: 413, as JSON.",
    "Compare Content-Length with the limit before the body is read.",
)
def refuses_large_body(client: Client) -> None:
    """Send one that says its length."""
    _check_size(client, chunked=False)


@check(
    GROUP,
    "A chunked body over the limit is refused as well: 413, as JSON.",
    "Count bytes while the body arrives; a chunked one does not say its length.",
)
def refuses_large_chunked_body(client: Client) -> None:
    """Send one that does not say its length."""
    _check_size(client, chunked=True)


CHECKS = (
    *(_refused(name, what, body) for name, (what, body) in BODIES.items()),
    refuses_over_context,
    refuses_large_body,
    refuses_large_chunked_body,
    refusals_echo_nothing,
)
