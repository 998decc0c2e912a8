"""Wrong and right solutions of lesson 05."""

import copy

import torch
from solutions import right, wrong
from transformers import DynamicCache

from tutorial_server import runner

# kv_cache_bytes


def heads(config):
    return config.num_key_value_heads * config.head_dim


@wrong("kv_cache_bytes", "returned None")
def bytes_printed(config, tokens, bytes_per_value):
    print(2 * config.num_hidden_layers * heads(config) * tokens * bytes_per_value)


@wrong("kv_cache_bytes", "is a float")
def bytes_in_megabytes(config, tokens, bytes_per_value):
    return 2 * config.num_hidden_layers * heads(config) * tokens * bytes_per_value / 1e6


@wrong("kv_cache_bytes", "Exactly half")
def bytes_of_keys_only(config, tokens, bytes_per_value):
    return config.num_hidden_layers * heads(config) * tokens * bytes_per_value


@wrong("kv_cache_bytes", "Exactly twice")
def bytes_twice(config, tokens, bytes_per_value):
    keys = 2 * config.num_hidden_layers * heads(config) * tokens * bytes_per_value
    return keys + keys


@wrong("kv_cache_bytes", "query heads")
def bytes_of_query_heads(config, tokens, bytes_per_value):
    size = config.num_attention_heads * config.head_dim
    return 2 * config.num_hidden_layers * size * tokens * bytes_per_value


@wrong("kv_cache_bytes", "for the size of a head")
def bytes_by_hidden_over_heads(config, tokens, bytes_per_value):
    head_dim = config.hidden_size // config.num_attention_heads
    size = config.num_key_value_heads * head_dim
    return 2 * config.num_hidden_layers * size * tokens * bytes_per_value


@wrong("kv_cache_bytes", "hidden_size numbers a key")
def bytes_by_hidden_size(config, tokens, bytes_per_value):
    return 2 * config.num_hidden_layers * config.hidden_size * tokens * bytes_per_value


@wrong("kv_cache_bytes", "one layer")
def bytes_of_one_layer(config, tokens, bytes_per_value):
    return 2 * heads(config) * tokens * bytes_per_value


@wrong("kv_cache_bytes", "one head a layer")
def bytes_of_one_head(config, tokens, bytes_per_value):
    return 2 * config.num_hidden_layers * config.head_dim * tokens * bytes_per_value


@wrong("kv_cache_bytes", "one number a key")
def bytes_without_head_size(config, tokens, bytes_per_value):
    layers = config.num_hidden_layers
    return 2 * layers * config.num_key_value_heads * tokens * bytes_per_value


@wrong("kv_cache_bytes", "those are bits")
def bits(config, tokens, bytes_per_value):
    return 8 * 2 * config.num_hidden_layers * heads(config) * tokens * bytes_per_value


@wrong("kv_cache_bytes", "by no fixed size")
def bytes_of_half_precision(config, tokens, bytes_per_value):
    return 2 * config.num_hidden_layers * heads(config) * tokens * 2


@wrong("kv_cache_bytes", "by no fixed size")
def values_not_bytes(config, tokens, bytes_per_value):
    return 2 * config.num_hidden_layers * heads(config) * tokens


@wrong("kv_cache_bytes", "Twice the tokens")
def bytes_of_tokens_squared(config, tokens, bytes_per_value):
    return 2 * config.num_hidden_layers * heads(config) * tokens * tokens * bytes_per_value


@wrong("kv_cache_bytes", "Twice the tokens")
def bytes_of_one_token_less(config, tokens, bytes_per_value):
    return 2 * config.num_hidden_layers * heads(config) * (tokens - 1) * bytes_per_value


@wrong("kv_cache_bytes", "one config and wrong for another")
def bytes_of_seven(config, tokens, bytes_per_value):
    return 2 * config.num_hidden_layers * config.num_key_value_heads * 7 * tokens * bytes_per_value


@right("kv_cache_bytes")
def bytes_counted(config, tokens, bytes_per_value):
    total = 0
    for _layer in range(config.num_hidden_layers):
        for _part in ("keys", "values"):
            total += config.num_key_value_heads * tokens * config.head_dim * bytes_per_value
    return total


