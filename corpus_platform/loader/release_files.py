"""What a release says of its files, and whether they are so: manifest, sizes and hashes.

The manifest is written by `storage.manifest`, which a training run does not import; here only what
names a release and its files is read, after the manifest was checked against its own hashes.
"""

import contextlib
import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any  # values of a manifest, of any depth

from corpus_platform.errors import StorageError
from corpus_platform.formats.token_bin import Hashed, Header, files_of

__all__ = [
    "MANIFEST",
    "POINTER",
    "Listing",
    "bin_names",
    "faults",
    "header_faults",
    "no_release",
    "read_listing",
    "read_pointer",
]

MANIFEST, POINTER = "manifest.json", "current.json"
_EXPORT = "export.json"
_ASSET = "shuffled_bins"
_JOBS = 8  # files hashed at a time: one disk gives no more to more


@dataclasses.dataclass(frozen=True)
class Listing:
    """A release: its id, the hash of all that it is, and its files by name."""

    id: str
    content: str
    files: Mapping[str, Hashed]


def read_pointer(path: Path) -> tuple[str, str]:
    """Return id and content of the release that a current.json names."""
    try:
        said = json.loads(path.read_bytes())
        name, content = said["id"], said["content"]
        if not (isinstance(content, str) and re.fullmatch(r"[\w.-]+", name)) or ".." in name:
            raise ValueError(f"id {name!r}, content {content!r}")
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error}; is there a release yet?") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StorageError(f"{path}: names no release: {error!r}") from error
    return name, content


def read_listing(path: Path) -> Listing:
    """Read a manifest; refuse one that is not of a release or is not what its own hash says."""
    try:
        raw = json.loads(path.read_bytes())
        stated, found = raw.pop("sha256"), _hash(raw)
        if stated != found:
            raise StorageError(f"{path}: sha256 {found}, expected {stated}: it is damaged")
        if raw["asset"] != _ASSET:
            raise StorageError(f"{path}: is of {raw['asset']}, and no release ({_ASSET})")
        if raw["content"] != (found := _content(raw)):
            raise StorageError(f"{path}: content {found}, stated {raw['content']}: it was altered")
        files = {o["name"]: Hashed(o["bytes"], o["sha256"]) for o in raw["outputs"]}
        return Listing(raw["key"][:16], raw["content"], files)
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error}; no finished release") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StorageError(f"{path}: not a manifest: {error!r}") from error


def _content(raw: Mapping[str, Any]) -> str:
    """Return the hash of what a release is: what went in, its files and its ledger."""
    named = {n: raw[n] for n in ("asset", "partition", "version", "inputs", "outputs")}
    for part in ("settings", "ledger"):  # an underscore begins what is no part of it
        named[part] = {n: value for n, value in raw[part].items() if not n.startswith("_")}
    return _hash(named)


def _hash(values: Mapping[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def no_release(path: Path) -> str:
    """Say in words what a path is that has no manifest of a release, and what to open instead."""
    for folder in (path, path / "releases", *sorted(path.glob("[!.]*/releases"))):
        if found := _releases(folder):
            return f"{path}: is the folder above releases, and none itself; open {found}"
    if (path / _EXPORT).is_file():
        return f"{path}: is an export, and no release; corpus_platform.loader.hdf5_export opens those to HDF5"
    if path.is_file():
        beside = path.parent if (path.parent / MANIFEST).is_file() else None
        return f"{path}: is a file; open the folder of a release" + (
            f", {beside}" if beside else ""
        )
    if not path.exists() and (found := _releases(path.parent)):
        return f"{path}: is not there; open {found}"
    said = "holds no such file" if path.is_dir() else "there is no such folder"
    return f"{path / MANIFEST}: cannot be read: {said}; no finished release"


def _releases(folder: Path) -> str:
    """Say in words how to open the releases that lie in a folder; nothing where none does."""
    ids = list[str]()
    for path in sorted(folder.glob(f"[!.]*/{MANIFEST}")):
        with contextlib.suppress(StorageError):
            read_listing(path)
            ids.append(path.parent.name)
    if not ids:
        return ""
    few = ", ".join(ids[:3]) + (f" and {len(ids) - 3:,} more" if len(ids) > 3 else "")
    each = f"a release by its own folder in {folder}: {few}"
    with contextlib.suppress(StorageError):
        return f"{folder / POINTER}, which names {read_pointer(folder / POINTER)[0]}, or {each}"
    return f"{each} (there is no {POINTER}, so none is in force)"


def bin_names(listing: Listing, split: str, where: str) -> list[str]:
    """Return the token files of a split in the order of their numbers; none may be missing."""
    numbers = sorted(
        int(found[1])
        for name in listing.files
        if (found := re.fullmatch(rf"{split}-(\d{{5,}})\.json", name))
    )
    if numbers != list(range(len(numbers))) or not numbers:
        raise StorageError(
            f"{where}: {MANIFEST} lists {split} files of the numbers {numbers}, expected 0, 1, …"
            " without a gap"
        )
    return [f"{split}-{number:05d}" for number in numbers]


def header_faults(name: str, header: Header, listing: Listing, where: str) -> list[str]:
    """Return where a header and the manifest name different files, a sentence each."""
    said = files_of(name, header)
    listed = {n: h for n, h in listing.files.items() if n.rpartition(".")[0] == name}
    listed.pop(f"{name}.json")
    return [
        f"{where}/{file}: {name}.json says {said.get(file)}, {MANIFEST} {listed.get(file)}"
        for file in sorted({*said, *listed})
        if said.get(file) != listed.get(file)
    ]


def faults(folder: Path, files: Mapping[str, Hashed], *, hashed: bool) -> dict[str, str]:
    """Return what is wrong with files, by name: their sizes and, where `hashed`, their sha256."""
    with ThreadPoolExecutor(_JOBS) as pool:  # hashing lets go of the lock
        found = pool.map(lambda item: _fault(folder / item[0], item[1], hashed), files.items())
        return {n: fault for n, fault in zip(files, found, strict=True) if fault is not None}


def _fault(path: Path, expected: Hashed, hashed: bool) -> str | None:
    try:
        size = path.stat().st_size
        if size != expected.bytes:
            return f"{path}: {size} bytes, expected {expected.bytes}"
        if hashed:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            if digest != expected.sha256:
                return f"{path}: sha256 {digest}, expected {expected.sha256}"
    except OSError as error:
        return f"{path}: cannot be read: {error}"
    return None
