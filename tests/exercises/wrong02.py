"""Wrong and right solutions of lesson 02."""

import torch
from solutions import right, wrong
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence


def rows(sequences, pad_id, mask=None):
    width = max(len(s) for s in sequences)
    ids = [[pad_id] * (width - len(s)) + list(s) for s in sequences]
    real = [[0] * (width - len(s)) + [1] * len(s) for s in sequences]
    return torch.tensor(ids), torch.tensor(real) if mask is None else mask(torch.tensor(real))


@wrong("pad_left", "pads are on the right")
def pads_on_the_right(sequences, pad_id):
    width = max(len(s) for s in sequences)
    ids = [s + [pad_id] * (width - len(s)) for s in sequences]
    mask = [[1] * len(s) + [0] * (width - len(s)) for s in sequences]
    return torch.tensor(ids), torch.tensor(mask)


@wrong("pad_left", "inverted")
def mask_inverted(sequences, pad_id):
    return rows(sequences, pad_id, lambda real: 1 - real)


@wrong("pad_left", "comparing ids with pad_id")
def mask_from_ids(sequences, pad_id):
    ids, _ = rows(sequences, pad_id)
    return ids, (ids != pad_id).long()


@wrong("pad_left", "1 everywhere")
def mask_of_ones(sequences, pad_id):
    return rows(sequences, pad_id, torch.ones_like)


@wrong("pad_left", "mask is padded on the other side")
def mask_on_the_other_side(sequences, pad_id):
    return rows(sequences, pad_id, lambda real: real.flip(-1))


@wrong("pad_left", "in place")
def fills_up_the_argument(sequences, pad_id):
    width = max(len(s) for s in sequences)
    mask = torch.tensor([[0] * (width - len(s)) + [1] * len(s) for s in sequences])
    for sequence in sequences:
        while len(sequence) < width:
            sequence.insert(0, pad_id)
    return torch.tensor(sequences), mask


@wrong("pad_left", "whatever pad_id is")
def fills_up_with_zero(sequences, pad_id):
    return rows(sequences, 0)


@wrong("pad_left", "cut to the shortest")
def cuts_to_the_shortest(sequences, pad_id):
    width = min(len(s) for s in sequences)
    ids = torch.tensor([s[-width:] for s in sequences])
    return ids, torch.ones_like(ids)


@wrong("pad_left", "backwards")
def pads_and_turns(sequences, pad_id):
    ids, mask = pads_on_the_right(sequences, pad_id)
    return ids.flip(-1), mask.flip(-1)


@wrong("pad_left", "changed places")
def sorts_by_length(sequences, pad_id):
    return rows(sorted(sequences, key=len), pad_id)


@wrong("pad_left", "mask is float32")
def mask_of_floats(sequences, pad_id):
    return rows(sequences, pad_id, torch.Tensor.float)


@wrong("pad_left", "mask is bool")
def mask_of_bools(sequences, pad_id):
    return rows(sequences, pad_id, torch.Tensor.bool)


@wrong("pad_left", "ids is a list")
def lists_not_tensors(sequences, pad_id):
    ids, mask = rows(sequences, pad_id)
    return ids.tolist(), mask.tolist()


@wrong("pad_left", "mask first")
def swaps_the_results(sequences, pad_id):
    return rows(sequences, pad_id)[::-1]


@wrong("pad_left", "Return 2 values")
def only_the_ids(sequences, pad_id):
    return rows(sequences, pad_id)[0]


@wrong("pad_left", "returned None")
def forgets_to_return(sequences, pad_id):
    rows(sequences, pad_id)


@wrong("pad_left", "A tensor is a rectangle")
def never_fills_up(sequences, pad_id):
    ids = torch.tensor(sequences)
    return ids, torch.ones_like(ids)


@wrong("pad_left", r"row\[-0:\]")
def writes_from_the_end(sequences, pad_id):
    width = max(len(s) for s in sequences)
    ids = torch.full((len(sequences), width), pad_id)
    mask = torch.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        if sequence:
            ids[row, -len(sequence) :] = torch.tensor(sequence)
        mask[row, -len(sequence) :] = 1
    return ids, mask


@wrong("pad_left", "not the first")
def as_wide_as_the_first(sequences, pad_id):
    width = len(sequences[0])
    ids = [[pad_id] * (width - len(s)) + s for s in sequences]
    return torch.tensor(ids), torch.tensor(
        [[0] * (width - len(s)) + [1] * len(s) for s in sequences]
    )


