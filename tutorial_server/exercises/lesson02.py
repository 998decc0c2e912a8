"""Cases of lesson 02: prompts of different lengths in one rectangle."""

from typing import Any

import torch
from torch import Tensor

from ..padding import may_attend, pad_left, position_ids
from .compare import Diagnosis, equal, expect, gives, has_dtype, has_shape, tensor, unpack
from .task import Stage, Task, Words

# pad_left. Unequal rows, the longest first, so that a change of order shows.
ROWS = [[5, 6, 7], [8]]
WIDTH = "Here the longest sequence comes last. The width is that of the longest, not the first."


def _pad_type(fn: Any) -> None:
    for what, got in zip(("ids", "mask"), unpack(fn(ROWS, 0), "ids", "mask"), strict=True):
        has_dtype(got, what, torch.int64)


def _pad_shape(fn: Any) -> None:
    for what, got in zip(("ids", "mask"), fn(ROWS, 0), strict=True):
        general = f"{what} has shape {list(got.shape)}. Two sequences, three tokens: [2, 3]."
        cut = f"{what} is cut to the shortest sequence. Fill up the short rows; lose no token."
        turned = f"{what} is transposed: a row is a sequence, a column is a position."
        flat = f"{what} is one long row. Give each sequence its own."
        known = [
            (lambda t: list(t.shape) == [2, 1], cut),
            (lambda t: list(t.shape) == [3, 2], turned),
            (lambda t: t.dim() == 1, flat),
        ]
        has_shape(got, what, [2, 3], general, *known)


def _pad_edges(fn: Any) -> None:
    ids, mask = fn([[4, 5]], 0)
    equal(ids, [[4, 5]], "ids", "One sequence alone needs no pads, and is one row.")
    equal(mask, [[1, 1]], "mask", "One sequence alone has no pads: its mask is all 1.")
    ids, mask = fn([[], [1, 2]], 7)
    empty = "An empty sequence is a row of pads. Beware of row[-0:], which is the whole row."
    equal(ids, [[7, 7], [1, 2]], "ids", empty)
    equal(mask, [[0, 0], [1, 1]], "mask", empty)


def _pad_whole(fn: Any) -> None:
    sequences = [[3], [1, 4, 1, 5], [9, 2], [6, 5, 3, 5], [8, 9, 7]]
    general = "Two sequences come out right, five do not. What depends on the number of rows?"
    for what, got, right in zip(
        ("ids", "mask"), fn(sequences, 3), pad_left(sequences, 3), strict=True
    ):
        equal(got, right, what, general)


