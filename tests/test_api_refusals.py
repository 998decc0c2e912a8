"""What /generate and /stream refuse: before the first byte, alike, in JSON, without the prompt."""

import json
import logging
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from server import Reply, Server, events, joined, read_reply, request_bytes, serving
from tiny import CONTEXT_LENGTH, tiny_llama

from tutorial_server.chat import build_messages, encode_chat
from tutorial_server.config import Settings
from tutorial_server.runner import TransformersRunner

SECRET = "xyzzy-plugh"
LIMIT = 20_000
ROUTES = ("/generate", "/stream")


def body(**fields: Any) -> bytes:
    return json.dumps({"prompt": SECRET, "token_limit": 2, **fields}).encode()


def raw(text: str) -> bytes:
    """A body written by hand: `@` stands for a good beginning."""
    return text.replace("@", f'{{"prompt": "{SECRET}", "token_limit": 2').encode()


NOT_JSON = {
    "nothing": b"",
    "white space": b"  \n ",
    "text": SECRET.encode(),
    "half an object": raw("@"),
    "two objects": raw("@}@}"),
    "trailing comma": raw("@,}"),
    "single quotes": f"{{'prompt': '{SECRET}'}}".encode(),
    "comment": raw("@} // why"),
    "form": f"prompt={SECRET}".encode(),
    "raw newline in a string": f'{{"prompt": "{SECRET}\n"}}'.encode(),
    "Latin-1": f'{{"prompt": "{SECRET} \xe9"}}'.encode("latin-1"),
    "half a character": f'{{"prompt": "{SECRET} '.encode() + b'\xe2\x82"}',
    "overlong slash": f'{{"prompt": "{SECRET} '.encode() + b'\xc0\xaf"}',
    "surrogate in UTF-8": f'{{"prompt": "{SECRET} '.encode() + b'\xed\xa0\x80"}',
    "bad UTF-8 in a key": raw('@, "') + b'\xff": 1}',
    "UTF-16": body().decode().encode("utf-16"),
    "UTF-16, no mark": body().decode().encode("utf-16-le"),
    "UTF-32": body().decode().encode("utf-32"),
    "byte order mark": b"\xef\xbb\xbf" + body(),
    "NUL byte": raw("@}") + b"\0",
    "brackets": b"[" * 9_000,
    "closed brackets": b"[" * 9_000 + b"]" * 9_000,
    "braces": b'{"a":' * 3_000,
    "nested in prompt": b'{"prompt": ' + b"[" * 9_000 + b"]" * 9_000 + b"}",
    "nested in an unknown field": raw('@, "a": ' + "[" * 9_000 + "]" * 9_000 + "}"),
    "nested in stop": raw('@, "stop": ' + "[" * 9_000 + "]" * 9_000 + "}"),
    "lone surrogate": raw('@, "system": "\\ud800"}'),
    "lone trailing surrogate": raw('@, "system": "\\udc00"}'),
    "surrogates in the wrong order": raw('@, "system": "\\udc00\\ud800"}'),
    "half a surrogate escape": raw('@, "system": "\\ud83d\\u0041"}'),
    "lone surrogate in prompt": f'{{"prompt": "{SECRET} \\ud800"}}'.encode(),
    "lone surrogate in stop": raw('@, "stop": ["\\ud800"]}'),
    "lone surrogate in a key": raw('@, "\\ud800": 1}'),
    "lone surrogate in an unknown place": raw('@, "a": {"b": ["\\ud800"]}}'),
    "lone surrogate in an unknown key": raw('@, "a": {"\\ud800": 1}}'),
    "NaN": raw('@, "temperature": NaN}'),
    "Infinity": raw('@, "temperature": Infinity}'),
    "minus Infinity": raw('@, "temperature": -Infinity}'),
    "1e999": raw('@, "temperature": 1e999}'),
    "-1e999": raw('@, "temperature": -1e999}'),
    "NaN for top_p": raw('@, "top_p": NaN}'),
    "1e999 for top_p": raw('@, "top_p": 1e999}'),
    "NaN for token_limit": raw('@, "token_limit": NaN}'),
    "1e999 for seed": raw('@, "seed": 1e999}'),
    "NaN for prompt": b'{"prompt": NaN}',
    "NaN in an unknown field": raw('@, "a": NaN}'),
    "4301 digits": raw('@, "top_k": 1' + "0" * 4300 + "}"),
    "leading zero": raw('@, "top_k": 01}'),
    "plus": raw('@, "top_k": +1}'),
    "True": raw('@, "top_k": True}'),
}
WRONG = {
    "array": json.dumps([SECRET]).encode(),
    "array of requests": b"[" + body() + b"]",
    "string": json.dumps(SECRET).encode(),
    "number": b"1",
    "null": b"null",
    "true": b"true",
    "empty object": b"{}",
    "no prompt": b'{"token_limit": 2}',
    "prompt null": body(prompt=None),
    "prompt number": body(prompt=1),
    "prompt array": body(prompt=[SECRET]),
    "prompt object": body(prompt={"text": SECRET}),
    "prompt true": body(prompt=True),
    "prompt empty": body(prompt=""),
    "prompt blank": body(prompt=" \t\r\n\u2028\u3000\u00a0 "),
    "unknown field": body(max_tokens=3),
    "unknown secret field": body(**{SECRET: 1}),
    "unknown field with a secret": body(other={"deep": [SECRET]}),
    "capital Prompt": body(Prompt=SECRET),
    "token_limit 0": body(token_limit=0),
    "token_limit -1": body(token_limit=-1),
    "token_limit float": body(token_limit=2.0),
    "token_limit half": body(token_limit=2.5),
    "token_limit string": body(token_limit="2"),
    "token_limit secret": body(token_limit=SECRET),
    "token_limit true": body(token_limit=True),
    "token_limit null": body(token_limit=None),
    "token_limit array": body(token_limit=[2]),
    "token_limit huge": body(token_limit=10**18),
    "token_limit 30 digits": body(token_limit=10**30),
    "token_limit 4300 digits": raw('{"prompt": "a", "token_limit": 1' + "0" * 4299 + "}"),
    "temperature -1": body(temperature=-1),
    "temperature just below 0": body(temperature=-1e-300),
    "temperature string": body(temperature="0.5"),
    "temperature true": body(temperature=True),
    "temperature null": body(temperature=None),
    "temperature array": body(temperature=[0.5]),
    "top_k -1": body(top_k=-1),
    "top_k float": body(top_k=5.0),
    "top_k string": body(top_k="5"),
    "top_k false": body(top_k=False),
    "top_p -0.1": body(top_p=-0.1),
    "top_p 1.1": body(top_p=1.1),
    "top_p string": body(top_p="0.5"),
    "top_p true": body(top_p=True),
    "seed -1": body(seed=-1),
    "seed 2^63": body(seed=2**63),
    "seed float": body(seed=1.0),
    "seed string": body(seed="1"),
    "seed true": body(seed=True),
    "system number": body(system=1),
    "system array": body(system=[SECRET]),
    "stop null": body(stop=None),
    "stop string": body(stop=SECRET),
    "stop number": body(stop=[1]),
    "stop null inside": body(stop=[None]),
    "stop nested": body(stop=[[SECRET]]),
    "stop empty string": body(stop=[SECRET, ""]),
    "stop too many": body(stop=[SECRET] * 17),
    "stop too long": body(stop=[SECRET * 100]),
    "stop object": body(stop={SECRET: 1}),
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(
        lambda: TransformersRunner(tiny_llama()), Settings(max_body_bytes=LIMIT)
    ) as running:
        yield running


def assert_refused(reply: Reply, status: int) -> Any:
    assert reply.status == status, reply.body[:300]
    assert reply.headers["content-type"] == "application/json"
    assert reply.body.isascii() or reply.body.decode("utf-8")
    assert SECRET.encode() not in reply.body
    assert len(reply.body) < 5_000, "a refusal is short, whatever was sent"
    return reply.json()["detail"]


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("name", [*NOT_JSON, *WRONG])
def test_a_bad_body_is_422(server: Server, name: str, path: str, caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    sent = (NOT_JSON | WRONG)[name]
    detail = assert_refused(server.post(path, sent), 422)
    if isinstance(detail, list):
        assert detail
        for error in detail:
            assert set(error) == {"type", "loc", "msg"}
            assert error["msg"]
    else:
        assert "token_limit" in name and "context" in detail
    assert SECRET not in caplog.text
    assert "Traceback" not in caplog.text


def test_both_routes_refuse_alike(server: Server) -> None:
    for name, sent in (NOT_JSON | WRONG).items():
        one, other = (server.post(path, sent) for path in ROUTES)
        assert (one.status, one.body) == (other.status, other.body), name


def test_a_refusal_names_the_field(server: Server) -> None:
    detail = server.post("/generate", body(top_k="5", seed=-1)).json()["detail"]
    assert {error["loc"][0] for error in detail} == {"top_k", "seed"}
    nested = server.post("/generate", body(stop=["a", ""])).json()["detail"]
    assert nested[0]["loc"] == ["stop", 1]


def test_many_faults_make_one_short_refusal(server: Server) -> None:
    unknown = {f"{SECRET}{number}": 1 for number in range(900)}
    assert_refused(server.post("/generate", body(**unknown)), 422)
    assert_refused(server.post("/generate", body(stop=[1] * 5000)), 422)


def test_duplicate_keys_take_the_last(server: Server) -> None:
    reply = server.post("/generate", raw('@, "token_limit": 3, "token_limit": 1}'))
    assert reply.status == 200
    assert reply.json()["token_count"] <= 1


@pytest.mark.parametrize(
    "content_type", ["", "text/plain", "application/json; charset=utf-8", "image/png", ";;;"]
)
def test_the_content_type_does_not_matter(server: Server, content_type: str) -> None:
    reply = server.ask("POST", "/generate", body(), {"Content-Type": content_type})
    assert reply.status == 200
    assert reply.json()["finish_reason"] in ("stop", "length")


def test_a_missing_content_type_does_not_matter(server: Server) -> None:
    head = f"POST /generate HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body())}\r\n\r\n"
    with server.connect() as connection:
        connection.sendall(head.encode() + body())
        assert read_reply(connection).status == 200


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 1e308},
        {"temperature": 5e-324},
        {"temperature": 1e-38},
        {"temperature": 1},
        {"temperature": 1e39, "top_k": 1},
        {"temperature": 1.0, "top_k": 10**30},
        {"temperature": 1.0, "top_k": 0},
        {"temperature": 1.0, "top_p": 0},
        {"temperature": 1.0, "top_p": 5e-324},
        {"temperature": 1.0, "top_p": 1},
        {"seed": 2**63 - 1},
        {"seed": 0},
        {"system": ""},
        {"system": "\0<|im_end|>"},
        {"prompt": "\0"},
        {"prompt": "\ufffe\uffff\U0010ffff"},
        {"prompt": "{{ messages }}{% raw %}"},
        {"prompt": "\u200b"},
        {"stop": ["a"] * 16},
        {"stop": ["\U0001f600" * 1000]},
    ],
    ids=str,
)
def test_the_edges_of_what_is_allowed_work(server: Server, fields: dict[str, Any]) -> None:
    allowed = {"prompt": "hello", "token_limit": 4, **fields}
    answer = server.post("/generate", allowed)
    assert answer.status == 200, answer.body
    assert answer.json()["token_count"] <= 4
    assert server.stream(**allowed)[-1] == ("message", "[DONE]")


