"""Wrong and right solutions of lesson 04."""

import math

import torch
from solutions import right, wrong

INF = float("inf")


@wrong("apply_temperature", "you multiply")
def multiplies(logits, temperature):
    return logits * temperature


@wrong("apply_temperature", "You return probabilities")
def softmax_of_it(logits, temperature):
    return (logits / temperature).softmax(dim=-1)


@wrong("apply_temperature", "You return probabilities")
def divides_probabilities(logits, temperature):
    return logits.softmax(dim=-1) / temperature


@wrong("apply_temperature", "has no effect: the distribution is as before")
def subtracts(logits, temperature):
    return logits - temperature


@wrong("apply_temperature", "Above 1 yours has no effect")
def never_above_one(logits, temperature):
    return logits / min(temperature, 1.0)


@wrong("apply_temperature", "keep the temperature from getting low")
def never_low(logits, temperature):
    return logits / max(temperature, 0.1)


@wrong("apply_temperature", "not with //")
def rounds_the_quotients(logits, temperature):
    return logits // temperature


@wrong("apply_temperature", "has become 0")
def whole_temperatures(logits, temperature):
    return logits / int(temperature)


@wrong("apply_temperature", "dim=0 runs over the batch; the vocabulary")
def maximum_over_the_batch(logits, temperature):
    return (logits - logits.max(dim=0, keepdim=True).values) / temperature


@wrong("apply_temperature", "a power of e overflows")
def by_powers(logits, temperature):
    return (logits.exp() ** (1 / temperature)).log()


@wrong("apply_temperature", "in place")
def divides_in_place(logits, temperature):
    logits /= temperature
    return logits


@wrong("apply_temperature", "returned None")
def returns_nothing(logits, temperature):
    logits / temperature


@right("apply_temperature")
def just_divides(logits, temperature):
    return logits / temperature


@right("apply_temperature")
def through_log_softmax(logits, temperature):
    return torch.log_softmax(logits, dim=-1).div(temperature)


@right("apply_temperature")
def row_after_row(logits, temperature):
    return torch.stack([(row - row.max()) * (1 / temperature) for row in logits])


@right("apply_temperature")
def not_below_a_hundred_thousandth(logits, temperature):
    return logits / max(temperature, 1e-5)


def at_least(logits, threshold, fill=-INF):
    return torch.where(logits >= threshold, logits, torch.full_like(logits, fill))


def kth_highest(logits, k):
    return logits.topk(min(k, logits.shape[-1]), dim=-1).values[:, -1:]


@wrong("keep_top_k", "set the others to 0")
def zeros_for_the_others(logits, k):
    return at_least(logits, kth_highest(logits, k), 0.0)


@wrong("keep_top_k", "large negative number")
def a_billion_below(logits, k):
    return at_least(logits, kth_highest(logits, k), -1e9)


@wrong("keep_top_k", "one more than k")
def one_more(logits, k):
    return at_least(logits, logits.sort(dim=-1, descending=True).values[:, k : k + 1])


@wrong("keep_top_k", "one fewer than k")
def one_fewer(logits, k):
    return logits.masked_fill(logits <= kth_highest(logits, k), -INF)


@wrong("keep_top_k", "Only the kept ones came back")
def only_the_values(logits, k):
    return logits.topk(k, dim=-1).values


@wrong("keep_top_k", "result is sorted")
def sorted_values(logits, k):
    ordered = logits.sort(dim=-1, descending=True).values.clone()
    ordered[:, k:] = -INF
    return ordered


@wrong("keep_top_k", "keep the lowest")
def the_lowest(logits, k):
    return at_least(logits, -INF).masked_fill(logits >= kth_highest(logits, k), -INF)


@wrong("keep_top_k", "one threshold for all")
def one_threshold(logits, k):
    return at_least(logits, logits.flatten().topk(k).values[-1])


@wrong("keep_top_k", "one threshold for all")
def the_first_rows_threshold(logits, k):
    return at_least(logits, kth_highest(logits[:1], k))


@wrong("keep_top_k", "topk (runs over|compares down)")
def down_the_batch(logits, k):
    return at_least(logits, logits.topk(k, dim=0).values[-1:])


