"""Cases of lesson 08: the parts of a layer, rows of different age, and places in a cache."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu, relu, sigmoid, silu

from ..forward_pass import Chunk, ForwardPass
from ..layers import Angles, attend, frequencies, gate, rms_norm, rotate
from ..models import LLM
from ..slots import SlotCache
from ..transformer import Transformer
from .compare import Diagnosis, close, expect, gives, has_dtype, has_shape, instance
from .task import Stage, Task, Words, Wrong
from .tiny import tiny_model, tiny_tokenizer

CHUNKS = ((0, range(5, 12)), (1, range(40, 43)), (2, range(90, 102)))  # slots and their prompts
NEW = 7  # the token that every row runs next
ATOL = 1e-3  # between our logits and transformers'; logits here are 1 to 10


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _is_fp32(got: Any, hint: str = "") -> None:
    instance(got, Tensor, "a tensor")
    has_dtype(got, "the result", torch.float32, hint)


def _runs(hint: str, **part: Any) -> None:
    """Run a tiny model with the learner's part: three rows of different age, one step."""
    model = tiny_model()
    llm = LLM.of(tiny_tokenizer(), model, "tiny")
    opened = Transformer(llm, **part)
    cache = SlotCache(len(opened.layers), 3, opened.K, 32, opened.D)
    prompts = [Chunk(slot, 0, list(ids)) for slot, ids in CHUNKS]
    opened.forward(ForwardPass.over(prompts, cache.keys), cache)
    step = [Chunk(slot, len(ids), [NEW]) for slot, ids in CHUNKS]
    got = opened.forward(ForwardPass.over(step, cache.keys), cache)
    whole = [model(input_ids=torch.tensor([[*ids, NEW]])).logits[0, -1] for _, ids in CHUNKS]
    expected = torch.stack(whole)[:, : llm.vocab_size]
    close(got, expected, "logits", hint, atol=ATOL)


# rms_norm. Numbers that come out even: the size of [3, 4, 0, 0] is 2.5.
ROWS = torch.tensor([[3.0, 4.0, 0.0, 0.0], [2.0, 2.0, -2.0, -2.0]])
SMALL = torch.tensor([[3.0, 0.0, 4.0, 0.0]])
ONES = torch.ones(4)
WEIGHT = torch.tensor([1.0, 2.0, 3.0, -1.0])


def _norm_type(fn: Any) -> None:
    _is_fp32(fn(ROWS, ONES, 0.0))


def _norm_shape(fn: Any) -> None:
    general = "Every number of x is scaled, so the result has x's shape."
    sizes = "You return the size of each vector. Return x, divided by it."
    known = (lambda t: t.shape[-1:] != (4,), sizes)
    has_shape(fn(ROWS, ONES, 0.0), "the result", [2, 4], general, known)


def _norm_dimensions(fn: Any) -> None:
    x = _random(2, 3, 4)
    hint = "x may have any number of dimensions; the last one is the vector's. Take dim=-1."
    raised = fn(x, WEIGHT, 1e-5)
    has_shape(raised, "the result", [2, 3, 4], hint)
    close(raised, rms_norm(x, WEIGHT, 1e-5), "the result", hint)
    one = "A single vector, x of shape [4], is normed as well. Take dim=-1."
    close(fn(x[0, 0], WEIGHT, 1e-5), rms_norm(x[0, 0], WEIGHT, 1e-5), "the result", one)


def _norm_half(fn: Any) -> None:
    x, weight = (300 * ROWS).half(), WEIGHT.half()
    got = fn(x, weight, 1e-5)
    keeps = "x came in half precision (float16), and the result must be what x is: .to(x.dtype)."
    has_dtype(got, "the result", torch.float16, keeps)
    hint = (
        "In half precision, 900² is more than the format can hold. Compute in float32, "
        "x.float(), and bring the result back at the end."
    )
    close(got, rms_norm(x, weight, 1e-5), "the result", hint, atol=1e-2)


def _norm_model(fn: Any) -> None:
    norm = tiny_model().model.norm
    x = _random(3, 24)
    got = fn(x, norm.weight, norm.variance_epsilon)
    close(got, norm(x), "the result", "This is what a model's own norm gives.")


