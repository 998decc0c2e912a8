"""doctor says what is here, and what to do about what is not."""

import platform

import torch
from pydantic import SecretStr
from tiny import save_tiny

from tutorial_server.config import Settings
from tutorial_server.doctor import report


def test_names_python_torch_device_and_model(tmp_path):
    text = report(Settings(device="cpu", cache=tmp_path, model="smollm2-135m"))
    assert platform.python_version() in text
    assert f"torch {torch.__version__}" in text
    assert "device     cpu" in text
    assert "model      smollm2-135m in float32" in text
    assert "GB free of" in text


def test_says_that_the_small_model_will_be_fetched(tmp_path):
    text = report(Settings(device="cpu", cache=tmp_path / "none", model="smollm2-135m"))
    assert "not fetched yet" in text
    assert not (tmp_path / "none").exists()  # looking changes nothing


def test_a_missing_device_is_one_line_that_says_what_to_choose(tmp_path):
    text = report(Settings(device="cuda:77", cache=tmp_path))
    (line,) = [line for line in text.splitlines() if line.startswith("! device")]
    assert "cpu" in line


def test_a_full_disk_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr("tutorial_server.doctor.SMALL_MODEL_NEEDS_GB", 1e9)
    text = report(Settings(device="cpu", cache=tmp_path / "none", model="smollm2-135m"))
    assert "! disk" in text
    assert "TUTORIAL_SERVER_CACHE" in text


def test_another_model_is_named_as_given(tmp_path):
    text = report(Settings(device="cpu", cache=tmp_path, model="some/model", dtype="bfloat16"))
    assert "model      some/model in bfloat16" in text


def cache_lines(settings):
    text = report(settings).splitlines()
    return [line for line in text if line.startswith(("cache ", "! cache "))]


def test_the_cache_of_a_model_that_is_here(tmp_path):
    folder = save_tiny(tmp_path / "tiny")  # 2 layers × 2 heads × 16, keys and values, 4 bytes
    settings = Settings(device="cpu", cache=tmp_path, model=str(folder), max_running=5)
    assert cache_lines(settings) == ["cache      4.0 GB: 5 slots of 512 tokens, 1 KB a token"]
    half = Settings(device="cpu", cache=tmp_path, model=str(folder), kv_cache_gb=0.001)
    # 10^6 // 512 bytes = 1953 tokens, of which eight slots get 244, and three the whole 512
    assert cache_lines(half) == ["cache      0.0 GB: 3 slots of 512 tokens, 1 KB a token"]


def test_a_cache_for_which_there_is_no_room(tmp_path, monkeypatch):
    folder = save_tiny(tmp_path / "tiny")
    monkeypatch.setattr("tutorial_server.doctor.free_bytes", lambda device: 1e6)
    fits, warning = cache_lines(Settings(device="cpu", cache=tmp_path, model=str(folder)))
    assert fits == "cache      4.0 GB: 16 slots of 512 tokens, 1 KB a token"
    assert warning.startswith("! cache    full slots take 0.0 GB, and 0.0 GB are free")
    assert "--kv-cache-gb" in warning


def test_no_cache_where_the_config_is_not_at_hand(tmp_path):
    assert cache_lines(Settings(device="cpu", cache=tmp_path, model="smollm2-135m")) == []
    assert cache_lines(Settings(device="cpu", cache=tmp_path, model="some/model")) == []
    assert cache_lines(Settings(device="cpu", cache=tmp_path, model="not a\0name")) == []
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    assert cache_lines(Settings(device="cpu", model=str(tmp_path / "broken"))) == []


def test_a_model_of_another_family_answers_one_at_a_time(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    assert cache_lines(Settings(device="cpu", model=str(tmp_path))) == [
        "cache      one answer at a time: the model's type is gpt2"
    ]


def test_the_limits_stand_in_one_line(tmp_path):
    settings = Settings(
        device="cpu",
        cache=tmp_path,
        max_running=3,
        max_waiting=7,
        request_seconds=2.5,
        max_body_bytes=99,
        prefill_chunk=11,
    )
    (line,) = [line for line in report(settings).splitlines() if line.startswith("limits")]
    assert line == (
        "limits     up to 3 answers at once, 7 waiting, 2.5 s a request, 99 bytes a body, "
        "11 prompt tokens a step, no key"
    )
    locked = settings.model_copy(update={"api_key": SecretStr("open-sesame")})
    assert "11 prompt tokens a step, a key is asked for\n" in report(locked)
    assert "open-sesame" not in report(locked)