@right("kv_cache_bytes")
def bytes_with_fallbacks(config, tokens, bytes_per_value):
    kv = getattr(config, "num_key_value_heads", config.num_attention_heads)
    size = getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)
    per_token = 2 * config.num_hidden_layers * kv * size * bytes_per_value
    return int(tokens * per_token)


# decode


@wrong("decode", "nothing but the new token")
def decode_without_cache(model, token, cache):
    outputs = model(input_ids=token)
    return outputs.logits[:, -1], outputs.cache


@wrong("decode", "nothing but the new token")
def decode_with_a_new_cache(model, token, cache):
    outputs = model(input_ids=token, cache=DynamicCache(), use_cache=True)
    return outputs.logits[:, -1], outputs.cache


@wrong("decode", "three dimensions")
def decode_keeps_the_position(model, token, cache):
    outputs = model(input_ids=token, cache=cache)
    return outputs.logits, outputs.cache


@wrong("decode", "one dimension")
def decode_drops_the_batch(model, token, cache):
    outputs = model(input_ids=token, cache=cache)
    return outputs.logits[0, -1], outputs.cache


@wrong("decode", "have changed places")
def decode_the_wrong_way_round(model, token, cache):
    outputs = model(input_ids=token, cache=cache)
    return outputs.cache, outputs.logits[:, -1]


@wrong("decode", "token that you have chosen")
def decode_chooses(model, token, cache):
    outputs = model(input_ids=token, cache=cache)
    return outputs.logits[:, -1].argmax(dim=-1, keepdim=True), outputs.cache


@wrong("decode", "all outputs in place of the cache")
def decode_returns_all(model, token, cache):
    outputs = model(input_ids=token, cache=cache)
    return outputs.logits[:, -1], outputs


@wrong("decode", "came alone")
def decode_returns_logits_alone(model, token, cache):
    return model(input_ids=token, cache=cache).logits[:, -1]


@wrong("decode", "Your cache is None")
def decode_loses_the_cache(model, token, cache):
    outputs = model(input_ids=token, cache=cache)
    return outputs.logits[:, -1], cache.reset()


@wrong("decode", "call the model 2 times")
def decode_calls_twice(model, token, cache):
    logits = model(input_ids=token, cache=cache).logits[:, -1]
    return logits, model(input_ids=token, cache=cache).cache


@wrong("decode", "give the model 2 tokens")
def decode_repeats_the_token(model, token, cache):
    outputs = model(input_ids=torch.cat([token, token], dim=1), cache=cache)
    return outputs.logits[:, -1], outputs.cache


@wrong("decode", "These are probabilities")
def decode_to_probabilities(model, token, cache):
    outputs = model(input_ids=token, cache=cache)
    return outputs.logits[:, -1].softmax(dim=-1), outputs.cache


@wrong("decode", "log-probabilities")
def decode_to_log_probabilities(model, token, cache):
    outputs = model(input_ids=token, cache=cache)
    return outputs.logits[:, -1].log_softmax(dim=-1), outputs.cache


@wrong("decode", "a position for the token that is not its own")
def decode_at_position_zero(model, token, cache):
    outputs = model(input_ids=token, cache=cache, position_ids=torch.zeros_like(token))
    return outputs.logits[:, -1], outputs.cache


@wrong("decode", "a position for the token that is not its own")
def decode_one_too_far(model, token, cache):
    position = torch.full_like(token, cache.get_seq_length() + 1)
    outputs = model(input_ids=token, cache=cache, position_ids=position)
    return outputs.logits[:, -1], outputs.cache


@wrong("decode", "attention mask covers")
def decode_with_a_short_mask(model, token, cache):
    outputs = model(input_ids=token, cache=cache, attention_mask=torch.ones_like(token))
    return outputs.logits[:, -1], outputs.cache


@wrong("decode", "lacks the new token")
def decode_returns_the_old_cache(model, token, cache):
    before = copy.deepcopy(cache)
    outputs = model(input_ids=token, cache=cache)
    return outputs.logits[:, -1], before


@wrong("decode", "lacks the new token")
def decode_crops(model, token, cache):
    outputs = model(input_ids=token, cache=cache)
    outputs.cache.crop(-1)
    return outputs.logits[:, -1], outputs.cache


