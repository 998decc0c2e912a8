"""Lesson 03: what learners write for last_logits, prefill, log_probs and the bug hunt."""

# ruff: noqa: B008

import torch
from solutions import right, wrong
from torch.nn import functional
from transformers import DynamicCache


@wrong("last_logits", "always take the last column")
def last_column(logits, mask):
    return logits[:, -1]


@wrong("last_logits", "count the real tokens")
def counts(logits, mask):
    last = mask.sum(dim=1) - 1
    return logits[torch.arange(len(logits)), last]


@wrong("last_logits", "out of range")
def counts_one_too_far(logits, mask):
    return logits[torch.arange(len(logits)), mask.sum(dim=1)]


@wrong("last_logits", r"\[B, B, V\]")
def crosses_rows(logits, mask):
    last = mask.shape[1] - 1 - mask.flip(1).argmax(dim=1)
    return logits[:, last]


@wrong("last_logits", r"\[B, 1, V\]")
def keeps_a_dimension(logits, mask):
    last = mask.shape[1] - 1 - mask.flip(1).argmax(dim=1)
    return logits.gather(1, last[:, None, None].expand(-1, 1, logits.shape[-1]))


@wrong("last_logits", "first token's scores")
def first_one(logits, mask):
    return logits[torch.arange(len(logits)), mask.argmax(dim=1)]


@wrong("last_logits", "add up the scores")
def masked_sum(logits, mask):
    return (logits * mask[:, :, None]).sum(dim=1)


