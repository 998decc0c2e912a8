"""The cache of many rows: who gets which slot, and what the next one finds in it."""

import psutil
import pytest
import torch

from tutorial_server.slots import SlotCache


def cache(slots: int = 3, **kwargs) -> SlotCache:
    return SlotCache(layers=2, slots=slots, kv_heads=2, length=8, head_dim=4, **kwargs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_shape_format_and_zeros(dtype: torch.dtype) -> None:
    slots = cache(dtype=dtype)
    for half in (slots.keys, slots.values):
        assert half.shape == (2, 3, 2, 8, 4)
        assert half.dtype == dtype
        assert half.is_contiguous()
        assert not half.any()
    slots.keys[0, 0, 0, 0, 0] = 1
    assert not slots.values.any()


def test_the_lowest_free_slot_is_taken() -> None:
    slots = cache(slots=4)
    assert [slots.take() for _ in range(4)] == [0, 1, 2, 3]
    assert slots.free == 0
    for slot in (2, 0, 3):
        slots.give_back(slot, 0)
    assert slots.free == 3
    assert [slots.take() for _ in range(3)] == [0, 2, 3]


def test_nothing_is_taken_where_nothing_is_free() -> None:
    slots = cache(slots=1)
    slots.take()
    with pytest.raises(IndexError):
        slots.take()
    slots.give_back(0, 8)
    assert slots.take() == 0


def test_what_was_written_is_wiped_and_nothing_else() -> None:
    slots = cache()
    slots.keys.fill_(7)
    slots.values.fill_(torch.nan)
    slots.give_back(slots.take() + 1, 5)  # slot 1 of three
    for half in (slots.keys, slots.values):
        assert not half[:, 1, :, :5].any()
        for kept in (half[:, 0], half[:, 2], half[:, 1, :, 5:]):
            assert kept.isnan().all() or (kept == 7).all()


def test_memory_is_taken_only_once_it_is_written() -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    large = SlotCache(layers=4, slots=8, kv_heads=4, length=4096, head_dim=64)  # 2 × 134 MB
    assert process.memory_info().rss - before < 20e6
    slot = large.take()
    large.keys[:, slot, :, :10] = 1
    large.give_back(slot, 10)
    assert process.memory_info().rss - before < 40e6
    assert large.keys.nbytes == 4 * 8 * 4 * 4096 * 64 * 4