@wrong("decode", "holds the new token alone")
def decode_keeps_the_last_position(model, token, cache):
    logits = model(input_ids=token, cache=cache).logits[:, -1]
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys[:, :, -1:], layer.values[:, :, -1:]
    return logits, cache


MEMORY = {}


@wrong("decode", "cache of its own")
def decode_remembers(model, token, cache):
    outputs = model(input_ids=token, cache=MEMORY.setdefault("cache", cache))
    return outputs.logits[:, -1], outputs.cache


@wrong("decode", "take turns")
def decode_remembers_for_each_model(model, token, cache):
    if not hasattr(model, "memory"):
        model.memory = cache
    outputs = model(input_ids=token, cache=model.memory)
    return outputs.logits[:, -1], outputs.cache


@wrong("decode", "parameters don't fit")
def decode_without_a_model(token, cache):
    return token, cache


@wrong("decode", "as long as the cache alone")
def decode_with_a_mask_of_the_cache(model, token, cache):
    mask = torch.ones(1, cache.get_seq_length())
    outputs = model(input_ids=token, cache=cache, attention_mask=mask)
    return outputs.logits[:, -1], outputs.cache


@wrong("decode", "takes its cache by name")
def decode_with_the_cache_second(model, token, cache):
    outputs = model(token, cache)
    return outputs.logits[:, -1], outputs.cache


@wrong("decode", "in two dimensions")
def decode_of_a_flat_token(model, token, cache):
    outputs = model(input_ids=token[0], cache=cache)
    return outputs.logits[:, -1], outputs.cache


@wrong("decode", "stub's order")
def decode_in_another_order(model, cache, token):
    outputs = model(input_ids=token, cache=cache)
    return outputs.logits[:, -1], outputs.cache


@wrong("decode", "that you return is empty")
def decode_returns_an_empty_cache(model, token, cache):
    outputs = model(input_ids=token, cache=cache)
    return outputs.logits[:, -1], type(cache)()


@right("decode")
def decode_by_the_old_names(model, token, cache):
    outputs = model(input_ids=token, past_key_values=cache, use_cache=True)
    return outputs.logits[:, -1, :], outputs.past_key_values


@right("decode")
def decode_in_place(model, input_ids, past):
    logits = model(input_ids, cache=past).logits.squeeze(1)
    return logits, past


@right("decode")
def decode_with_all_said(model, token, cache):
    seen = cache.get_seq_length()
    with torch.inference_mode():
        outputs = model(
            input_ids=token,
            cache=cache,
            use_cache=True,
            attention_mask=torch.ones(1, seen + 1, dtype=torch.long),
            position_ids=torch.tensor([[seen]]),
            logits_to_keep=1,
        )
    return [outputs.logits[:, 0], outputs.cache]


@right("decode")
def decode_layer_by_layer(model, token, cache):
    hidden = model.model(input_ids=token, cache=cache).last_hidden_state
    return model.lm_head(hidden[:, -1]), cache


@right("decode")
def decode_by_forward(model, token, cache):
    outputs = model.forward(inputs_embeds=model.get_input_embeddings()(token), cache=cache)
    return outputs["logits"][:, -1].clone(), outputs["cache"]


@right("decode")
def decode_on_a_copy(model, token, cache):
    outputs = model(token, cache=copy.deepcopy(cache))
    return outputs[0][:, -1], outputs.cache


# generate_greedy


@wrong("generate_greedy", "holds the stop id")
def greedy_keeps_the_stop_id(model, input_ids, max_new_tokens, stop_ids):
    ids = []
    logits, cache = runner.prefill(model, input_ids)
    while len(ids) < max_new_tokens:
        token = logits.argmax(dim=-1, keepdim=True)
        ids.append(int(token))
        if ids[-1] in stop_ids:
            break
        logits, cache = runner.decode(model, token, cache)
    return ids


@wrong("generate_greedy", "One forward pass too many")
def greedy_runs_once_more(model, input_ids, max_new_tokens, stop_ids):
    ids = []
    logits, cache = runner.prefill(model, input_ids)
    for _ in range(max_new_tokens):
        token = logits.argmax(dim=-1, keepdim=True)
        if int(token) in stop_ids:
            break
        ids.append(int(token))
        logits, cache = runner.decode(model, token, cache)
    return ids