@wrong("last_logits", "average")
def masked_mean(logits, mask):
    return (logits * mask[:, :, None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)


@wrong("last_logits", "highest score over all places")
def masked_max(logits, mask):
    return logits.masked_fill(mask[:, :, None] == 0, float("-inf")).amax(dim=1)


@wrong("last_logits", "all scores from row 0")
def one_row_for_all(logits, mask):
    last = mask.shape[1] - 1 - mask.flip(1).argmax(dim=1)
    return logits[0, last] + (logits[:, -1] - logits[0, -1]) * mask.all(dim=1).all()


@wrong("last_logits", "All rows get the same place")
def shortest_row_decides(logits, mask):
    return logits[:, int(mask.sum(dim=1).min()) - 1]


@wrong("last_logits", "places, not scores")
def only_places(logits, mask):
    return mask.shape[1] - 1 - mask.flip(1).argmax(dim=1)


@wrong("last_logits", "one row for all")
def first_row_only(logits, mask):
    return logits[0, mask[0].nonzero().max()]


@wrong("last_logits", "squeeze")
def squeezes(logits, mask):
    last = mask.shape[1] - 1 - mask.flip(1).argmax(dim=1)
    return torch.stack([row[place] for row, place in zip(logits, last, strict=True)]).squeeze()


@wrong("last_logits", "in place")
def spoils_the_logits(logits, mask):
    logits[mask == 0] = 0
    return logits[torch.arange(len(logits)), mask.cumsum(dim=1).argmax(dim=1)]


@right("last_logits")
def flipped(logits, mask):
    last = mask.shape[1] - 1 - mask.flip(1).argmax(dim=1)
    return logits[range(len(logits)), last]


@right("last_logits")
def row_by_row(logits, mask):
    rows = []
    for scores, real in zip(logits, mask, strict=True):
        rows.append(scores[real.bool()][-1])
    return torch.stack(rows)


@right("last_logits")
def gathered(logits, mask):
    last = mask.cumsum(dim=1).argmax(dim=1)
    index = last.view(-1, 1, 1).expand(-1, 1, logits.size(-1))
    return torch.gather(logits, 1, index).squeeze(1)


@right("last_logits")
def asks_for_the_side(logits, mask):
    if mask[:, -1].all():
        return logits[:, -1, :]
    return logits[torch.arange(len(mask)), mask.sum(dim=1) - 1]


@right("last_logits")
def by_a_mask_of_its_own(logits, mask):
    after = torch.cat([mask[:, 1:], torch.zeros_like(mask[:, :1])], dim=1)
    return logits[(mask == 1) & (after == 0)]


@wrong("prefill", "all tokens, ")
def all_rows(model, input_ids):
    outputs = model(input_ids=input_ids, use_cache=True)
    return outputs.logits, outputs.cache


@wrong("prefill", r"\[1, 1, V\]")
def keeps_the_token_dimension(model, input_ids):
    outputs = model(input_ids=input_ids, use_cache=True)
    return outputs.logits[:, -1:], outputs.cache


@wrong("prefill", "dimension of the batch got lost")
def loses_the_batch(model, input_ids):
    outputs = model(input_ids)
    return outputs.logits[0, -1], outputs.cache


@wrong("prefill", "index the batch")
def last_of_the_batch(model, input_ids):
    outputs = model(input_ids)
    return outputs.logits[-1], outputs.cache


@wrong("prefill", "after the first token")
def first_row(model, input_ids):
    outputs = model(input_ids)
    return outputs.logits[:, 0], outputs.cache


@wrong("prefill", "last token but one")
def row_before(model, input_ids):
    outputs = model(input_ids)
    return outputs.logits[:, -2], outputs.cache


@wrong("prefill", "lacks the prompt's last token")
def leaves_the_last_to_decode(model, input_ids):
    outputs = model(input_ids[:, :-1])
    return outputs.logits[:, -1], outputs.cache


@wrong("prefill", "average over all tokens")
def mean_of_all(model, input_ids):
    outputs = model(input_ids)
    return outputs.logits.mean(dim=1), outputs.cache


@wrong("prefill", "return probabilities")
def with_softmax(model, input_ids):
    outputs = model(input_ids)
    return outputs.logits[:, -1].softmax(dim=-1), outputs.cache


@wrong("prefill", "return log-probabilities")
def with_log_softmax(model, input_ids):
    outputs = model(input_ids)
    return outputs.logits[:, -1].log_softmax(dim=-1), outputs.cache


@wrong("prefill", "already chosen")
def with_argmax(model, input_ids):
    outputs = model(input_ids)
    return outputs.logits[:, -1].argmax(dim=-1, keepdim=True), outputs.cache


@wrong("prefill", "use_cache=True")
def without_a_cache(model, input_ids):
    outputs = model(input_ids=input_ids, use_cache=False)
    return outputs.logits[:, -1], outputs.cache


@wrong("prefill", "other order")
def swapped(model, input_ids):
    outputs = model(input_ids)
    return outputs.cache, outputs.logits[:, -1]


@wrong("prefill", "came alone")
def whole_outputs(model, input_ids):
    return model(input_ids, use_cache=True)


@wrong("prefill", "came alone")
def logits_alone(model, input_ids):
    return model(input_ids, use_cache=True).logits[:, -1]


@wrong("prefill", "token more than the prompt")
def a_pass_too_many(model, input_ids):
    outputs = model(input_ids, use_cache=True)
    logits = outputs.logits[:, -1]
    token = logits.argmax(dim=-1, keepdim=True)
    return logits, model(token, cache=outputs.cache).cache


@wrong("prefill", "an earlier call")
def one_cache_for_all(model, input_ids, cache=DynamicCache()):
    outputs = model(input_ids, cache=cache, use_cache=True)
    return outputs.logits[:, -1], outputs.cache


@wrong("prefill", "cache is empty")
def an_empty_cache(model, input_ids):
    cache = DynamicCache()
    return model(input_ids).logits[:, -1], cache


@wrong("prefill", "no cache that a model can go on with")
def a_dictionary(model, input_ids):
    outputs = model(input_ids)
    return outputs.logits[:, -1], dict(outputs)


@wrong("prefill", "because of their id")
def hides_zeros(model, input_ids):
    outputs = model(input_ids, attention_mask=(input_ids != 0).long())
    return outputs.logits[:, -1], outputs.cache


@wrong("prefill", "because of their id")
def hides_pads(model, input_ids):
    mask = (input_ids != model.config.pad_token_id).long()
    outputs = model(input_ids, attention_mask=mask)
    return outputs.logits[:, -1], outputs.cache


@wrong("prefill", "token by token")
def one_by_one(model, input_ids):
    cache = None
    for place in range(input_ids.shape[1]):
        outputs = model(input_ids[:, place : place + 1], cache=cache, use_cache=True)
        cache = outputs.cache
    return outputs.logits[:, -1], cache


@wrong("prefill", "model 2 times")
def twice(model, input_ids):
    return model(input_ids).logits[:, -1], model(input_ids, use_cache=True).cache


@wrong("prefill", "other scores than reading everything anew")
def cache_of_another_text(model, input_ids):
    outputs = model(input_ids)
    for layer in outputs.cache.layers:
        layer.keys = layer.keys.flip(2)
    return outputs.logits[:, -1], outputs.cache


@wrong("prefill", "squeeze")
def squeezes_too_much(model, input_ids):
    outputs = model(input_ids)
    logits = outputs.logits.squeeze()
    return (logits[-1][None] if logits.dim() == 2 else logits), outputs.cache


@wrong("prefill", "count positions from 1")
def positions_from_one(model, input_ids):
    places = torch.arange(1, input_ids.shape[1] + 1)[None]
    outputs = model(input_ids=input_ids, position_ids=places)
    return outputs.logits[:, -1], outputs.cache


@wrong("prefill", "whatever its length")
def cuts_a_long_prompt(model, input_ids):
    outputs = model(input_ids=input_ids[:, -8:])
    return outputs.logits[:, -1], outputs.cache


@wrong("prefill", "add up all tokens")
def sum_of_all(model, input_ids):
    outputs = model(input_ids=input_ids)
    return outputs.logits.sum(dim=1), outputs.cache


@wrong("prefill", "takes its cache by name")
def cache_as_the_second_argument(model, input_ids):
    outputs = model(input_ids, DynamicCache())
    return outputs.logits[:, -1], outputs.cache


@wrong("prefill", "in two dimensions")
def one_row_of_ids(model, input_ids):
    outputs = model(input_ids=input_ids[0])
    return outputs.logits[:, -1], outputs.cache


@wrong("prefill", "never runs the model")
def remembers_prompts(model, input_ids, known={}):  # noqa: B006
    prompt = tuple(input_ids[0].tolist())
    if prompt not in known:
        outputs = model(input_ids=input_ids)
        known[prompt] = outputs.logits[:, -1], outputs.cache
    return known[prompt]


@right("prefill")
def old_names(model, input_ids):
    outputs = model(input_ids, use_cache=True)
    return outputs.logits[:, -1, :], outputs.past_key_values


@right("prefill")
def own_cache(model, input_ids):
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        logits = model(input_ids=input_ids, cache=cache).logits
    return logits[:, -1], cache


@right("prefill")
def old_name_going_in(model, input_ids):
    cache = DynamicCache()
    outputs = model(input_ids=input_ids, past_key_values=cache, use_cache=True)
    return outputs.logits[:, input_ids.shape[1] - 1], cache


@right("prefill")
def with_everything_said(model, input_ids):
    batch, width = input_ids.shape
    outputs = model(
        input_ids=input_ids,
        attention_mask=torch.ones_like(input_ids),
        position_ids=torch.arange(width, device=input_ids.device).expand(batch, -1),
        use_cache=True,
        logits_to_keep=1,
    )
    return outputs.logits.squeeze(1).float(), outputs.cache


@wrong("prefill", "because of their id")
def by_generate_which_guesses_a_mask(model, input_ids):
    outputs = model.generate(
        input_ids,
        max_new_tokens=1,
        do_sample=False,
        return_dict_in_generate=True,
        output_logits=True,
    )
    return outputs.logits[0], outputs.cache


@right("prefill")
def by_generate(model, input_ids):
    outputs = model.generate(
        input_ids,
        attention_mask=torch.ones_like(input_ids),
        max_new_tokens=1,
        do_sample=False,
        return_dict_in_generate=True,
        output_logits=True,
    )
    return outputs.logits[0], outputs.past_key_values


@right("prefill")
def as_a_list(model, input_ids):
    logits, cache = model(input_ids, use_cache=True)[:2]
    return [logits.select(1, -1), cache]


@right("prefill")
@torch.inference_mode()
def in_two_parts(model, input_ids):
    inner = model.model(input_ids, use_cache=True)
    return model.lm_head(inner.last_hidden_state[:, -1]), inner.cache


@wrong("log_probs", "return the probabilities")
def only_softmax(logits):
    return logits.softmax(dim=-1)


@wrong("log_probs", "overflows")
def naive(logits):
    powers = logits.exp()
    return (powers / powers.sum(dim=-1, keepdim=True)).log()


@wrong("log_probs", "overflows")
def naive_but_subtracts(logits):
    return logits - logits.exp().sum(dim=-1, keepdim=True).log()


@wrong("log_probs", "rounded to 0")
def log_of_softmax(logits):
    return torch.log(torch.softmax(logits, dim=-1))


@wrong("log_probs", "small number before")
def with_an_epsilon(logits):
    return torch.log(torch.softmax(logits, dim=-1) + 1e-10)


@wrong("log_probs", "small number before")
def clamped(logits):
    return torch.log(torch.softmax(logits, dim=-1).clamp(min=1e-12))


@wrong("log_probs", "base 2")
def base_two(logits):
    return logits.softmax(dim=-1).log2()


@wrong("log_probs", "base 10")
def base_ten(logits):
    return logits.softmax(dim=-1).log10()


@wrong("log_probs", "The sign is wrong")
def a_loss(logits):
    return -logits.log_softmax(dim=-1)


@wrong("log_probs", "along the rows")
def wrong_dimension(logits):
    return logits.log_softmax(dim=0)


@wrong("log_probs", r"The vocabulary is always the last")
def second_dimension(logits):
    return logits.log_softmax(dim=1 if logits.dim() > 1 else 0)


@wrong("log_probs", "all rows together")
def one_sum_for_all(logits):
    return logits - logits.max() - (logits - logits.max()).exp().sum().log()


@wrong("log_probs", "Take off its logarithm")
def forgets_the_logarithm(logits):
    return logits - logits.exp().sum(dim=-1, keepdim=True)


@wrong("log_probs", "only take off the maximum")
def only_shifted(logits):
    return logits - logits.amax(dim=-1, keepdim=True)


@wrong("log_probs", "sigmoid")
def each_alone(logits):
    return functional.logsigmoid(logits)


@wrong("log_probs", "keepdim=True keeps")
def forgets_keepdim(logits):
    shifted = logits - logits.max()
    return shifted - shifted.exp().sum(dim=-1).log()


@wrong("log_probs", "in place")
def spoils_its_argument(logits):
    logits -= logits.max(dim=-1, keepdim=True).values
    return logits - logits.exp().sum(dim=-1, keepdim=True).log()


@wrong("log_probs", "makes nan")
def weighs_each_logit(logits):
    shifted = logits - logits.amax(dim=-1, keepdim=True)
    powers = shifted.exp()
    return shifted - powers.sum(dim=-1, keepdim=True).log() + 0 * shifted


@wrong("log_probs", "not its minimum")
def smallest_first(logits):
    shifted = logits - logits.min(dim=-1, keepdim=True).values
    return shifted - shifted.exp().sum(dim=-1, keepdim=True).log()


@wrong("log_probs", "maximum of all rows")
def one_maximum_for_all(logits):
    shifted = logits - logits.max()
    return shifted - shifted.exp().sum(dim=-1, keepdim=True).log()


@right("log_probs")
def torchs_own(logits):
    return torch.log_softmax(logits, dim=-1)


@right("log_probs")
def functional_one(logits):
    return functional.log_softmax(logits.double(), dim=-1)


@right("log_probs")
def logsumexp(logits):
    return logits - logits.logsumexp(-1, keepdim=True)


@right("log_probs")
def by_steps(logits):
    highest, _ = torch.max(logits, dim=-1, keepdim=True)
    total = torch.exp(logits - highest).sum(dim=-1, keepdim=True)
    return logits - (highest + torch.log(total))


@wrong("answer_log_prob", "in its own row")
def as_it_was_given(logits, input_ids, prompt_tokens):
    scores = logits.log_softmax(dim=-1)[:, prompt_tokens:]
    answer = input_ids[:, prompt_tokens:, None]
    return scores.gather(-1, answer).sum().item()


@wrong("answer_log_prob", "prompt's own tokens")
def scores_the_prompt(logits, input_ids, prompt_tokens):
    scores = logits.log_softmax(dim=-1)[:, :-1]
    return scores.gather(-1, input_ids[:, 1:, None]).sum().item()


@wrong("answer_log_prob", "average over the tokens")
def mean(logits, input_ids, prompt_tokens):
    scores = logits.log_softmax(dim=-1)[:, prompt_tokens - 1 : -1]
    return scores.gather(-1, input_ids[:, prompt_tokens:, None]).mean().item()


@wrong("answer_log_prob", "return the probability")
def probability(logits, input_ids, prompt_tokens):
    scores = logits.softmax(dim=-1)[:, prompt_tokens - 1 : -1]
    return scores.gather(-1, input_ids[:, prompt_tokens:, None]).prod().item()


@wrong("answer_log_prob", "must be normalised")
def raw_logits(logits, input_ids, prompt_tokens):
    scores = logits[:, prompt_tokens - 1 : -1]
    return scores.gather(-1, input_ids[:, prompt_tokens:, None]).sum().item()


@wrong("answer_log_prob", "Add up those of its tokens")
def each_token(logits, input_ids, prompt_tokens):
    scores = logits.log_softmax(dim=-1)[:, prompt_tokens - 1 : -1]
    found = scores.gather(-1, input_ids[:, prompt_tokens:, None])
    return found.sum().item() if found.numel() == 1 else found


@wrong("answer_log_prob", "first token counts")
def first_only(logits, input_ids, prompt_tokens):
    if input_ids.shape[1] == prompt_tokens:
        return 0.0
    row = logits[0, prompt_tokens - 1].log_softmax(dim=-1)
    return row[input_ids[0, prompt_tokens]].item()


@wrong("answer_log_prob", "last token counts")
def last_only(logits, input_ids, prompt_tokens):
    return logits[0, -2].log_softmax(dim=-1)[input_ids[0, -1]].item()


@wrong("answer_log_prob", "that is a loss")
def a_loss_of_the_answer(logits, input_ids, prompt_tokens):
    rows = logits.log_softmax(dim=-1)[:, prompt_tokens - 1 : -1]
    return -float(rows.gather(-1, input_ids[:, prompt_tokens:, None]).sum())


@right("answer_log_prob")
def a_loop(logits, input_ids, prompt_tokens):
    total = 0.0
    for place in range(prompt_tokens, input_ids.shape[1]):
        row = logits[0, place - 1].log_softmax(dim=-1)
        total += float(row[input_ids[0, place]])
    return total


@right("answer_log_prob")
def a_tensor(logits, input_ids, prompt_tokens):
    rows = torch.log_softmax(logits[0, :-1], dim=-1)
    found = rows[torch.arange(len(rows)), input_ids[0, 1:]]
    return found[prompt_tokens - 1 :].sum()


@right("answer_log_prob")
def a_loss_turned_round(logits, input_ids, prompt_tokens):
    loss = functional.cross_entropy(
        logits[0, prompt_tokens - 1 : -1], input_ids[0, prompt_tokens:], reduction="sum"
    )
    return -loss.item()
