"""The cache of many rows: one slot each, allocated before anybody asks."""

import heapq
import math
import mmap
import os

import torch
from torch import Tensor


class SlotCache:
    """Keys and values of every row that runs, `[L, slots, K, S, D]` each.

    A row keeps its slot from admission to its end, so admission is the only place where
    memory can run out. On a CPU the system gives a page only once it is written.
    """

    def __init__(
        self,
        layers: int,
        slots: int,
        kv_heads: int,
        length: int,
        head_dim: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ):
        shape = (layers, slots, kv_heads, length, head_dim)
        self.keys = _zeros(shape, dtype, torch.device(device))
        self.values = _zeros(shape, dtype, torch.device(device))
        self.slots = slots
        self.length = length
        self._free = list(range(slots))

    @property
    def free(self) -> int:
        """How many slots nobody has."""
        return len(self._free)

    def take(self) -> int:
        """Give the lowest free slot: neighbours attend in one product."""
        return heapq.heappop(self._free)

    def give_back(self, slot: int, used: int) -> None:
        """Free a slot of which the first `used` positions may have been written.

        A mask adds minus infinity to stale scores and multiplies stale values by 0, which
        hides only what is finite; so what a broken answer left must not meet the next.
        """
        self.keys[:, slot, :, :used] = 0
        self.values[:, slot, :, :used] = 0
        heapq.heappush(self._free, slot)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # Anonymous memory is zero, and not taken until it is written; in small pages, since a huge
    # one would take a whole slot's head for its first token.
    size = math.prod(shape) * dtype.itemsize
    flags = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if os.name == "posix" else {}
    memory = mmap.mmap(-1, size, **flags)  # private: reading an unwritten page takes none
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype).view(shape)
