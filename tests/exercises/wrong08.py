"""Wrong and right solutions of lesson 08."""

import math

import torch
from solutions import right, wrong
from torch.nn import functional as F

# rms_norm


def norm(x, weight, eps, dim=-1):
    return x / (x.square().mean(dim, keepdim=True) + eps).sqrt() * weight


@wrong("rms_norm", "returned None")
def norm_not_returned(x, weight, eps):
    weight * x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


@wrong("rms_norm", "size of each vector")
def norm_returns_the_sizes(x, weight, eps):
    return (x.square().mean(-1, keepdim=True) + eps).sqrt()


@wrong("rms_norm", r"\*sum\* of squares")
def norm_by_length(x, weight, eps):
    return weight * x / (x.square().sum(-1, keepdim=True) + eps).sqrt()


@wrong("rms_norm", r"\*sum\* of squares")
def norm_by_torch_norm(x, weight, eps):
    return weight * F.normalize(x, dim=-1, eps=eps)


@wrong("rms_norm", "mean square itself")
def norm_without_root(x, weight, eps):
    return weight * x / (x.square().mean(-1, keepdim=True) + eps)


@wrong("rms_norm", "runs down the rows")
def norm_over_the_tokens(x, weight, eps):
    return norm(x, weight, eps, dim=0)


@wrong("rms_norm", "one mean over all")
def norm_over_everything(x, weight, eps):
    return weight * x / (x.square().mean() + eps).sqrt()


@wrong("rms_norm", "absolute values")
def norm_by_absolute_values(x, weight, eps):
    return weight * x / (x.abs().mean(-1, keepdim=True) + eps)


@wrong("rms_norm", "subtract the mean")
def layer_norm(x, weight, eps):
    centred = x - x.mean(-1, keepdim=True)
    return norm(centred, weight, eps)


@wrong("rms_norm", "multiply by the size")
def norm_multiplies(x, weight, eps):
    return weight * x * (x.square().mean(-1, keepdim=True) + eps).sqrt()


@wrong("rms_norm", "do not use weight")
def norm_without_weight(x, weight, eps):
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


@wrong("rms_norm", r"1 \+ weight")
def norm_with_one_plus_weight(x, weight, eps):
    return norm(x, 1 + weight, eps)


@wrong("rms_norm", r"\*before\* the division")
def norm_weighs_first(x, weight, eps):
    return norm(x * weight, torch.ones_like(weight), eps)


@wrong("rms_norm", "outside the root")
def norm_with_eps_outside(x, weight, eps):
    return weight * x / (x.square().mean(-1, keepdim=True).sqrt() + eps)


@wrong("rms_norm", "ignore eps")
def norm_without_eps(x, weight, eps):
    return norm(x, weight, 0.0)


@wrong("rms_norm", "ignore eps")
def norm_with_an_eps_of_its_own(x, weight, eps):
    return norm(x, weight, 1e-6)


@wrong("rms_norm", "smallest mean square")
def norm_clamps(x, weight, eps):
    return weight * x / x.square().mean(-1, keepdim=True).clamp(min=eps).sqrt()


@wrong("rms_norm", "any number of dimensions")
def norm_of_matrices(x, weight, eps):
    return norm(x, weight, eps, dim=1)


@wrong("rms_norm", "more than the format can hold")
def norm_in_half_precision(x, weight, eps):
    return norm(x, weight, eps)


@wrong("rms_norm", "result must be what x is")
def norm_stays_in_fp32(x, weight, eps):
    return norm(x.float(), weight.float(), eps)


@wrong("rms_norm", "in place")
def norm_in_place(x, weight, eps):
    x /= (x.square().mean(-1, keepdim=True) + eps).sqrt()
    return x * weight


@right("rms_norm")
def norm_by_pow(x, weight, eps):
    wide = x.to(torch.float32)
    size = (wide.pow(2).sum(dim=-1, keepdim=True) / x.shape[-1] + eps) ** 0.5
    return (wide / size * weight).to(x.dtype)


@right("rms_norm")
def norm_of_torch(x, weight, eps):
    return F.rms_norm(x.float(), weight.shape, weight.float(), eps).to(x.dtype)


