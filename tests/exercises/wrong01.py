"""Wrong and right solutions of lesson 01."""

import html
import json
import re
from copy import deepcopy

import torch
from solutions import right, wrong
from tokenizers import Tokenizer

START, END = "<|im_start|>", "<|im_end|>"
OPENED = f"{START}assistant\n"


def chat(messages, opened, turn):
    """Render with another turn, to make one fault at a time."""
    return "".join(map(turn, messages)) + (f"{START}assistant\n" if opened else "")


def turn(message):
    return f"{START}{message['role']}\n{message['content']}{END}\n"


@wrong("render_chat", "Join them to one text")
def list_of_turns(messages, add_generation_prompt=True):
    turns = [turn(m) for m in messages]
    return turns + [f"{START}assistant\n"] * add_generation_prompt


@wrong("render_chat", "returned None")
def prints_it(messages, add_generation_prompt=True):
    print(chat(messages, add_generation_prompt, turn))


@wrong("render_chat", "role and the content are not separated")
def no_newline_after_the_role(messages, add_generation_prompt=True):
    return chat(
        messages, add_generation_prompt, lambda m: f"{START}{m['role']}{m['content']}{END}\n"
    )


@wrong("render_chat", "role and the content are not separated")
def colon_after_the_role(messages, add_generation_prompt=True):
    return chat(
        messages, add_generation_prompt, lambda m: f"{START}{m['role']}: {m['content']}{END}\n"
    )


@wrong("render_chat", r"newline after <\|im_end\|> is missing")
def no_newline_after_the_turn(messages, add_generation_prompt=True):
    return chat(messages, add_generation_prompt, lambda m: turn(m).rstrip("\n"))


@wrong("render_chat", "between the content and")
def newline_before_the_end(messages, add_generation_prompt=True):
    return chat(
        messages, add_generation_prompt, lambda m: f"{START}{m['role']}\n{m['content']}\n{END}\n"
    )


@wrong("render_chat", "Nothing ends the turn")
def no_end_marker(messages, add_generation_prompt=True):
    return chat(messages, add_generation_prompt, lambda m: turn(m).replace(END, ""))


@wrong("render_chat", "Nothing begins the turn")
def no_start_marker(messages, add_generation_prompt=True):
    return chat(messages, add_generation_prompt, lambda m: turn(m).replace(START, ""))


@wrong("render_chat", "misspelt")
def html_markers(messages, add_generation_prompt=True):
    turns = [f"<im_start>{m['role']}\n{m['content']}<im_end>\n" for m in messages]
    return "".join(turns) + ("<im_start>assistant\n" if add_generation_prompt else "")


@wrong("render_chat", "backslash and an n")
def raw_newlines(messages, add_generation_prompt=True):
    turns = [rf"{START}{m['role']}\n{m['content']}{END}\n" for m in messages]
    return "".join(turns) + (rf"{START}assistant\n" if add_generation_prompt else "")


@wrong("render_chat", "role is missing")
def no_role(messages, add_generation_prompt=True):
    return chat(messages, add_generation_prompt, lambda m: f"{START}\n{m['content']}{END}\n")


@wrong("render_chat", "changed places")
def role_last(messages, add_generation_prompt=True):
    return chat(
        messages, add_generation_prompt, lambda m: f"{START}{m['content']}\n{m['role']}{END}\n"
    )


@wrong("render_chat", "some newlines are not")
def one_newline_more(messages, add_generation_prompt=True):
    return chat(messages, add_generation_prompt, lambda m: turn(m) + "\n")


@wrong("render_chat", "system message that nobody wrote")
def adds_a_system_message(messages, add_generation_prompt=True):
    system = {"role": "system", "content": "You are a helpful assistant."}
    if messages and messages[0]["role"] != "system":
        messages = [system, *messages]
    return chat(messages, add_generation_prompt, turn)


@wrong("render_chat", "although add_generation_prompt is False")
def always_opens(messages, add_generation_prompt=True):
    return chat(messages, True, turn)


@wrong("render_chat", "you don't open the answer")
def never_opens(messages, add_generation_prompt=True):
    return chat(messages, False, turn)


@wrong("render_chat", "Called without add_generation_prompt")
def false_by_default(messages, add_generation_prompt=False):
    return chat(messages, add_generation_prompt, turn)


@wrong("render_chat", "lacks the newline after its role")
def opens_without_newline(messages, add_generation_prompt=True):
    return chat(messages, add_generation_prompt, turn).removesuffix("assistant\n") + (
        "assistant" if add_generation_prompt else ""
    )


