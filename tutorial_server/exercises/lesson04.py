"""Cases of lesson 04: from scores to one token."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..sampling import apply_temperature, keep_top_k, keep_top_p, select_next_token
from .compare import Diagnosis, close, equal, expect, gives, has_dtype, has_shape, instance, tensor
from .show import named
from .task import Raises, Stage, Task, Words, Wrong

INF = float("inf")


def _weighted(*weights: float) -> Tensor:
    """Logits [1, V] of tokens whose probabilities are in proportion to the weights."""
    return torch.tensor([weights]).log() - 5


def _only(logits: Tensor, *kept: int) -> Tensor:
    """The logits [1, V] as they are, with −inf at all but the `kept` ids."""
    result = torch.full_like(logits, -INF)
    result[:, list(kept)] = logits[:, list(kept)]
    return result


def _floats(fn: Any, *arguments: Any) -> None:
    got = fn(*arguments)
    instance(got, Tensor, "a tensor of logits")
    expect(
        got.is_floating_point(),
        "The result has no fractions: logits are asked for, numbers of a float type.",
        expected=Words("logits: a float tensor"),
        got=got,
    )


def _same_shape(fn: Any, logits: Tensor, *rest: Any) -> None:
    got, shape = fn(logits, *rest), list(logits.shape)
    few = "Only the kept ones came back. Each token keeps its place: the shape stays [B, V]."
    flat = "A dimension got lost on the way: [B, V] goes in, and [B, V] comes out."
    known = [
        (lambda t: t.dim() == 2 and t.shape[-1] < shape[-1], few),
        (lambda t: t.dim() < 2, flat),
    ]
    general = f"The shape is {list(got.shape)}. Asked for is [B, V], as it came: {shape}."
    has_shape(got, "the result", shape, general, *known)


# apply_temperature. Any logits with the right softmax will do, shifted or not.
TWO = torch.tensor([[2.0, 1.0, 0.0], [0.5, -1.0, 3.0]])


def _reshapes(
    name: str, about: str, logits: Tensor, temperature: float, hint: str, *known: Diagnosis
) -> Stage:
    """A stage that compares the distributions, since logits may be shifted."""
    return gives(
        name,
        about,
        lambda fn: fn(logits, temperature).softmax(dim=-1),
        (logits.double() / temperature).softmax(dim=-1).float(),
        "softmax of the result",
        hint,
        *known,
        atol=1e-4,
    )


PLAIN = _weighted(4, 2, 1)
PROBABILITIES = PLAIN.softmax(dim=-1)

APPLY_TEMPERATURE = Task(
    name="apply_temperature",
    lesson=4,
    minutes=5,
    difficulty="easy",
    statement="Sharpen or flatten the distribution by changing the distances between logits.",
    solution=apply_temperature,
    hints=(
        "Only distances between logits count. A temperature below 1 must make them larger, one "
        "above 1 smaller, in proportion.",
        "logits [B, V] → logits [B, V]. No softmax here: it comes later, once, at the end.",
        "logits / temperature is all it takes. Taking off each row's maximum first "
        "(max(dim=-1, keepdim=True).values) changes nothing in the softmax and is safer.",
    ),
    stages=(
        Stage("type", "a tensor of floats", lambda fn: _floats(fn, TWO, 0.5)),
        Stage("shape", "[B, V], as it came", lambda fn: _same_shape(fn, TWO, 0.5)),
        _reshapes(
            "one",
            "temperature 1 changes nothing",
            PLAIN,
            1.0,
            "At temperature 1 the softmax of the result is the softmax of the logits.",
            (
                PROBABILITIES.softmax(dim=-1),
                "You return probabilities, and softmax is taken of them once more later. "
                "Return logits: divide them, and leave softmax to the caller.",
            ),
            (
                (PLAIN // 1.0).softmax(dim=-1),
                "The quotients are rounded to whole numbers. Divide with /, not with //.",
            ),
            (
                [[1 / 3, 1 / 3, 1 / 3]],
                "All differences are gone. A maximum taken with dim=0 runs over the batch; the "
                "vocabulary is dim=-1.",
            ),
        ),
        _reshapes(
            "below 1",
            "a low temperature sharpens",
            PLAIN,
            0.5,
            "At temperature 0.5 every distance doubles, so ratios of probabilities are squared: "
            "4 : 2 : 1 becomes 16 : 4 : 1.",
            (
                (PLAIN * 0.5).softmax(dim=-1),
                "Yours flattens where it should sharpen: you multiply. A low temperature must "
                "make distances larger.",
            ),
            (PROBABILITIES, "Temperature 0.5 has no effect: the distribution is as before."),
            (
                lambda got: bool(got.isnan().any()),
                "nan comes out: the temperature has become 0 on its way. Don't round it.",
            ),
        ),
        _reshapes(
            "above 1",
            "a high temperature flattens",
            PLAIN,
            2.0,
            "At temperature 2 every distance is halved.",
            (
                PROBABILITIES,
                "Above 1 yours has no effect. A temperature may be larger than 1: it flattens.",
            ),
        ),
        _reshapes(
            "rows",
            "each row for itself",
            TWO,
            0.5,
            "One row comes out right, two don't. Does something run over the batch (dim=0)?",
        ),
        _reshapes(
            "large",
            "logits of a thousand",
            torch.tensor([[1000.0, 999.0, -1000.0]]),
            0.5,
            "Large logits are as good as small ones: only distances count.",
            (
                lambda got: bool(got.isnan().any()),
                "nan comes out: a power of e overflows. Work on the logits themselves, without "
                "exp or softmax.",
            ),
        ),
        _reshapes(
            "whole",
            "three rows at temperature 0.05",
            torch.randn(3, 9, generator=torch.Generator().manual_seed(2)),
            0.05,
            "0.5 and 2 come out right, 0.05 doesn't. Do you keep the temperature from getting low?",
        ),
    ),
)

# keep_top_k. Negative logits in no order, so that a 0 or a place in the row shows.
MIXED = torch.tensor([[-3.0, -1.0, -4.0, -2.0]])
UNLIKE = torch.tensor([[9.0, 8.0, 7.0], [1.0, 3.0, 2.0]])
TIED = torch.tensor([[4.0, 5.0, 5.0, 1.0], [2.0, 2.0, 3.0, 2.0]])
TOO_LARGE = "selected index k out of range"
DOWN: tuple[Raises, ...] = (
    (RuntimeError, TOO_LARGE, "topk runs over the batch here. Say dim=-1: along the vocabulary."),
)


def _keeps_enough(got: Tensor, logits: Tensor, lowest: Tensor, least: list[int]) -> None:
    """Ask for all above the lowest kept logit, none below, and either rule where they tie."""
    kept = got > -INF
    expect(
        bool((kept.sum(dim=-1) >= torch.tensor(least)).all()),
        "Where tokens tie for the last place, too few are kept. Keep one of them, or all.",
        expected=Words(f"at least {least} kept in the two rows"),
        got=got,
    )
    expect(
        bool(kept[logits > lowest].all()) and not bool(kept[logits < lowest].any()),
        "Where tokens tie for the last place, keep one of them or all; those above stay, "
        "those below go.",
        expected=Words("all above the tie kept, none below it"),
        got=got,
    )
    still = "A tied token that is kept keeps its logit."
    close(got, logits, "the kept logits", still, where=kept)


def _top_k_ties(fn: Any) -> None:
    lowest = torch.tensor([[5.0], [2.0]])
    _keeps_enough(fn(TIED, 1)[:1], TIED[:1], lowest[:1], [1])
    _keeps_enough(fn(TIED, 2)[1:], TIED[1:], lowest[1:], [2])


def _top_k_edges(fn: Any) -> None:
    general = "With k as large as the vocabulary, or larger, nothing is restricted."
    equal(fn(MIXED, 4), MIXED, "logits", general)
    equal(fn(MIXED, 50), MIXED, "logits", general)
    equal(fn(MIXED, 1), _only(MIXED, 1), "logits", "k = 1 leaves the highest alone.")


KEEP_TOP_K = Task(
    name="keep_top_k",
    lesson=4,
    minutes=10,
    difficulty="easy",
    statement="Make all but the k highest logits of each row impossible.",
    solution=keep_top_k,
    hints=(
        "Find the k-th highest logit of each row. It's a threshold: what is below it goes to "
        "−inf, everything else stays as and where it is.",
        "logits.topk(k, dim=-1).values is [B, k], falling. Its last column, kept as [B, 1], "
        "can be compared with logits [B, V].",
        "kth = logits.topk(min(k, logits.shape[-1]), dim=-1).values[:, -1:], and then "
        'logits.masked_fill(logits < kth, float("-inf")).',
    ),
    stages=(
        Stage("type", "a tensor of floats", lambda fn: _floats(fn, MIXED, 2), raises=DOWN),
        Stage("shape", "[B, V], as it came", lambda fn: _same_shape(fn, UNLIKE, 2)),
        gives(
            "kept",
            "the 2 highest stay as they are, −inf elsewhere",
            lambda fn: fn(MIXED, 2),
            _only(MIXED, 1, 3),
            "logits",
            "Two logits stay, the highest, each in its place; the other two become −inf.",
            (
                [[0.0, -1.0, 0.0, -2.0]],
                "You set the others to 0, and 0 is a score like any other; here it is the "
                "highest. Only −inf has probability 0.",
            ),
            (
                lambda got: bool((got < -100).any() and got.isfinite().all()),
                "A large negative number is not −inf. The steps after this one tell by −inf "
                'what is forbidden: float("-inf").',
            ),
            (
                [[-1.0, -2.0, -INF, -INF]],
                "Your result is sorted, so the scores belong to the wrong tokens. Each must "
                "stay in its place.",
            ),
            (_only(MIXED, 0, 1, 3), "You keep one more than k. Look at < and <=, k and k + 1."),
            (_only(MIXED, 1), "You keep one fewer than k. The k-th highest itself stays."),
            (_only(MIXED, 0, 2), "You keep the lowest. Is a comparison the wrong way round?"),
            (
                lambda got: bool(((got >= 0) & (got <= 1)).all()),
                "You return probabilities. Return logits: later steps go on with them.",
            ),
        ),
        gives(
            "rows",
            "each row has its own k highest",
            lambda fn: fn(UNLIKE, 2),
            [[9.0, 8.0, -INF], [-INF, 3.0, 2.0]],
            "logits",
            "In each row two stay: 9 and 8, and 3 and 2.",
            (
                lambda got: bool((got[1] == -INF).all()),
                "The second row is all −inf: one threshold for all. Each row needs its own.",
            ),
            (UNLIKE, "Nothing is forbidden: topk compares down the batch. Say dim=-1."),
        ),
        Stage("ties", "of those that tie for the last place, one or all", _top_k_ties),
        Stage(
            "edges",
            "k = 1, k = V, and k above V",
            _top_k_edges,
            raises=(
                (
                    RuntimeError,
                    TOO_LARGE,
                    "topk refuses a k larger than the vocabulary. Take the smaller of the two.",
                ),
                (
                    IndexError,
                    "out of",
                    "k is larger than the vocabulary here. Take the smaller of the two.",
                ),
            ),
        ),
        gives(
            "whole",
            "four rows of twenty",
            lambda fn: fn(torch.randn(4, 20, generator=torch.Generator().manual_seed(1)), 7),
            keep_top_k(torch.randn(4, 20, generator=torch.Generator().manual_seed(1)), 7),
            "logits",
            "Each stage before holds alone. What depends on the number of rows or of tokens?",
        ),
    ),
)

# keep_top_p. Sixteenths: 9/16 alone, 13/16 with the second, 15/16 with the third.
SIXTEENTHS = _weighted(2, 4, 1, 9)
ROWS = torch.cat([SIXTEENTHS, _weighted(8, 4, 2, 2)])


def _changed(*kept: int) -> Diagnosis:
    """The right tokens with other values than they came with."""
    ids = torch.zeros(1, 4, dtype=torch.bool).index_fill(1, torch.tensor(kept), True)
    return (
        lambda got: torch.equal(got > -INF, ids) and bool(got[ids].isfinite().all()),
        "The right tokens are kept, but their logits have changed. Leave them as they are.",
    )


def _top_p_edges(fn: Any) -> None:
    one = "However small p is, the most probable token stays: something must be drawn."
    equal(fn(SIXTEENTHS, 1e-12), _only(SIXTEENTHS, 3), "logits", one)
    equal(fn(SIXTEENTHS, 0.0), _only(SIXTEENTHS, 3), "logits", one)
    equal(fn(SIXTEENTHS, 1.0), SIXTEENTHS, "logits", "p = 1 forbids nothing.")


def _top_p_ties(fn: Any) -> None:
    logits = torch.cat([_weighted(3, 3, 1, 1), _weighted(1, 2, 2, 2)])
    lowest = torch.stack([logits[0, 0], logits[1, 1]])[:, None]
    _keeps_enough(fn(logits, 0.33), logits, lowest, [1, 2])


KEEP_TOP_P = Task(
    name="keep_top_p",
    lesson=4,
    minutes=15,
    difficulty="hard",
    statement="Keep the fewest tokens whose probabilities reach p together.",
    solution=keep_top_p,
    hints=(
        "Sort each row's probabilities, the highest first, and add them up as you go. A token "
        "stays if those before it have not reached p yet. Then find the way back from ranks to "
        "ids.",
        "ordered and order, both [B, V], come from one sort(dim=-1, descending=True). The running "
        "total is cumsum(dim=-1); what stands before a token is that, less its own probability.",
        "dropped = totals - probabilities >= p, with dropped[:, 0] = False, in order of rank. "
        "dropped.scatter(-1, order, dropped) puts it in order of id, for masked_fill.",
    ),
    stages=(
        Stage("type", "a tensor of floats", lambda fn: _floats(fn, SIXTEENTHS, 0.4)),
        Stage("shape", "[B, V], as it came", lambda fn: _same_shape(fn, ROWS, 0.4)),
        gives(
            "favourite",
            "one token is above p already: it alone stays",
            lambda fn: fn(SIXTEENTHS, 0.4),
            _only(SIXTEENTHS, 3),
            "logits",
            "The probabilities are 2/16, 4/16, 1/16 and 9/16. The last reaches 0.4 by itself.",
            (
                torch.full((1, 4), -INF),
                "Nothing is left to draw from. The favourite alone is above p, and you drop it: "
                "the token that crosses the line stays.",
            ),
            (
                _only(SIXTEENTHS, 0),
                "A token is kept that isn't the favourite: your verdicts are in order of rank, "
                "the logits in order of id. Put them back (scatter, or the order's own order).",
            ),
            (
                _only(SIXTEENTHS, 3, 1),
                "One too many: p is reached, and another token still gets in.",
            ),
            (
                lambda got: bool((got[0, :3] > -INF).any() and got[0, 3] == -INF),
                "The favourite is gone, others stay. Add up from the most probable downwards: "
                "sort with descending=True first.",
            ),
            (
                SIXTEENTHS,
                "All are kept. Do you add up logits? p is about probabilities: softmax first.",
            ),
            (
                lambda got: bool((got == 0).any() and got.isfinite().all()),
                "You set the others to 0, which is a score like any other. Only −inf forbids.",
            ),
            _changed(3),
        ),
        gives(
            "together",
            "probabilities are added up until they reach p",
            lambda fn: fn(SIXTEENTHS, 0.9),
            _only(SIXTEENTHS, 0, 1, 3),
            "logits",
            "9/16 is 0.56, with 4/16 it's 0.81, with 2/16 it's 0.94: three are needed for 0.9.",
            (
                _only(SIXTEENTHS, 1, 3),
                "Two are kept, and they have 0.81 together. The token that crosses 0.9 stays, "
                "or p is not reached.",
            ),
            (
                _only(SIXTEENTHS, 3),
                "Only the favourite is kept, and it has 0.56. Add up the probabilities of the "
                "row: softmax and cumsum along dim=-1.",
            ),
            (
                torch.full((1, 4), -INF),
                "Nothing is left. Do you compare each probability by itself with p? Add them up.",
            ),
            (SIXTEENTHS, "One too many: p is reached with three, and the fourth still gets in."),
            _changed(0, 1, 3),
        ),
        gives(
            "rows",
            "each row has its own order",
            lambda fn: fn(ROWS, 0.7),
            torch.cat([_only(ROWS[:1], 1, 3), _only(ROWS[1:], 0, 1)]),
            "logits",
            "Each row is sorted and added up for itself.",
            (
                lambda got: torch.equal(got[0] > -INF, got[1] > -INF),
                "Both rows keep the same ids, the first row's. Each has an order of its own.",
            ),
        ),
        Stage("edges", "p = 0, p tiny, p = 1", _top_p_edges),
        Stage("ties", "of those that tie for the last place, one or all", _top_p_ties),
        gives(
            "whole",
            "four rows of thirty",
            lambda fn: fn(torch.randn(4, 30, generator=torch.Generator().manual_seed(5)) * 2, 0.8),
            keep_top_p(torch.randn(4, 30, generator=torch.Generator().manual_seed(5)) * 2, 0.8),
            "logits",
            "Each stage before holds alone. What depends on the number of rows or of tokens?",
        ),
    ),
)

# select_next_token. Draws are counted over many rows, each with the same few tokens.
PAIR = torch.tensor([[-1.0, 2.0, 0.0], [3.0, 1.0, 5.0]])
NOT_PROBABLE = "probability tensor contains"
DRAWS = 600
MISJUDGED = 1e-9  # how often a token's share may seem wrong by chance alone

Weights = Sequence[float]


def _shares(fn: Any, weights: Weights, **settings: Any) -> Tensor:
    """Draw once for each of many equal rows, and give each token's share, [V]."""
    generator = torch.Generator().manual_seed(20)
    logits = (torch.tensor([weights]).log() - 1).expand(DRAWS, -1)
    return _counted(fn(logits, **settings, generator=generator), len(weights))


