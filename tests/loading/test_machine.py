import pytest
import torch

from tutorial_server.errors import ModelError
from tutorial_server.loading import machine
from tutorial_server.loading.machine import (
    find_device,
    find_dtype,
    free_bytes,
    half_precision,
    ran_out_of_memory,
    sync_gpu,
)


@pytest.fixture
def two_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that torch sees two cards, with 3 and 5 GB free and 1 GB kept by torch."""
    free = {0: 3 * 10**9, 1: 5 * 10**9}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda card: (free[card], 8 * 10**9))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda card: 3 * 10**9)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda card: 2 * 10**9)


def no_cuda(monkeypatch: pytest.MonkeyPatch, built: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: built)


@pytest.mark.parametrize("name", ["cpu", "cpu:0", torch.device("cpu")])
def test_the_cpu_is_always_there(name: str | torch.device) -> None:
    assert find_device(name) == torch.device("cpu")


def test_no_name_means_the_gpu_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert find_device(None) == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert find_device(None) == torch.device("cuda")


@pytest.mark.usefixtures("two_cards")
def test_a_card_is_found_by_its_number() -> None:
    assert find_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(ModelError, match="no cuda:7 on this machine: choose cuda:0, cuda:1 or cpu"):
        find_device("cuda:7")


@pytest.mark.parametrize("name", ["nonsense", "xpu", "meta", "cuda:-1", "cuda:x", ""])
def test_a_device_that_nobody_knows(name: str) -> None:
    with pytest.raises(ModelError, match=f"no device called '{name}': choose cpu"):
        find_device(name)


@pytest.mark.parametrize(("built", "advice"), [(False, "install a CUDA build"), (True, "driver")])
def test_cuda_without_cuda(monkeypatch: pytest.MonkeyPatch, built: bool, advice: str) -> None:
    no_cuda(monkeypatch, built)
    with pytest.raises(ModelError, match=advice):
        find_device("cuda")


def test_mps_without_a_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ModelError, match="needs a Mac"):
        find_device("mps")


@pytest.mark.parametrize("name", ["bfloat16", "torch.bfloat16", torch.bfloat16])
def test_a_dtype_by_any_of_its_names(name: str | torch.dtype) -> None:
    assert find_dtype(name) is torch.bfloat16


@pytest.mark.parametrize("name", ["int8", "half", torch.int64, ""])
def test_a_dtype_that_weights_cannot_have(name: str | torch.dtype) -> None:
    with pytest.raises(ModelError, match="choose float32, float16, bfloat16"):
        find_dtype(name)


def test_half_precision_is_bfloat16_only_where_the_card_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    assert half_precision(cuda) is torch.bfloat16
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation
    )
    assert half_precision(cuda) is torch.float16


@pytest.mark.usefixtures("two_cards")
def test_free_memory_of_one_card_and_of_all() -> None:
    assert free_bytes(torch.device("cuda:1")) == 6 * 10**9
    assert free_bytes(torch.device("cuda")) == 10 * 10**9


def test_free_memory_of_the_machine() -> None:
    total = machine.psutil.virtual_memory().total
    assert 0 < free_bytes(torch.device("cpu")) < total


def test_lack_of_memory_is_told_from_other_faults() -> None:
    assert ran_out_of_memory(MemoryError())
    assert ran_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"))
    assert ran_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    assert ran_out_of_memory(OSError(12, "Cannot allocate memory"))
    assert not ran_out_of_memory(RuntimeError("shapes differ"))


def test_sync_gpu_waits_for_the_card_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    sync_gpu("cpu")
    assert waited == []
    sync_gpu("cuda:1")
    assert waited == [torch.device("cuda:1")]