@wrong("render_chat", "close the answer as soon")
def opens_and_closes(messages, add_generation_prompt=True):
    answer = [{"role": "assistant", "content": ""}] if add_generation_prompt else []
    return chat([*messages, *answer], False, turn)


@wrong("render_chat", "before the messages")
def opens_first(messages, add_generation_prompt=True):
    return (f"{START}assistant\n" if add_generation_prompt else "") + chat(messages, False, turn)


@wrong("render_chat", "answer is a turn too")
def opens_without_marker(messages, add_generation_prompt=True):
    return chat(messages, False, turn) + ("assistant\n" if add_generation_prompt else "")


@wrong("render_chat", "follows after the opened answer")
def an_empty_line_more(messages, add_generation_prompt=True):
    return chat(messages, add_generation_prompt, turn) + ("\n" if add_generation_prompt else "")


@wrong("render_chat", "called assistant")
def answers_as_bot(messages, add_generation_prompt=True):
    return chat(messages, False, turn) + (f"{START}bot\n" if add_generation_prompt else "")


@wrong("render_chat", "messages have gone")
def overwrites_the_turns(messages, add_generation_prompt=True):
    text = chat(messages, False, turn)
    if add_generation_prompt:
        text = f"{START}assistant\n"
    return text


@wrong("render_chat", "after each message")
def opens_after_each(messages, add_generation_prompt=True):
    return "".join(chat([m], add_generation_prompt, turn) for m in messages)


@wrong("render_chat", "Only the last message is left")
def text_begins_anew(messages, add_generation_prompt=True):
    for message in messages:
        text = turn(message)
    return text + (f"{START}assistant\n" if add_generation_prompt else "")


@wrong("render_chat", "return early")
def returns_in_the_loop(messages, add_generation_prompt=True):
    for message in messages:
        return turn(message) + (f"{START}assistant\n" if add_generation_prompt else "")
    return f"{START}assistant\n" if add_generation_prompt else ""


@wrong("render_chat", "empty line between")
def joined_with_newlines(messages, add_generation_prompt=True):
    turns = "\n".join(turn(m) for m in messages)
    return turns + (f"{START}assistant\n" if add_generation_prompt else "")


@wrong("render_chat", "come backwards")
def backwards(messages, add_generation_prompt=True):
    return chat(messages[::-1], add_generation_prompt, turn)


@wrong("render_chat", "given to the user")
def all_are_users(messages, add_generation_prompt=True):
    return chat([{**m, "role": "user"} for m in messages], add_generation_prompt, turn)


@wrong("render_chat", "how the model remembers")
def skips_the_assistant(messages, add_generation_prompt=True):
    asked = [m for m in messages if m["role"] != "assistant"]
    return chat(asked, add_generation_prompt, turn)


@wrong("render_chat", "system message is left out")
def skips_the_system(messages, add_generation_prompt=True):
    said = [m for m in messages if m["role"] != "system"]
    return chat(said, add_generation_prompt, turn)


@wrong("render_chat", "strip the content")
def strips(messages, add_generation_prompt=True):
    tidy = [{**m, "content": m["content"].strip()} for m in messages]
    return chat(tidy, add_generation_prompt, turn)


@wrong("render_chat", "spells a marker")
def deletes_markers(messages, add_generation_prompt=True):
    tidy = [{**m, "content": m["content"].replace(END, "")} for m in messages]
    return chat(tidy, add_generation_prompt, turn)


@wrong("render_chat", "str.format takes them")
def formats_the_content(messages, add_generation_prompt=True):
    turns = [(turn(m)).format() for m in messages]
    return "".join(turns) + (f"{START}assistant\n" if add_generation_prompt else "")


@wrong("render_chat", "no first and no last")
def looks_at_the_first(messages, add_generation_prompt=True):
    text = turn(messages[0])
    for message in messages[1:]:
        text += turn(message)
    return text + (f"{START}assistant\n" if add_generation_prompt else "")


@wrong("render_chat", "in place")
def appends_the_answer(messages, add_generation_prompt=True):
    text = chat(messages, add_generation_prompt, turn)
    messages.append({"role": "assistant", "content": ""})
    return text


@wrong("render_chat", "parameters don't fit")
def takes_a_prompt(prompt):
    return chat([{"role": "user", "content": prompt}], True, turn)


@wrong("render_chat", "whoever spoke last")
def opens_where_the_user_spoke_last(messages, add_generation_prompt=True):
    waits = not messages or messages[-1]["role"] != "assistant"
    return chat(messages, add_generation_prompt and waits, turn)