def _counted(got: Any, width: int) -> Tensor:
    tensor(got, "tokens", torch.int64, [DRAWS, 1])
    return got.flatten().bincount(minlength=width) / DRAWS


def _fits(shares: Tensor, weights: Weights) -> bool:
    """Tell whether the shares may come of these weights: no count too rare, 0 exact."""
    exact = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    counts = (shares * DRAWS).round().long()
    return all(map(_may_be, counts.tolist(), exact.tolist()))


def _may_be(count: int, chance: float) -> bool:
    """Tell whether so few, or so many, of DRAWS come often enough: the binomial's two ends."""
    k = torch.arange(DRAWS + 1, dtype=torch.float64)
    ways = math.lgamma(DRAWS + 1) - torch.lgamma(k + 1) - torch.lgamma(DRAWS - k + 1)
    p = torch.tensor(chance, dtype=torch.float64)
    shares = (ways + torch.xlogy(k, p) + torch.xlogy(DRAWS - k, 1 - p)).exp()
    return float(min(shares[: count + 1].sum(), shares[count:].sum())) >= MISJUDGED


def _follow(shares: Tensor, weights: Weights, hint: str, *known: tuple[Any, str]) -> None:
    """Fail unless the draws follow the weights; `known` has weights of mistakes, with hints."""
    if _fits(shares, weights):
        return
    for wrong, better in known:
        if wrong(shares) if callable(wrong) else _fits(shares, wrong):
            hint = better
            break
    exact = torch.tensor([weights], dtype=torch.float32) / sum(weights)
    expect(
        False,
        hint,
        expected=Words(f"shares of {DRAWS} draws, about {_percent(exact[0])}"),
        got=Words(f"shares of {DRAWS} draws: {_percent(shares)}"),
    )


