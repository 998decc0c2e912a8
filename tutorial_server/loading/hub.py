"""The model hub: a model's files downloaded once, or a sentence about why not."""

from collections.abc import Callable
from pathlib import Path

from ..errors import ModelError
from .quiet import quiet

FILES = ["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model"]
NOT_FILES = ["*/*", "consolidated*"]  # other forms of the same weights


class HubUnreachable(ModelError):
    """The hub did not answer, and the model is not in its local cache."""


def hub_folder(model: str, check: Callable[[Path], None]) -> Path:
    """Return the local copy of a hub model, which is downloaded unless `check` accepts it.

    A whole copy is used as it is, and the network left alone. Raises ModelError where
    the hub has no such model for us, HubUnreachable where it cannot be asked.
    """
    from huggingface_hub import errors, snapshot_download

    def snapshot(local_files_only: bool) -> Path:
        folder = snapshot_download(
            model,
            allow_patterns=FILES,
            ignore_patterns=NOT_FILES,
            local_files_only=local_files_only,
        )
        check(Path(folder))
        return Path(folder)

    try:
        return snapshot(local_files_only=True)
    except (errors.LocalEntryNotFoundError, ModelError):
        pass  # not there, or only in part
    except errors.HFValidationError as error:
        raise ModelError(
            f"{shown(model)} is neither a local folder nor a hub id such as Qwen/Qwen3-4B: "
            "check the name, or take smollm2-135m."
        ) from error
    try:
        with quiet():
            return snapshot(local_files_only=False)
    except Exception as error:
        raise _hub_error(model, error) from error


def _hub_error(model: str, error: Exception) -> ModelError:
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return ModelError(
            f"{model} is gated: accept its terms on the hub and run 'hf auth login', "
            "or take smollm2-135m."
        )
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, errors.RepositoryNotFoundError) or status == 401:
        return ModelError(
            f"There is no folder and no public hub model called {model}: check the name, "
            "or take smollm2-135m."
        )
    if isinstance(error, ModelError):
        return error
    if "No space left" in str(error):
        return ModelError(
            f"The disk is too full for {model}: free some space, or set HF_HOME to a folder "
            "on another disk."
        )
    return HubUnreachable(
        f"There is no folder {model}, and the model hub cannot be reached: check the name and "
        "the network, or take smollm2-135m."
    )


def shown(name: str) -> str:
    """A name as it may stand in a sentence, however long it is."""
    return repr(name if len(name) <= 80 else name[:80] + "…")
