"""A server beside other code: there while it is wanted, gone after."""

from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import FastAPI

from tutorial_server.background import background, start_in_background


def hello() -> FastAPI:
    app = FastAPI()
    app.get("/hello")(lambda: {"hello": "you"})
    return app


def test_serves_inside_the_block_and_not_after():
    with background(hello()) as url:
        assert httpx.get(f"{url}/hello").json() == {"hello": "you"}
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/hello")


def test_two_at_once_have_addresses_of_their_own():
    first, second = start_in_background(hello()), start_in_background(hello())
    try:
        assert first.url != second.url
        assert [httpx.get(f"{s.url}/hello").status_code for s in (first, second)] == [200, 200]
    finally:
        first.stop()
        second.stop()
    assert not first.thread.is_alive() and not second.thread.is_alive()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_app_that_does_not_start_says_so():
    @asynccontextmanager
    async def broken(app: FastAPI):
        raise RuntimeError("no disk")
        yield

    with pytest.raises(RuntimeError, match="did not start"):
        start_in_background(FastAPI(lifespan=broken))