def _percent(shares: Tensor) -> str:
    return "  ".join(f"{share:.1%}" for share in shares.tolist())


def _select_type(fn: Any) -> None:
    got = fn(PAIR)
    instance(got, Tensor, "a tensor of token ids")
    found = str(got.dtype).removeprefix("torch.")
    ids = f"tokens are {found}. A token id is a whole number: torch.int64."
    has_dtype(got, "tokens", torch.int64, ids)


def _select_shape(fn: Any) -> None:
    got = fn(PAIR)
    flat = "The tokens come as [B]. The model reads [B, 1]: one column. (keepdim=True.)"
    first = "One token came for two rows. Each row gets its own: [B, 1]."
    turned = "The tokens lie side by side, [1, B]. Each row has its own: [B, 1]."
    known = [
        (lambda t: list(t.shape) == [2], flat),
        (lambda t: t.numel() == 1, first),
        (lambda t: list(t.shape) == [1, 2], turned),
    ]
    general = f"tokens have shape {list(got.shape)}. Two rows, one token for each: [2, 1]."
    has_shape(got, "tokens", [2, 1], general, *known)


def _select_greedy(fn: Any) -> None:
    general = "At temperature 0 each row gives the id of its highest logit."
    known = [([[0], [1]], "You take the lowest. Greedy takes the highest.")]
    for _ in range(3):
        equal(fn(PAIR, temperature=0.0), [[1], [2]], "tokens", general, known)
    default = "Called without a temperature, it is 0: its default stands in the first line."
    nearly_flat = PAIR.repeat(DRAWS // 10, 1) * 1e-4  # a draw finds them all once in 10 ** 57
    equal(fn(nearly_flat), [[1], [2]] * (DRAWS // 10), "tokens", default)
    equal(fn(PAIR, temperature=0.0, top_k=2, top_p=0.9), [[1], [2]], "tokens", general)


def _select_draws(fn: Any) -> None:
    def one_for_all(shares: Tensor) -> bool:
        """Tell one draw for all rows from the highest: it gives another token some time."""
        logits = torch.tensor([[1.0, 2.0, 5.0]]).log().expand(DRAWS, -1)
        generator = torch.Generator().manual_seed(21)
        again = (fn(logits, temperature=1.0, generator=generator) for _ in range(50))
        return bool((shares == 1).any()) and len({int(got[0]) for got in again}) > 1

    _follow(
        _shares(fn, [1, 2, 5], temperature=1.0),
        [1, 2, 5],
        "At temperature 1 tokens are drawn as often as they are probable.",
        ([5, 2, 1], "The draw's ranks came back, not ids. After a sort, look up which id it was."),
        (one_for_all, "All rows get the same token. Draw for each row."),
        ([0, 0, 1], "At temperature 1 you still take the highest each time. Draw: multinomial."),
        (
            [1, 1, 1],
            "All tokens come nearly equally often. Softmax runs along the vocabulary, dim=-1 and "
            "not dim=0, and it is taken once: probabilities are no logits.",
        ),
        (lambda s: bool((s == 1).any()), "All rows get the same token. Draw for each row."),
    )


def _select_temperature(fn: Any) -> None:
    _follow(
        _shares(fn, [1, 4, 16], temperature=0.5),
        [1, 16, 256],
        "At temperature 0.5 the ratios of probabilities are squared.",
        (
            [1, 4, 16],
            "The temperature has no effect. Divide the logits by it, before softmax: "
            "multinomial takes weights, and a common factor changes nothing there.",
        ),
        ([1, 2, 4], "You multiply by the temperature, and flatten. Divide."),
        ([0, 0, 1], "Below temperature 1 you are greedy. Only 0, or next to 0, is."),
    )
    _follow(
        _shares(fn, [1, 16**0.05, 256**0.05], temperature=0.05),
        [1, 16, 256],
        "0.05 is a temperature like any other: ratios of probabilities are raised to the 20th.",
        ([0, 0, 1], "At temperature 0.05 you are greedy. Only 0, or next to 0, is."),
        (lambda s: bool(s[2] < 0.85), "You keep the temperature from getting low. 0.05 is 0.05."),
    )


FLAT = torch.zeros(1, 1000)


def _select_generator(fn: Any) -> None:
    def draws(seed: int, count: int = 6) -> list[int]:
        generator = torch.Generator().manual_seed(seed)
        return [int(fn(FLAT, temperature=1.0, generator=generator)) for _ in range(count)]

    before = torch.get_rng_state()
    first = draws(1)
    untouched = torch.equal(torch.get_rng_state(), before)
    torch.rand(1)  # someone else draws in between
    ignored = "The generator that was given isn't used. Hand it on: multinomial(…, generator=…)."
    again = draws(1)
    expect(
        len(set(first)) > 1,
        "The same token at every step: the generator starts anew with each. It moves on from "
        "draw to draw; don't seed it.",
        expected=Words("six draws in a row from 1,000 tokens, all the same now and then at most"),
        got=first,
    )
    expect(again == first, ignored, expected=first, got=again)
    expect(
        draws(2) != first,
        "Another seed gives the same tokens. Don't set a seed yourself; use the generator.",
        expected=Words("other tokens with another seed"),
        got=first,
    )
    alone = [int(fn(FLAT, temperature=1.0)) for _ in range(6)]
    expect(
        len(set(alone)) > 1,
        "Without a generator the same token comes each time. None means PyTorch's own chance: "
        "no seed of yours, and not the highest either.",
        expected=Words("different tokens, with generator=None as well"),
        got=alone,
    )
    expect(
        untouched,
        "PyTorch's global random state has changed, which everybody shares. Use the generator "
        "alone, and no manual_seed.",
        expected=Words("the global state as it was"),
        got=Words("another global state"),
    )


FOUR = [1, 2, 5, 8]


def _select_top_k(fn: Any) -> None:
    _follow(
        _shares(fn, FOUR, temperature=1.0, top_k=2),
        [0, 0, 5, 8],
        "With top_k 2 only the two best are drawn, in their old proportion.",
        (FOUR, "top_k has no effect: tokens beyond the second are still drawn."),
        ([0, 2, 5, 8], "Three different tokens are drawn with top_k 2: one more than k."),
        ([0, 0, 0, 1], "With top_k 2 only the best is drawn: one fewer than k."),
        ([8, 5, 0, 0], "Ranks came back, not ids. topk gives indices as well: look ids up there."),
        (
            [math.e, math.e, 5, 8],
            "Those that top_k forbids still come: their logit became 0, which is a score like any "
            "other. Only −inf forbids.",
        ),
    )
    _follow(
        _shares(fn, FOUR, temperature=1.0, top_k=0),
        FOUR,
        "top_k 0 means off, like None: nothing is restricted.",
    )


def _select_top_p(fn: Any) -> None:
    _follow(
        _shares(fn, FOUR, temperature=1.0, top_p=0.7),
        [0, 0, 5, 8],
        "With top_p 0.7 the two best are drawn: 8/16 alone is too little, 13/16 enough.",
        (FOUR, "top_p has no effect: improbable tokens are still drawn."),
        ([0, 0, 0, 1], "With top_p 0.7 the second best must stay: it crosses the line."),
        ([0, 2, 5, 8], "With top_p 0.7 a third token gets in, and two reach it already."),
    )
    _follow(
        _shares(fn, FOUR, temperature=1.0, top_p=1.0),
        FOUR,
        "top_p 1 means off, like None: nothing is restricted.",
    )


def _select_order(fn: Any) -> None:
    _follow(
        _shares(fn, [4, 2, 1, 1], temperature=1.0, top_k=2, top_p=0.6),
        [1, 0, 0, 0],
        "top_k comes first, then top_p on what it left over. Of 4 : 2 the first has 0.67 by "
        "itself, so top_p 0.6 leaves it alone.",
        (
            [4, 2, 0, 0],
            "You apply top_p before top_k, or to the old probabilities. First top_k; of what is "
            "left, 4 : 2, the first has 0.67.",
        ),
    )
    _follow(
        _shares(fn, [16, 4, 1, 1], temperature=2.0, top_p=0.7),
        [4, 2, 0, 0],
        "Temperature comes first. At 2 the weights are 4 : 2 : 1 : 1, and 0.7 takes two.",
        (
            [1, 0, 0, 0],
            "You apply top_p before the temperature. At temperature 2 the weights are "
            "4 : 2 : 1 : 1, and it takes two tokens to reach 0.7.",
        ),
    )


def _select_edges(fn: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    for temperature in (1e-3, 1e-30, 1e-40):
        tiny = f"At temperature {temperature:g} the highest logit wins, as at 0."
        equal(fn(PAIR * 40, temperature=temperature), [[1], [2]], "tokens", tiny)
    one = "A top_p next to 0 leaves the most probable token, never none."
    got = fn(PAIR, temperature=1.0, top_p=1e-12, generator=generator)
    equal(got, [[1], [2]], "tokens", one)
    all_of_them = _shares(fn, FOUR, temperature=1.0, top_k=10**6)
    _follow(all_of_them, FOUR, "A top_k above the vocabulary's size restricts nothing.")


def _select_whole(fn: Any) -> None:
    logits = torch.tensor([[9.0, 8.0, 4.0, 1.0], [1.0, 4.0, 8.0, 9.0]]).log()
    rows = logits.repeat(DRAWS, 1)  # [2 · DRAWS, V], the two in turn
    got = fn(rows, 0.5, 3, 0.9, torch.Generator().manual_seed(6))
    tensor(got, "tokens", torch.int64, [2 * DRAWS, 1])
    general = "Each row is filtered and drawn for itself; these two have opposite favourites."
    # Squared, three of them: 81 : 64 : 16, of which the first two reach 0.9.
    _follow(_counted(got[::2], 4), [81, 64, 0, 0], general)
    _follow(_counted(got[1::2], 4), [0, 0, 64, 81], general)
    threshold = "One threshold serves for all rows. Each row has its own k highest."
    got = fn(rows - 3 * (torch.arange(len(rows)) % 2)[:, None], 1.0, 2)  # every other row lower
    _follow(_counted(got[::2], 4), [9, 8, 0, 0], threshold)
    _follow(_counted(got[1::2], 4), [0, 0, 8, 9], threshold)


def _no_softmax(hint: str) -> tuple[Raises, ...]:
    return ((RuntimeError, NOT_PROBABLE, hint), (RuntimeError, "invalid multinomial", hint))


OFF: tuple[Raises, ...] = (
    (TypeError, "NoneType", "top_k and top_p may be None, which means off: ask for that first."),
)
DIVIDES = "You divide by a temperature of 0. At 0 nothing is drawn: take the highest logit."
OVERFLOWS = (
    "Dividing by a temperature so tiny overflows: inf, then nan. Take off the row's maximum "
    "first, or be greedy below some small temperature."
)

SELECT_NEXT_TOKEN = Task(
    name="select_next_token",
    lesson=4,
    minutes=15,
    difficulty="medium",
    statement="Choose each row's next token: the highest logit, or a draw.",
    solution=select_next_token,
    hints=(
        "Two ways: at temperature 0, or next to it, the highest logit of each row. Otherwise "
        "temperature, then top-k, then top-p, each on what the step before left over; then "
        "softmax, and a draw.",
        "logits [B, V] → int64 [B, 1], either way: argmax with keepdim=True, or multinomial with "
        "num_samples=1. A top_k of None or 0 is off, and so is a top_p of None or 1.",
        "if temperature < 1e-6: return logits.argmax(dim=-1, keepdim=True). Then your own "
        "apply_temperature, keep_top_k if top_k, keep_top_p if top_p is not None and below 1, and "
        "torch.multinomial(logits.softmax(dim=-1), num_samples=1, generator=generator).",
    ),
    stages=(
        Stage("type", "an int64 tensor", _select_type, raises=_no_softmax(DIVIDES)),
        Stage("shape", "[B, 1]: a token for each row", _select_shape),
        Stage(
            "greedy",
            "temperature 0 takes the highest",
            _select_greedy,
            raises=(*_no_softmax(DIVIDES), (ZeroDivisionError, "", DIVIDES)),
        ),
        Stage(
            "draw",
            "temperature 1 draws by probability",
            _select_draws,
            raises=(
                *_no_softmax(
                    "multinomial wants probabilities, and logits may be negative: softmax first."
                ),
                *OFF,
            ),
        ),
        Stage("temperature", "a low one sharpens the draw", _select_temperature),
        Stage("generator", "all chance comes from the generator", _select_generator),
        Stage("top-k", "only the k best are drawn", _select_top_k, raises=OFF),
        Stage(
            "top-p",
            "only the nucleus is drawn",
            _select_top_p,
            raises=_no_softmax("top_p leaves nothing to draw from. The token that crosses stays."),
        ),
        Stage("order", "temperature, then top-k, then top-p", _select_order),
        Stage(
            "edges",
            "tiny temperatures, a tiny top_p, a huge top_k",
            _select_edges,
            raises=(
                *_no_softmax(OVERFLOWS),
                (RuntimeError, TOO_LARGE, "top_k may be larger than the vocabulary: no limit."),
            ),
        ),
        Stage("whole", "two kinds of rows, all settings", _select_whole),
    ),
)


# The bug hunt. What a learner is given lets each generator draw for all rows of the batch.
def draw_rows(probabilities: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
    """Draw a token for each row of a batch, row b with `generators[b]` and nothing else.

    `probabilities [B, V]` → int64 `[B, 1]`.
    """
    tokens = [
        torch.multinomial(row, num_samples=1, generator=generator)  # [1]
        for row, generator in zip(probabilities, generators, strict=True)
    ]
    return torch.stack(tokens)  # [B, 1]


def _generators(*seeds: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def _rows_shape(fn: Any) -> None:
    got = fn(torch.full((3, 5), 0.2), _generators(1, 2, 3))
    tensor(got, "tokens", torch.int64, [3, 1])


def _rows_own(fn: Any) -> None:
    certain = torch.eye(4)[[2, 0, 3]]
    got = fn(certain, _generators(1, 2, 3))
    general = "Row b is drawn from row b's probabilities; here each row allows one token."
    equal(got, [[2], [0], [3]], "tokens", general)


def _rows_steps(fn: Any, seeds: Sequence[int], steps: int = 5) -> list[list[int]]:
    """Tokens of `steps` steps, a list for each row, from rows where any token may come."""
    generators = _generators(*seeds)
    flat = torch.full((len(seeds), 500), 1 / 500)
    drawn = torch.cat([fn(flat, generators) for _ in range(steps)], dim=1)  # [B, steps]
    return drawn.tolist()


def _rows_move_on(fn: Any) -> None:
    (first,), (other,), (again,) = (_rows_steps(fn, [seed]) for seed in (7, 8, 7))
    _alike(
        len(set(first)) > 1,
        "Every step draws the same token: nothing is drawn, or the generator starts anew.",
        [7],
        Words("different tokens from step to step"),
        first,
    )
    _alike(
        first != other,
        "Another seed draws the same tokens. Chance must come from the row's generator.",
        [8],
        Words("other tokens with another seed"),
        other,
    )
    _alike(
        again == first,
        "The same seed draws other tokens each time: the generator isn't used.",
        [7],
        first,
        again,
    )


def _rows_second(fn: Any) -> None:
    (alone,), beside = _rows_steps(fn, [7]), _rows_steps(fn, [1, 7])[1]
    _alike(
        beside == alone,
        "The second row draws other tokens beside a neighbour than alone. How many random "
        "numbers are taken from its generator before its turn comes?",
        [1, 7],
        alone,
        beside,
    )


def _rows_first(fn: Any) -> None:
    (alone,), beside = _rows_steps(fn, [1]), _rows_steps(fn, [1, 7])[0]
    _alike(
        beside == alone,
        "The first row starts as it does alone, and then parts. What has moved its generator "
        "on since its own draw?",
        [1, 7],
        alone,
        beside,
    )


def _alike(holds: bool, hint: str, seeds: list[int], expected: Any, got: Any) -> None:
    """Fail with `hint` unless it holds, and show seeds where generators would say nothing."""
    if holds:
        return
    given = {
        "probabilities": Words(f"{len(seeds)} rows, 500 tokens of 0.002 each"),
        "generators": Words("with the seeds " + ", ".join(map(str, seeds))),
    }
    raise Wrong(
        hint,
        given=given,
        expected=expected if isinstance(expected, Words) else named("five steps", expected),
        got=named("five steps", got),
    )


DRAW_ROWS = Task(
    name="draw_rows",
    lesson=4,
    minutes=5,
    difficulty="medium",
    statement="Mend the draw for a batch, so that no request's answer depends on its neighbours.",
    solution=draw_rows,
    hunt=True,
    hints=(
        "A generator moves on with every random number taken from it. When Ben is alone, his "
        "generator gives its first number to his row. And beside Anna?",
        "multinomial on [B, V] draws B times. Each generator should draw once, for its own row: "
        "[V] or [1, V] goes in.",
        "In the loop, draw from probabilities[b] alone: torch.multinomial(probabilities[b], "
        "num_samples=1, generator=generator) is [1], and torch.stack makes [B, 1] of them.",
    ),
    stages=(
        Stage("shape", "int64 [B, 1]", _rows_shape),
        Stage("rows", "each row from its own probabilities", _rows_own),
        Stage("chance", "from the row's generator, which moves on", _rows_move_on),
        Stage("second row", "the same alone and beside another", _rows_second),
        Stage("first row", "the same alone and beside another", _rows_first),
    ),
)

TASKS = (APPLY_TEMPERATURE, KEEP_TOP_K, KEEP_TOP_P, SELECT_NEXT_TOKEN, DRAW_ROWS)
