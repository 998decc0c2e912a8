"""Products with weights: packed or plain, fused or alone, they are the same products."""

from collections.abc import Iterator

import pytest
import torch
from opened import some_ids, theirs, variant
from torch import nn
from torch.nn.functional import linear

from tutorial_server import linear as module
from tutorial_server.linear import PackedLinear, PlainLinear, can_pack, fuse, padded
from tutorial_server.models import weight_bytes
from tutorial_server.transformer import Transformer

CPU = torch.device("cpu")
needs_packing = pytest.mark.skipif(
    not can_pack(CPU, torch.float32), reason="this torch cannot pack weights"
)


@pytest.fixture
def asks_anew() -> Iterator[None]:
    can_pack.cache_clear()
    yield
    can_pack.cache_clear()


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "can_pack", lambda device, dtype: False)


def projections(*widths: int, bias: bool = False, inputs: int = 12) -> list[nn.Linear]:
    torch.manual_seed(3)
    return [nn.Linear(inputs, width, bias=bias) for width in widths]


def rows(count: int, inputs: int = 12) -> torch.Tensor:
    return torch.randn(count, inputs, generator=torch.Generator().manual_seed(count))


# The two layouts.


@needs_packing
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 64, 130])
def test_packed_for_any_number_of_rows(count: int, bias: bool) -> None:
    (layer,) = projections(33, bias=bias, inputs=50)
    found = PackedLinear(layer.weight.detach(), layer.bias)(rows(count, 50))
    torch.testing.assert_close(found, layer(rows(count, 50)), atol=1e-5, rtol=1e-5)


@needs_packing
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("count", [1, 8, 16, 17, 130])
def test_packed_takes_up_a_sum(count: int, bias: bool) -> None:
    (layer,) = projections(33, bias=bias, inputs=50)
    plus, before = rows(count, 33), rows(count, 33)
    found = PackedLinear(layer.weight.detach(), layer.bias)(rows(count, 50), plus)
    wanted = before + layer(rows(count, 50))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    assert torch.equal(plus, before), "what was added stays as it was"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_packed_in_half_precision_where_it_can_be(dtype: torch.dtype) -> None:
    (layer,) = projections(9)
    layer = layer.to(dtype)
    found = fuse([layer])(rows(3).to(dtype))
    assert found.dtype == dtype
    torch.testing.assert_close(found, layer(rows(3).to(dtype)), atol=2e-2, rtol=2e-2)


def test_plain_is_bit_for_bit_the_module() -> None:
    (layer,) = projections(9, bias=True)
    plain = PlainLinear(layer.weight, layer.bias)
    assert torch.equal(plain(rows(5)), layer(rows(5)))
    assert torch.equal(plain(rows(5), rows(5, 9)), rows(5, 9) + layer(rows(5)))


# Is packing to be had?


def test_nothing_is_packed_for_another_device() -> None:
    assert not can_pack(torch.device("meta"), torch.float32)
    assert not can_pack(torch.device("cuda:0"), torch.float16)


def test_operators_that_are_gone_are_not_relied_on(
    asks_anew: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(self: object, weight: object, bias: object = None) -> None:
        raise AttributeError("'_OpNamespace' 'mkldnn' object has no attribute")

    monkeypatch.setattr(PackedLinear, "__init__", gone)
    assert not can_pack(CPU, torch.float32)
    assert isinstance(fuse(projections(4)), PlainLinear)


@pytest.mark.parametrize("wrong", ["product", "sum"])
def test_operators_that_are_wrong_are_not_relied_on(
    wrong: str, asks_anew: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = PackedLinear.__call__

    def call(self: PackedLinear, x: torch.Tensor, plus: torch.Tensor | None = None) -> torch.Tensor:
        if (wrong == "sum") is (plus is None):
            return right(self, x, plus)
        return torch.zeros(3, 7)

    monkeypatch.setattr(PackedLinear, "__call__", call)
    assert not can_pack(CPU, torch.float32)
    assert isinstance(fuse(projections(4)), PlainLinear)


def test_asking_leaves_the_random_state_alone(asks_anew: None) -> None:
    torch.manual_seed(1)
    wanted = torch.rand(1)
    torch.manual_seed(1)
    can_pack(CPU, torch.float32)
    assert torch.equal(torch.rand(1), wanted)


# Fusing.


@pytest.mark.parametrize("bias", [False, True])
def test_fused_is_each_beside_the_others(bias: bool) -> None:
    layers = projections(8, 4, 4, bias=bias)
    found = fuse(layers)(rows(5))
    wanted = torch.cat([layer(rows(5)) for layer in layers], dim=-1)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def test_fused_plain_is_bit_for_bit_one_product_of_joined_weights(plain: None) -> None:
    layers = projections(8, 4)
    joined = torch.cat([layer.weight for layer in layers])
    assert torch.equal(fuse(layers)(rows(5)), linear(rows(5), joined))


@pytest.mark.parametrize("bias", [False, True])
def test_only_the_first_rows_of_a_head(bias: bool) -> None:
    (head,) = projections(20, bias=bias)
    found = fuse([head], 13)(rows(2))
    assert found.shape == (2, 13)
    torch.testing.assert_close(found, head(rows(2))[:, :13], atol=1e-5, rtol=1e-5)


def test_plain_weights_are_held_once(plain: None) -> None:
    layers = projections(8, 4)
    before = [layer.weight.clone() for layer in layers]
    fused = fuse(layers)
    assert isinstance(fused, PlainLinear)
    ours = fused.weight.untyped_storage().data_ptr()
    for layer, weight in zip(layers, before, strict=True):
        assert torch.equal(layer.weight, weight)
        assert layer.weight.untyped_storage().data_ptr() == ours
    (alone,) = projections(4)
    assert fuse([alone]).weight.data_ptr() == alone.weight.data_ptr()  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_a_model_opened_plainly_still_runs_as_theirs_does(plain: None, kind: str) -> None:
    llm = variant(kind)
    ids = some_ids(llm, 20)
    wanted, size = theirs(llm, ids), weight_bytes(llm)
    model = Transformer(llm)
    Transformer(llm)  # again: what was joined once is joined again, and nothing else changes
    assert torch.equal(theirs(llm, ids), wanted)
    assert weight_bytes(llm) == size
    theirs_at = {w.untyped_storage().data_ptr() for w in llm.model.parameters()}
    first = model.layers[0].out
    assert first.weight.untyped_storage().data_ptr() in theirs_at  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("count", "wanted"),
    [
        (1, 1),
        (7, 7),
        (16, 16),
        (17, 24),
        (64, 64),
        (65, 80),
        (128, 128),
        (129, 192),
        (512, 512),
        (513, 1024),
    ],
)
def test_few_numbers_of_rows_ever_reach_the_kernels(count: int, wanted: int) -> None:
    assert padded(count) == wanted


def test_no_prompt_needs_a_kernel_of_its_own() -> None:
    assert len({padded(count) for count in range(1, 4097)}) == 39


@needs_packing
@pytest.mark.parametrize("count", [1, 16, 17, 31, 130, 513])
def test_rows_that_were_added_are_not_seen(count: int) -> None:
    layer = projections(4)[0]
    found = fuse([layer])(rows(count))
    assert found.shape == (count, layer.out_features)
    torch.testing.assert_close(found, linear(rows(count), layer.weight), atol=1e-5, rtol=1e-5)