@wrong("generate_greedy", "One forward pass too many")
def greedy_decodes_before_it_asks(model, input_ids, max_new_tokens, stop_ids):
    ids = []
    logits, cache = runner.prefill(model, input_ids)
    while True:
        token = logits.argmax(dim=-1, keepdim=True)
        if len(ids) + 1 < max_new_tokens:
            logits, cache = runner.decode(model, token, cache)
        if int(token) in stop_ids:
            return ids
        ids.append(int(token))
        if len(ids) == max_new_tokens:
            return ids


@wrong("generate_greedy", "one of them only")
def greedy_knows_one_stop_id(model, input_ids, max_new_tokens, stop_ids):
    return greedy(model, input_ids, max_new_tokens, set(sorted(stop_ids)[:1]))


@wrong("generate_greedy", "one of them only")
def greedy_knows_the_last_stop_id(model, input_ids, max_new_tokens, stop_ids):
    return greedy(model, input_ids, max_new_tokens, set(sorted(stop_ids)[-1:]))


@wrong("generate_greedy", "has no first one")
def greedy_indexes_the_stop_ids(model, input_ids, max_new_tokens, stop_ids):
    return greedy(model, input_ids, max_new_tokens, {stop_ids[0]} if stop_ids else set())


@wrong("generate_greedy", "runs past the stop id, until the limit")
def greedy_never_stops(model, input_ids, max_new_tokens, stop_ids):
    return greedy(model, input_ids, max_new_tokens, set())


@wrong("generate_greedy", "a set never finds one")
def greedy_asks_about_a_tensor(model, input_ids, max_new_tokens, stop_ids):
    ids = []
    logits, cache = runner.prefill(model, input_ids)
    while len(ids) < max_new_tokens:
        token = logits.argmax(dim=-1, keepdim=True)
        if token in stop_ids:
            break
        ids.append(int(token))
        if len(ids) < max_new_tokens:
            logits, cache = runner.decode(model, token, cache)
    return ids


@wrong("generate_greedy", "before the stop id is lost")
def greedy_drops_one_more(model, input_ids, max_new_tokens, stop_ids):
    ids = greedy(model, input_ids, max_new_tokens, stop_ids)
    return ids[:-1] if len(ids) < max_new_tokens else ids


@wrong("generate_greedy", "begins with the prompt")
def greedy_with_the_prompt(model, input_ids, max_new_tokens, stop_ids):
    return input_ids[0].tolist() + greedy(model, input_ids, max_new_tokens, stop_ids)


@wrong("generate_greedy", "One token more")
def greedy_one_too_many(model, input_ids, max_new_tokens, stop_ids):
    return greedy(model, input_ids, max_new_tokens + 1, stop_ids)


@wrong("generate_greedy", "One token fewer")
def greedy_one_too_few(model, input_ids, max_new_tokens, stop_ids):
    ids = greedy(model, input_ids, max_new_tokens, stop_ids)
    return ids[: max_new_tokens - 1]


@wrong("generate_greedy", "first token is missing")
def greedy_throws_the_first_away(model, input_ids, max_new_tokens, stop_ids):
    ids = []
    logits, cache = runner.prefill(model, input_ids)
    token = logits.argmax(dim=-1, keepdim=True)
    while len(ids) < max_new_tokens:
        logits, cache = runner.decode(model, token, cache)
        token = logits.argmax(dim=-1, keepdim=True)
        if int(token) in stop_ids:
            break
        ids.append(int(token))
    return ids


@wrong("generate_greedy", "comes twice")
def greedy_the_first_twice(model, input_ids, max_new_tokens, stop_ids):
    ids = greedy(model, input_ids, max_new_tokens, stop_ids)
    return [*ids[:1], *ids][:max_new_tokens]


@wrong("generate_greedy", "cache is not passed on")
def greedy_without_a_cache(model, input_ids, max_new_tokens, stop_ids):
    ids = []
    token = runner.prefill(model, input_ids)[0].argmax(dim=-1, keepdim=True)
    while int(token) not in stop_ids:
        ids.append(int(token))
        if len(ids) == max_new_tokens:
            break
        token = runner.prefill(model, token)[0].argmax(dim=-1, keepdim=True)
    return ids


