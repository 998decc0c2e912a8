"""Wrong and right solutions of lesson 06."""

import codecs
import json
import re

from solutions import right, wrong

MARK = "\ufffd"


@wrong("new_text", "send everything again")
def ignores_sent(tokenizer, token_ids, sent, final=False):
    text = tokenizer.decode(token_ids)
    return text if final else text.rstrip(MARK)


@wrong("new_text", "cut off that many ids")
def cuts_ids(tokenizer, token_ids, sent, final=False):
    text = tokenizer.decode(token_ids[sent:])
    return text if final else text.rstrip(MARK)


@wrong("new_text", "last id alone")
def decodes_the_last_id(tokenizer, token_ids, sent, final=False):
    return tokenizer.decode(token_ids[-1:])


@wrong("new_text", "only half here")
def sends_replacement_characters(tokenizer, token_ids, sent, final=False):
    return tokenizer.decode(token_ids)[sent:]


@wrong("new_text", "although final=True")
def ignores_final(tokenizer, token_ids, sent, final=False):
    return tokenizer.decode(token_ids).rstrip(MARK)[sent:]


@wrong("new_text", "delete every U")
def deletes_replacement_characters(tokenizer, token_ids, sent, final=False):
    text = tokenizer.decode(token_ids)
    if not final:
        text = text.replace(MARK, "")
    return text[sent:]


@wrong("new_text", "from the first U")
def cuts_at_the_first_mark(tokenizer, token_ids, sent, final=False):
    text = tokenizer.decode(token_ids)
    if not final and MARK in text:
        text = text[: text.index(MARK)]
    return text[sent:]


@wrong("new_text", "White space is changed|strip white space")
def strips(tokenizer, token_ids, sent, final=False):
    text = tokenizer.decode(token_ids)
    return (text if final else text.rstrip(MARK))[sent:].strip()


@wrong("new_text", "one character too late")
def one_too_late(tokenizer, token_ids, sent, final=False):
    text = tokenizer.decode(token_ids)
    return text[sent + 1 if sent else 0 :]


@wrong("new_text", "hold everything back")
def waits_for_the_end(tokenizer, token_ids, sent, final=False):
    return tokenizer.decode(token_ids)[sent:] if final else ""


@wrong("new_text", "Return text: a str")
def gives_a_pair(tokenizer, token_ids, sent, final=False):
    text = tokenizer.decode(token_ids)
    return text[sent:], len(text)


@wrong("new_text", "give the whole answer")
def ignores_sent_at_the_end(tokenizer, token_ids, sent, final=False):
    text = tokenizer.decode(token_ids)
    return text if final else text.rstrip(MARK)[sent:]


@wrong("new_text", "White space is changed|strip white space")
def strips_the_answer(tokenizer, token_ids, sent, final=False):
    text = tokenizer.decode(token_ids).strip()
    return (text if final else text.rstrip(MARK))[sent:]


@wrong("new_text", "White space is changed|strip white space")
def strips_its_end(tokenizer, token_ids, sent, final=False):
    text = tokenizer.decode(token_ids).rstrip()
    return (text if final else text.rstrip(MARK))[sent:]


@wrong("new_text", "cut off bytes")
def counts_bytes(tokenizer, token_ids, sent, final=False):
    text = tokenizer.decode(token_ids)
    return (text if final else text.rstrip(MARK)).encode()[sent:].decode(errors="ignore")


@wrong("new_text", "spelt in the vocabulary")
def joins_tokens(tokenizer, token_ids, sent, final=False):
    return "".join(tokenizer.convert_ids_to_tokens(token_ids))[sent:]


@wrong("new_text", "one by one they are no")
def decodes_one_by_one(tokenizer, token_ids, sent, final=False):
    text = "".join(tokenizer.decode([token]) for token in token_ids)
    return (text if final else text.rstrip(MARK))[sent:]


@wrong("new_text", "always hold back a character")
def holds_back_one(tokenizer, token_ids, sent, final=False):
    text = tokenizer.decode(token_ids)
    return text[sent:] if final else text[sent:-1]


@wrong("new_text", "not None")
def gives_none(tokenizer, token_ids, sent, final=False):
    text = tokenizer.decode(token_ids)
    return text[sent:] if final or not text.endswith(MARK) else None


@wrong("new_text", "While you hold back")
def sends_again_while_it_waits(tokenizer, token_ids, sent, final=False):
    text = tokenizer.decode(token_ids)
    return text[:-1] if text.endswith(MARK) and not final else text[sent:]


