"""A key, where one is set: who has it may ask, and nobody learns it."""

import itertools
import logging
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from pydantic import ValidationError
from server import PATIENCE, Reply, Server, read_reply, serving
from tiny import tiny_llama

from tutorial_server.auth import warn_if_open
from tutorial_server.cli import main
from tutorial_server.config import Settings
from tutorial_server.doctor import report
from tutorial_server.page import page_routes
from tutorial_server.runner import TransformersRunner

KEY = "s3cret-Key=/+"
CLOSED = (
    ("POST", "/generate"),
    ("POST", "/stream"),
    ("GET", "/metrics"),
    ("GET", "/docs"),
    ("GET", "/openapi.json"),
    ("POST", "/v1/chat/completions"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/tiny-llama"),
    ("GET", "/v1/nothing"),
    ("GET", "/v1"),
    ("GET", "/nothing"),
    ("GET", "//health"),
    ("GET", "/health/"),
    ("GET", "/health/../metrics"),
    ("GET", "/page/../metrics"),
    ("GET", "/%2e/metrics"),
    ("OPTIONS", "/generate"),
    ("HEAD", "/v1/models"),
)
WRONG = {
    "nothing": None,
    "empty": "",
    "scheme alone": "Bearer",
    "scheme and space": "Bearer ",
    "bare key": KEY,
    "another scheme": f"Basic {KEY}",
    "longer scheme": f"Bearers {KEY}",
    "another key": "Bearer other",
    "beginning": f"Bearer {KEY[:-1]}",
    "longer": f"Bearer {KEY}x",
    "capitals": f"Bearer {KEY.upper()}",
    "quoted": f'Bearer "{KEY}"',
    "two": f"Bearer {KEY}, Bearer {KEY}",
    "two words": f"Bearer {KEY} {KEY}",
    "Latin-1": "Bearer schl\xfcssel",
    "long": "Bearer " + "x" * 10_000,
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    settings = Settings(api_key=KEY, max_body_bytes=1000)  # type: ignore[arg-type]
    with serving(lambda: TransformersRunner(tiny_llama()), settings) as here:
        yield here


def asked(server: Server, method: str, path: str, *lines: bytes, body: bytes = b"") -> Reply:
    """Send header lines as they are, whatever they hold."""
    head = [f"{method} {path} HTTP/1.1".encode(), b"Host: localhost", *lines]
    head.append(b"Content-Length: %d" % len(body))
    with server.connect() as connection:
        connection.sendall(b"\r\n".join([*head, b"", body]))
        return read_reply(connection, method)


def authorization(value: str | None) -> list[bytes]:
    return [] if value is None else [b"Authorization: " + value.encode("latin-1")]


def assert_unauthorized(reply: Reply) -> None:
    assert reply.status == 401
    assert reply.headers["www-authenticate"] == "Bearer"
    assert KEY.encode() not in reply.body


@pytest.mark.parametrize(("method", "path"), CLOSED)
def test_all_is_closed_without_the_key(server: Server, method: str, path: str) -> None:
    reply = asked(server, method, path, body=b"{}")
    assert_unauthorized(reply)
    if method == "HEAD":
        return
    if path.startswith("/v1/"):
        error = reply.json()["error"]
        assert (error["code"], error["type"]) == ("invalid_api_key", "invalid_request_error")
    else:
        assert "Bearer" in reply.json()["detail"]


@pytest.mark.parametrize("path", ["/health", "/ready", *page_routes()])
def test_probes_and_the_pages_files_are_open(server: Server, path: str) -> None:
    assert asked(server, "GET", path).status == 200


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_key_is_refused(server: Server, name: str) -> None:
    assert_unauthorized(asked(server, "GET", "/v1/models", *authorization(WRONG[name])))


def test_bytes_that_are_no_text_are_refused(server: Server) -> None:
    for value in (b"\xff\xfe", b"Bearer \xe2\x82", b"Bearer \x80" * 3, b"\xc3\xbc \xc3\xbc"):
        assert_unauthorized(asked(server, "GET", "/metrics", b"Authorization: " + value))


def test_two_headers_are_one_too_many(server: Server) -> None:
    good, bad = authorization(f"Bearer {KEY}"), authorization("Bearer other")
    for lines in itertools.product((good, bad), repeat=2):
        assert_unauthorized(asked(server, "GET", "/metrics", *lines[0], *lines[1]))


@pytest.mark.parametrize("value", [f"Bearer {KEY}", f"bearer {KEY}", f"BEARER   {KEY}"])
def test_the_key_opens_everything(server: Server, value: str) -> None:
    for path, status in (("/metrics", 200), ("/v1/models", 200), ("/docs", 200), ("/no", 404)):
        assert asked(server, "GET", path, *authorization(value)).status == status
    headers = {"Authorization": value}
    body = {"prompt": "hello", "token_limit": 2}
    assert server.ask("POST", "/generate", body, headers).json()["token_count"] == 2
    assert server.ask("POST", "/stream", body, headers).body.endswith(b"data: [DONE]\n\n")


def test_openais_client_sends_it(server: Server) -> None:
    settings: Any = {"base_url": f"{server.url}/v1", "max_retries": 0, "timeout": PATIENCE}
    assert [m.id for m in openai.OpenAI(api_key=KEY, **settings).models.list()] == ["tiny-llama"]
    with pytest.raises(openai.AuthenticationError) as refused:
        openai.OpenAI(api_key="other", **settings).models.list()
    assert refused.value.code == "invalid_api_key"


def test_the_body_is_not_waited_for(server: Server) -> None:
    """A client that has sent its headers, and says that much will follow, has its answer."""
    for path in ("/generate", "/v1/chat/completions"):
        head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 999999999\r\n\r\n"
        with server.connect() as connection:
            connection.sendall(head.encode())
            assert_unauthorized(read_reply(connection))


def test_the_line_is_never_entered(server: Server) -> None:
    before = server.app.state.metrics.render()
    for _ in range(3):
        assert server.post("/generate", prompt="hello").status == 401
    server.wait_line(waiting=0, running=0)
    assert server.app.state.metrics.render() == before


def test_without_a_key_nothing_is_asked_for() -> None:
    with serving(lambda: TransformersRunner(tiny_llama())) as here:
        assert here.ask("GET", "/metrics").status == 200
        assert here.ask("GET", "/v1/models", headers={"Authorization": "Bearer any"}).status == 200
        assert here.generate(token_limit=2)["token_count"] == 2


# Nobody learns it.


def test_it_is_not_shown(server: Server, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    settings = server.app.state.settings
    server.ask("GET", "/metrics", headers={"Authorization": f"Bearer {KEY}"})
    server.ask("GET", "/metrics", headers={"Authorization": f"Bearer {KEY}x"})
    shown = (repr(settings), str(settings), settings.model_dump_json(), caplog.text)
    assert "GET /metrics" in caplog.text
    for text in shown:
        assert KEY not in text


def test_doctor_and_help_do_not_show_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: Any
) -> None:
    monkeypatch.setenv("TUTORIAL_SERVER_API_KEY", KEY)
    assert KEY not in report(Settings(device="cpu", cache=tmp_path, model="smollm2-135m"))
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    shown = capsys.readouterr().out
    assert "--api-key" in shown
    assert KEY not in shown


@pytest.mark.parametrize("key", ["two words", "schl\xfcssel", "line\n", " ", "\x7f"])
def test_a_key_that_no_header_can_hold_is_refused_unshown(
    key: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    with pytest.raises(ValidationError):
        Settings(api_key=key)  # type: ignore[arg-type]
    monkeypatch.setenv("TUTORIAL_SERVER_API_KEY", key)
    assert main(["serve"]) == 2
    told = capsys.readouterr().err
    assert "TUTORIAL_SERVER_API_KEY" in told
    assert key.strip() == "" or key not in told


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org", ""])
def test_an_open_door_is_said_aloud(host: str, caplog: Any) -> None:
    warn_if_open(Settings(host=host))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "TUTORIAL_SERVER_API_KEY" in record.getMessage()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_this_machine_alone_is_no_open_door(host: str, caplog: Any) -> None:
    warn_if_open(Settings(host=host))
    warn_if_open(Settings(host="0.0.0.0", api_key=KEY))  # type: ignore[arg-type]
    assert caplog.records == []
