"""A folder that is built once, kept, and built again when it is no longer whole."""

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

MANIFEST = "manifest.json"
SECONDS_BEFORE_SAYING_SO = 2.0


def kept_folder(folder: Path, build: Callable[[Path], None], recipe: str) -> Path:
    """Return `folder` with the files that `build` writes, building them only if needed.

    `build` is given an empty folder to fill; `recipe` names what it makes, so that a
    copy made by another one counts as stale. Any number of processes may ask at once:
    one builds, the others wait. The copy appears whole or not at all.

    Raises OSError where the folder cannot be written, and whatever `build` raises.
    """
    if is_whole(folder, recipe):  # no lock: a whole copy is never touched again
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = _acquire(folder.with_name(f".{folder.name}.lock"))
    try:
        if not is_whole(folder, recipe):
            _rebuild(folder, build, recipe)
    finally:
        lock.release()
    return folder


def is_whole(folder: Path, recipe: str) -> bool:
    """Say whether every file is as it was built: size and times, else its sha256.

    The times cost nothing to look at and change with every write. Where they differ
    the content decides, and the new times are noted.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        noted = manifest["files"]
        if manifest["recipe"] != recipe:
            return False
        seen = {name: _looks(folder / name) for name in noted}
        changed = [name for name in noted if noted[name]["looks"] != seen[name]]
        if any(_sha256(folder / name) != noted[name]["sha256"] for name in changed):
            return False
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if changed:
        _note(folder, recipe, {name: noted[name]["sha256"] for name in noted})
    return True


def _acquire(path: Path) -> FileLock:
    lock = FileLock(path)
    try:
        return lock.acquire(timeout=SECONDS_BEFORE_SAYING_SO).lock
    except Timeout:
        print("Waiting for another process that is building the same …", file=sys.stderr)
        return lock.acquire(timeout=-1).lock


def _rebuild(folder: Path, build: Callable[[Path], None], recipe: str) -> None:
    if folder.exists():
        print(f"The copy in {folder} is not whole: building it again.", file=sys.stderr)
    for left in folder.parent.glob(f".{folder.name}.tmp-*"):
        shutil.rmtree(left, ignore_errors=True)  # its process is dead: the lock is ours
    with tempfile.TemporaryDirectory(
        prefix=f".{folder.name}.tmp-", dir=folder.parent, ignore_cleanup_errors=True
    ) as workshop:
        new, old = Path(workshop, "new"), Path(workshop, "old")
        new.mkdir()
        build(new)
        files = sorted(new.iterdir())
        for path in files:
            _sync_to_disk(path)
        _note(new, recipe, {path.name: _sha256(path) for path in files})
        if folder.exists():
            folder.rename(old)
        new.rename(folder)


def _note(folder: Path, recipe: str, sha256: dict[str, str]) -> None:
    """Write the manifest in one step; a folder that is read-only just stays as it is."""
    files = {
        name: {"looks": _looks(folder / name), "sha256": digest} for name, digest in sha256.items()
    }
    draft = folder / f"{MANIFEST}.{os.getpid()}"
    try:
        draft.write_text(json.dumps({"recipe": recipe, "files": files}, indent=1))
        draft.replace(folder / MANIFEST)
    except OSError:
        if not (folder / MANIFEST).exists():
            raise


def _looks(path: Path) -> list[Any]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_to_disk(path: Path) -> None:
    with path.open("r+b") as file:
        os.fsync(file.fileno())  # what is noted as whole must outlive a power cut
