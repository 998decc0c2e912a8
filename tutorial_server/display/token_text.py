"""Token ids → text that can be looked at: white space, single bytes, invisible signs."""

import functools
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

from transformers import PreTrainedTokenizerBase

NO_TOKEN = "(no token)"
MARKS = {" ": "␣", "\n": "⏎", "\t": "⇥"}
INVISIBLE = frozenset({"Cc", "Cf", "Cn", "Co", "Zl", "Zp", "Zs"})
STRAY_BYTES = re.compile("[\udc80-\udcff]+")
BYTE_TOKEN = re.compile("<0x[0-9A-F]{2}>")


def token_labels(tokenizer: PreTrainedTokenizerBase, ids: Iterable[int]) -> list[str]:
    """Name the rows, columns and bars of a picture after tokens: one visible text an id.

    A space is ␣, a line break ⏎, a tab ⇥. Bytes that are only part of a character
    appear in hex, as in <F0 9F>, other signs that leave no ink as in <U+200D>.
    """
    return [token_text(tokenizer, int(token_id)) for token_id in ids]


def token_text(tokenizer: PreTrainedTokenizerBase, token_id: int) -> str:
    """The visible text of one token, or "(no token)" where the tokenizer knows none."""
    raw = token_bytes(tokenizer, token_id)
    return NO_TOKEN if raw is None else visible_bytes(raw)


def is_control(tokenizer: PreTrainedTokenizerBase, token_id: int) -> bool:
    """Whether the id was added beside the vocabulary, so that no ordinary text has it."""
    return token_id in tokenizer.added_tokens_decoder


def token_bytes(tokenizer: PreTrainedTokenizerBase, token_id: int) -> bytes | None:
    """The bytes that a token stands for: they need not be whole characters.

    None for an id that the tokenizer does not know.
    """
    added = tokenizer.added_tokens_decoder.get(token_id)
    if added is not None:
        return added.content.encode()
    piece: Any = tokenizer.convert_ids_to_tokens(token_id) if token_id >= 0 else None
    if piece is None:
        return None
    if writes_bytes(tokenizer) and byte_alphabet().keys() >= set(piece):
        return bytes(byte_alphabet()[sign] for sign in piece)
    if BYTE_TOKEN.fullmatch(piece):
        return bytes([int(piece[3:5], 16)])
    return piece.replace("▁", " ").encode()


def writes_bytes(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the pieces of this vocabulary are written in byte-level BPE's alphabet."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return backend is not None and "ByteLevel" in repr(backend.decoder)


@functools.cache
def byte_alphabet() -> dict[str, int]:
    """The sign that byte-level BPE writes for each of the 256 bytes.

    Bytes that print in Latin-1 stand for themselves, the others follow from U+0100 on
    (the alphabet of GPT-2's tokenizer).
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    signs = {chr(byte): byte for byte in printable}
    return signs | {chr(0x100 + place): byte for place, byte in enumerate(others)}


def visible(text: str) -> str:
    """Give every character of a text a sign that can be seen."""
    return visible_bytes(text.encode("utf-8", "surrogatepass"))


def visible_bytes(raw: bytes) -> str:
    """Decode what is UTF-8, and show in hex each run of bytes that is not."""
    text = raw.decode("utf-8", "surrogateescape")  # a stray byte b becomes U+DC00 + b
    return STRAY_BYTES.sub(hex_run, "".join(visible_sign(sign) for sign in text))


def visible_sign(sign: str) -> str:
    if sign in MARKS:
        return MARKS[sign]
    return f"<U+{ord(sign):04X}>" if unicodedata.category(sign) in INVISIBLE else sign


def hex_run(run: re.Match[str]) -> str:
    return "<" + " ".join(f"{ord(sign) - 0xDC00:02X}" for sign in run[0]) + ">"


def text_width(text: str) -> int:
    """Columns that a text takes in a fixed-width font: Chinese takes two a character."""
    return sum(sign_width(sign) for sign in text)


def sign_width(sign: str) -> int:
    if unicodedata.category(sign) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in "WF" else 1


def pad(text: str, width: int, right: bool = False) -> str:
    """Fill a text up to a width in columns, to the right of it or to the left."""
    space = " " * (width - text_width(text))
    return space + text if right else text + space