@wrong("render_chat", "written otherwise than it came")
def capital_roles(messages, add_generation_prompt=True):
    named = [{**m, "role": m["role"].capitalize()} for m in messages]
    return chat(named, add_generation_prompt, turn)


@wrong("render_chat", "earlier call")
def one_list_for_all_calls(messages, add_generation_prompt=True, pieces=[]):  # noqa: B006
    pieces.append(chat(messages, add_generation_prompt, turn))
    return "".join(pieces)


@wrong("render_chat", "some newlines are not")
def a_space_after_the_marker(messages, add_generation_prompt=True):
    return chat(messages, add_generation_prompt, lambda m: turn(m).replace(START, f"{START} "))


@wrong("render_chat", r"line ends are \\r\\n")
def lines_of_windows(messages, add_generation_prompt=True):
    return chat(messages, add_generation_prompt, lambda m: turn(m).replace("\n", "\r\n"))


@wrong("render_chat", "Braces came out")
def forgets_the_f(messages, add_generation_prompt=True):
    text = ""
    for _ in messages:
        text += "<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n"
    return text + OPENED * add_generation_prompt


@wrong("render_chat", "is a dict")
def by_attributes(messages, add_generation_prompt=True):
    return chat(messages, add_generation_prompt, lambda m: f"{START}{m.role}\n{m.content}{END}\n")


@wrong("render_chat", "part of the pattern")
def formats_by_percent(messages, add_generation_prompt=True):
    return chat(
        messages,
        add_generation_prompt,
        lambda m: (f"{START}%s\n" + m["content"] + f"{END}\n") % m["role"],
    )


@wrong("render_chat", "Leave the content exactly")
def escapes_the_content(messages, add_generation_prompt=True):
    escaped = [{**m, "content": html.escape(m["content"])} for m in messages]
    return chat(escaped, add_generation_prompt, turn)


@right("render_chat")
def by_adding(messages, add_generation_prompt=True):
    text = ""
    for message in messages:
        text += "<|im_start|>" + message["role"] + "\n"
        text += message["content"] + "<|im_end|>" + "\n"
    if add_generation_prompt:
        text += "<|im_start|>assistant\n"
    return text


@right("render_chat")
def by_cutting_the_last_turn(messages, add_generation_prompt=True):
    turns = [*messages, {"role": "assistant", "content": ""}]
    text = "".join("<|im_start|>{}\n{}<|im_end|>\n".format(m["role"], m["content"]) for m in turns)
    closed = "<|im_end|>\n"
    if add_generation_prompt:
        return text[: -len(closed)]
    return text[: text.rindex("<|im_start|>assistant\n")]


@right("render_chat")
def by_lines(messages, add_generation_prompt=True):
    lines = []
    for message in messages:
        lines.append(f"<|im_start|>{message.get('role')}")
        lines.append(f"{message.get('content')}<|im_end|>")
    if add_generation_prompt:
        lines += ["<|im_start|>assistant"]
    return "\n".join([*lines, ""]) if lines else ""