@wrong("generate_greedy", "always the first token")
def greedy_forgets_the_new_logits(model, input_ids, max_new_tokens, stop_ids):
    ids = []
    logits, cache = runner.prefill(model, input_ids)
    while len(ids) < max_new_tokens:
        token = logits.argmax(dim=-1, keepdim=True)
        if int(token) in stop_ids:
            break
        ids.append(int(token))
        _, cache = runner.decode(model, token, cache)
    return ids


@wrong("generate_greedy", "begins well, then goes astray")
def greedy_decodes_the_first_token_always(model, input_ids, max_new_tokens, stop_ids):
    logits, cache = runner.prefill(model, input_ids)
    first = logits.argmax(dim=-1, keepdim=True)
    ids = [int(first)]
    while len(ids) < max_new_tokens and ids[-1] not in stop_ids:
        logits, cache = runner.decode(model, first, cache)
        ids.append(int(logits.argmax()))
    return ids


@wrong("generate_greedy", "not the greedy ones")
def greedy_takes_the_worst(model, input_ids, max_new_tokens, stop_ids):
    ids = []
    logits, cache = runner.prefill(model, input_ids)
    while len(ids) < max_new_tokens:
        token = logits.argmin(dim=-1, keepdim=True)
        ids.append(int(token))
        logits, cache = runner.decode(model, token, cache)
    return ids


@wrong("generate_greedy", "holds tensors")
def greedy_of_tensors(model, input_ids, max_new_tokens, stop_ids):
    return [torch.tensor(id_) for id_ in greedy(model, input_ids, max_new_tokens, stop_ids)]


@wrong("generate_greedy", "returns a tensor")
def greedy_as_a_tensor(model, input_ids, max_new_tokens, stop_ids):
    return torch.tensor(greedy(model, input_ids, max_new_tokens, stop_ids))


@wrong("generate_greedy", "everything anew")
def greedy_reads_anew(model, input_ids, max_new_tokens, stop_ids):
    ids = []
    while len(ids) < max_new_tokens:
        token = model(input_ids=input_ids).logits[:, -1].argmax(dim=-1, keepdim=True)
        if int(token) in stop_ids:
            break
        ids.append(int(token))
        input_ids = torch.cat([input_ids, token], dim=1)
    return ids


@wrong("generate_greedy", "read the prompt twice")
def greedy_prefills_twice(model, input_ids, max_new_tokens, stop_ids):
    runner.prefill(model, input_ids)
    return greedy(model, input_ids, max_new_tokens, stop_ids)


@wrong("generate_greedy", "set only for tokens that are kept")
def greedy_with_the_sketchs_clock(model, input_ids, max_new_tokens, stop_ids):
    ids = greedy(model, input_ids, max_new_tokens, stop_ids)
    for place, id_ in enumerate(ids):
        if place == 0:
            first = id_
    return [first, *ids[1:]]


@wrong("generate_greedy", "your list is empty")
def greedy_looks_at_its_last(model, input_ids, max_new_tokens, stop_ids):
    ids = greedy(model, input_ids, max_new_tokens, stop_ids)
    return ids if ids[-1] not in stop_ids else ids[:-1]


@wrong("generate_greedy", "never looks at that one")
def greedy_trusts_the_first(model, input_ids, max_new_tokens, stop_ids):
    logits, cache = runner.prefill(model, input_ids)
    ids = [int(logits.argmax())]
    while len(ids) < max_new_tokens:
        logits, cache = runner.decode(model, torch.tensor([ids[-1:]]), cache)
        if int(logits.argmax()) in stop_ids:
            break
        ids.append(int(logits.argmax()))
    return ids


@wrong("generate_greedy", "puts it into the answer")
def greedy_keeps_a_first_stop_id(model, input_ids, max_new_tokens, stop_ids):
    ids = greedy(model, input_ids, max_new_tokens, stop_ids)
    return ids or greedy(model, input_ids, 1, set())


def greedy(model, input_ids, max_new_tokens, stop_ids):
    ids = []
    logits, cache = runner.prefill(model, input_ids)
    while int(logits.argmax()) not in stop_ids:
        ids.append(int(logits.argmax()))
        if len(ids) == max_new_tokens:
            break
        logits, cache = runner.decode(model, torch.tensor([ids[-1:]]), cache)
    return ids


