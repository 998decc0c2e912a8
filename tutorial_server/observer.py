"""What the engine tells whoever counts and measures."""

from .sequence import Sequence


class Observer:
    """Hears what happens to requests, and does nothing with it; `metrics.py` does.

    A sequence holds its own clocks, so that nothing need be measured twice. All but
    `refused` is called on the engine's thread, between two passes: it must be quick.
    """

    def refused(self, error: Exception) -> None:
        """A request was not taken in: too long, too many, not ready, or a step failed."""

    def started(self, sequence: Sequence) -> None:
        """A runner took a sequence up, out of the line."""

    def stepped(self, sequence: Sequence) -> None:
        """A sequence has chosen one more token, which may be the end of its turn."""

    def ended(self, sequence: Sequence, error: Exception | None = None) -> None:
        """A sequence is finished, or `error` says why it broke off; each ends once."""