RMS_NORM = Task(
    name="rms_norm",
    lesson=8,
    minutes=10,
    difficulty="easy",
    statement="Bring each vector to a common length, then scale its numbers.",
    solution=rms_norm,
    hints=(
        "The size of a vector is the root of the mean of its squares. Divide each vector by its "
        "own size, and only then multiply with the weight.",
        "x is [..., D]. The mean is taken along the last dimension and kept as one: [..., 1], "
        "so that it fits each vector: mean(dim=-1, keepdim=True). weight is [D].",
        "x32 = x.float(); mean_square = x32.square().mean(dim=-1, keepdim=True); the vectors "
        "are x32 / (mean_square + eps).sqrt(). Bring that to x.dtype, times weight.",
    ),
    stages=(
        Stage("type", "a tensor, float32 here", _norm_type),
        Stage("shape", "the shape of x", _norm_shape),
        gives(
            "size",
            "each vector divided by the root of its mean square",
            lambda fn: fn(ROWS, ONES, 0.0),
            [[1.2, 1.6, 0, 0], [1, 1, -1, -1]],
            "the result",
            "Divide each vector by its own root of the mean of squares: 2.5 and 2 here.",
            (
                [[0.6, 0.8, 0, 0], [0.5, 0.5, -0.5, -0.5]],
                "You divide by the root of the *sum* of squares. The mean is asked for, or the "
                "numbers get smaller the longer the vector is.",
            ),
            (
                [[0.48, 0.64, 0, 0], [0.5, 0.5, -0.5, -0.5]],
                "You divide by the mean square itself. Take its root first.",
            ),
            (
                ROWS / ROWS.square().mean(0).sqrt(),
                "Your mean runs down the rows, so different tokens get mixed. Take dim=-1.",
            ),
            (
                ROWS / ROWS.square().mean().sqrt(),
                "You take one mean over all vectors. Each has a size of its own: dim=-1.",
            ),
            (
                ROWS / ROWS.abs().mean(-1, keepdim=True),
                "You take the mean of the absolute values. Square, take the mean, take the root.",
            ),
            (
                (ROWS - ROWS.mean(-1, keepdim=True)) / ROWS.std(-1, keepdim=True, correction=0),
                "You subtract the mean as well. That is LayerNorm; RMSNorm leaves it where it is.",
            ),
            (
                ROWS * torch.tensor([[2.5], [2.0]]),
                "You multiply by the size, where you should divide by it.",
            ),
            (
                [[2.4, 3.2, 0, 0], [2, 2, -2, -2]],
                "You multiply by 1 + weight. The weight, which is 1 here, is all there is to it.",
            ),
            atol=1e-5,
        ),
        gives(
            "weight",
            "number i of each vector times weight i",
            lambda fn: fn(SMALL, WEIGHT, 0.0),
            [[1.2, 0.0, 4.8, 0.0]],
            "the result",
            "Multiply with the weight after the division: number by number.",
            ([[1.2, 0.0, 1.6, 0.0]], "You do not use weight. Multiply with it at the end."),
            (
                rms_norm(SMALL * WEIGHT, ONES, 0.0),
                "You multiply with weight *before* the division, which then undoes part of it.",
            ),
            atol=1e-5,
        ),
        gives(
            "eps",
            "added to the mean square, inside the root",
            lambda fn: fn(torch.ones(1, 4), ONES, 3.0),
            [[0.5, 0.5, 0.5, 0.5]],
            "the result",
            "A vector of ones has mean square 1. With eps = 3 inside the root that is 4, so 2.",
            (torch.full((1, 4), 0.25), "Your eps stands outside the root. It belongs inside."),
            (torch.ones(1, 4), "You ignore eps, or add another number. The given one counts."),
            (
                torch.full((1, 4), 3**-0.5),
                "You take eps for the smallest mean square that is allowed. Add it, always.",
            ),
            atol=1e-5,
        ),
        gives(
            "zeros",
            "a vector of zeros stays one",
            lambda fn: fn(torch.zeros(1, 4), ONES, 1e-6),
            [[0.0, 0.0, 0.0, 0.0]],
            "the result",
            "Zero divided by zero is nan. Add eps before you divide.",
        ),
        Stage("dimensions", "x of one, two or three dimensions", _norm_dimensions),
        Stage("half precision", "squares that float16 cannot hold", _norm_half),
        Stage("whole", "what a model's own norm gives", _norm_model),
    ),
)


# gate. The halves differ in sign and size, so that each mix-up has its own result.
GATED = torch.tensor([[1.0, -2.0, 3.0, 5.0]])
OPENING, PASSING = GATED.chunk(2, -1)


def _gate_type(fn: Any) -> None:
    _is_fp32(fn(GATED))


def _gate_shape(fn: Any) -> None:
    general = "Each row of 2 M numbers becomes one of M: x [3, 4] gives [3, 2]."
    rows = "You cut the rows into two groups. Each row is cut in the middle: dim=-1."
    whole = "The result is as wide as x. One half is used up as the gate of the other."
    known = [
        (lambda t: t.shape[-1:] == (4,) and t.shape[0] != 3, rows),
        (lambda t: t.shape[-1:] == (4,), whole),
    ]
    has_shape(fn(_random(4, 4)[:3]), "the result", [3, 2], general, *known)


def _gate_large(fn: Any) -> None:
    x = torch.tensor([[1000.0, -1000.0, 2.0, 2.0]])
    hint = (
        "silu(1000) is 1000 and silu(−1000) is 0. Yours runs over, since e^1000 is inf: take "
        "silu or sigmoid from torch, which know about that."
    )
    close(fn(x), [[2000.0, 0.0]], "the result", hint)


def _gate_model(fn: Any) -> None:
    mlp = tiny_model().model.layers[0].mlp
    x = _random(3, 24)
    got = fn(torch.cat((mlp.gate_proj(x), mlp.up_proj(x)), dim=-1))
    has_shape(got, "the result", [3, 48], "Three rows of 96 numbers give three of 48.")
    close(mlp.down_proj(got), mlp(x), "what the MLP gives", "A model's MLP gives something else.")


