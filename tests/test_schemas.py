"""What a body may hold, without HTTP around it."""

import json
import time
from typing import Any

import pytest
from pydantic import ValidationError

from tutorial_server.chat import DEFAULT_SYSTEM
from tutorial_server.schemas import MOST_FAULTS, GenerateRequest, GenerateResponse, Timing, faults
from tutorial_server.sequence import Completion, SamplingParams

SECRET = "xyzzy-plugh"


def refused(body: str | bytes) -> ValidationError:
    with pytest.raises(ValidationError) as error:
        GenerateRequest.model_validate_json(body)
    return error.value


def test_defaults() -> None:
    body = GenerateRequest.model_validate_json('{"prompt": "a"}')
    assert body.model_dump() == {
        "prompt": "a",
        "token_limit": 128,
        "temperature": 0.0,
        "top_k": None,
        "top_p": None,
        "seed": None,
        "system": None,
        "stop": [],
    }


def test_a_request_says_the_same_to_the_engine() -> None:
    body = GenerateRequest(
        prompt="p", token_limit=3, temperature=0.5, top_k=4, top_p=0.6, seed=7, stop=["x", "y"]
    )
    request = body.to_request()
    assert request.params == SamplingParams(3, 0.5, 4, 0.6, 7, ("x", "y"))
    assert request.messages == (
        {"role": "system", "content": DEFAULT_SYSTEM},
        {"role": "user", "content": "p"},
    )
    assert request.thinking is False


@pytest.mark.parametrize(("system", "count"), [(None, 2), ("", 1), ("Be brief.", 2)])
def test_the_system_message(system: str | None, count: int) -> None:
    messages = GenerateRequest(prompt="p", system=system).to_request().messages
    assert len(messages) == count
    assert messages[-1] == {"role": "user", "content": "p"}


def test_requests_share_nothing() -> None:
    one, other = GenerateRequest(prompt="p"), GenerateRequest(prompt="p")
    one.stop.append("x")
    assert other.stop == []
    assert GenerateRequest(prompt="p").stop == []


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "\ud800"},
        {"prompt": "a\udcff"},
        {"prompt": "a", "system": "\udfff"},
        {"prompt": "a", "stop": ["b", "\ud83d"]},
        {"prompt": "a", "temperature": float("nan")},
        {"prompt": "a", "temperature": float("inf")},
        {"prompt": "a", "top_p": float("nan")},
        {"prompt": "a", "token_limit": True},
        {"prompt": b"a"},
    ],
    ids=ascii,
)
def test_python_values_are_held_to_the_same(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as error:
        GenerateRequest(**fields)
    (fault,) = faults(error.value)
    assert fault["loc"][0] == [*fields][-1]
    json.dumps(fault, allow_nan=False).encode("ascii")


def test_text_is_taken_as_it_is() -> None:
    text = "  \U0001f600 e\u0301 \x00\x1b[31m \ufeff\r\n\ufffd "
    assert GenerateRequest.model_validate_json(json.dumps({"prompt": text})).prompt == text
    pair = '{"prompt": "\\ud83d\\ude00"}'
    assert GenerateRequest.model_validate_json(pair).prompt == "\U0001f600"


def test_a_fault_is_type_place_and_sentence() -> None:
    found = faults(refused(f'{{"prompt": "{SECRET}", "top_k": "{SECRET}", "stop": ["a", 1]}}'))
    assert [fault["loc"] for fault in found] == [("top_k",), ("stop", 1)]
    assert [set(fault) for fault in found] == [{"type", "loc", "msg"}] * 2
    assert SECRET not in str(found)


def test_an_unknown_field_is_not_named_but_the_known_ones_are() -> None:
    (fault,) = faults(refused(f'{{"prompt": "a", "{SECRET}": 1}}'))
    assert fault["type"] == "extra_forbidden"
    assert SECRET not in str(fault)
    for name in GenerateRequest.model_fields:
        assert name in fault["msg"]


def test_faults_without_end_are_counted_and_not_listed() -> None:
    unknown = ",".join(f'"{number:x}":1' for number in range(100_000))
    error = refused(f'{{"prompt":"a",{unknown}}}')
    start = time.perf_counter()
    (fault,) = faults(error)
    assert time.perf_counter() - start < 0.05
    assert fault["msg"] == "The body has 100000 faults."
    assert fault["loc"] == []


@pytest.mark.parametrize("count", [1, MOST_FAULTS, MOST_FAULTS + 1])
def test_how_many_faults_are_listed(count: int) -> None:
    unknown = ",".join(f'"{number}":1' for number in range(count))
    found = faults(refused(f'{{"prompt":"a",{unknown}}}'))
    assert len(found) == (count if count <= MOST_FAULTS else 1)


def test_times_are_rounded_to_microseconds() -> None:
    done = Completion("", [], 3, ttft_ms=1.23456, latency_ms=2.00049, finish_reason="stop")
    assert Timing.of(done).model_dump() == {
        "latency_ms": 2.0,
        "ttft_ms": 1.235,
        "queue_ms": 0.0,
    }


def test_a_response_says_200() -> None:
    assert GenerateResponse.model_fields["status_code"].default == 200
