"""Matrix products with a model's weights, laid out so that a few rows at a time are fast."""

import functools
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

ROWS = 8  # the layout is chosen for about so many rows, and serves any number
STEPS = ((16, 1), (64, 8), (128, 16), (512, 64))  # up to so many rows, in steps of so many


class Linear(Protocol):
    """A product with weights, and with `plus` a sum too, which the product's kernel may take up."""

    def __call__(self, x: Tensor, plus: Tensor | None = None) -> Tensor:
        """`x [N, in]`, `plus [N, out]` → `[N, out]`."""


class PackedLinear:
    """Weights in blocks, in the order in which oneDNN's kernels read them.

    As loaded, a product of a few rows is no faster than one of many. The operators are
    those that inductor puts in when it freezes a model; they are undocumented, so
    `can_pack` asks whether they are there, and right, before any is relied on.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS)
        self._bias = bias

    def __call__(self, x: Tensor, plus: Tensor | None = None) -> Tensor:
        """`x [N, in]`, `plus [N, out]` → `[N, out]`."""
        product = torch.ops.mkldnn._linear_pointwise
        if more := padded(len(x)) - len(x):
            wide = pad(x, (0, 0, 0, more))
            y = product(wide, self._packed, self._bias, "none", [], "")[:-more]  # [N, out]
            return y if plus is None else plus + y
        if plus is None:
            return product(x, self._packed, self._bias, "none", [], "")
        return product.binary(x, plus, self._packed, self._bias, "add")


def padded(rows: int) -> int:
    """Round a number of rows up to one of a few.

    oneDNN makes a kernel for each number that it meets and keeps it, half a megabyte at a
    time: were there one for each length of a prompt, memory would grow for hours.
    """
    step = next((step for most, step in STEPS if rows <= most), 512)
    return -(-rows // step) * step


class PlainLinear:
    """Weights as they were loaded, `[out, in]`, for a GPU and wherever packing is not to be had."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        self.weight = weight
        self.bias = bias

    def __call__(self, x: Tensor, plus: Tensor | None = None) -> Tensor:
        """`x [N, in]`, `plus [N, out]` → `[N, out]`."""
        y = linear(x, self.weight, self.bias)
        return y if plus is None else plus + y


def fuse(modules: Sequence[nn.Linear], rows: int | None = None, pack: bool = True) -> Linear:
    """Make one product of projections that read the same input: `[N, in]` → `[N, sum of out]`.

    With `rows`, only the first so many outputs. Where weights are not packed, the modules'
    own become views of the fused ones, so that nothing is held twice.
    """
    weight = _joined([module.weight for module in modules])[:rows]  # [out, in]
    bias = None if modules[0].bias is None else _joined([m.bias for m in modules])[:rows]
    if pack and can_pack(weight.device, weight.dtype):
        return PackedLinear(weight, bias)
    if len(modules) > 1:
        parts = weight.split([module.out_features for module in modules])
        for module, part in zip(modules, parts, strict=True):
            module.weight.data = part
    return PlainLinear(weight, bias)


def _joined(tensors: list[Tensor]) -> Tensor:
    """Join along the first dimension; one alone is not copied."""
    return tensors[0].detach() if len(tensors) == 1 else torch.cat(tensors).detach()


@functools.cache
def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    """Try oneDNN's operators on a small product: are they there, and right?"""
    if device.type != "cpu":
        return False
    x = torch.linspace(-1, 1, 15).view(3, 5).to(dtype)
    weight = torch.linspace(2, -1, 35).view(7, 5).to(dtype)
    bias = torch.linspace(0, 1, 7).to(dtype)
    plus = torch.linspace(3, 1, 21).view(3, 7).to(dtype)
    try:
        packed = PackedLinear(weight, bias)
        found = torch.stack((packed(x), packed(x, plus)))  # [2, 3, 7]
    except (AttributeError, RuntimeError):
        return False
    plain = linear(x, weight, bias)
    close = 1e-2 if dtype.itemsize < 4 else 1e-5  # the kernel may round once where we do twice
    return torch.allclose(found, torch.stack((plain, plus + plain)), atol=close, rtol=close)
