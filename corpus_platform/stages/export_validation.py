"""An export on this machine hashed again: files against export.json, other shards against shards.json.

It needs no project and no release: a copy on the machine that trains is validated there.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from corpus_platform.errors import UsageError
from corpus_platform.formats.shards_json import NAME, read_index, verify_shards
from corpus_platform.stages.export_json import read_export
from corpus_platform.stages.export_target import EXPORT_NAME, ExportedFile
from corpus_platform.storage.files import file_sha256

__all__ = ["validate_export"]

Validated = Callable[[int, int], None]  # bytes that were hashed, bytes in all


def validate_export(
    folder: Path, *, jobs: int | None = None, progress: Validated = lambda done, total: None
) -> tuple[int, list[str]]:
    """Hash all files of an export again, several at once; return their count and what is wrong.

    Raises UsageError where the folder holds no export, StorageError where what says so is damaged.
    """
    said = folder / EXPORT_NAME
    indexes = sorted([*folder.glob(NAME), *folder.glob(f"*/{NAME}")])
    if not said.is_file() and not indexes:
        raise UsageError(
            f"{folder}: holds no {EXPORT_NAME} and no {NAME}: no export, or one that did not end"
        )
    said_of = read_export(said.read_bytes(), str(said)).files if said.is_file() else {}
    others = [index.parent for index in indexes if not _repeats(index.parent, folder, said_of)]
    listed = {w / entry.path: entry.bytes for w in others for entry in read_index(w).shards}
    files = [file for file in said_of.values() if folder / file.path not in listed]
    total = sum(file.bytes for file in files) + sum(listed.values())
    done = 0

    def checked(count: int) -> None:
        nonlocal done
        done += count
        progress(done, total)

    faults = list(_hashed(folder, files, jobs, checked))
    for where in others:
        faults += verify_shards(where, jobs=jobs, checked=checked)
    return len(files) + len(listed), faults


def _repeats(where: Path, folder: Path, said: Mapping[str, ExportedFile]) -> bool:
    """Tell whether an index names what export.json does: then the hashes of whole files say all."""
    found = [
        (said.get((where / entry.path).relative_to(folder).as_posix()), entry)
        for entry in read_index(where).shards
    ]
    return all(
        file is not None
        and (file.bytes, file.tokens, file.content_sha256) == (e.bytes, e.tokens, e.sha256)
        for file, e in found
    )


def _hashed(
    folder: Path, files: list[ExportedFile], jobs: int | None, checked: Callable[[int], None]
) -> Iterator[str]:
    def one(file: ExportedFile) -> str | None:
        path = folder / file.path
        try:
            size = path.stat().st_size
            if size != file.bytes:
                return f"{path}: {size} bytes, {EXPORT_NAME} says {file.bytes}"
            sha256 = file_sha256(path)
        except OSError as error:
            return f"{path}: cannot be read: {error}"
        finally:
            checked(file.bytes)
        if sha256 != file.sha256:
            return f"{path}: sha256 is {sha256}, {EXPORT_NAME} says {file.sha256}"
        return None

    with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        yield from (fault for fault in pool.map(one, files) if fault is not None)
