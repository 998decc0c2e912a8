import pytest
import torch

from tutorial_server.errors import ModelError
from tutorial_server.loading import choice
from tutorial_server.loading.choice import HUB_MODEL, choose
from tutorial_server.loading.small_model import SMALL_MODEL

GB = 2**30


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MODEL", "DEVICE", "DTYPE"):
        monkeypatch.delenv(f"TUTORIAL_SERVER_{name}", raising=False)


def pretend_gpu(monkeypatch: pytest.MonkeyPatch, free: int, bf16: bool = True) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(choice, "free_bytes", lambda device: free)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: bf16)


def chosen(*given: str | None) -> tuple[str, str, torch.dtype]:
    found = choose(*given)
    return found.model, str(found.device), found.dtype


def test_no_gpu_means_the_small_model_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert chosen() == (SMALL_MODEL, "cpu", torch.float32)


@pytest.mark.parametrize(("bf16", "dtype"), [(True, torch.bfloat16), (False, torch.float16)])
def test_a_gpu_with_room_means_qwen_in_half_precision(
    monkeypatch: pytest.MonkeyPatch, bf16: bool, dtype: torch.dtype
) -> None:
    pretend_gpu(monkeypatch, free=10 * GB, bf16=bf16)
    assert chosen() == (HUB_MODEL, "cuda", dtype)


def test_a_gpu_without_room_means_the_small_model_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpu(monkeypatch, free=10 * GB - 1)
    assert chosen() == (SMALL_MODEL, "cuda:0", torch.float32)


def test_a_gpu_can_be_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpu(monkeypatch, free=100 * GB)
    assert chosen(None, "cpu") == (SMALL_MODEL, "cpu", torch.float32)
    assert chosen(HUB_MODEL, "cpu") == (HUB_MODEL, "cpu", torch.float32)


def test_the_small_model_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpu(monkeypatch, free=100 * GB)
    assert chosen("SmolLM2-135M", "cuda:0", "float16") == (SMALL_MODEL, "cuda:0", torch.float16)
    assert choose(SMALL_MODEL).model_is_given
    assert not choose().model_is_given


def test_what_is_given_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUTORIAL_SERVER_MODEL", "some/model")
    monkeypatch.setenv("TUTORIAL_SERVER_DEVICE", "cpu")
    monkeypatch.setenv("TUTORIAL_SERVER_DTYPE", "bfloat16")
    assert chosen() == ("some/model", "cpu", torch.bfloat16)
    assert chosen("other/model", "cpu", "float16") == ("other/model", "cpu", torch.float16)


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUTORIAL_SERVER_DTYPE", "int8")
    with pytest.raises(ModelError, match=r"^TUTORIAL_SERVER_DTYPE=int8 cannot be: ") as raised:
        choose()
    assert "\n" not in str(raised.value)