@wrong("new_text", "Called without final")
def final_by_default(tokenizer, token_ids, sent, final=True):
    text = tokenizer.decode(token_ids)
    return (text if final else text.rstrip(MARK))[sent:]


@right("new_text")
def all_or_nothing(tokenizer, token_ids, sent, final=False):
    piece = tokenizer.decode(token_ids, skip_special_tokens=True)[sent:]
    if piece.endswith(MARK) and not final:
        return ""
    return piece


@right("new_text")
def with_a_loop(tokenizer, token_ids, sent, final=False):
    text = tokenizer.decode(list(token_ids))
    end = len(text)
    while not final and end > sent and text[end - 1] == "\N{REPLACEMENT CHARACTER}":
        end -= 1
    return text[sent:end]


@wrong("sse_event", "empty line is missing")
def one_newline(payload):
    return f"data: {json.dumps(payload)}\n"


@wrong("sse_event", "no end of line")
def no_newline(payload):
    return f"data: {json.dumps(payload)}"


@wrong("sse_event", "More than one empty line")
def three_newlines(payload):
    return f"data: {json.dumps(payload)}\n\n\n"


@wrong("sse_event", "begins with the field name")
def no_field(payload):
    return json.dumps(payload) + "\n\n"


@wrong("sse_event", "single quotes")
def python_repr(payload):
    return f"data: {payload}\n\n"


@wrong("sse_event", "outside ASCII")
def not_ascii(payload):
    return f"data: {json.dumps(payload, ensure_ascii=False)}\n\n"


@wrong("sse_event", "over several lines")
def indented(payload):
    return f"data: {json.dumps(payload, indent=2)}\n\n"


@wrong("sse_event", "dumps was called twice")
def twice(payload):
    return f"data: {json.dumps(json.dumps(payload))}\n\n"


@wrong("sse_event", "the server encodes it")
def encoded(payload):
    return f"data: {json.dumps(payload)}\n\n".encode()


@wrong("sse_event", "payload itself")
def the_text_alone(payload):
    return f"data: {json.dumps(payload.get('text', ''))}\n\n"


@wrong("sse_event", "ends the event in its middle")
def unescaped(payload):
    line = json.dumps(payload).replace("\\n", "\n")
    return f"data: {line}\n\n"


@wrong("sse_event", "Put an f before")
def forgets_the_f(payload):
    return "data: {json.dumps(payload)}\n\n"


@wrong("sse_event", "Python writes bytes")
def bytes_inside(payload):
    return f"data: {json.dumps(payload).encode()}\n\n"


@wrong("sse_event", "a backslash and an n")
def raw_newlines(payload):
    return rf"data: {json.dumps(payload)}\n\n"


@wrong("sse_event", "a space behind the end")
def space_at_the_end(payload):
    return f"data: {json.dumps(payload)}\n\n "


@wrong("sse_event", "several events")
def done_after_each(payload):
    return f"data: {json.dumps(payload)}\n\ndata: [DONE]\n\n"


@right("sse_event")
def compact(payload):
    return "data:" + json.dumps(payload, separators=(",", ":")) + "\r\n\r\n"


@right("sse_event")
def joined(payload):
    return "\n".join(["data: " + json.dumps(payload), "", ""])


@wrong("read_events", "take a chunk for an event")
def a_chunk_an_event(chunks):
    for chunk in chunks:
        yield "message", chunk.decode().removeprefix("data: ").rstrip("\n")


def events_in(text):
    for block in text.split("\n\n")[:-1]:
        name, data = "message", []
        for line in block.split("\n"):
            field, _, value = line.partition(":")
            if field == "data":
                data.append(value.removeprefix(" "))
            elif field == "event":
                name = value.removeprefix(" ")
        if data:
            yield name, "\n".join(data)


@wrong("read_events", "thrown away")
def forgets_the_rest(chunks):
    for chunk in chunks:
        yield from events_in(chunk.decode())


@wrong("read_events", "decoding a chunk fails")
def decodes_chunks(chunks):
    yield from events_in("".join(chunk.decode() for chunk in chunks).replace("\r\n", "\n"))


@wrong("read_events", "cut is lost")
def decodes_chunks_loosely(chunks):
    yield from events_in("".join(chunk.decode(errors="replace") for chunk in chunks))


@wrong("read_events", "data alone")
def only_data(chunks):
    for _, data in events_in(b"".join(chunks).decode()):
        yield data


@wrong("read_events", "wrong way round")
def swapped(chunks):
    for name, data in events_in(b"".join(chunks).decode()):
        yield data, name


@wrong("read_events", "name is lost")
def ignores_names(chunks):
    for _, data in events_in(b"".join(chunks).decode()):
        yield "message", data