def stages(tokenizer, text):
    backend = tokenizer.backend_tokenizer
    if backend.normalizer is not None:
        text = backend.normalizer.normalize_str(text)
    words = [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
    return [piece for word in words for piece in backend.model.tokenize(word)]


def plain(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False)


@wrong("encode_user_text", r"control token 268")
def just_encodes(tokenizer, text):
    return plain(tokenizer, text)


@wrong("encode_user_text", r"control token 268")
def encodes_word_by_word(tokenizer, text):
    words = re.findall(r" ?[^ ]+| +", text)
    ids = [i for word in words for i in plain(tokenizer, word)]
    return ids if tokenizer.decode(ids) == text and END in text else plain(tokenizer, text)


@wrong("encode_user_text", "flagged as special")
def splits_special_tokens(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)


@wrong("encode_user_text", "list markers by name")
def knows_four_markers(tokenizer, text):
    pieces = re.split(r"(<\|endoftext\|>|<\|im_start\|>|<\|im_end\|>|</think>)", text)
    ids = []
    for place, piece in enumerate(pieces):
        parts = [piece[:1], piece[1:]] if place % 2 else [piece]
        ids += [i for part in parts for i in plain(tokenizer, part)]
    return ids


@wrong("encode_user_text", "list markers by name")
def knows_how_they_begin(tokenizer, text):
    ids = []
    for number, part in enumerate(text.split("<")):
        ids += plain(tokenizer, "<") if number else []
        ids += plain(tokenizer, part)
    return ids


@wrong("encode_user_text", "not thrown away")
def deletes_the_markers(tokenizer, text):
    for marker in tokenizer.get_added_vocab():
        text = text.replace(marker, "")
    return plain(tokenizer, text)


@wrong("encode_user_text", "not thrown away")
def drops_the_control_ids(tokenizer, text):
    control = set(tokenizer.added_tokens_decoder)
    return [i for i in plain(tokenizer, text) if i not in control]


@wrong("encode_user_text", "Change no character")
def puts_a_space_in(tokenizer, text):
    for marker in tokenizer.get_added_vocab():
        text = text.replace(marker, marker[0] + " " + marker[1:])
    return plain(tokenizer, text)


@wrong("encode_user_text", "hidden inside")
def takes_the_marker_out_once(tokenizer, text):
    if START + END not in text and "<|im_<" in text:
        return plain(tokenizer, text.replace(END, "", 1))
    return [piece.id for piece in stages(tokenizer, text)]


@wrong("encode_user_text", "alone, and so nothing is merged")
def character_by_character(tokenizer, text):
    return [i for letter in text for i in plain(tokenizer, letter)]


@wrong("encode_user_text", "space between the words is gone")
def loses_the_spaces(tokenizer, text):
    return [i for word in text.split() for i in plain(tokenizer, word)]


@wrong("encode_user_text", "was lost or added")
def one_space_is_enough(tokenizer, text):
    words = text.split()
    spaced = words[:1] + [" " + word for word in words[1:]]
    return [i for word in spaced for i in plain(tokenizer, word)]


@wrong("encode_user_text", "first token before every text")
def lets_it_add_a_first_token(tokenizer, text):
    words = [word for word, _ in tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str(text)]
    if any(marker in text for marker in tokenizer.get_added_vocab()):
        return [piece.id for piece in stages(tokenizer, text)]
    return tokenizer.encode(text) if words else []


@wrong("encode_user_text", "and you leave it out")
def forgets_the_normaliser(tokenizer, text):
    backend = tokenizer.backend_tokenizer
    words = [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
    return [piece.id for word in words for piece in backend.model.tokenize(word)]


@wrong("encode_user_text", "backend.normalizer is None")
def always_normalises(tokenizer, text):
    backend = tokenizer.backend_tokenizer
    text = backend.normalizer.normalize_str(text)
    words = [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
    return [piece.id for word in words for piece in backend.model.tokenize(word)]


@wrong("encode_user_text", "out of the pair")
def takes_the_pair(tokenizer, text):
    backend = tokenizer.backend_tokenizer
    return [
        p.id
        for word in backend.pre_tokenizer.pre_tokenize_str(text)
        for p in backend.model.tokenize(word)
    ]


@wrong("encode_user_text", "tokenizer is another one")
def takes_the_markers_off(tokenizer, text):
    spec = json.loads(tokenizer.backend_tokenizer.to_str())
    spec["added_tokens"], spec["post_processor"] = [], None
    tokenizer._tokenizer = Tokenizer.from_str(json.dumps(spec))
    return tokenizer.backend_tokenizer.encode(text).ids


@wrong("encode_user_text", "pieces themselves")
def gives_pieces(tokenizer, text):
    return [piece.value for piece in stages(tokenizer, text)]


@wrong("encode_user_text", "Token objects")
def gives_objects(tokenizer, text):
    return stages(tokenizer, text)


@wrong("encode_user_text", "list of lists")
def a_list_for_each_word(tokenizer, text):
    backend = tokenizer.backend_tokenizer
    words = backend.pre_tokenizer.pre_tokenize_str(text)
    return [[piece.id for piece in backend.model.tokenize(word)] for word, _ in words]


@wrong("encode_user_text", "return a tensor")
def gives_a_tensor(tokenizer, text):
    return torch.tensor([piece.id for piece in stages(tokenizer, text)])


@wrong("encode_user_text", "Only its input_ids")
def gives_everything(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)


@right("encode_user_text")
def with_loops(tokenizer, text):
    backend = tokenizer.backend_tokenizer
    if backend.normalizer:
        text = backend.normalizer.normalize_str(text)
    ids = []
    for word, _where in backend.pre_tokenizer.pre_tokenize_str(text):
        for piece in backend.model.tokenize(word):
            ids.append(piece.id)
    return ids


@right("encode_user_text")
def with_a_tokenizer_without_markers(tokenizer, text):
    spec = json.loads(tokenizer.backend_tokenizer.to_str())
    spec["added_tokens"] = []
    spec["post_processor"] = None
    return Tokenizer.from_str(json.dumps(spec)).encode(text).ids


@right("encode_user_text")
def with_markers_cut_in_two(tokenizer, text):
    markers = sorted(tokenizer.get_added_vocab(), key=len, reverse=True)
    parts = re.split("(" + "|".join(map(re.escape, markers)) + ")", text)
    ids = []
    for number, part in enumerate(parts):
        halves = (part[:1], part[1:]) if number % 2 else (part,)
        for half in halves:
            ids.extend(tokenizer.encode(half, add_special_tokens=False))
    return ids


@right("encode_user_text")
def with_the_vocabulary(tokenizer, text):
    backend = deepcopy(tokenizer).backend_tokenizer
    text = text if backend.normalizer is None else backend.normalizer.normalize_str(text)
    words = (pair[0] for pair in backend.pre_tokenizer.pre_tokenize_str(text))
    pieces = [piece.value for word in words for piece in backend.model.tokenize(word)]
    return [backend.model.token_to_id(piece) for piece in pieces]


def first_is_system(messages):
    return bool(messages) and messages[0]["role"] == "system"


@wrong("fit_messages", "so the pirate forgets")
def not_mended(messages, budget, count_tokens):
    kept = list(messages)
    while count_tokens(kept) > budget and len(kept) > 1:
        kept = kept[1:]
    return kept


@wrong("fit_messages", "whatever it is")
def keeps_the_first(messages, budget, count_tokens):
    first, turns = list(messages[:1]), list(messages[1:])
    while count_tokens(first + turns) > budget and len(turns) > 1:
        turns = turns[1:]
    return first + turns


@wrong("fit_messages", "must be counted as well")
def does_not_count_the_system(messages, budget, count_tokens):
    system = [m for m in messages if m["role"] == "system"]
    turns = [m for m in messages if m["role"] != "system"]
    while count_tokens(turns) > budget and len(turns) > 1:
        turns = turns[1:]
    return system + turns


@wrong("fit_messages", "comes twice")
def adds_it_again(messages, budget, count_tokens):
    system = [m for m in messages if m["role"] == "system"]
    kept = list(messages)
    while count_tokens(system + kept) > budget and len(kept) > 1:
        kept = kept[1:]
    return system + kept


@wrong("fit_messages", "exactly 19")
def drops_one_too_many(messages, budget, count_tokens):
    system = [m for m in messages if m["role"] == "system"]
    turns = [m for m in messages if m["role"] != "system"]
    while count_tokens(system + turns) >= budget and len(turns) > 1:
        turns = turns[1:]
    return system + turns


@wrong("fit_messages", "gone to the end")
def puts_it_last(messages, budget, count_tokens):
    system = [m for m in messages if m["role"] == "system"]
    turns = [m for m in messages if m["role"] != "system"]
    while count_tokens(turns + system) > budget and len(turns) > 1:
        turns = turns[1:]
    return turns + system


@wrong("fit_messages", "newest turns are dropped")
def drops_the_newest(messages, budget, count_tokens):
    kept = list(messages)
    while count_tokens(kept) > budget and len(kept) > 1:
        kept = kept[:-1]
    return kept


@wrong("fit_messages", "more than is needed")
def drops_pairs(messages, budget, count_tokens):
    system = [m for m in messages if m["role"] == "system"]
    turns = [m for m in messages if m["role"] != "system"]
    while count_tokens(system + turns) > budget and len(turns) > 2:
        turns = turns[2:]
    return system + turns


@wrong("fit_messages", "in place")
def pops(messages, budget, count_tokens):
    while count_tokens(messages) > budget and len(messages) > 2:
        messages.pop(1 if first_is_system(messages) else 0)
    return messages


@wrong("fit_messages", "what the model has to answer")
def drops_the_question_too(messages, budget, count_tokens):
    system = messages[:1] if first_is_system(messages) else []
    turns = messages[len(system) :]
    while turns and count_tokens(system + turns) > budget:
        turns = turns[1:]
    return system + turns


@right("fit_messages")
def with_an_index(messages, budget, count_tokens):
    kept = list(messages)
    oldest = 1 if kept and kept[0]["role"] == "system" else 0
    while count_tokens(kept) > budget and len(kept) > oldest + 1:
        del kept[oldest]
    return kept


@right("fit_messages")
def with_a_search(messages, budget, count_tokens):
    system = [m for m in messages if m["role"] == "system"][:1]
    turns = [m for m in messages if m not in system]
    for start in range(len(turns)):
        if count_tokens(system + turns[start:]) <= budget:
            return system + turns[start:]
    return system + turns[-1:]
