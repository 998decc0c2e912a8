"""What this machine can compute with: its devices, their memory and number formats."""

import re

import psutil
import torch

from ..errors import ModelError

DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
}
OUT_OF_MEMORY = re.compile("out of memory|n't allocate|not allocate|not enough memory", re.I)


def find_device(name: str | torch.device | None) -> torch.device:
    """Turn a name into a device that is really there; None is the GPU if there is one.

    Raises ModelError for a device that this machine or this torch does not have.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        device = torch.device("meta")  # known to torch, refused here like any other
    if device.type == "cpu":
        return torch.device("cpu")
    if device.type == "cuda":
        return _find_cuda(device)
    if device.type == "mps":
        return _find_mps()
    raise ModelError(f"There is no device called {str(name)!r}: choose cpu, cuda, cuda:1 … or mps.")


def _find_cuda(device: torch.device) -> torch.device:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0 and not torch.backends.cuda.is_built():
        raise ModelError(
            f"The installed torch {torch.__version__} cannot use {device}: "
            "install a CUDA build of torch, or choose the device cpu."
        )
    if count == 0:
        raise ModelError(f"No GPU for {device} was found: check its driver, or choose cpu.")
    if (device.index or 0) >= count:
        known = ", ".join(f"cuda:{index}" for index in range(count))
        raise ModelError(f"There is no {device} on this machine: choose {known} or cpu.")
    return device


def _find_mps() -> torch.device:
    if not torch.backends.mps.is_available():
        raise ModelError("mps needs a Mac with Apple silicon: choose the device cpu or cuda.")
    return torch.device("mps")


def find_dtype(name: str | torch.dtype) -> torch.dtype:
    """Turn a name into a number format for weights; ModelError for any other name."""
    dtype = DTYPES.get(str(name).removeprefix("torch."))
    if dtype is None:
        raise ModelError(f"There is no dtype called {str(name)!r}: choose {', '.join(DTYPES)}.")
    return dtype


def half_precision(device: torch.device) -> torch.dtype:
    """The 16-bit format that the device computes in itself, bfloat16 where it can."""
    if device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.float16
    return torch.float16 if device.type == "mps" else torch.bfloat16


def free_bytes(device: torch.device) -> int:
    """Bytes that new weights could take on the device; `cuda` alone means all its cards."""
    if device.type != "cuda":
        return psutil.virtual_memory().available  # mps shares it with the CPU
    cards = range(torch.cuda.device_count()) if device.index is None else [device.index]
    return sum(_free_on_card(card) for card in cards)


def _free_on_card(card: int) -> int:
    kept_by_torch = torch.cuda.memory_reserved(card) - torch.cuda.memory_allocated(card)
    return torch.cuda.mem_get_info(card)[0] + kept_by_torch


def ran_out_of_memory(error: Exception) -> bool:
    """Tell a lack of memory from other faults: each library words it in its own way."""
    return isinstance(error, MemoryError) or bool(OUT_OF_MEMORY.search(str(error)))


def no_room_error(name: str, device: torch.device) -> ModelError:
    """The sentence for a model that turned out not to fit while it was being read."""
    return ModelError(
        f"{name} does not fit into the free memory of {device}: close other programs, or "
        "choose a smaller dtype or model, of which smollm2-135m is the smallest."
    )


def sync_gpu(device: str | torch.device) -> None:
    """Wait until the device has done all its work, so that a clock read next is true.

    A GPU works on after a call has returned. A CPU does not, and nothing happens there.
    """
    device = torch.device(device)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