PAD_LEFT = Task(
    name="pad_left",
    lesson=2,
    minutes=10,
    difficulty="easy",
    statement="Bring sequences of different lengths into one rectangle, pads on the left.",
    solution=pad_left,
    hints=(
        "Find the length of the longest sequence. Each row is then some pads, followed by the "
        "sequence's own tokens. The mask has 0 for each of these pads, 1 for each token.",
        "With B sequences and T = the longest length, ids and mask are int64 [B, T]. Row b "
        "starts with T - len(sequences[b]) pads.",
        "With n = width - len(sequence), a row of ids is [pad_id] * n + list(sequence), and "
        "a row of the mask is [0] * n + [1] * len(sequence). Collect the rows in two lists, "
        "and make each list a tensor at the end.",
    ),
    stages=(
        Stage(
            "type",
            "ids and mask, two int64 tensors",
            _pad_type,
            raises=(
                (
                    ValueError,
                    "expected sequence of length",
                    "A tensor is a rectangle, and torch.tensor refuses rows of different "
                    "lengths. Fill the short ones up first.",
                ),
            ),
        ),
        Stage("shape", "[B, T]: a row a sequence, as wide as the longest", _pad_shape),
        gives(
            "side",
            "pads first, then the tokens in their order",
            lambda fn: fn(ROWS, 0)[0],
            [[5, 6, 7], [0, 0, 8]],
            "ids",
            "Each row holds its own tokens, in their order, and ends with the last of them.",
            (
                [[5, 6, 7], [8, 0, 0]],
                "Your pads are on the right. The model continues from the last column, so "
                "that must be a real token: pads go on the left.",
            ),
            (
                [[7, 6, 5], [0, 0, 8]],
                "Your tokens come out backwards. Only the pads are put in front; the tokens "
                "keep their order.",
            ),
            (
                [[1, 1, 1], [0, 0, 1]],
                "You return the mask first. The order is ids, mask.",
            ),
            (
                lambda got: torch.equal(got[0], got[1]),
                "All rows are the same. [row] * B is one list, B times: make each row anew.",
            ),
            (
                [[0, 0, 8], [5, 6, 7]],
                "Your rows have changed places. Row b must be sequence b, or people get each "
                "other's answers.",
            ),
        ),
        gives(
            "pad id",
            "filled up with the pad_id that was given",
            lambda fn: fn(ROWS, 9)[0],
            [[5, 6, 7], [9, 9, 8]],
            "ids",
            "The short row is filled up with pad_id, which is 9 here.",
            ([[5, 6, 7], [0, 0, 8]], "You fill up with 0, whatever pad_id is. Use pad_id."),
        ),
        gives(
            "mask",
            "1 for a real token, 0 for a pad",
            lambda fn: fn(ROWS, 0)[1],
            [[1, 1, 1], [0, 0, 1]],
            "mask",
            "The mask has 1 under each real token, and 0 under each pad.",
            (
                [[0, 0, 0], [1, 1, 0]],
                "Your mask is inverted: 1 stands for a real token, 0 for a pad.",
            ),
            (
                [[1, 1, 1], [1, 1, 1]],
                "Your mask is 1 everywhere: the model would read the pads as text.",
            ),
            (
                [[1, 1, 1], [1, 0, 0]],
                "Your mask is padded on the other side than your ids. Its 1s belong under the "
                "real tokens, at the right.",
            ),
        ),
        gives(
            "real pad id",
            "a real token may have the pad's id",
            lambda fn: fn([[2, 5, 2], [2]], 2)[1],
            [[1, 1, 1], [0, 0, 1]],
            "mask",
            "Here 2 is the pad id, and a real token as well. The lengths tell them apart.",
            (
                [[0, 1, 0], [0, 0, 0]],
                "Your mask comes from comparing ids with pad_id, and so it hides real tokens "
                "of that id. (The small model pads with its end-of-turn id.) Take the lengths.",
            ),
        ),
        gives(
            "any order",
            "the longest sequence may stand anywhere",
            lambda fn: fn(ROWS[::-1], 0)[0],
            [[0, 0, 8], [5, 6, 7]],
            "ids",
            WIDTH,
            raises=((ValueError, "expected sequence of length", WIDTH),),
        ),
        Stage("edges", "one sequence alone, and an empty one", _pad_edges),
        Stage("whole", "five sequences together", _pad_whole),
    ),
)

# position_ids. What a pad gets is free, as long as such a position exists.
LEFT = torch.tensor([[0, 0, 1, 1]])
RIGHT = torch.tensor([[1, 1, 0, 0]])
MIXED = torch.tensor([[1, 1, 1, 1], [0, 0, 0, 1], [0, 1, 1, 1]])


def _real(mask: Tensor) -> Tensor:
    return mask.bool()


def _position_type(fn: Any) -> None:
    asked = "positions look up rows of a table, so they are whole numbers: int64, like the mask."
    has_dtype(fn(LEFT), "positions", torch.int64, asked)


def _position_shape(fn: Any) -> None:
    got = fn(MIXED)
    general = f"positions have shape {list(got.shape)}. One for each place of the mask: [3, 4]."
    one_row = "You give one row of positions for all. Each row has its own number of pads."
    known = [(lambda t: t.numel() == 4, one_row)]
    has_shape(got, "positions", [3, 4], general, *known)


def _position_at_pads(fn: Any) -> None:
    got = fn(LEFT)
    expect(
        bool((got >= 0).all()),
        "A pad gets a negative position, which no table has. Raise it to 0: clamp(min=0).",
        expected=Words("positions of at least 0, at pads too"),
        got=got,
    )
    expect(
        bool((got <= 3).all()),
        "A pad gets a position past the end of the row. Any from 0 to T - 1 will do.",
        expected=Words("positions of at most T - 1 = 3, at pads too"),
        got=got,
    )


