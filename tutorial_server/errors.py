"""Errors that are meant to be read by a person: one sentence, saying what to do."""


class TutorialServerError(Exception):
    """Base of every error whose message alone tells the reader what to do next.

    The command line prints it and exits with code 2; nobody needs its traceback.
    """


class ModelError(TutorialServerError):
    """The model could not be found, fetched, read or fitted into memory."""


class TooLong(TutorialServerError):
    """Prompt and answer together would not fit the model's context."""


class BadConversation(TutorialServerError):
    """The model's chat template refuses a conversation."""


class Busy(TutorialServerError):
    """The waiting line is full."""


class NotReady(TutorialServerError):
    """The model is still loading, or the engine has stopped."""


class GenerationFailed(TutorialServerError):
    """An answer broke off after it had been accepted."""


class CutShort(GenerationFailed):
    """The server stopped before an answer was complete."""


class TookTooLong(GenerationFailed):
    """A request was not answered within the server's time limit."""