@wrong("pad_left", "make each row anew")
def one_row_many_times(sequences, pad_id):
    width = max(len(s) for s in sequences)
    ids, mask = [[pad_id] * width] * len(sequences), [[0] * width] * len(sequences)
    for b, sequence in enumerate(sequences):
        for t, token in enumerate(sequence, start=width - len(sequence)):
            ids[b][t], mask[b][t] = token, 1
    return torch.tensor(ids), torch.tensor(mask)


@right("pad_left")
def one_function_of_torch(sequences, pad_id):
    tensors = [torch.tensor(s, dtype=torch.int64) for s in sequences]
    ones = [torch.ones_like(t) for t in tensors]
    ids = pad_sequence(tensors, batch_first=True, padding_value=pad_id, padding_side="left")
    return ids, pad_sequence(ones, batch_first=True, padding_value=0, padding_side="left")


@right("pad_left")
def lengths_against_columns(sequences, pad_id):
    lengths = torch.tensor([len(s) for s in sequences])
    width = int(lengths.max())
    mask = (torch.arange(width) >= (width - lengths)[:, None]).long()
    ids = torch.full_like(mask, pad_id)
    ids[mask.bool()] = torch.tensor([i for s in sequences for i in s], dtype=torch.int64)
    return [ids, mask]


@right("pad_left")
def padded_row_by_row(sequences, pad_id):
    width = max(map(len, sequences))
    gaps = [width - len(s) for s in sequences]
    tensors = [torch.tensor(s, dtype=torch.long) for s in sequences]
    ids = [pad(t, (gap, 0), value=pad_id) for t, gap in zip(tensors, gaps, strict=True)]
    mask = [pad(torch.ones_like(t), (gap, 0)) for t, gap in zip(tensors, gaps, strict=True)]
    return torch.stack(ids), torch.stack(mask)


@wrong("position_ids", "number the columns")
def columns(mask):
    return torch.arange(mask.shape[1]).expand_as(mask)


@wrong("position_ids", "starts at 1")
def starts_at_one(mask):
    return mask.cumsum(dim=-1)


@wrong("position_ids", "negative position")
def negative_at_pads(mask):
    return mask.cumsum(dim=-1) - 1


@wrong("position_ids", "dim=-1, not dim=0")
def sums_down_the_batch(mask):
    return (mask.cumsum(dim=0) - 1).clamp(min=0)


@wrong("position_ids", "right only where they stand in front")
def subtracts_the_pads(mask):
    pads = (mask == 0).sum(dim=-1, keepdim=True)
    return (torch.arange(mask.shape[1]) - pads).clamp(min=0)


@wrong("position_ids", "first row's positions")
def first_row_for_all(mask):
    return (mask[:1].cumsum(dim=-1) - 1).clamp(min=0).expand_as(mask)


@wrong("position_ids", "whole numbers")
def float_positions(mask):
    return (mask.float().cumsum(dim=-1) - 1).clamp(min=0)


@wrong("position_ids", "one row of positions for all")
def no_batch(mask):
    return (mask[0].cumsum(dim=-1) - 1).clamp(min=0)


@wrong("position_ids", "count from the end")
def counts_from_the_end(mask):
    return (mask.flip(-1).cumsum(-1).flip(-1) - 1).clamp(min=0)


@wrong("position_ids", "in place")
def changes_the_mask(mask):
    mask[:] = (mask.cumsum(dim=-1) - 1).clamp(min=0)
    return mask


@wrong("position_ids", "past the end of the row")
def far_away_at_pads(mask):
    return (mask.cumsum(dim=-1) - 1).masked_fill(mask == 0, 10_000)


@right("position_ids")
def ones_at_pads(mask):
    return (mask.long().cumsum(-1) - 1).masked_fill(mask == 0, 1)


@right("position_ids")
def row_by_row(mask):
    result = torch.zeros_like(mask)
    for b, row in enumerate(mask):
        result[b, row == 1] = torch.arange(int(row.sum()))
    return result


@right("position_ids")
def python_lists(mask):
    return torch.tensor(
        [[max(0, sum(r[: t + 1]) - 1) for t in range(len(r))] for r in mask.tolist()]
    )


def causal(mask):
    return torch.ones(mask.shape[1], mask.shape[1], dtype=torch.bool).tril()


@wrong("may_attend", "causal rule alone")
def no_padding(mask):
    return causal(mask).expand(mask.shape[0], 1, -1, -1)


@wrong("may_attend", "look at everything")
def no_causality(mask):
    return mask.bool()[:, None, None, :].expand(-1, 1, mask.shape[1], -1)


@wrong("may_attend", "transposed")
def looks_ahead(mask):
    return causal(mask).T & mask.bool()[:, None, None, :]