def _counts(name: str, about: str, mask: Tensor, hint: str, *known: Diagnosis) -> Stage:
    """A stage that compares the positions of the real tokens, and leaves pads alone."""
    expected = position_ids(mask)
    return gives(
        name, about, lambda fn: fn(mask), expected, "positions", hint, *known, where=_real(mask)
    )


POSITION_IDS = Task(
    name="position_ids",
    lesson=2,
    minutes=5,
    difficulty="easy",
    statement="Number the real tokens of each row 0, 1, 2 …, wherever the padding stands.",
    solution=position_ids,
    hints=(
        "The first real token of a row is number 0, however many pads stand before it. A real "
        "token's number is how many real tokens stand before it in its row.",
        "mask [B, T] → positions int64 [B, T]. A running sum along the last dimension counts "
        "the real tokens up to and including each place.",
        "mask.cumsum(dim=-1) - 1 is right for every real token. Pads in front get -1 from it, "
        "so raise those to 0 with .clamp(min=0).",
    ),
    stages=(
        Stage("type", "an int64 tensor", _position_type),
        Stage("shape", "[B, T], like the mask", _position_shape),
        _counts(
            "no pads",
            "0, 1, 2 … where nothing is padded",
            torch.ones(1, 4, dtype=torch.int64),
            "Without pads the positions are simply 0, 1, 2, 3.",
            ([[1, 2, 3, 4]], "Your count starts at 1. The first token has position 0."),
            ([[0, 0, 0, 0]], "All positions are 0. Count along the row: dim=-1, not dim=0."),
            ([[1, 1, 1, 1]], "All positions are 1. Count along the row: dim=-1, not dim=0."),
            ([[3, 2, 1, 0]], "You count from the end. The first token has position 0."),
        ),
        _counts(
            "left pads",
            "pads in front do not shift the count",
            LEFT,
            "The first real token after the pads has position 0 again.",
            (
                [[0, 1, 2, 3]],
                "You number the columns, so pads shift the text: its first token would stand "
                "at position 2. Count only places where the mask is 1.",
            ),
        ),
        Stage("at pads", "any position that exists", _position_at_pads),
        _counts(
            "right pads",
            "pads behind change nothing",
            RIGHT,
            "Real tokens at the beginning of a row have positions 0, 1 …",
            (
                lambda got: bool((got[0, :2] == 0).all()),
                "You subtract the number of pads, which is right only where they stand in "
                "front. Count the real tokens instead, and either side works.",
            ),
        ),
        _counts(
            "rows",
            "each row counts for itself",
            MIXED,
            "Each row starts at 0 and counts its own real tokens.",
            (
                lambda got: all(torch.equal(row, got[0]) for row in got),
                "All rows have the first row's positions. Each has its own number of pads.",
            ),
        ),
    ),
)

# may_attend. Rows of padding queries are free: nobody reads what a pad computes.
PADDED = torch.tensor([[0, 1, 1]])
TWO = torch.tensor([[1, 1, 1], [0, 1, 1]])


def _queries(mask: Tensor) -> Tensor:
    return mask.bool()[:, None, :, None].expand_as(may_attend(mask))


def _attend_type(fn: Any) -> None:
    additive = (
        "Yours has 0 and −inf, to be added to scores. Here True stands for may look and "
        "False for may not: torch.bool."
    )
    general = "allowed has numbers, and True and False are asked for: torch.bool."
    known = (lambda t: bool((t < -1e4).any()), additive)
    has_dtype(fn(PADDED), "allowed", torch.bool, general, known)