@wrong("keep_top_k", "Take the smaller of the two")
def no_limit_to_k(logits, k):
    return at_least(logits, logits.topk(k, dim=-1).values[:, -1:])


@wrong("keep_top_k", "Take the smaller of the two")
def reads_past_the_end(logits, k):
    thresholds = [sorted(row, reverse=True)[k - 1] for row in logits.tolist()]
    return at_least(logits, torch.tensor(thresholds)[:, None])


@wrong("keep_top_k", "You return probabilities")
def probabilities_of_the_kept(logits, k):
    return at_least(logits, kth_highest(logits, k)).softmax(dim=-1)


@wrong("keep_top_k", "too few are kept")
def drops_all_that_tie(logits, k):
    ordered = logits.sort(dim=-1, descending=True).values
    if k >= logits.shape[-1]:
        return logits
    return logits.masked_fill(logits <= ordered[:, k : k + 1], -INF)


@wrong("keep_top_k", "in place")
def fills_the_argument(logits, k):
    logits[logits < kth_highest(logits, k)] = -INF
    return logits


@right("keep_top_k")
def puts_the_best_back(logits, k):
    best = logits.topk(min(k, logits.shape[-1]), dim=-1)
    return torch.full_like(logits, -INF).scatter(-1, best.indices, best.values)


@right("keep_top_k")
def by_ranks(logits, k):
    ranks = logits.argsort(dim=-1, descending=True).argsort(dim=-1)
    return logits.masked_fill(ranks >= k, -INF)


@right("keep_top_k")
def with_python_lists(logits, k):
    rows = []
    for row in logits.tolist():
        keep = sorted(range(len(row)), key=lambda i: -row[i])[:k]
        rows.append([x if i in keep else -math.inf for i, x in enumerate(row)])
    return torch.tensor(rows)


def by_rank(logits, dropped_of, back=True, descending=True):
    """Drop by what a rule says of the sorted probabilities and their running total."""
    ordered, order = logits.softmax(dim=-1).sort(dim=-1, descending=descending)
    dropped = dropped_of(ordered, ordered.cumsum(dim=-1))
    dropped = torch.zeros_like(dropped).scatter(-1, order, dropped) if back else dropped
    return logits.masked_fill(dropped, -INF)


def after_the_line(p):
    def dropped(ordered, total):
        late = total - ordered >= p
        late[:, 0] = False
        return late

    return dropped


@wrong("keep_top_p", "you drop it")
def before_the_line(logits, p):
    return by_rank(logits, lambda ordered, total: total > p)


@wrong("keep_top_p", "crosses 0.9 stays")
def before_the_line_but_one(logits, p):
    def dropped(ordered, total):
        late = total > p
        late[:, 0] = False
        return late

    return by_rank(logits, dropped)


@wrong("keep_top_p", "another token still gets in")
def one_too_many(logits, p):
    def dropped(ordered, total):
        late = torch.zeros_like(total, dtype=torch.bool)
        late[:, 2:] = total[:, :-2] >= p
        return late

    return by_rank(logits, dropped)


@wrong("keep_top_p", "in order of rank")
def never_puts_back(logits, p):
    return by_rank(logits, after_the_line(p), back=False)


@wrong("keep_top_p", "descending=True first")
def the_least_probable_first(logits, p):
    return by_rank(logits, after_the_line(p), descending=False)


@wrong("keep_top_p", "descending=True first")
def in_order_of_id(logits, p):
    probabilities = logits.softmax(dim=-1)
    return logits.masked_fill(probabilities.cumsum(dim=-1) - probabilities >= p, -INF)


@wrong("keep_top_p", "Do you add up logits")
def adds_up_logits(logits, p):
    ordered, order = logits.sort(dim=-1, descending=True)
    dropped = ordered.cumsum(dim=-1) - ordered >= p
    return logits.masked_fill(torch.zeros_like(dropped).scatter(-1, order, dropped), -INF)


@wrong("keep_top_p", "each probability by itself")
def each_by_itself(logits, p):
    return logits.masked_fill(logits.softmax(dim=-1) < p, -INF)