# The body's size.


def filled_to(size: int) -> bytes:
    return body() + b" " * (size - len(body()))


def chunked(data: bytes, size: int = 1000) -> bytes:
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in [*pieces, b""])


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("is_chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize(
    ("size", "status"), [(LIMIT, 200), (LIMIT + 1, 413), (50 * LIMIT, 413)], ids=str
)
def test_the_limit_of_a_body(
    server: Server, path: str, is_chunked: bool, size: int, status: int
) -> None:
    sent, headers = filled_to(size), {}
    if is_chunked:
        sent, headers = chunked(sent), {"Transfer-Encoding": "chunked"}
    reply = server.ask("POST", path, sent, headers)
    if status == 200:
        assert reply.status == 200
    else:
        assert str(LIMIT) in assert_refused(reply, 413)


def test_too_large_a_body_is_refused_before_it_is_sent(server: Server) -> None:
    head = request_bytes("POST", "/generate", None, {"Content-Length": str(10**12)})
    with server.connect() as connection:
        connection.sendall(head)
        assert_refused(read_reply(connection), 413)


@pytest.mark.parametrize("length", ["-1", "many", "1, 2", ""])
def test_a_senseless_length_is_refused(server: Server, length: str) -> None:
    with server.connect() as connection:
        connection.sendall(request_bytes("POST", "/generate", b"{}", {"Content-Length": length}))
        assert read_reply(connection).status == 400