def _attend_shape(fn: Any) -> None:
    got = fn(TWO)
    general = f"The shape is {list(got.shape)}. Asked for is [B, 1, T, T], here [2, 1, 3, 3]."
    heads = "The dimension for the heads is missing: [B, 1, T, T]. Put it in with [:, None]."
    batch = "There is one square for the whole batch. Each row has its own pads: [B, 1, T, T]."
    queries = "This is the padding rule alone. Each token that looks gets a row: [B, 1, T, T]."
    known = [
        (lambda t: list(t.shape) == [2, 3, 3], heads),
        (lambda t: list(t.shape) in ([3, 3], [1, 3, 3], [1, 1, 3, 3]), batch),
        (lambda t: list(t.shape) in ([2, 1, 1, 3], [2, 1, 3]), queries),
    ]
    has_shape(got, "allowed", [2, 1, 3, 3], general, *known)


def _allows(name: str, about: str, mask: Tensor, hint: str, *known: Diagnosis) -> Stage:
    """A stage that compares what the real tokens may look at, and leaves pads' rows alone."""
    return gives(
        name,
        about,
        lambda fn: fn(mask),
        may_attend(mask),
        "allowed",
        hint,
        *known,
        where=_queries(mask),
    )


MAY_ATTEND = Task(
    name="may_attend",
    lesson=2,
    minutes=10,
    difficulty="medium",
    statement="Say which token may look at which: no pads, and nothing later than itself.",
    solution=may_attend,
    hints=(
        "Two rules hold at once. A token may look at itself and at what stands before it; and "
        "nobody may look at a pad. Make a picture for each rule and join them with &.",
        "The first rule is one square [T, T], the same for all: row = who looks, column = at "
        "whom. The second is a row of columns for each sequence: mask as bool "
        "[B, 1, 1, T]. Joined they broadcast to [B, 1, T, T].",
        "causal = torch.ones(T, T, dtype=torch.bool).tril() is the first rule, and "
        "mask.bool()[:, None, None, :] the second. The answer is one & the other.",
    ),
    stages=(
        Stage("type", "a bool tensor, True for may look", _attend_type),
        Stage("shape", "[B, 1, T, T]", _attend_shape),
        _allows(
            "causal",
            "a token sees itself and what is before it",
            torch.ones(1, 3, dtype=torch.int64),
            "Row q may look at columns 0 to q.",
            (
                [[[[1, 1, 1], [1, 1, 1], [1, 1, 1]]]],
                "Everyone may look at everything, later tokens too: then a model could copy "
                "the answer it has to predict. Allow only columns up to the row's own.",
            ),
            (
                [[[[1, 1, 1], [0, 1, 1], [0, 0, 1]]]],
                "Your picture is transposed: tokens look ahead. The row is who looks, the "
                "column at whom, so the True half lies below the diagonal (tril).",
            ),
            (
                [[[[0, 0, 0], [1, 0, 0], [1, 1, 0]]]],
                "A token may not look at itself in yours. The diagonal belongs to it.",
            ),
            (
                [[[[0, 1, 1], [0, 0, 1], [0, 0, 0]]]],
                "Yours is inverted: True marks what is hidden. Here True means may look.",
            ),
        ),
        _allows(
            "pads",
            "nobody looks at a pad",
            PADDED,
            "The pad's column, the first, is False in the rows of the real tokens.",
            (
                lambda got: bool(got[0, 0, 1:, 0].all()) and not bool(got[0, 0, 0].any()),
                "You forbid the pad to look, but the others still look at the pad. Put the "
                "mask on the columns, which are looked at: [:, None, None, :].",
            ),
            (
                [[[[1, 0, 0], [1, 1, 0], [1, 1, 1]]]],
                "The real tokens still look at the pad. The causal rule alone is not enough: "
                "join it with the mask.",
            ),
            (
                lambda got: bool(got[0, 0, 1:, 0].all()) and not bool(got[0, 0, 2, 1]),
                "Only the pad may be looked at, the real tokens may not: the mask is the wrong "
                "way round. It is 1 for real tokens.",
            ),
            (
                lambda got: bool(got[0, 0, 1, 2]) and not bool(got[0, 0, :, 0].any()),
                "A pad is hidden, but tokens look ahead again: both rules must hold. Join "
                "with &, not with |.",
            ),
        ),
        _allows(
            "rows",
            "each row of the batch has its own pads",
            TWO,
            "The first sequence has no pad, the second has one.",
            (
                lambda got: torch.equal(got[0], got[1]),
                "Both sequences get the same square, but only the second has a pad. Keep the "
                "batch dimension of the mask.",
            ),
        ),
        _allows(
            "right pads",
            "pads behind are hidden as well",
            torch.tensor([[1, 1, 0], [1, 0, 0]]),
            "It works for pads in front. Where the mask is 0 tells where pads stand.",
        ),
        _allows("whole", "three sequences of four", MIXED, "Each stage before holds alone."),
    ),
)