@right("generate_greedy")
def greedy_by_hand(model, input_ids, max_new_tokens, stop_ids):
    outputs = model(input_ids, use_cache=True)
    ids = []
    for number in range(max_new_tokens):
        if number:
            newest = torch.tensor([[ids[-1]]])
            outputs = model(input_ids=newest, past_key_values=outputs.past_key_values)
        best = outputs.logits[0, -1].argmax().item()
        if any(best == stop for stop in stop_ids):
            break
        ids += [best]
    return ids


@right("generate_greedy")
def greedy_with_a_helper(model, input_ids, max_new_tokens, stop_ids):
    return greedy(model, input_ids, max_new_tokens, list(stop_ids))


@right("generate_greedy")
def greedy_as_a_generator(model, input_ids, max_new_tokens, stop_ids):
    def tokens():
        logits, cache = runner.prefill(model, input_ids)
        for left in range(max_new_tokens, 0, -1):
            token = logits.topk(1).indices
            if token.item() in set(stop_ids):
                return
            yield token.item()
            if left > 1:
                logits, cache = runner.decode(model, token, cache)

    return list(tokens())


# continue_from


def continued(model, input_ids, first_tokens, count, cache_for):
    answers = []
    for first in first_tokens:
        cache, ids = cache_for(), [first]
        while len(ids) < count:
            logits, cache = runner.decode(model, torch.tensor([ids[-1:]]), cache)
            ids.append(int(logits.argmax()))
        answers.append(ids)
    return answers


@wrong("continue_from", "What have they in common")
def continue_unmended(model, input_ids, first_tokens, count):
    _, cache = runner.prefill(model, input_ids)
    return continued(model, input_ids, first_tokens, count, lambda: cache)


@wrong("continue_from", "What have they in common")
def continue_with_shallow_copies(model, input_ids, first_tokens, count):
    _, cache = runner.prefill(model, input_ids)
    return continued(model, input_ids, first_tokens, count, lambda: copy.copy(cache))


@wrong("continue_from", "at the start of each")
def continue_with_one_copy(model, input_ids, first_tokens, count):
    _, cache = runner.prefill(model, input_ids)
    kept = copy.deepcopy(cache)
    caches = iter([cache])
    return continued(model, input_ids, first_tokens, count, lambda: next(caches, kept))


@wrong("continue_from", "at the start of each")
def continue_with_empty_caches(model, input_ids, first_tokens, count):
    return continued(model, input_ids, first_tokens, count, DynamicCache)


@wrong("continue_from", "at the start of each")
def continue_with_one_position_too_many(model, input_ids, first_tokens, count):
    _, cache = runner.prefill(model, input_ids)

    def rewound():
        extra = cache.get_seq_length() - input_ids.shape[1]
        if extra > 1:
            cache.crop(1 - extra)
        return cache

    return continued(model, input_ids, first_tokens, count, rewound)


@wrong("continue_from", "in their order")
def continue_each_once(model, input_ids, first_tokens, count):
    fresh = lambda: runner.prefill(model, input_ids)[1]  # noqa: E731
    return continued(model, input_ids, list(dict.fromkeys(first_tokens)), count, fresh)


@wrong("continue_from", "list, which begins with it")
def continue_without_the_first(model, input_ids, first_tokens, count):
    fresh = lambda: runner.prefill(model, input_ids)[1]  # noqa: E731
    answers = continued(model, input_ids, first_tokens, count + 1, fresh)
    return [ids[1:] for ids in answers]


@right("continue_from")
def continue_reading_again(model, input_ids, first_tokens, count):
    fresh = lambda: runner.prefill(model, input_ids)[1]  # noqa: E731
    return continued(model, input_ids, first_tokens, count, fresh)


@right("continue_from")
def continue_rewinding(model, input_ids, first_tokens, count):
    _, cache = runner.prefill(model, input_ids)

    def rewound():
        extra = cache.get_seq_length() - input_ids.shape[1]
        if extra > 0:
            cache.crop(-extra)
        return cache

    return continued(model, input_ids, first_tokens, count, rewound)
