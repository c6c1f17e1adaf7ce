"""Files on a local disk: hashed in blocks, and published whole or not at all.

A published file was written under another name in the same folder tree, flushed to the disk and
renamed; its folder entry is flushed too, so that it survives a power cut.
"""

import contextlib
import hashlib
import json
import os
import stat
import time
import uuid
from collections.abc import Callable
from glob import escape
from pathlib import Path
from urllib.parse import quote

__all__ = [
    "boot_id",
    "canonical_json",
    "copy_hashed",
    "file_sha256",
    "flush_file",
    "flush_folder",
    "is_special",
    "publish_bytes",
    "read_if_there",
    "safe_name",
    "text_sha256",
]

BLOCK = 1 << 20
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
DEAD_AFTER = 3600.0  # seconds in which no writer of a small file is still at it


def canonical_json(value: object) -> str:
    """Return the one JSON text of a value: sorted keys, no blanks, UTF-8, no NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def text_sha256(text: str) -> str:
    """Return the sha256 of a text's UTF-8 bytes as 64 hex digits."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def file_sha256(path: Path, *, read: Callable[[int], None] | None = None) -> str:
    """Return the sha256 of a file; `read` hears of every block's bytes."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while block := file.read(BLOCK):
            digest.update(block)
            if read is not None:
                read(len(block))
    return digest.hexdigest()


def copy_hashed(
    source: Path, target: Path, *, read: Callable[[int], None] | None = None
) -> tuple[int, str]:
    """Copy a file to a new one, flushed to the disk; return the bytes and sha256 that were read."""
    digest, total = hashlib.sha256(), 0
    with source.open("rb", buffering=0) as src, target.open("xb") as dst:
        while block := src.read(BLOCK):
            digest.update(block)
            dst.write(block)
            total += len(block)
            if read is not None:
                read(len(block))
        dst.flush()
        os.fsync(dst.fileno())
    return total, digest.hexdigest()


def flush_file(path: Path) -> None:
    """Force a file's bytes to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def boot_id() -> str:
    """Return a name of this start of the machine: a file written since needs no flush to be whole.

    Where the system has none (it is Linux's) each call returns another.
    """
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return uuid.uuid4().hex


def flush_folder(path: Path) -> None:
    """Force a folder's entries (creations, renames) to the disk."""
    flush_file(path)


def is_special(path: Path) -> bool:
    """Tell whether a path is a pipe or a device: opening or reading one may never end."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def publish_bytes(path: Path, data: bytes) -> None:
    """Write a small file so that readers see the old one or the new one, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_parts_of_the_dead(path)
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")  # pids meet again
    try:
        with beside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    flush_folder(path.parent)


def _remove_parts_of_the_dead(path: Path) -> None:
    """Remove what killed writers of a file left beside it: what has not changed for an hour."""
    for left in path.parent.glob(f".{escape(path.name)}.*.part"):
        with contextlib.suppress(FileNotFoundError):  # its writer has renamed it
            if time.time() - left.stat().st_mtime > DEAD_AFTER:
                left.unlink()


def read_if_there(path: Path) -> bytes | None:
    """Return the bytes of a small file, None where there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def safe_name(name: str) -> str:
    """Return a reversible file name for any text: percent-encoded, never `.` or `..`.

    A name too long for a file system ends in the hash of the whole.
    """
    quoted = quote(name, safe="=@+,")
    if not quoted.strip("."):
        quoted = quoted.replace(".", "%2E") or "%"
    if len(quoted) > 200:
        quoted = f"{quoted[:130]}~{text_sha256(name)}"
    return quoted