# The bug hunt. What a learner is given counts columns, so that padding shifts positions.
def append_tokens(ids: Tensor, mask: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Add one token to each row of a batch padded on the left.

    `ids`, `mask` `[B, T]` and `tokens [B, 1]` → ids and mask `[B, T + 1]`, and the
    position of each new token, `[B, 1]`.
    """
    ids = torch.cat([ids, tokens], dim=1)  # [B, T + 1]
    mask = torch.cat([mask, torch.ones_like(tokens)], dim=1)  # [B, T + 1]
    positions = mask.sum(dim=1, keepdim=True) - 1  # [B, 1]: real tokens before the new one
    return ids, mask, positions


IDS = torch.tensor([[5, 6, 7], [0, 0, 8]])
MASK = torch.tensor([[1, 1, 1], [0, 0, 1]])
NEW = torch.tensor([[9], [4]])


def _append_shapes(fn: Any) -> None:
    asked = (("ids", [2, 4]), ("mask", [2, 4]), ("positions", [2, 1]))
    got = unpack(fn(IDS, MASK, NEW), "ids", "mask", "positions")
    for (what, shape), value in zip(asked, got, strict=True):
        tensor(value, what, torch.int64, shape)


APPEND_TOKENS = Task(
    name="append_tokens",
    lesson=2,
    minutes=5,
    difficulty="medium",
    statement="Mend the step that adds one token to each row of a padded batch.",
    solution=append_tokens,
    hunt=True,
    hints=(
        "Look at the short row. Alone, its new token is its second; in the batch it is still "
        "its second. What does the function count to find that out?",
        "positions is [B, 1], one number a row, and each row has its own. The mask, [B, T + 1] "
        "by now, knows which places of a row are real tokens.",
        "mask.sum(dim=1, keepdim=True) counts each row's real tokens, the new one included. "
        "Its position is one less, since counting starts at 0.",
    ),
    stages=(
        Stage("shape", "ids and mask [B, T + 1], positions [B, 1]", _append_shapes),
        gives(
            "ids",
            "the new token comes last",
            lambda fn: fn(IDS, MASK, NEW)[0],
            [[5, 6, 7, 9], [0, 0, 8, 4]],
            "ids",
            "This part was right as it was given: the new token is put behind its row.",
        ),
        gives(
            "mask",
            "the new token is a real one",
            lambda fn: fn(IDS, MASK, NEW)[1],
            [[1, 1, 1, 1], [0, 0, 1, 1]],
            "mask",
            "This part was right as it was given: the new token has a 1 in the mask.",
        ),
        gives(
            "unpadded",
            "a row without pads",
            lambda fn: fn(IDS[:1], MASK[:1], NEW[:1])[2],
            [[3]],
            "positions",
            "A fourth token has position 3: counting starts at 0.",
            ([[4]], "One too many: the row has 4 tokens now, but counting starts at 0."),
            ([[2]], "One too few: at position 2 stands the last token before the new one."),
        ),
        gives(
            "padded",
            "the same row alone and in a batch",
            lambda fn: fn(IDS, MASK, NEW)[2],
            [[3], [1]],
            "positions",
            "The second row has two real tokens now, 8 and 4, so 4 stands at position 1.",
            (
                [[3], [3]],
                "Both new tokens get position 3, the number of columns. The second row has "
                "only one real token before the new one; pads don't count.",
            ),
        ),
    ),
)

TASKS = (PAD_LEFT, POSITION_IDS, MAY_ATTEND, APPEND_TOKENS)
