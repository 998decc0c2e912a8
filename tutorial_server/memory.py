"""Bytes: how many a KV cache takes, and how fast a device reads them."""

from time import perf_counter
from typing import Any

import torch

from .loading.machine import sync_gpu

BYTES_READ = {"cpu": 2**28, "cuda": 2**30}  # far more than a device's caches hold


def kv_cache_bytes(config: Any, tokens: int, bytes_per_value: int) -> int:
    """Say what a conversation costs in memory, before any of it is spent.

    In each layer a token leaves one key and one value for every key/value head. `config`
    is a transformers model's; `bytes_per_value` is 4 for float32, 2 for half precision.
    Every layer is taken to keep all tokens: one with a sliding window keeps fewer.
    """
    config = config.get_text_config()
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    values = 2 * config.num_hidden_layers * kv_heads * head_dim  # a token's keys and values
    return values * tokens * bytes_per_value


@torch.no_grad()
def measured_bandwidth(
    device: str | torch.device = "cpu", nbytes: int | None = None, rounds: int = 5
) -> float:
    """Measure how many bytes of weights a device can read in a second.

    Decoding multiplies every weight with one vector, so that is what is timed: a matrix of
    `nbytes` times a vector, where reading the matrix takes nearly all the time. The best of
    `rounds` counts, since everything else that runs can only slow it down.
    """
    device = torch.device(device)
    nbytes = nbytes or BYTES_READ.get(device.type, 2**28)
    dtype = torch.float32 if device.type == "cpu" else torch.float16
    columns = 2048
    matrix = torch.ones(nbytes // (columns * dtype.itemsize), columns, dtype=dtype, device=device)
    vector = torch.ones(columns, dtype=dtype, device=device)
    seconds = min(_seconds(matrix, vector) for _ in range(rounds + 1))  # the first warms up
    return matrix.numel() * matrix.element_size() / seconds


def _seconds(matrix: torch.Tensor, vector: torch.Tensor) -> float:
    """Time one product; the device is idle before it starts, and again when it is done."""
    sync_gpu(matrix.device)
    start = perf_counter()
    torch.mv(matrix, vector)
    sync_gpu(matrix.device)
    return perf_counter() - start
