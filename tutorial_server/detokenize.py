"""Token ids → text, released as soon as it is certain."""

from collections.abc import Callable, Sequence
from typing import Any

REPLACEMENT = "\ufffd"  # what a decoder writes for bytes that are not, or not yet, a character
CONTEXT = 8  # ids kept in front of the new ones: some decoders look at what stands before
WINDOW = 32  # ids decoded at a time, so that a token costs the same however long the answer

NewText = Callable[..., str]


def decode_text(tokenizer: Any, token_ids: Sequence[int]) -> str:
    """Decode ids to exactly the text they spell: no control tokens, no tidying of spaces."""
    return tokenizer.decode(token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def new_text(tokenizer: Any, token_ids: Sequence[int], sent: int, final: bool = False) -> str:
    """Give the text that may follow the `sent` characters of `token_ids` already out.

    A token can end in mid-character. Until the rest arrives the decoder shows U+FFFD
    there, up to three for a character's first three bytes; these are held back, unless
    `final` says that nothing more will come.
    """
    text = decode_text(tokenizer, token_ids)
    unsure = 0 if final else len(text) - len(text.rstrip(REPLACEMENT))
    return text[sent : len(text) - min(unsure, 3)]


class StreamDecoder:
    """Turns the ids of one answer into text pieces, as they come.

    The pieces joined are the text of all ids, character for character, cut before the
    first stop string to be complete. Text is held back only while it may be the
    beginning of a character or of a stop string. `stopped` tells that one was found.
    """

    def __init__(self, tokenizer: Any, stop: Sequence[str] = (), new_text: NewText = new_text):
        self.stopped = False
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._new_text = new_text
        self._silent = {i for i, t in tokenizer.added_tokens_decoder.items() if t.special}
        self._ids: list[int] = []  # the window: context, then ids still to come out
        self._sent = 0  # characters of the window's text that are out
        self._held = ""  # text that may be the beginning of a stop string

    def push(self, token_id: int) -> str:
        """Take the next id; give the text that became certain, often more or less than a word."""
        if self.stopped or token_id in self._silent:
            return ""
        self._ids.append(token_id)
        piece = self._new_text(self._tokenizer, self._ids, self._sent)
        self._sent += len(piece)
        if len(self._ids) >= WINDOW:
            self._slide()
        return self._release(self._held + piece)

    def flush(self) -> str:
        """Give what was still held back, since no more ids will come."""
        if self.stopped:
            return ""
        piece = self._new_text(self._tokenizer, self._ids, self._sent, final=True)
        self._sent += len(piece)
        text = self._release(self._held + piece) + self._held
        self._held = ""
        return text

    def _slide(self) -> None:
        """Drop the oldest ids, and count what is out within the ids that stay."""
        unsent = len(decode_text(self._tokenizer, self._ids)) - self._sent
        self._ids = self._ids[-CONTEXT:]
        self._sent = len(decode_text(self._tokenizer, self._ids)) - unsent

    def _release(self, text: str) -> str:
        """Split `text` into what may go out and what must be held, or cut it at a stop string."""
        found = [(at + len(s), at) for s in self._stop if (at := text.find(s)) >= 0]
        if found:
            self.stopped = True
            self._held = ""
            return text[: min(found)[1]]
        held = max((_overlap(text, s) for s in self._stop), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` with which `stop` begins."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
