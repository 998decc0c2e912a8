"""Settings: the same from code, from variables and from flags, and never changed."""

from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from tutorial_server.config import Settings

VARIABLES = {
    "model": ("Qwen/Qwen3-4B", "Qwen/Qwen3-4B"),
    "device": ("cuda:1", "cuda:1"),
    "dtype": ("bfloat16", "bfloat16"),
    "cache": ("/somewhere/else", Path("/somewhere/else")),
    "host": ("0.0.0.0", "0.0.0.0"),
    "port": ("9000", 9000),
    "max_body_bytes": ("1234", 1234),
    "max_waiting": ("0", 0),
    "max_running": ("3", 3),
    "kv_cache_gb": ("0.5", 0.5),
    "prefill_chunk": ("1", 1),
    "request_seconds": ("2.5", 2.5),
    "shutdown_seconds": ("0", 0),
    "api_key": ("s3cret", SecretStr("s3cret")),
}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"TUTORIAL_SERVER_{name.upper()}", raising=False)


def test_defaults() -> None:
    settings = Settings()
    assert (settings.host, settings.port) == ("127.0.0.1", 8000)
    assert settings.max_body_bytes == 1_000_000
    assert (settings.max_waiting, settings.max_running) == (64, 16)
    assert (settings.kv_cache_gb, settings.prefill_chunk) == (4.0, 128)
    assert settings.request_seconds == 300.0
    assert settings.shutdown_seconds == 2
    assert (settings.model, settings.device, settings.dtype) == (None, None, None)
    assert settings.cache.is_absolute()
    assert settings.cache.name == "tutorial_server"


def test_every_setting_is_tried_here() -> None:
    assert set(VARIABLES) == set(Settings.model_fields)


@pytest.mark.parametrize("name", VARIABLES)
def test_a_variable_sets_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, value = VARIABLES[name]
    monkeypatch.setenv(f"TUTORIAL_SERVER_{name.upper()}", text)
    assert getattr(Settings(), name) == value
    others = {other: getattr(Settings(), other) for other in VARIABLES if other != name}
    monkeypatch.delenv(f"TUTORIAL_SERVER_{name.upper()}")
    assert others == {other: getattr(Settings(), other) for other in others}


@pytest.mark.parametrize("name", VARIABLES)
def test_an_empty_variable_is_none(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    default = Settings()
    monkeypatch.setenv(f"TUTORIAL_SERVER_{name.upper()}", "")
    assert Settings() == default


def test_code_wins_over_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUTORIAL_SERVER_PORT", "9000")
    assert Settings(port=9001).port == 9001
    assert Settings().port == 9000


@pytest.mark.parametrize(
    "wrong",
    [
        {"port": 65536},
        {"port": -1},
        {"dtype": "int8"},
        {"max_body_bytes": 0},
        {"max_waiting": -1},
        {"max_running": 0},
        {"kv_cache_gb": 0},
        {"kv_cache_gb": float("inf")},
        {"kv_cache_gb": float("nan")},
        {"prefill_chunk": 0},
        {"request_seconds": 0},
        {"request_seconds": float("nan")},
        {"shutdown_seconds": -1},
        {"api_key": ""},
        {"api_key": "two words"},
        {"api_key": "schlüssel"},
        {"api_key": "line\n"},
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_when_made(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings(**wrong)  # type: ignore[arg-type]
    assert [error["loc"] for error in refused.value.errors()] == [tuple(wrong)]


def test_settings_do_not_change() -> None:
    settings = Settings()
    with pytest.raises(ValidationError):
        settings.port = 1  # type: ignore[misc]
    assert settings.port == 8000