@wrong("may_attend", "look at itself")
def without_the_diagonal(mask):
    return causal(mask).tril(-1) & mask.bool()[:, None, None, :]


@wrong("may_attend", "inverted")
def true_is_hidden(mask):
    return ~(causal(mask) & mask.bool()[:, None, None, :])


@wrong("may_attend", "forbid the pad to look")
def masks_the_queries(mask):
    return causal(mask) & mask.bool()[:, None, :, None]


@wrong("may_attend", "wrong way round")
def pads_only(mask):
    return causal(mask) & ((mask == 0)[:, None, None, :] | (mask.sum() == mask.numel()))


@wrong("may_attend", r"not with \|")
def either_rule(mask):
    return causal(mask) & (mask.sum() == mask.numel()) | (
        mask.bool()[:, None, None, :] & (mask.sum() < mask.numel())
    )


@wrong("may_attend", "Keep the batch dimension")
def one_square_for_all(mask):
    return (causal(mask) & mask[-1:].bool()[:, None, None, :]).expand(mask.shape[0], -1, -1, -1)


@wrong("may_attend", "dimension for the heads is missing")
def no_heads(mask):
    return causal(mask) & mask.bool()[:, None, :]


@wrong("may_attend", "one square for the whole batch")
def no_batch_at_all(mask):
    return causal(mask)[None, None]


@wrong("may_attend", "padding rule alone")
def pads_for_all_alike(mask):
    return mask.bool()[:, None, None, :]


@wrong("may_attend", "added to scores")
def additive(mask):
    allowed = causal(mask) & mask.bool()[:, None, None, :]
    return torch.zeros(allowed.shape).masked_fill(~allowed, float("-inf"))


@wrong("may_attend", "allowed has numbers")
def ones_and_zeros(mask):
    return (causal(mask) & mask.bool()[:, None, None, :]).long()


@right("may_attend")
def pads_see_nothing_and_are_not_seen(mask):
    real = mask.bool()
    return causal(mask) & real[:, None, None, :] & real[:, None, :, None]


@right("may_attend")
def pads_see_themselves(mask):
    allowed = causal(mask) & mask.bool()[:, None, None, :]
    return allowed | torch.eye(mask.shape[1], dtype=torch.bool)


@right("may_attend")
def positions_compared(mask):
    place = torch.arange(mask.shape[1])
    allowed = (place[None, :] <= place[:, None]).expand(mask.shape[0], 1, -1, -1)
    return allowed.masked_fill((mask == 0)[:, None, None, :], False)


@right("may_attend")
def loops(mask):
    batch, width = mask.shape
    allowed = torch.zeros(batch, 1, width, width, dtype=torch.bool)
    for b in range(batch):
        for q in range(width):
            for k in range(q + 1):
                allowed[b, 0, q, k] = mask[b, k] == 1
    return allowed


def grown(ids, mask, tokens):
    return torch.cat([ids, tokens], dim=1), torch.cat([mask, torch.ones_like(tokens)], dim=1)


@wrong("append_tokens", "number of columns")
def as_it_was_given(ids, mask, tokens):
    ids, mask = grown(ids, mask, tokens)
    return ids, mask, torch.full_like(tokens, ids.shape[1] - 1)


@wrong("append_tokens", "One too many")
def counts_from_one(ids, mask, tokens):
    ids, mask = grown(ids, mask, tokens)
    return ids, mask, mask.sum(dim=1, keepdim=True)


@wrong("append_tokens", "One too few")
def the_last_tokens_position(ids, mask, tokens):
    return (*grown(ids, mask, tokens), mask.sum(dim=1, keepdim=True) - 1)


@wrong("append_tokens", r"positions has shape \[2\]")
def loses_a_dimension(ids, mask, tokens):
    ids, mask = grown(ids, mask, tokens)
    return ids, mask, mask.sum(dim=1) - 1


@wrong("append_tokens", "has a 1 in the mask")
def new_tokens_are_hidden(ids, mask, tokens):
    ids, _ = grown(ids, mask, tokens)
    mask = torch.cat([mask, torch.zeros_like(tokens)], dim=1)
    return ids, mask, mask.sum(dim=1, keepdim=True)


@right("append_tokens")
def before_it_grew(ids, mask, tokens):
    positions = mask.sum(dim=-1)[:, None]
    return (*grown(ids, mask, tokens), positions)


@right("append_tokens")
def running_sum(ids, mask, tokens):
    ids, mask = grown(ids, mask, tokens)
    return ids, mask, mask.cumsum(-1)[:, -1:] - 1