GATE = Task(
    name="gate",
    lesson=8,
    minutes=5,
    difficulty="easy",
    statement="Let one half of each row say how far the other may pass.",
    solution=gate,
    hints=(
        "Cut each row in the middle. The first half goes through silu; then it is multiplied "
        "with the second, number by number.",
        "x is [N, 2 M]. x.chunk(2, dim=-1) gives two tensors of [N, M], and so is the result.",
        "opening, passing = x.chunk(2, dim=-1); silu(opening) is opening * opening.sigmoid(). "
        "Multiply that with passing.",
    ),
    stages=(
        Stage("type", "a tensor of float32", _gate_type),
        Stage("shape", "half as wide as x", _gate_shape),
        gives(
            "value",
            "silu of the first half, times the second",
            lambda fn: fn(GATED),
            silu(OPENING) * PASSING,
            "the result",
            "Row [1, −2, 3, 5]: silu(1) × 3 and silu(−2) × 5. silu(z) is z × sigmoid(z).",
            (
                silu(PASSING) * OPENING,
                "You open with the second half. The first is the gate, the second passes.",
            ),
            (
                silu(GATED[:, ::2]) * GATED[:, 1::2],
                "You pair neighbours. The halves lie one behind the other: 1 with 3, −2 with 5.",
            ),
            (
                silu(GATED[:, 1::2]) * GATED[:, ::2],
                "You pair neighbours. The halves lie one behind the other: 1 with 3, −2 with 5.",
            ),
            (
                sigmoid(OPENING) * PASSING,
                "You open with sigmoid. silu is z × sigmoid(z): it lets large numbers grow.",
            ),
            (relu(OPENING) * PASSING, "You open with relu. These models do it with silu."),
            (gelu(OPENING) * PASSING, "You open with gelu. These models do it with silu."),
            (
                gelu(OPENING, approximate="tanh") * PASSING,
                "You open with gelu. These models do it with silu.",
            ),
            (OPENING * PASSING, "Nothing is between the two halves. The gate goes through silu."),
            (silu(OPENING) * silu(PASSING), "Both halves go through silu. Only the gate does."),
            (
                silu(OPENING * PASSING),
                "silu comes too late: it is for the gate, before the product.",
            ),
            (silu(OPENING) + PASSING, "You add the halves. A gate multiplies: 0 holds all back."),
            atol=1e-4,
        ),
        Stage("large", "numbers that e to the power of cannot take", _gate_large),
        Stage("whole", "between a model's own matrices", _gate_model),
    ),
)


# frequencies. With 8 numbers a head and theta = 16: each is half as fast as the one before.
def _frequencies_type(fn: Any) -> None:
    got = fn(8, 16.0)
    instance(got, Tensor, "a tensor of D / 2 numbers")
    hint = "Return float32, as a model's own: no whole numbers, and no float64 either."
    has_dtype(got, "frequencies", torch.float32, hint)


def _frequencies_shape(fn: Any) -> None:
    general = "One number for each pair, and 8 numbers make 4 pairs: shape [4]."
    all_numbers = "You give one for each *number* of a head. Two numbers make one pair: [D / 2]."
    known = (lambda t: t.numel() == 8, all_numbers)
    has_shape(fn(8, 16.0), "frequencies", [4], general, known)


def _frequencies_model(fn: Any) -> None:
    model = tiny_model()
    theta = model.config.rope_parameters["rope_theta"]
    hint = "Right for one theta and wrong for another: it is 10,000 here, and D is 8 again."
    close(fn(8, theta), model.model.rotary_emb.inv_freq, "frequencies", hint)


FREQUENCIES = Task(
    name="frequencies",
    lesson=8,
    minutes=5,
    difficulty="easy",
    statement="Say how far each pair of a head turns from one position to the next.",
    solution=frequencies,
    hints=(
        "Pair 0 turns by 1 radian a position, and each further pair is slower by the same "
        "factor. After all D / 2 pairs, the factor would have made it 1 / theta.",
        "There are D / 2 pairs; pair i has theta to the power of −2 i / D. torch.arange(0, D, 2) "
        "holds all the 2 i.",
        "exponents = torch.arange(0, head_dim, 2).float() / head_dim; the result is 1 / theta "
        "to that power: 1.0 / theta**exponents.",
    ),
    stages=(
        Stage("type", "a tensor of float32", _frequencies_type),
        Stage("shape", "one number a pair: [D / 2]", _frequencies_shape),
        gives(
            "value",
            "theta to the power of −2 i / D for pair i",
            lambda fn: fn(8, 16.0),
            [1.0, 0.5, 0.25, 0.125],
            "frequencies",
            "For D = 8 the exponents are 0, −2/8, −4/8, −6/8; theta is 16.",
            ([1.0, 2.0, 4.0, 8.0], "Yours get faster. The exponent is negative: 1 / theta**…"),
            (
                [1.0, 1 / 4, 1 / 16, 1 / 64],
                "Your exponents run to twice what they should: for pair i it is 2 i / D.",
            ),
            (
                [16.0 ** (-i / 8) for i in range(4)],
                "Your exponents run to half of what they should: for pair i it is 2 i / D.",
            ),
            (
                [0.5, 0.25, 0.125, 0.0625],
                "You count pairs from 1. The first turns by exactly 1 radian a position.",
            ),
            ([0.125, 0.25, 0.5, 1.0], "Yours are in the wrong order: the fastest comes first."),
            ([1.0, 0.0, 0.0, 0.0], "Yours are cut to whole numbers. Divide with /, as floats."),
            ([1.0, 1.0, 1.0, 1.0], "All exponents are 0: an integer division? Divide with /."),
            (
                1 / 10_000.0 ** (torch.arange(4) / 4),
                "You take 10,000 for theta, whatever is given. The models of this course differ.",
            ),
            atol=1e-5,
        ),
        Stage("whole", "what a model's own rotation takes", _frequencies_model),
    ),
)