@wrong("keep_top_p", "Only the favourite is kept")
def softmax_over_the_batch(logits, p):
    ordered, order = logits.sort(dim=-1, descending=True)
    ordered = ordered.softmax(dim=0)
    dropped = ordered.cumsum(dim=-1) - ordered >= p
    return logits.masked_fill(torch.zeros_like(dropped).scatter(-1, order, dropped), -INF)


@wrong("keep_top_p", "Both rows keep the same")
def the_first_rows_order(logits, p):
    kept = by_rank(logits[:1], after_the_line(p)).isfinite()
    return logits.masked_fill(~kept, -INF)


@wrong("keep_top_p", "set the others to 0")
def zeros_below_the_line(logits, p):
    kept = by_rank(logits, after_the_line(p)).isfinite()
    return logits * kept


@wrong("keep_top_p", "their logits have changed")
def log_probabilities_of_the_kept(logits, p):
    return by_rank(logits, after_the_line(p)).log_softmax(dim=-1)


@wrong("keep_top_p", "However small p is")
def nothing_at_zero(logits, p):
    return by_rank(logits, lambda ordered, total: total - ordered >= p)


@wrong("keep_top_p", "in place")
def masks_the_argument(logits, p):
    logits[by_rank(logits, after_the_line(p)) == -INF] = -INF
    return logits


@right("keep_top_p")
def shifted_by_one(logits, p):
    ordered, order = torch.sort(logits, descending=True)
    remove = ordered.softmax(-1).cumsum(-1) > p
    remove[..., 1:] = remove[..., :-1].clone()
    remove[..., 0] = False
    return logits.masked_fill(remove.scatter(1, order, remove), -INF)


@right("keep_top_p")
def a_threshold_of_probability(logits, p):
    probabilities = logits.softmax(dim=-1)
    result = logits.clone()
    for row, chances in zip(result, probabilities, strict=True):
        together, lowest = 0.0, 1.0
        for chance in sorted(chances.tolist(), reverse=True):
            together, lowest = together + chance, chance
            if together >= p:
                break
        row[chances < lowest] = -INF
    return result


@right("keep_top_p")
def from_the_small_end(logits, p):
    ordered, order = logits.softmax(dim=-1).sort(dim=-1)
    dropped = ordered.cumsum(dim=-1) <= 1 - p
    dropped[:, -1] = False
    return logits.masked_fill(dropped.gather(-1, order.argsort(dim=-1)), -INF)


@right("keep_top_p")
def puts_the_nucleus_back(logits, p):
    result = torch.full_like(logits, -INF)
    for b in range(len(logits)):
        together = 0.0
        for i in logits[b].argsort(descending=True).tolist():
            result[b, i] = logits[b, i]
            together += logits[b].softmax(dim=0)[i].item()
            if together >= p:
                break
    return result


def filtered(logits, temperature, top_k, top_p):
    logits = through_log_softmax(logits, temperature)
    logits = puts_the_best_back(logits, top_k) if top_k else logits
    return logits if top_p is None else shifted_by_one(logits, top_p)


def drawn(logits, generator):
    return torch.multinomial(logits.softmax(dim=-1), 1, generator=generator)


def best(logits):
    return logits.argmax(dim=-1, keepdim=True)


