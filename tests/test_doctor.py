"""doctor says what is here, and what to do about what is not."""

import platform

import torch

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
