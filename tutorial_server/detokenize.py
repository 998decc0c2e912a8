"""Token ids → text, released as soon as it is certain."""

from collections.abc import Callable, Sequence
from typing import Any

REPLACEMENT = "\ufffd"  # what a decoder writes for bytes that are not, or not yet, a character
CONTEXT = 8  # ids kept in front of the new ones: some decoders look at what stands before
WINDOW = 32  # ids decoded at a time, so that a token costs the same however long the answer
LONGEST = 3  # U+FFFD that the beginning of one character can show: UTF-8 has up to four bytes

NewText = Callable[..., str]


def decode_text(tokenizer: Any, token_ids: Sequence[int]) -> str:
    """Decode ids to exactly the text they spell: no control tokens, no tidying of spaces."""
    return tokenizer.decode(token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def new_text(tokenizer: Any, token_ids: Sequence[int], sent: int, final: bool = False) -> str:
    """Give the text that may follow the `sent` characters of `token_ids` already out.

    A token can end in mid-character. Until the rest arrives the decoder shows U+FFFD
    there; this is held back, unless `final` says that nothing more will come.
    """
    text = decode_text(tokenizer, token_ids)
    unsure = 0 if final else _count_unsure(tokenizer, token_ids, text)
    return text[sent : len(text) - unsure]


def _count_unsure(tokenizer: Any, token_ids: Sequence[int], text: str) -> int:
    """Count the U+FFFD at the end of the text that more ids may turn into something else.

    That is the beginning of one character. But SentencePiece's byte tokens decode in runs:
    an unfinished last character shows its whole run as U+FFFD, and what was the text up to
    three ids ago is no longer the beginning of the text.
    """
    marks = len(text) - len(text.rstrip(REPLACEMENT))
    if marks <= LONGEST:
        return marks
    finished = (decode_text(tokenizer, token_ids[:-n]) for n in range(1, LONGEST + 1))
    run_is_unfinished = any(
        not shorter.endswith(REPLACEMENT) and not text.startswith(shorter) for shorter in finished
    )
    return marks if run_is_unfinished else LONGEST


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
        if self.stopped or self._is_silent(token_id):
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

    def _is_silent(self, token_id: int) -> bool:
        """Say whether an id spells nothing: a control token, or none that the tokenizer knows."""
        unknown = self._tokenizer.convert_ids_to_tokens(token_id) is None
        return unknown or token_id in self._silent

    def _slide(self) -> None:
        """Drop the oldest ids, and count what is out within the ids that stay.

        The cut waits until every character is finished, unless that takes too long, and
        falls where what stays spells the same by itself.
        """
        text = decode_text(self._tokenizer, self._ids)
        unsent = len(text) - self._sent
        if unsent and len(self._ids) <= WINDOW + LONGEST:
            return
        latest = len(self._ids) - CONTEXT
        starts = (
            start
            for start in range(latest, 0, -1)
            if text.endswith(decode_text(self._tokenizer, self._ids[start:]))
        )
        self._ids = self._ids[next(starts, latest) :]
        self._sent = max(0, len(decode_text(self._tokenizer, self._ids)) - unsent)

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