def test_the_same_length_twice_is_one(server: Server) -> None:
    length = f"{len(body())}, {len(body())}"
    with server.connect() as connection:
        connection.sendall(request_bytes("POST", "/generate", body(), {"Content-Length": length}))
        assert read_reply(connection).status == 200


@pytest.mark.parametrize("path", ROUTES)
def test_expect_100_continue(server: Server, path: str) -> None:
    headers = {"Expect": "100-continue", "Content-Length": str(len(body()))}
    with server.connect() as connection:
        connection.sendall(request_bytes("POST", path, None, headers))
        assert connection.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body())
        reply = read_reply(connection)
    assert reply.status == 200


def test_expect_100_continue_for_too_much_is_413_at_once(server: Server) -> None:
    headers = {"Expect": "100-continue", "Content-Length": str(LIMIT + 1)}
    with server.connect() as connection:
        connection.sendall(request_bytes("POST", "/generate", None, headers))
        answer = connection.recv(4096)
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_a_body_that_trickles_in(server: Server) -> None:
    sent = request_bytes("POST", "/stream", body())
    with server.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in sent:
            connection.sendall(bytes([byte]))
        reply = read_reply(connection)
    assert events(reply.body)[-1] == ("message", "[DONE]")


@pytest.mark.parametrize("path", [*ROUTES, "/v1/chat/completions"])
@pytest.mark.parametrize("headers", [{"Content-Length": "90"}, {"Transfer-Encoding": "chunked"}])
def test_a_body_that_never_ends_is_408(path: str, headers: dict[str, str], caplog: Any) -> None:
    settings = Settings(request_seconds=0.3)
    with (
        serving(lambda: TransformersRunner(tiny_llama()), settings) as server,
        server.connect() as connection,
    ):
        begun = b"{" if "Content-Length" in headers else b"1\r\n{\r\n"
        connection.sendall(request_bytes("POST", path, begun, headers))
        connection.settimeout(5)
        reply = read_reply(connection)
        assert reply.status == 408
        assert "not complete after 0.3 s" in reply.body.decode()
        assert connection.recv(1) == b""  # it does not wait for the rest either
    assert [r.message for r in caplog.records if r.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("path", ROUTES)
def test_a_client_that_leaves_in_mid_body_leaves_no_traceback(
    server: Server, path: str, caplog: Any
) -> None:
    caplog.set_level(logging.INFO)
    with server.connect() as connection:
        connection.sendall(request_bytes("POST", path, body())[:-5])
        server.ask("GET", "/health")
    server.wait_connections(0)
    assert [r.message for r in caplog.records if r.levelno >= logging.WARNING] == []
    assert SECRET not in caplog.text
    assert server.generate(token_limit=1)["token_count"] <= 1


def test_after_a_refusal_the_connection_goes_on(server: Server) -> None:
    with server.connect() as connection:
        for sent, status in ((body(top_k=-1), 422), (filled_to(LIMIT + 1), 413), (body(), 200)):
            connection.sendall(request_bytes("POST", "/generate", sent))
            assert read_reply(connection).status == status


# Prompt and answer beside the context.


def prompt_of(tokens: int) -> str:
    bare = len(encode_chat(tiny_llama(), build_messages("z")))
    text = "z" * (1 + tokens - bare)
    assert len(encode_chat(tiny_llama(), build_messages(text))) == tokens
    return text


@pytest.mark.parametrize("path", ROUTES)
def test_over_the_context_is_422(server: Server, path: str) -> None:
    prompt = prompt_of(CONTEXT_LENGTH - 2)
    reply = server.post(path, prompt=prompt, token_limit=3)
    detail = assert_refused(reply, 422)
    assert f"{CONTEXT_LENGTH - 2} tokens" in detail
    assert str(CONTEXT_LENGTH) in detail
    assert prompt not in detail


def test_exactly_the_context_works(server: Server) -> None:
    prompt = prompt_of(CONTEXT_LENGTH - 3)
    answer = server.generate(prompt, token_limit=3)
    assert answer["prompt_tokens"] == CONTEXT_LENGTH - 3
    assert 0 <= answer["token_count"] <= 3
    assert joined(server.stream(prompt, token_limit=3)) == answer["text"]


# What is no route.


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", f"/{SECRET}", 404),
        ("POST", "/v2/nothing", 404),
        ("GET", "/generate", 405),
        ("GET", "/stream", 405),
        ("PUT", "/generate", 405),
        ("POST", "/health", 405),
        ("DELETE", "/ready", 405),
    ],
)
def test_what_is_no_route_is_refused_in_json(
    server: Server, method: str, path: str, status: int
) -> None:
    reply = server.ask(method, path)
    assert_refused(reply, status)
    if status == 405:
        assert reply.headers["allow"] in ("POST", "GET")


def test_head_has_no_body(server: Server) -> None:
    reply = server.ask("HEAD", "/health")
    assert reply.status in (200, 405)
    assert reply.body == b""