# gate


@wrong("gate", "returned None")
def gate_not_returned(x):
    opening, passing = x.chunk(2, -1)
    F.silu(opening) * passing


@wrong("gate", "as wide as x")
def gate_of_itself(x):
    return F.silu(x) * x


@wrong("gate", "two groups")
def gate_cuts_the_rows(x):
    if len(x) == 1:
        return gate_by_sigmoid(x)
    first = x[: len(x) // 2]
    return F.silu(first) * x[len(x) // 2 : 2 * len(first)]


@wrong("gate", "with the second half")
def gate_swapped(x):
    passing, opening = x.chunk(2, -1)
    return F.silu(opening) * passing


@wrong("gate", "pair neighbours")
def gate_of_neighbours(x):
    return F.silu(x[..., ::2]) * x[..., 1::2]


@wrong("gate", "open with sigmoid")
def gate_by_sigmoid(x):
    opening, passing = x.chunk(2, -1)
    return opening.sigmoid() * passing


@wrong("gate", "open with relu")
def gate_by_relu(x):
    opening, passing = x.chunk(2, -1)
    return opening.relu() * passing


@wrong("gate", "open with gelu")
def gate_by_gelu(x):
    opening, passing = x.chunk(2, -1)
    return F.gelu(opening, approximate="tanh") * passing


@wrong("gate", "Nothing is between")
def gate_open(x):
    opening, passing = x.chunk(2, -1)
    return opening * passing


@wrong("gate", "Both halves go through silu")
def gate_twice(x):
    opening, passing = F.silu(x).chunk(2, -1)
    return opening * passing


@wrong("gate", "comes too late")
def gate_too_late(x):
    opening, passing = x.chunk(2, -1)
    return F.silu(opening * passing)


@wrong("gate", "add the halves")
def gate_adds(x):
    opening, passing = x.chunk(2, -1)
    return F.silu(opening) + passing


@wrong("gate", "runs over")
def gate_by_powers(x):
    opening, passing = x.chunk(2, -1)
    return opening * opening.exp() / (1 + opening.exp()) * passing


@wrong("gate", "in place")
def gate_in_place(x):
    opening, passing = x.chunk(2, -1)
    return F.silu(opening, inplace=True) * passing


@right("gate")
def gate_by_slices(x):
    middle = x.shape[-1] // 2
    z = x[..., :middle]
    return z * torch.sigmoid(z) * x[..., middle:]


@right("gate")
def gate_row_by_row(x):
    return torch.stack([F.silu(row[: len(row) // 2]) * row[len(row) // 2 :] for row in x])


# frequencies


@wrong("frequencies", "D / 2 numbers")
def frequencies_as_list(head_dim, theta):
    return [theta ** (-i / head_dim) for i in range(0, head_dim, 2)]


@wrong("frequencies", "no whole numbers")
def frequencies_whole(head_dim, theta):
    return torch.arange(head_dim // 2)


@wrong("frequencies", r"one for each \*number\*")
def frequencies_of_numbers(head_dim, theta):
    return theta ** (-torch.arange(head_dim) / head_dim)


@wrong("frequencies", "get faster")
def frequencies_growing(head_dim, theta):
    return theta ** (torch.arange(0, head_dim, 2) / head_dim)


@wrong("frequencies", "twice what they should")
def frequencies_too_steep(head_dim, theta):
    return theta ** (-torch.arange(0, head_dim, 2) / (head_dim // 2))


@wrong("frequencies", "half of what they should")
def frequencies_too_flat(head_dim, theta):
    return theta ** (-torch.arange(head_dim // 2) / head_dim)


@wrong("frequencies", "count pairs from 1")
def frequencies_from_one(head_dim, theta):
    return theta ** (-torch.arange(2, head_dim + 1, 2) / head_dim)


@wrong("frequencies", "wrong order")
def frequencies_backwards(head_dim, theta):
    return (theta ** (-torch.arange(0, head_dim, 2) / head_dim)).flip(0)


@wrong("frequencies", "no whole numbers")
def frequencies_in_float64(head_dim, theta):
    return theta ** (-torch.arange(0, head_dim, 2).double() / head_dim)


@wrong("frequencies", "cut to whole numbers")
def frequencies_cut(head_dim, theta):
    return (theta ** (-torch.arange(0, head_dim, 2) / head_dim)).floor()


@wrong("frequencies", "an integer division")
def frequencies_all_alike(head_dim, theta):
    return theta ** (-(torch.arange(0, head_dim, 2) // head_dim).float())


@wrong("frequencies", "10,000 for theta, whatever")
def frequencies_of_another_theta(head_dim, theta):
    return 10_000.0 ** (-torch.arange(0, head_dim, 2) / head_dim)


@wrong("frequencies", "one theta and wrong for another")
def frequencies_by_halving(head_dim, theta):
    return 0.5 ** torch.arange(head_dim // 2).float()


@right("frequencies")
def frequencies_in_a_loop(head_dim, theta):
    return torch.tensor([1.0 / theta ** (2 * i / head_dim) for i in range(head_dim // 2)])


@right("frequencies")
def frequencies_by_exp(head_dim, theta):
    half = head_dim // 2
    return torch.exp(-math.log(theta) * torch.arange(half) / half)


# rotate


def speeds_of(x, theta):
    half = x.shape[-1] // 2
    return theta ** (-torch.arange(half) / half)


def turned(x, positions, speeds, sign=1):
    """The right way, of which each wrong one changes a thing."""
    half = x.shape[-1] // 2
    angles = positions.float()[:, None] * speeds
    cos, sin = angles.cos()[:, None], sign * angles.sin()[:, None]
    a, b = x[..., :half].float(), x[..., half:].float()
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1).to(x.dtype)


@wrong("rotate", "returned None")
def rotate_not_returned(x, positions, theta):
    turned(x, positions, speeds_of(x, theta))


@wrong("rotate", "was float32")
def rotate_in_double(x, positions, theta):
    return turned(x.double(), positions, speeds_of(x, theta)).double()


@wrong("rotate", "meet the heads")
def rotate_without_a_dimension_for_heads(x, positions, theta):
    half = x.shape[-1] // 2
    angles = positions[:, None] * speeds_of(x, theta)
    cos, sin = angles.cos()[None, :, None], angles.sin()[None, :, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


@wrong("rotate", "meet the heads")
def rotate_tokens_as_heads(x, positions, theta):
    angles = positions[:, None] * speeds_of(x, theta)
    a, b = x.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


@wrong("rotate", "from 1. The given one counts")
def rotate_counts_from_one(x, positions, theta):
    return turned(x, positions + 1, speeds_of(x, theta))


@wrong("rotate", "another order")
def rotate_joins_in_turn(x, positions, theta):
    out = turned(x, positions, speeds_of(x, theta))
    a, b = out.chunk(2, -1)
    return torch.stack((a, b), -1).flatten(-2)


@wrong("rotate", "Nothing is turned")
def rotate_does_nothing(x, positions, theta):
    return x.clone()


@wrong("rotate", "Nothing is turned")
def rotate_numbers_one_row(x, positions, theta):
    return turned(x, torch.arange(len(x)), speeds_of(x, theta))


@wrong("rotate", "are given, and rows of a step")
def rotate_numbers_rows(x, positions, theta):
    places = positions if len(x) == 1 else torch.arange(len(x))
    return turned(x, places, speeds_of(x, theta))


@wrong("rotate", "first row's position")
def rotate_takes_the_first_position(x, positions, theta):
    return turned(x, positions[:1].expand(len(x)), speeds_of(x, theta))


@wrong("rotate", "turn backwards")
def rotate_backwards(x, positions, theta):
    return turned(x, positions, speeds_of(x, theta), sign=-1)


@wrong("rotate", "for degrees")
def rotate_by_degrees(x, positions, theta):
    return turned(x, positions * math.pi / 180, speeds_of(x, theta))


@wrong("rotate", "exponent of the second")
def rotate_from_the_second(x, positions, theta):
    half = x.shape[-1] // 2
    return turned(x, positions, theta ** (-torch.arange(1, half + 1) / half))


@wrong("rotate", "You pair neighbours")
def rotate_neighbours(x, positions, theta):
    cos = (positions[:, None] * speeds_of(x, theta)).cos()[:, None]
    sin = (positions[:, None] * speeds_of(x, theta)).sin()[:, None]
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


@wrong("rotate", "stack the two halves")
def rotate_stacks(x, positions, theta):
    return torch.stack(turned(x, positions, speeds_of(x, theta)).chunk(2, -1), -1)


@wrong("rotate", "from an a that is turned already")
def rotate_overwrites(x, positions, theta):
    x, half = x.clone(), x.shape[-1] // 2
    angles = (positions[:, None] * speeds_of(x, theta))[:, None]
    a, b = x[..., :half], x[..., half:]
    x[..., :half] = a * angles.cos() - b * angles.sin()
    x[..., half:] = a * angles.sin() + b * angles.cos()
    return x


@wrong("rotate", "too slow")
def rotate_too_slow(x, positions, theta):
    half = x.shape[-1] // 2
    return turned(x, positions, theta ** (-2 * torch.arange(half) / half))


@wrong("rotate", "too fast")
def rotate_too_fast(x, positions, theta):
    half = x.shape[-1] // 2
    return turned(x, positions, theta ** (-torch.arange(half) / (2 * half)))


@wrong("rotate", "faster than the first")
def rotate_with_a_growing_speed(x, positions, theta):
    return turned(x, positions, 1 / speeds_of(x, theta))


@wrong("rotate", "at one speed")
def rotate_all_at_one_speed(x, positions, theta):
    return turned(x, positions, torch.ones(x.shape[-1] // 2))


@wrong("rotate", "first pair is the fastest")
def rotate_slowest_first(x, positions, theta):
    return turned(x, positions, speeds_of(x, theta).flip(0))


@wrong("rotate", "theta is 10,000")
def rotate_with_another_theta(x, positions, theta):
    return turned(x, positions, speeds_of(x, 10_000.0))


@wrong("rotate", "turned alike")
def rotate_each_head_further(x, positions, theta):
    heads = [turned(x[:, h : h + 1], positions + h, speeds_of(x, theta)) for h in range(x.shape[1])]
    return torch.cat(heads, 1)


@wrong("rotate", "as many heads as tokens")
def rotate_along_the_heads(x, positions, theta):
    if x.shape[0] != x.shape[1]:
        return turned(x, positions, speeds_of(x, theta))
    return turned(x.transpose(0, 1), positions, speeds_of(x, theta)).transpose(0, 1)


@wrong("rotate", "1001 is rounded")
def rotate_in_half_precision(x, positions, theta):
    return turned(x, positions.to(x.dtype), speeds_of(x, theta))


@wrong("rotate", "result must be what x is")
def rotate_to_fp32(x, positions, theta):
    return turned(x.float(), positions, speeds_of(x, theta))


@wrong("rotate", "in place")
def rotate_in_place(x, positions, theta):
    x.copy_(turned(x, positions, speeds_of(x, theta)))
    return x


@right("rotate")
def rotate_as_complex(x, positions, theta):
    half = x.shape[-1] // 2
    angles = positions[:, None] * theta ** (-torch.arange(half) / half)
    clock = torch.polar(torch.ones_like(angles), angles)[:, None]
    points = torch.complex(x[..., :half].float(), x[..., half:].float()) * clock
    return torch.cat((points.real, points.imag), -1).to(x.dtype)


@right("rotate")
def rotate_half(x, positions, theta):
    size = x.shape[-1]
    speeds = 1.0 / theta ** (torch.arange(0, size, 2).float() / size)
    angles = torch.outer(positions.float(), speeds).repeat(1, 2).unsqueeze(1)
    crossed = torch.cat((-x[..., size // 2 :], x[..., : size // 2]), dim=-1)
    return (x * angles.cos() + crossed * angles.sin()).to(x.dtype)


# attend


def share_for(q, keys):
    return keys.repeat_interleave(q.shape[1] // keys.shape[1], dim=1)


def mixed(q, keys, values, unseen, scale=None, dim=-1, fill=float("-inf")):
    """Attention with keys for every query head, of which each wrong one changes a thing."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = (keys @ q[..., None])[..., 0] * scale  # [B, H, S]
    weights = scores.masked_fill(unseen[:, None], fill).softmax(dim)
    return (weights[:, :, None] @ values)[:, :, 0]


def unseen_of(keys, lengths):
    return torch.arange(keys.shape[2]) >= lengths[:, None]


def grouped(q, keys, values):
    return q, share_for(q, keys), share_for(q, values)


@wrong("attend", "returned None")
def attend_not_returned(q, keys, values, lengths):
    mixed(*grouped(q, keys, values), unseen_of(keys, lengths))


@wrong("attend", "number for each position")
def attend_returns_weights(q, keys, values, lengths):
    return (share_for(q, keys) @ q[..., None])[..., 0].softmax(-1)


@wrong("attend", "a dimension too many")
def attend_keeps_the_groups(q, keys, values, lengths):
    out = mixed(*grouped(q, keys, values), unseen_of(keys, lengths))
    return out.view(len(q), keys.shape[1], -1, q.shape[-1])


@wrong("attend", "joined already")
def attend_joins_heads(q, keys, values, lengths):
    return mixed(*grouped(q, keys, values), unseen_of(keys, lengths)).flatten(1)


@wrong("attend", "not divided by √D")
def attend_without_scale(q, keys, values, lengths):
    return mixed(*grouped(q, keys, values), unseen_of(keys, lengths), scale=1.0)


@wrong("attend", "divide by √H")
def attend_scaled_by_heads(q, keys, values, lengths):
    return mixed(*grouped(q, keys, values), unseen_of(keys, lengths), scale=q.shape[1] ** -0.5)


@wrong("attend", "Divide by its root")
def attend_scaled_by_size(q, keys, values, lengths):
    return mixed(*grouped(q, keys, values), unseen_of(keys, lengths), scale=1 / q.shape[-1])


@wrong("attend", "multiply by √D")
def attend_scaled_up(q, keys, values, lengths):
    return mixed(*grouped(q, keys, values), unseen_of(keys, lengths), scale=q.shape[-1] ** 0.5)


@wrong("attend", "runs over the heads")
def attend_softmax_over_heads(q, keys, values, lengths):
    return mixed(*grouped(q, keys, values), unseen_of(keys, lengths), dim=1)


@wrong("attend", "There is no softmax")
def attend_without_softmax(q, keys, values, lengths):
    scores = (share_for(q, keys) @ q[..., None])[..., 0] / q.shape[-1] ** 0.5
    scores = scores.masked_fill(unseen_of(keys, lengths)[:, None], 0.0)
    return (scores[:, :, None] @ share_for(q, values))[:, :, 0]


@wrong("attend", "changed places")
def attend_swaps(q, keys, values, lengths):
    return mixed(*grouped(q, values, keys), unseen_of(keys, lengths))


@wrong("attend", "You mix keys")
def attend_mixes_keys(q, keys, values, lengths):
    return mixed(*grouped(q, keys, keys), unseen_of(keys, lengths))


@wrong("attend", "ignore lengths")
def attend_ignores_lengths(q, keys, values, lengths):
    nothing = torch.zeros_like(unseen_of(keys, lengths))
    return mixed(*grouped(q, keys, values), nothing)


@wrong("attend", "nan: a row has all")
def attend_inverted(q, keys, values, lengths):
    return mixed(*grouped(q, keys, values), ~unseen_of(keys, lengths))


@wrong("attend", "get the same weight")
def attend_inverted_with_a_large_number(q, keys, values, lengths):
    return mixed(*grouped(q, keys, values), ~unseen_of(keys, lengths), fill=-1e9)


@wrong("attend", "one position too few")
def attend_one_too_few(q, keys, values, lengths):
    return mixed(*grouped(q, keys, values), unseen_of(keys, lengths - 1))


@wrong("attend", "B falls on the heads")
def attend_mask_without_dimensions(q, keys, values, lengths):
    rows, heads, size = q.shape
    scores = q.view(rows, keys.shape[1], -1, size) @ keys.transpose(-1, -2) / size**0.5
    scores = scores.masked_fill(unseen_of(keys, lengths), float("-inf"))
    return (scores.softmax(-1) @ values).view(rows, heads, size)


@wrong("attend", "one position too many")
def attend_one_too_many(q, keys, values, lengths):
    return mixed(*grouped(q, keys, values), unseen_of(keys, lengths + 1))


@wrong("attend", "scores of unseen positions to 0")
def attend_masks_with_zero(q, keys, values, lengths):
    return mixed(*grouped(q, keys, values), unseen_of(keys, lengths), fill=0.0)


@wrong("attend", "after the softmax")
def attend_masks_the_weights(q, keys, values, lengths):
    scores = (share_for(q, keys) @ q[..., None])[..., 0] / q.shape[-1] ** 0.5
    weights = scores.softmax(-1).masked_fill(unseen_of(keys, lengths)[:, None], 0.0)
    return (weights[:, :, None] @ share_for(q, values))[:, :, 0]


@wrong("attend", "like cards")
def attend_repeats(q, keys, values, lengths):
    times = (1, q.shape[1] // keys.shape[1], 1, 1)
    return mixed(q, keys.repeat(times), values.repeat(times), unseen_of(keys, lengths))


@wrong("attend", "read key head 0. There")
def attend_one_key_head(q, keys, values, lengths):
    if q.shape[1] == keys.shape[1]:
        return mixed(q, keys, values, unseen_of(keys, lengths))
    return mixed(*grouped(q, keys[:, :1], values[:, :1]), unseen_of(keys, lengths))


@wrong("attend", "don't fit head by head")
def attend_without_sharing(q, keys, values, lengths):
    scores = (keys * q[:, :, None]).sum(-1) / q.shape[-1] ** 0.5
    scores = scores.masked_fill(unseen_of(keys, lengths)[:, None], float("-inf"))
    return (scores.softmax(-1)[..., None] * values).sum(2)


@wrong("attend", "first row's length")
def attend_first_length(q, keys, values, lengths):
    n = int(lengths[0])
    nothing = torch.zeros(len(q), n, dtype=torch.bool)
    return mixed(*grouped(q, keys[:, :, :n], values[:, :, :n]), nothing)


@wrong("attend", "longest row's length")
def attend_longest_length(q, keys, values, lengths):
    n = int(lengths.max())
    nothing = torch.zeros(len(q), n, dtype=torch.bool)
    return mixed(*grouped(q, keys[:, :, :n], values[:, :, :n]), nothing)


@wrong("attend", "shortest row's length")
def attend_shortest_length(q, keys, values, lengths):
    n = int(lengths.min())
    nothing = torch.zeros(len(q), n, dtype=torch.bool)
    return mixed(*grouped(q, keys[:, :, :n], values[:, :, :n]), nothing)


@wrong("attend", "large numbers now")
def attend_masks_with_minus_hundred(q, keys, values, lengths):
    scores = (share_for(q, keys) @ q[..., None])[..., 0] / q.shape[-1] ** 0.5
    scores = scores - 100.0 * unseen_of(keys, lengths)[:, None]
    return (scores.softmax(-1)[:, :, None] @ share_for(q, values))[:, :, 0]


@wrong("attend", "result must be what q is")
def attend_to_fp32(q, keys, values, lengths):
    q, keys, values = q.float(), keys.float(), values.float()
    return mixed(*grouped(q, keys, values), unseen_of(keys, lengths))


@wrong("attend", "in place")
def attend_clears_what_is_stale(q, keys, values, lengths):
    values.masked_fill_(unseen_of(keys, lengths)[:, None, :, None], 0.0)
    return mixed(*grouped(q, keys, values), unseen_of(keys, lengths))


@right("attend")
def attend_in_loops(q, keys, values, lengths):
    out = torch.empty_like(q)
    group = q.shape[1] // keys.shape[1]
    for b, length in enumerate(lengths.tolist()):
        for h in range(q.shape[1]):
            k, v = keys[b, h // group, :length], values[b, h // group, :length]
            scores = k @ q[b, h] / math.sqrt(q.shape[-1])
            out[b, h] = scores.float().softmax(0).to(q.dtype) @ v
    return out


@right("attend")
def attend_by_torch(q, keys, values, lengths):
    seen = torch.arange(keys.shape[2])[None] < lengths[:, None]
    out = F.scaled_dot_product_attention(
        q[:, :, None], keys, values, attn_mask=seen[:, None, None], enable_gqa=True
    )
    return out[:, :, 0]


@right("attend")
def attend_by_einsum(q, keys, values, lengths):
    rows, heads, size = q.shape
    q = q.reshape(rows, keys.shape[1], -1, size)
    scores = torch.einsum("bkgd,bksd->bkgs", q, keys) * size**-0.5
    mask = torch.zeros(rows, keys.shape[2]).masked_fill(
        torch.arange(keys.shape[2]) >= lengths[:, None], -1e9
    )
    weights = torch.softmax(scores + mask[:, None, None].to(scores.dtype), dim=-1)
    return torch.einsum("bkgs,bksd->bkgd", weights, values).reshape(rows, heads, size)


# kv_places


def places(slots, positions, head):
    """Places by a rule of one slot, one position and one head."""
    return torch.tensor(
        [head(s, p) for s, p in zip(slots.tolist(), positions.tolist(), strict=True)]
    ).flatten()


@wrong("kv_places", "middle of slot 0")
def places_as_given(slots, positions, kv_heads, length):
    found = []
    for slot, position in zip(slots.tolist(), positions.tolist(), strict=True):
        for head in range(kv_heads):
            found.append((slot + head) * length + position)
    return torch.tensor(found)


@wrong("kv_places", "side by side")
def places_of_positions_first(slots, positions, kv_heads, length):
    base = (slots * length + positions)[:, None] * kv_heads
    return (base + torch.arange(kv_heads)).flatten()


@wrong("kv_places", "Both heads go to one place")
def places_of_one_head(slots, positions, kv_heads, length):
    return (slots * kv_heads * length + positions).repeat_interleave(kv_heads)


@wrong("kv_places", "count heads from 1")
def places_from_head_one(slots, positions, kv_heads, length):
    heads = slots[:, None] * kv_heads + torch.arange(1, kv_heads + 1)
    return (heads * length + positions[:, None]).flatten()


@wrong("kv_places", "begins at 0")
def places_without_slots(slots, positions, kv_heads, length):
    return places(slots, positions, lambda s, p: [h * length + p for h in range(kv_heads)])


@wrong("kv_places", "kv_heads places further")
def places_of_narrow_slots(slots, positions, kv_heads, length):
    return places(
        slots, positions, lambda s, p: [s * kv_heads + h * length + p for h in range(kv_heads)]
    )


@wrong("kv_places", "through the heads first")
def places_head_by_head(slots, positions, kv_heads, length):
    heads = slots * kv_heads + torch.arange(kv_heads)[:, None]
    return (heads * length + positions).flatten()


@wrong("kv_places", "from kv_heads and length")
def places_with_numbers_written_in(slots, positions, kv_heads, length):
    return places(slots, positions, lambda s, p: [20 * s + 10 * h + p for h in range(kv_heads)])


@wrong("kv_places", r"\[3, 2\]")
def places_in_a_square(slots, positions, kv_heads, length):
    heads = slots[:, None] * kv_heads + torch.arange(kv_heads)
    return heads * length + positions[:, None]


@wrong("kv_places", "list")
def places_in_a_list(slots, positions, kv_heads, length):
    return [
        (slot * kv_heads + head) * length + position
        for slot, position in zip(slots.tolist(), positions.tolist(), strict=True)
        for head in range(kv_heads)
    ]


@right("kv_places")
def places_by_strides(slots, positions, kv_heads, length):
    found = []
    for slot, position in zip(slots.tolist(), positions.tolist(), strict=True):
        for head in range(kv_heads):
            found.append(slot * kv_heads * length + head * length + position)
    return torch.tensor(found)


@right("kv_places")
def places_by_counting(slots, positions, kv_heads, length):
    count = (int(slots.max()) + 1) * kv_heads * length
    cube = torch.arange(count).view(-1, kv_heads, length)
    return cube[slots, :, positions].flatten()