@wrong("select_next_token", r"come as \[B\]")
def loses_its_column(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    return logits.argmax(dim=-1)


@wrong("select_next_token", "One token came for two rows")
def one_for_all(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    return logits.argmax().view(1, 1)


@wrong("select_next_token", "float32. A token id")
def the_logit_itself(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    return logits.max(dim=-1, keepdim=True).values


@wrong("select_next_token", "temperature of 0")
def divides_by_zero(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    return drawn(logits / temperature, generator)


@wrong("select_next_token", "take the lowest")
def the_worst(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    return logits.argmin(dim=-1, keepdim=True)


@wrong("select_next_token", "still take the highest")
def always_greedy(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    return best(logits)


@wrong("select_next_token", "multinomial wants probabilities")
def draws_from_logits(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature == 0:
        return best(logits)
    logits = filtered(logits, temperature, top_k, top_p)
    return torch.multinomial(logits, 1, generator=generator)


@wrong("select_next_token", "equally often")
def over_the_batch(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature == 0:
        return best(logits)
    shares = filtered(logits, temperature, top_k, top_p).softmax(dim=0)
    return torch.multinomial(shares, 1, generator=generator)


@wrong("select_next_token", "All rows get the same")
def one_draw_for_all(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature == 0:
        return best(logits)
    logits = filtered(logits, temperature, top_k, top_p)
    return drawn(logits[:1], generator).expand(len(logits), 1)


@wrong("select_next_token", "temperature has no effect")
def divides_after_softmax(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature == 0:
        return best(logits)
    shares = filtered(logits, 1.0, top_k, top_p).softmax(dim=-1) / temperature
    return torch.multinomial(shares, 1, generator=generator)


@wrong("select_next_token", "multiply by the temperature")
def flattens(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature == 0:
        return best(logits)
    return drawn(filtered(logits, 1 / temperature, top_k, top_p), generator)


@wrong("select_next_token", "Only 0, or next to 0")
def greedy_below_one(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature < 1:
        return best(logits)
    return drawn(filtered(logits, temperature, top_k, top_p), generator)


@wrong("select_next_token", "generator that was given isn't used")
def forgets_the_generator(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature < 1e-5:
        return best(logits)
    return drawn(filtered(logits, temperature, top_k, top_p), None)


@wrong("select_next_token", "same token at every step")
def seeds_a_new_one(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature < 1e-5:
        return best(logits)
    fresh = torch.Generator().manual_seed(generator.initial_seed())
    return drawn(filtered(logits, temperature, top_k, top_p), fresh)


@wrong("select_next_token", "same token at every step")
def seeds_everybody(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature < 1e-5:
        return best(logits)
    torch.manual_seed(0)
    return drawn(filtered(logits, temperature, top_k, top_p), None)


@wrong("select_next_token", "global random state has changed")
def moves_the_global_state(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature < 1e-5:
        return best(logits)
    torch.manual_seed(int(torch.randint(2**31, (1,), generator=generator)))
    return drawn(filtered(logits, temperature, top_k, top_p), None)


@wrong("select_next_token", "top_k has no effect")
def without_top_k(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature < 1e-5:
        return best(logits)
    return drawn(filtered(logits, temperature, None, top_p), generator)


@wrong("select_next_token", "one more than k")
def k_plus_one(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature < 1e-5:
        return best(logits)
    return drawn(filtered(logits, temperature, top_k and top_k + 1, top_p), generator)


@wrong("select_next_token", "top_k 0 means off|selected index")
def zero_is_a_k(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature < 1e-5:
        return best(logits)
    logits = filtered(logits, temperature, None, top_p)
    if top_k is not None:
        logits = puts_the_best_back(logits, max(top_k, 1))
    return drawn(logits, generator)


@wrong("select_next_token", "top_p has no effect")
def without_top_p(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature < 1e-5:
        return best(logits)
    return drawn(filtered(logits, temperature, top_k, None), generator)


@wrong("select_next_token", "second best must stay")
def nucleus_too_small(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature < 1e-5:
        return best(logits)
    logits = filtered(logits, temperature, top_k, None)
    if top_p is not None:
        logits = before_the_line_but_one(logits, top_p)
    return drawn(logits, generator)


@wrong("select_next_token", "top_p leaves nothing")
def nucleus_empty(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature < 1e-5:
        return best(logits)
    logits = filtered(logits, temperature, top_k, None)
    if top_p is not None and top_p < 1:
        probabilities = logits.softmax(dim=-1)
        logits = logits.masked_fill(probabilities < top_p, -INF)
    return drawn(logits, generator)


@wrong("select_next_token", "top_p before top_k")
def top_p_first(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature < 1e-5:
        return best(logits)
    logits = filtered(logits, temperature, None, top_p)
    return drawn(puts_the_best_back(logits, top_k) if top_k else logits, generator)


@wrong("select_next_token", "top_p before the temperature")
def temperature_last(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature < 1e-5:
        return best(logits)
    return drawn(filtered(logits, 1.0, top_k, top_p) / temperature, generator)


@wrong("select_next_token", "so tiny overflows")
def only_zero_is_greedy(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature == 0:
        return best(logits)
    logits = logits / temperature
    logits = puts_the_best_back(logits, top_k) if top_k else logits
    return drawn(logits if top_p is None else shifted_by_one(logits, top_p), generator)


@wrong("select_next_token", "top_k may be larger")
def k_without_limit(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature < 1e-5:
        return best(logits)
    logits = filtered(logits, temperature, None, None)
    if top_k:
        logits = no_limit_to_k(logits, top_k)
    return drawn(logits if top_p is None else shifted_by_one(logits, top_p), generator)


@wrong("select_next_token", "in place")
def divides_the_argument(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature < 1e-5:
        return best(logits)
    logits /= temperature
    return drawn(filtered(logits, 1.0, top_k, top_p), generator)


@wrong("select_next_token", "Without a generator the same")
def seeds_where_none_is_given(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature < 1e-6:
        return best(logits)
    own = generator or torch.Generator().manual_seed(0)
    return drawn(filtered(logits, temperature, top_k, top_p), own)


@wrong("select_next_token", "Without a generator the same")
def greedy_without_a_generator(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature < 1e-6 or generator is None:
        return best(logits)
    return drawn(filtered(logits, temperature, top_k, top_p), generator)


@wrong("select_next_token", "keep the temperature from getting low")
def never_below_a_tenth(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature < 1e-6:
        return best(logits)
    return drawn(filtered(logits, max(temperature, 0.1), top_k, top_p), generator)


@wrong("select_next_token", "Only 0, or next to 0")
def greedy_below_a_tenth(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature < 0.1:
        return best(logits)
    return drawn(filtered(logits, temperature, top_k, top_p), generator)


@wrong("select_next_token", "Called without a temperature")
def draws_by_default(logits, temperature=1.0, top_k=None, top_p=None, generator=None):
    if temperature < 1e-6:
        return best(logits)
    return drawn(filtered(logits, temperature, top_k, top_p), generator)


@wrong("select_next_token", "may be None, which means off")
def compares_none(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature < 1e-6:
        return best(logits)
    k = top_k if top_k > 0 else None
    return drawn(filtered(logits, temperature, k, top_p), generator)


@wrong("select_next_token", "ranks came back|Ranks came back")
def forgets_where_it_sorted(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature < 1e-6:
        return best(logits)
    scores = filtered(logits, temperature, top_k, top_p)
    return drawn(scores.sort(dim=-1, descending=True).values, generator)


@wrong("select_next_token", "ranks came back|Ranks came back")
def draws_among_the_kept(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature < 1e-6:
        return best(logits)
    if top_k:
        logits = logits.topk(min(top_k, logits.shape[-1]), dim=-1).values
    return drawn(filtered(logits, temperature, None, top_p), generator)


@wrong("select_next_token", "their logit became 0")
def zeros_what_is_forbidden(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature < 1e-6:
        return best(logits)
    scores = logits / temperature
    kept = filtered(logits, temperature, top_k, top_p) > float("-inf")
    return drawn(torch.where(kept, scores, 0.0), generator)


@wrong("select_next_token", "a third token gets in")
def nucleus_too_large(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature < 1e-6:
        return best(logits)
    logits = filtered(logits, temperature, top_k, None)
    if top_p is not None and top_p < 1:
        values, order = logits.softmax(dim=-1).sort(dim=-1, descending=True)
        late = (values.cumsum(dim=-1) - values >= top_p).roll(1, dims=-1)
        late[:, 0] = False
        logits = logits.masked_fill(late.scatter(-1, order, late), float("-inf"))
    return drawn(logits, generator)


@wrong("select_next_token", "serves for all rows")
def one_threshold_for_all_rows(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature < 1e-6:
        return best(logits)
    if top_k:
        kth = logits.topk(min(top_k, logits.shape[-1]), dim=-1).values.min()
        logits = logits.masked_fill(logits < kth, float("-inf"))
    return drawn(filtered(logits, temperature, None, top_p), generator)


@right("select_next_token")
def one_helper_for_each(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature < 1e-5:
        return best(logits)
    return drawn(filtered(logits, temperature, top_k, top_p), generator)


@right("select_next_token")
def from_one_uniform_number(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature <= 1e-8:
        return logits.max(dim=-1, keepdim=True).indices
    logits = logits / temperature
    if top_k:
        logits = by_ranks(logits, top_k)
    if top_p is not None and top_p < 1.0:
        logits = a_threshold_of_probability(logits, top_p)
    totals = logits.softmax(dim=-1).cumsum(dim=-1)
    number = torch.rand(len(logits), 1, generator=generator) * totals[:, -1:]
    return torch.searchsorted(totals, number, right=True).clamp(max=logits.shape[-1] - 1)


@right("select_next_token")
def a_row_at_a_time(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    tokens = []
    for row in logits:
        if temperature < 1e-6:
            tokens.append([int(row.argmax())])
            continue
        values, ids = (row / temperature).sort(descending=True)
        values, ids = values[: top_k or None], ids[: top_k or None]
        chances = values.softmax(dim=0)
        if top_p is not None and top_p < 1:
            chances = chances * (chances.cumsum(0) - chances < max(top_p, 1e-9))
        place = torch.multinomial(chances, num_samples=1, generator=generator)
        tokens.append([int(ids[place])])
    return torch.tensor(tokens)


@right("select_next_token")
def by_a_race(logits, temperature=0.0, top_k=None, top_p=None, generator=None):
    if temperature < 1e-6:
        return logits.argmax(-1, keepdim=True)
    logits = filtered(logits, temperature, top_k, top_p)
    noise = torch.empty_like(logits).exponential_(generator=generator)
    return (logits - noise.log()).argmax(-1, keepdim=True)


@wrong("draw_rows", "beside a neighbour than alone")
def all_draw_for_all(probabilities, generators):
    tokens = []
    for row, generator in enumerate(generators):
        column = torch.multinomial(probabilities, num_samples=1, generator=generator)
        tokens.append(column[row])
    return torch.stack(tokens)


@wrong("draw_rows", "beside a neighbour than alone")
def the_first_draws_for_all(probabilities, generators):
    return torch.multinomial(probabilities, num_samples=1, generator=generators[0])


@wrong("draw_rows", "nothing is drawn, or")
def greedy_rows(probabilities, generators):
    return probabilities.argmax(dim=-1, keepdim=True)


@wrong("draw_rows", "nothing is drawn, or")
def seeded_at_every_step(probabilities, generators):
    seeds = [generator.initial_seed() for generator in generators]
    fresh = [torch.Generator().manual_seed(seed) for seed in seeds]
    rows = zip(probabilities, fresh, strict=True)
    return torch.stack([torch.multinomial(row, 1, generator=g) for row, g in rows])


@wrong("draw_rows", "the generator isn't used")
def rows_by_global_chance(probabilities, generators):
    return torch.multinomial(probabilities, num_samples=1)


@wrong("draw_rows", "and then parts")
def draws_up_to_its_row(probabilities, generators):
    tokens = []
    for row, generator in enumerate(generators):
        rest = torch.multinomial(probabilities[row:], num_samples=1, generator=generator)
        tokens.append(rest[0])
    return torch.stack(tokens)


@wrong("draw_rows", r"has shape \[3\]")
def a_flat_list_of_tokens(probabilities, generators):
    rows = zip(probabilities, generators, strict=True)
    return torch.cat([torch.multinomial(row, 1, generator=g) for row, g in rows])


@wrong("draw_rows", "Row b is drawn from row b's")
def the_first_rows_probabilities(probabilities, generators):
    return torch.stack([torch.multinomial(probabilities[0], 1, generator=g) for g in generators])


@right("draw_rows")
def row_kept_two_dimensional(probabilities, generators):
    rows = [
        torch.multinomial(probabilities[b : b + 1], 1, generator=generator)
        for b, generator in enumerate(generators)
    ]
    return torch.cat(rows)


@right("draw_rows")
def row_by_uniform_numbers(probabilities, generators):
    totals = probabilities.cumsum(dim=-1)
    numbers = torch.stack([torch.rand(1, generator=generator) for generator in generators])
    places = torch.searchsorted(totals, numbers * totals[:, -1:], right=True)
    return places.clamp(max=probabilities.shape[-1] - 1)