# rotate. One pair first, then two with different speeds, then rows and heads.
ONE_PAIR = torch.tensor([[[1.0, 0.0]]])  # [N, H, D]
TWO_PAIRS = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]])
AT_ONE = torch.tensor([1])


def _turned(x: Tensor, positions: Tensor, speeds: Sequence[float], *, sign: int = 1) -> Tensor:
    """What a rotation of pairs (i, i + D / 2) with any speeds gives."""
    return Angles.at(sign * positions, torch.tensor(speeds)).turn(x)


def _neighbours(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """What a rotation of pairs (2 i, 2 i + 1) gives."""
    N, H, D = x.shape
    halves = x.view(N, H, D // 2, 2).transpose(-1, -2).reshape(N, H, D)
    turned = rotate(halves, positions, theta)
    return turned.view(N, H, 2, D // 2).transpose(-1, -2).reshape(N, H, D)


def _rotate_type(fn: Any) -> None:
    hint = "x was float32, and positions are whole numbers. The result is to be as x is."
    _is_fp32(fn(TWO_PAIRS, AT_ONE, 25.0), hint)


MEET = "Your cosines have a row a token and meet the heads. Put a dimension between: cos[:, None]."


def _rotate_shape(fn: Any) -> None:
    x = _random(3, 2, 4)
    general = "Every number of x turns into another one, so the result has x's shape."
    stacked = "You stack the two halves, a dimension more. Join them as they were: torch.cat."
    known = [
        (lambda t: list(t.shape) == [3, 2, 2, 2], stacked),
        (lambda t: t.dim() > 3 or t.shape[1:2] != (2,), MEET),
    ]
    has_shape(fn(x, torch.tensor([0, 1, 2]), 100.0), "the result", [3, 2, 4], general, *known)


def _rotate_rows(fn: Any) -> None:
    x, positions = _random(3, 1, 4), torch.tensor([5, 0, 2])
    counted = (
        "You number the tokens 0, 1, 2. Their positions are given, and rows of a step may "
        "have any: here 5, 0 and 2."
    )
    first = "All rows are turned to the first row's position. Each has its own."
    close(
        fn(x, positions, 100.0),
        rotate(x, positions, 100.0),
        "the result",
        "Each of the N tokens is turned to its own position: 5, 0 and 2.",
        [
            (rotate(x, torch.arange(3), 100.0), counted),
            (rotate(x, torch.full((3,), 5), 100.0), first),
        ],
    )


def _rotate_heads(fn: Any) -> None:
    x = _random(1, 1, 4).expand(1, 3, 4)
    hint = (
        "Three heads of one token, all the same, must be turned alike: an angle belongs to a "
        "position and a pair, and not to a head."
    )
    close(fn(x, torch.tensor([9]), 100.0), rotate(x, torch.tensor([9]), 100.0), "the result", hint)
    square = _random(2, 2, 4)
    mixed = "With as many heads as tokens yours goes wrong: do your angles follow the tokens?"
    places = torch.tensor([3, 8])
    close(fn(square, places, 100.0), rotate(square, places, 100.0), "the result", mixed)


def _rotate_half(fn: Any) -> None:
    x, positions = _random(2, 1, 8).bfloat16(), torch.tensor([1001, 4003])
    got = fn(x, positions, 100.0)
    keeps = "x came in half precision (bfloat16), and the result must be what x is: .to(x.dtype)."
    has_dtype(got, "the result", torch.bfloat16, keeps)
    hint = (
        "In half precision the position 1001 is rounded to 1000. Work the angles out in "
        "float32, and bring only the result to x's format."
    )
    close(got, rotate(x, positions, 100.0), "the result", hint, atol=0.05)


def _rotate_runs(fn: Any) -> None:
    hint = "With your rotation a model says something else than transformers makes of it."
    _runs(hint, rotate=fn)


ROTATE = Task(
    name="rotate",
    lesson=8,
    minutes=20,
    difficulty="medium",
    statement="Turn queries or keys to their positions.",
    solution=rotate,
    helpers=(frequencies, Angles),
    hints=(
        "Number i of a head and number i + D / 2 are a point (a, b). Turned by an angle it lies "
        "at (a cos − b sin, a sin + b cos). The angle is position × frequency of pair i.",
        "positions[:, None] * frequencies is [N, D / 2]: an angle for each token and pair. Its "
        "cos and sin need a dimension for the heads: [N, 1, D / 2]. a = x[..., : D // 2] and "
        "b = x[..., D // 2 :] are [N, H, D / 2].",
        "speeds = theta ** (-torch.arange(half) / half), half = D // 2; angles = "
        "positions[:, None] * speeds; cos, sin = angles.cos()[:, None], angles.sin()[:, None]; "
        "torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1).to(x.dtype).",
    ),
    stages=(
        Stage("type", "a tensor, float32 here", _rotate_type),
        Stage("shape", "the shape of x", _rotate_shape, ((RuntimeError, "size of tensor", MEET),)),
        gives(
            "position 0",
            "nothing is turned at position 0",
            lambda fn: fn(TWO_PAIRS, torch.tensor([0]), 100.0),
            TWO_PAIRS,
            "the result",
            "At position 0 all angles are 0: cos is 1, sin is 0, and x stays as it is.",
            (
                _turned(TWO_PAIRS, AT_ONE, [1.0, 0.1]),
                "You count positions from 1. The given one counts, and here it is 0.",
            ),
            (
                TWO_PAIRS.view(2, 2).T.reshape(1, 1, 4),
                "Your numbers come out in another order. Join the two halves again as they "
                "were cut: all first numbers of the pairs, then all second.",
            ),
            atol=1e-5,
        ),
        gives(
            "one pair",
            "the point (1, 0), turned by 1 radian",
            lambda fn: fn(ONE_PAIR, AT_ONE, 100.0),
            _turned(ONE_PAIR, AT_ONE, [1.0]),
            "the result",
            "(1, 0) turned by 1 radian is (cos 1, sin 1) = (0.5403, 0.8415).",
            (ONE_PAIR, "Nothing is turned. Do the positions reach your angles?"),
            (
                _turned(ONE_PAIR, AT_ONE, [1.0], sign=-1),
                "You turn backwards: a sign is wrong. (a cos − b sin, a sin + b cos).",
            ),
            (
                _turned(ONE_PAIR, AT_ONE, [torch.pi / 180]),
                "You take the angle for degrees. position × frequency is in radians already.",
            ),
            (
                _turned(ONE_PAIR, AT_ONE, [0.01]),
                "Your first pair has the exponent of the second. The first turns by 1 radian.",
            ),
            (
                [[[math.cos(1), math.cos(1) * math.sin(1)]]],
                "Your b is worked out from an a that is turned already: you write into the tensor "
                "from which a was cut. Work both out first, then join them.",
            ),
            atol=1e-4,
        ),
        gives(
            "pairs",
            "number i with number i + D / 2, the first pair fast, the second slow",
            lambda fn: fn(TWO_PAIRS, AT_ONE, 25.0),
            _turned(TWO_PAIRS, AT_ONE, [1.0, 0.2]),
            "the result",
            "The pairs are (1, 3), turned by 1 radian, and (2, 4), turned by 0.2.",
            (
                _neighbours(TWO_PAIRS, AT_ONE, 25.0),
                "You pair neighbours, (1, 2) and (3, 4). In Llama's weights number i goes with "
                "number i + D / 2.",
            ),
            (
                _turned(TWO_PAIRS, AT_ONE, [1.0, 0.04]),
                "Your second pair is too slow: is your exponent 2 i / (D / 2)? It is 2 i / D.",
            ),
            (
                _turned(TWO_PAIRS, AT_ONE, [1.0, 25**-0.25]),
                "Your second pair is too fast: is your exponent i / D? It is 2 i / D.",
            ),
            (
                _turned(TWO_PAIRS, AT_ONE, [1.0, 5.0]),
                "Your second pair is faster than the first. The exponent is negative.",
            ),
            (
                _turned(TWO_PAIRS, AT_ONE, [1.0, 1.0]),
                "Both pairs turn at one speed. The second is slower: theta ** (−2 i / D).",
            ),
            (
                _turned(TWO_PAIRS, AT_ONE, [0.2, 1.0]),
                "Your speeds are in the wrong order: the first pair is the fastest.",
            ),
            (
                _turned(TWO_PAIRS, AT_ONE, [1.0, 0.01]),
                "Your theta is 10,000, whatever is given. It is a parameter.",
            ),
            atol=1e-4,
        ),
        Stage("rows", "each token at its own position", _rotate_rows),
        Stage("heads", "all heads of a token alike", _rotate_heads),
        Stage("half precision", "angles are worked out in float32", _rotate_half),
        Stage("whole", "your rotation runs a model, three rows of different age", _rotate_runs),
    ),
)


# attend. Variants of one product, so that each mistake is known by its result.
def _mix(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    lengths: Tensor,
    *,
    scale: float | None = None,
    share: Sequence[int] | None = None,
    dim: int = -1,
    unseen: Tensor | None = None,
    fill: float = float("-inf"),
) -> Tensor:
    """Attention with one thing changed; `share` says which key head each query head reads."""
    H, K, S = q.shape[1], keys.shape[1], keys.shape[2]
    share = [h // (H // K) for h in range(H)] if share is None else list(share)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if unseen is None:
        unseen = torch.arange(S) >= lengths[:, None]  # [B, S]
    scores = torch.einsum("bhd,bhsd->bhs", q, keys[:, share]) * scale
    weights = scores.masked_fill(unseen[:, None], fill).softmax(dim)  # [B, H, S]
    return torch.einsum("bhs,bhsd->bhd", weights, values[:, share])


def _inputs(*sizes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random q, keys and values for B, H, K and S; heads of 4 numbers."""
    B, H, K, S = sizes
    q = 2 * _random(B, H, 4, seed=1)
    return q, _random(B, K, S, 4, seed=2), _random(B, K, S, 4, seed=3)


def _attend_type(fn: Any) -> None:
    _is_fp32(fn(*_inputs(1, 2, 2, 3), torch.tensor([3])))


def _attend_shape(fn: Any) -> None:
    got = fn(*_inputs(1, 3, 3, 5), torch.tensor([5]))
    general = "Each row and head gets one mix of values: [B, H, D], here [1, 3, 4]."
    scores = "You return a number for each position: the weights. Mix the values with them."
    extra = "There is a dimension too many. Bring the result to [B, H, D] at the end."
    flat = "The heads are joined already. Leave them apart: [B, H, D]."
    known = [
        (lambda t: list(t.shape) == [1, 3, 5], scores),
        (lambda t: t.dim() == 4, extra),
        (lambda t: list(t.shape) == [1, 12], flat),
    ]
    has_shape(got, "the result", [1, 3, 4], general, *known)


ALL_MASKED = (
    "Some numbers are nan: a row has all its positions masked, so its weights are 0 / 0. Is your "
    "mask inverted?"
)
ONE_TOO_FEW = "You see one position too few: `lengths` = 3 means positions 0, 1 and 2."


def _attend_scores(fn: Any) -> None:
    q, keys, values = _inputs(1, 2, 2, 3)
    lengths = torch.tensor([3])
    scores = torch.einsum("bhd,bhsd->bhs", q, keys) / 2  # D is 4
    large = "Your scores are not divided by √D (here 2). One position then gets nearly all."
    by = "You divide by √H, the number of heads. What grows with D is divided by √D."
    squared = "You divide by D. Divide by its root."
    heads = (
        "Your softmax runs over the heads. The weights of one head, over all positions, are "
        "what adds up to 1: dim=-1."
    )
    known: list[Diagnosis] = [
        (lambda t: bool(t.isnan().any()), ALL_MASKED),
        (_mix(q, keys, values, torch.tensor([2])), ONE_TOO_FEW),
        (values.mean(dim=2), "All positions get the same weight. Is your mask inverted?"),
        (_mix(q, keys, values, lengths, scale=1.0), large),
        (_mix(q, keys, values, lengths, scale=2**-0.5), by),
        (_mix(q, keys, values, lengths, scale=0.25), squared),
        (_mix(q, keys, values, lengths, scale=2.0), "You multiply by √D. Divide by it."),
        (_mix(q, keys, values, lengths, dim=1), heads),
        (
            torch.einsum("bhs,bhsd->bhd", scores, values),
            "There is no softmax: your weights are the scores themselves.",
        ),
        (_mix(q, values, keys, lengths), "Keys and values have changed places."),
        (_mix(q, keys, keys, lengths), "You mix keys. Keys are for finding; mix the values."),
    ]
    hint = "softmax(q · key / √D) over the positions, then the mix of values with these weights."
    got = fn(q, keys, values, lengths)
    close(got, _mix(q, keys, values, lengths), "the result", hint, known, atol=1e-4)


def _attend_lengths(fn: Any) -> None:
    q, keys, values = _inputs(1, 2, 2, 5)
    lengths = torch.tensor([3])
    at = torch.arange(5)[None]  # [1, S]
    everything = torch.zeros(1, 5, dtype=torch.bool)
    inverted = "Your mask is inverted: you see what is stale, and not the first `lengths`."
    ignored = "You ignore lengths, and read what an earlier conversation has left behind."
    beyond = "You see one position too many: the first 3 are 0, 1 and 2."
    zero = (
        "You set the scores of unseen positions to 0. A score of 0 still gets a weight; minus "
        "infinity gets none."
    )
    weights = (
        "You set unseen weights to 0 after the softmax, so the rest adds up to less than 1. "
        "Mask the scores, before it."
    )
    whole = _mix(q, keys, values.where((at < 3)[:, None, :, None], 0.0), lengths, unseen=everything)
    known: list[Diagnosis] = [
        (lambda t: bool(t.isnan().any()), ALL_MASKED),
        (_mix(q, keys, values, lengths, unseen=everything), ignored),
        (_mix(q, keys, values, lengths, unseen=at < 3), inverted),
        (_mix(q, keys, values, lengths, unseen=at >= 2), ONE_TOO_FEW),
        (_mix(q, keys, values, lengths, unseen=at >= 4), beyond),
        (_mix(q, keys, values, lengths, fill=0.0), zero),
        (whole, weights),
    ]
    hint = "Of 5 positions the first 3 are the row's own. The others must have no weight."
    got = fn(q, keys, values, lengths)
    close(got, attend(q, keys, values, lengths), "the result", hint, known, atol=1e-4)


def _attend_groups(fn: Any) -> None:
    q, keys, values = _inputs(1, 4, 2, 3)
    lengths = torch.tensor([3])
    dealt = (
        "You deal out the heads like cards, 0 1 0 1. Neighbours share: query heads 0 and 1 read "
        "key head 0, heads 2 and 3 read 1. (repeat_interleave, not repeat.)"
    )
    known: list[Diagnosis] = [
        (_mix(q, keys, values, lengths, share=[0, 1, 0, 1]), dealt),
        (
            _mix(q, keys, values, lengths, share=[0, 0, 0, 0]),
            "All your queries read key head 0. There are K of them, for H / K queries each.",
        ),
        (
            _mix(q, keys, values, lengths, share=[1, 1, 0, 0]),
            "Your key heads come in reverse order.",
        ),
    ]
    hint = "4 query heads over 2 key heads: 0 and 1 read the first, 2 and 3 the second."
    got = fn(q, keys, values, lengths)
    has_shape(got, "the result", [1, 4, 4], "A result for each *query* head: [B, H, D].")
    close(got, attend(q, keys, values, lengths), "the result", hint, known, atol=1e-4)


def _attend_rows(fn: Any) -> None:
    q, keys, values = _inputs(3, 4, 2, 6)
    lengths = torch.tensor([2, 6, 1])
    known: list[Diagnosis] = [
        (
            attend(q, keys, values, torch.full((3,), 2)),
            "All rows get the first row's length. Each has its own: lengths[:, None].",
        ),
        (
            attend(q, keys, values, torch.full((3,), 6)),
            "All rows get the longest row's length. Each has its own: lengths[:, None].",
        ),
        (
            attend(q, keys, values, torch.full((3,), 1)),
            "All rows get the shortest row's length, and forget. Each has its own.",
        ),
    ]
    hint = "Three rows, of which 2, 6 and 1 positions count. Each row as if it were alone."
    got = fn(q, keys, values, lengths)
    has_shape(got, "the result", [3, 4, 4], "One result for each row and head: [B, H, D].")
    close(got, attend(q, keys, values, lengths), "the result", hint, known, atol=1e-4)


def _attend_stale(fn: Any) -> None:
    q, keys, values = _inputs(2, 4, 2, 6)
    lengths = torch.tensor([4, 2])
    stale = (torch.arange(6) >= lengths[:, None])[:, None, :, None]  # [B, 1, S, 1]
    got = fn(q, keys.masked_fill(stale, 500.0), values.masked_fill(stale, 500.0), lengths)
    hint = (
        "Behind lengths lie large numbers now, and they show in the result. The score must "
        "become minus infinity, so that the weight is exactly 0."
    )
    close(got, attend(q, keys, values, lengths), "the result", hint, atol=1e-4)


def _attend_half(fn: Any) -> None:
    q, keys, values = (x.bfloat16() for x in _inputs(2, 4, 2, 6))
    lengths = torch.tensor([4, 2])
    got = fn(q, keys, values, lengths)
    keeps = "q came in half precision (bfloat16), and the result must be what q is: .to(q.dtype)."
    has_dtype(got, "the result", torch.bfloat16, keeps)
    hint = "In half precision the result is further off than rounding explains."
    close(got, attend(q, keys, values, lengths), "the result", hint, atol=0.1)


def _attend_runs(fn: Any) -> None:
    hint = "With your attention a model says something else than transformers makes of it."
    _runs(hint, attend=fn)


_NOT_SHARED = (
    RuntimeError,
    "size of tensor",
    "Here are 4 query heads and 2 key heads, so the two don't fit head by head. Group the "
    "queries, q.view(B, K, H // K, D), or repeat each key for its neighbours.",
)

_NOT_SPREAD = (
    RuntimeError,
    "size of tensor",
    "Your mask [B, S] meets scores with more dimensions, and B falls on the heads. Put "
    "dimensions between: mask[:, None, None] for scores of [B, K, H / K, S].",
)

ATTEND = Task(
    name="attend",
    lesson=8,
    minutes=20,
    difficulty="hard",
    statement="Attention for one new token a row, over caches of different age.",
    solution=attend,
    hints=(
        "Scores are the products of a query with its keys, divided by √D. What lies behind a "
        "row's length gets minus infinity. Softmax over the positions gives the weights, and "
        "with these the values are mixed.",
        "q.view(B, K, H // K, D) puts queries that share a key together; keys.transpose(-1, -2) "
        "is [B, K, D, S]. Scores are [B, K, H / K, S], and the mask [B, S] needs two "
        "dimensions in the middle: mask[:, None, None].",
        "scores = q.view(B, K, H // K, D) @ keys.transpose(-1, -2) / D**0.5; unseen = "
        "torch.arange(S) >= lengths[:, None]; scores.masked_fill(unseen[:, None, None], "
        'float("-inf")).softmax(dim=-1) @ values, and that as [B, H, D].',
    ),
    stages=(
        Stage("type", "a tensor of float32", _attend_type),
        Stage("shape", "[B, H, D]", _attend_shape),
        Stage("scores", "one row whose slot is full, a key head for each query", _attend_scores),
        Stage("lengths", "3 of 5 positions", _attend_lengths),
        Stage("sharing", "4 query heads over 2 key heads", _attend_groups, (_NOT_SHARED,)),
        Stage("rows", "three rows of different age", _attend_rows, (_NOT_SPREAD,)),
        Stage("stale", "large numbers behind the lengths", _attend_stale),
        Stage("half precision", "bfloat16 in, bfloat16 out", _attend_half),
        Stage("whole", "your attention runs a model, three rows of different age", _attend_runs),
    ),
)


# kv_places. Small numbers, so that a learner can count along: 2 heads, slots of 10 positions.
def kv_places(slots: Tensor, positions: Tensor, kv_heads: int, length: int) -> Tensor:
    """Where tokens' keys go in a layer's cache `[slots × K × S, D]`.

    `slots, positions [N]` → `[N × K]`: for each token all heads, one after the other.
    """
    heads = slots[:, None] * kv_heads + torch.arange(kv_heads)  # [N, K]: counted over all slots
    return (heads * length + positions[:, None]).flatten()


def _places_type(fn: Any) -> None:
    got = fn(torch.tensor([0]), torch.tensor([3]), 2, 10)
    has_dtype(got, "places", torch.int64)


def _places_shape(fn: Any) -> None:
    got = fn(torch.tensor([0, 1, 2]), torch.tensor([3, 0, 1]), 2, 10)
    general = "3 tokens with 2 heads each need 6 places: shape [6]."
    square = "Three tokens, two heads: that is [3, 2]. Join them to one row: .flatten()."
    known = (lambda t: t.dim() == 2, square)
    has_shape(got, "places", [6], general, known)


def _places_differ(fn: Any) -> None:
    slots = torch.arange(4).repeat_interleave(10)  # every position of every slot
    got = fn(slots, torch.arange(10).repeat(4), 2, 10)
    taken = len(set(got.tolist()))
    expect(
        taken == 80,
        "Some tokens share a place: one overwrites what the other has just written.",
        expected=Words("4 slots × 2 heads × 10 positions: 80 different places"),
        got=Words(f"{taken} different places"),
    )


def _places_whole(fn: Any) -> None:
    slots, positions = torch.tensor([0, 0, 0, 2, 3]), torch.tensor([0, 1, 2, 9, 30])
    cache = _random(4, 3, 32, 4)
    new = _random(5, 3, 4, seed=1)
    got = fn(slots, positions, 3, 32)
    if int(got.min()) < 0 or int(got.max()) >= 4 * 3 * 32:
        raise Wrong("A place lies outside of the cache.", expected=Words("0 to 383"), got=got)
    flat = cache.clone().view(-1, 4).index_copy_(0, got, new.view(-1, 4)).view_as(cache)
    expected = cache.clone()
    expected[slots, :, positions] = new
    hint = (
        "Keys lie where nobody looks for them. Here a slot has 3 heads of 32 positions: do your "
        "numbers come from kv_heads and length?"
    )
    close(flat, expected, "the cache", hint)


KV_PLACES = Task(
    name="kv_places",
    lesson=8,
    minutes=10,
    difficulty="medium",
    statement="Mend a function that says where keys go in a cache for many conversations.",
    solution=kv_places,
    hunt=True,
    hints=(
        "Take a cache of 2 heads and 10 positions, and count along on paper: which places "
        "belong to slot 0? So at which does slot 1 begin?",
        "The cache is [slots, K, S, D]. A step to the next position is 1 place, to the next head "
        "S places, to the next slot K × S places.",
        "The head number head of slot number slot is head slot * kv_heads + head of the whole "
        "cache. That times length, plus the position.",
    ),
    stages=(
        Stage("type", "an int64 tensor", _places_type),
        Stage("shape", "[N × K]", _places_shape),
        gives(
            "first slot",
            "position 3 of slot 0: head 0 at place 3, head 1 at 13",
            lambda fn: fn(torch.tensor([0]), torch.tensor([3]), 2, 10),
            [3, 13],
            "places",
            "The heads of slot 0 begin at 0 and at 10.",
            (
                [6, 7],
                "You lay the heads of one position side by side. The cache is [slots, K, S, D].",
            ),
            ([3, 3], "Both heads go to one place. A head has 10 positions of its own."),
            ([13, 23], "You count heads from 1."),
        ),
        gives(
            "another slot",
            "position 3 of slot 1: places 23 and 33",
            lambda fn: fn(torch.tensor([1]), torch.tensor([3]), 2, 10),
            [23, 33],
            "places",
            "Slot 0 has 2 × 10 places, 0 to 19. Slot 1 begins at 20.",
            (
                [13, 23],
                "Slot 1 begins in the middle of slot 0. To the next slot it is not one head but "
                "all of them: kv_heads × length places.",
            ),
            ([3, 13], "Every slot begins at 0: all conversations write over one another."),
            (
                [5, 15],
                "Slot 1 begins only kv_heads places further. Each head has `length` of them.",
            ),
        ),
        gives(
            "order",
            "for each token all heads, one after the other",
            lambda fn: fn(torch.tensor([0, 1]), torch.tensor([3, 5]), 2, 10),
            [3, 13, 25, 35],
            "places",
            "First both places of the first token, then both of the second.",
            (
                [3, 25, 13, 35],
                "You go through the heads first. The new keys come token by token: [N, K, D].",
            ),
        ),
        Stage("no two alike", "every position of every slot", _places_differ),
        Stage("whole", "a prompt and two single tokens, written and found again", _places_whole),
    ),
)

TASKS = (RMS_NORM, GATE, FREQUENCIES, ROTATE, ATTEND, KV_PLACES)