@wrong("read_events", r"end with \\r\\n")
def knows_no_carriage_return(chunks):
    yield from events_in(b"".join(chunks).decode())


@wrong("read_events", "never ended")
def gives_what_broke_off(chunks):
    text = b"".join(chunks).decode().replace("\r\n", "\n")
    yield from events_in(text if text.endswith("\n\n") else text + "\n\n")


@wrong("read_events", "strip all white space")
def strips_data(chunks):
    for name, data in events_in(b"".join(chunks).decode().replace("\r\n", "\n")):
        yield name, "\n".join(line.strip() for line in data.split("\n"))


@wrong("read_events", "Only the last data line")
def last_line_only(chunks):
    for name, data in events_in(b"".join(chunks).decode().replace("\r\n", "\n")):
        yield name, data.split("\n")[-1]


@wrong("read_events", "name of the event before")
def keeps_the_name(chunks):
    name, data = "message", []
    for line in b"".join(chunks).decode().replace("\r\n", "\n").split("\n")[:-1]:
        if not line and data:
            yield name, "\n".join(data)
            data = []
        elif line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data:"):
            data.append(line.removeprefix("data:").removeprefix(" "))


def lines_in(chunks, data_of, lines_of=lambda text: text.replace("\r\n", "\n").split("\n")[:-1]):
    name, data = "message", []
    for line in lines_of(b"".join(chunks).decode()):
        if not line:
            if data:
                yield name, "\n".join(data)
            name, data = "message", []
        elif line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data:"):
            data.append(data_of(line))


@wrong("read_events", "strip takes letters")
def strips_letters(chunks):
    return lines_in(chunks, lambda line: line.lstrip("data: "))  # noqa: B005


@wrong("read_events", "wherever it stands")
def takes_out_every_field_name(chunks):
    return lines_in(chunks, lambda line: line.replace("data:", "").removeprefix(" "))


@wrong("read_events", "knows many more")
def splits_at_any_line_end(chunks):
    return lines_in(chunks, lambda line: line[5:].removeprefix(" "), str.splitlines)


@wrong("read_events", "no line end in it")
def keeps_the_line_end(chunks):
    for name, data in lines_in(chunks, lambda line: line[5:].removeprefix(" ")):
        yield name, data + "\n"


@right("read_events")
def all_at_once(chunks):
    text = b"".join(chunks).decode("utf-8").replace("\r\n", "\n")
    found = []
    for block in re.split("\n\n", text)[:-1]:
        fields = [line.split(":", 1) for line in block.split("\n") if ":" in line]
        data = [v[1:] if v.startswith(" ") else v for f, v in fields if f == "data"]
        names = [v.strip() for f, v in fields if f == "event"]
        if data:
            found.append((names[-1] if names else "message", "\n".join(data)))
    return found


@right("read_events")
def with_an_incremental_decoder(chunks):
    decoder = codecs.getincrementaldecoder("utf-8")()
    buffer, name, data = "", "message", []
    for chunk in chunks:
        buffer += decoder.decode(chunk)
        while "\n" in buffer:
            line, buffer = buffer.split("\n", 1)
            line = line.removesuffix("\r")
            if line == "":
                if data:
                    yield [name, "\n".join(data)]
                name, data = "message", []
            elif line.startswith("data:"):
                data.append(line[6:] if line[5:6] == " " else line[5:])
            elif line.startswith("event:"):
                name = line[6:].lstrip(" ")


@wrong("hold_stop", "short one was taken")
def as_given(text, stop):
    for n in range(1, len(stop)):
        if text.endswith(stop[:n]):
            return text[:-n], text[-n:]
    return text, ""


@wrong("hold_stop", "beginning of a stop string leaks")
def holds_nothing(text, stop):
    return text, ""


@wrong("hold_stop", "cannot begin the stop string")
def holds_as_much_as_the_stop_is_long(text, stop):
    n = len(stop) - 1
    return text[:-n], text[-n:]


@wrong("hold_stop", "Two newlines leak")
def looks_at_one_character(text, stop):
    if text.endswith(stop[:1]) and not text.endswith(stop[:2]):
        return text[:-1], text[-1:]
    return text, ""


@wrong("hold_stop", "changed places")
def gives_the_held_first(text, stop):
    for n in range(len(stop) - 1, 0, -1):
        if text.endswith(stop[:n]):
            return text[-n:], text[:-n]
    return text, ""


@right("hold_stop")
def from_the_left(text, stop):
    for at in range(len(text)):
        if len(text) - at < len(stop) and stop.startswith(text[at:]):
            return text[:at], text[at:]
    return text, ""
