"""How a pass over rows of any age is laid out: places, positions, and who attends together."""

import pytest
import torch

from tutorial_server.forward_pass import WORTH, Chunk, ForwardPass, Span

CACHE = torch.zeros(1, 8, 2, 1000, 4)  # [L, slots, K, S, D]


def over(*chunks: tuple[int, int, list[int]]) -> ForwardPass:
    return ForwardPass.over([Chunk(*chunk) for chunk in chunks], CACHE)


def together(work: ForwardPass) -> list[list[int]]:
    """The slots of each span."""
    return [list(range(span.slots.start, span.slots.stop)) for span in work.spans]


def test_a_chunk_ends_where_its_row_will() -> None:
    assert Chunk(3, 10, [1, 2, 3]).length == 13
    assert Chunk(0, 0, [1]).length == 1


def test_ids_positions_places_and_last() -> None:
    work = over((1, 5, [70, 71]), (4, 0, [80]), (6, 2, [90]))
    assert work.token_ids.tolist() == [70, 71, 80, 90]
    assert work.positions.tolist() == [5, 6, 0, 2]
    assert work.last.tolist() == [1, 2, 3]
    K, S = 2, 1000
    wanted = [(1 * K + 0) * S + 5, (1 * K + 1) * S + 5, (1 * K + 0) * S + 6, (1 * K + 1) * S + 6]
    wanted += [(4 * K + 0) * S, (4 * K + 1) * S, (6 * K + 0) * S + 2, (6 * K + 1) * S + 2]
    assert work.places.tolist() == wanted


def test_places_are_where_the_cache_is_read() -> None:
    work = over((1, 5, [70, 71]), (4, 0, [80]))
    cache = torch.zeros(8, 2, 1000, 4)
    values = torch.arange(1, 3 * 2 * 4 + 1).view(3, 2, 4).float()  # [N, K, D]
    cache.view(-1, 4).index_copy_(0, work.places, values.reshape(-1, 4))
    assert torch.equal(cache[1, :, 5:7], values[:2].transpose(0, 1))
    assert torch.equal(cache[4, :, 0], values[2])
    assert cache.count_nonzero() == values.numel()


def test_neighbours_of_like_age_attend_together() -> None:
    work = over((0, 4, [1]), (1, 9, [1]), (2, 0, [1]))
    assert together(work) == [[0, 1, 2]]
    (span,) = work.spans
    assert (span.tokens, span.longest) == (slice(0, 3), 10)
    assert span.lengths is not None and span.lengths.tolist() == [5, 10, 1]
    assert span.seen is not None and span.seen.shape == (3, 1, 1, 10)
    assert span.seen.sum(-1).flatten().tolist() == [5, 10, 1]
    assert bool(span.seen[0, 0, 0, 4]) and not bool(span.seen[0, 0, 0, 5])


def test_a_hole_parts_them() -> None:
    work = over((0, 4, [1]), (2, 4, [1]), (3, 4, [1]), (7, 4, [1]))
    assert together(work) == [[0], [2, 3], [7]]
    assert [span.tokens for span in work.spans] == [slice(0, 1), slice(1, 3), slice(3, 4)]


@pytest.mark.parametrize(("apart", "joined"), [(WORTH, True), (WORTH + 1, False)])
def test_very_different_ages_part_them(apart: int, joined: bool) -> None:
    for ages in ((10, 10 + apart), (10 + apart, 10)):
        work = over(*((slot, age, [1]) for slot, age in enumerate(ages)))
        assert together(work) == ([[0, 1]] if joined else [[0], [1]])
        assert max(span.longest for span in work.spans) == 11 + apart


def test_a_newcomer_must_not_make_the_whole_group_read_in_vain() -> None:
    """Four rows of 10 beside one of 100 read 360 positions in vain, two only 180."""
    young = [(slot, 9, [1]) for slot in range(4)]
    assert together(over(*young, (4, 99, [1]))) == [[0, 1, 2, 3], [4]]
    assert together(over(*young[:2], (2, 99, [1]))) == [[0, 1, 2]]


def test_many_tokens_attend_by_themselves() -> None:
    work = over((0, 3, [1]), (1, 0, [1, 2, 3]), (2, 0, [4]), (3, 8, [5, 6]), (4, 3, [1]))
    assert together(work) == [[0], [1], [2], [3], [4]]
    spans: tuple[Span, ...] = work.spans
    assert [span.lengths is None for span in spans] == [False, True, False, True, False]
    assert spans[1].seen is None  # they are the slot's first: causal is enough
    assert spans[3].seen is not None
    assert spans[3].seen.tolist() == [[True] * 9 + [False], [True] * 10]
    assert [span.longest for span in spans] == [4, 3, 1, 10, 4]
    assert work.last.tolist() == [0, 3, 4, 6, 7]


def test_a_prompt_of_one_token_attends_as_one_that_is_written_does() -> None:
    work = over((0, 0, [9]), (1, 6, [9]))
    assert together(work) == [[0, 1]]
    assert work.spans[0].lengths is not None
    assert work.spans[0].lengths.tolist() == [1, 7]


def test_everything_is_where_the_cache_is() -> None:
    work = ForwardPass.over([Chunk(0, 2, [1, 2]), Chunk(1, 2, [1])], CACHE)
    tensors = [work.token_ids, work.positions, work.places, work.last]
    tensors += [span.seen for span in work.spans if span.seen is not None]
    assert {tensor.device.type for tensor in tensors} == {"cpu"}
    assert {tensor.dtype for tensor in tensors[:4]} == {torch.int64}
