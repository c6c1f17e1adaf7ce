"""Releases of token files: found, fetched where they lie elsewhere, checked, and opened.

    release = open_release("data/releases/current.json")
    for batch in release.windows(2048, 64, seed=1).shard(rank, world):
        step(batch.x, batch.y, batch.loss)

Needs numpy alone.
"""

import dataclasses
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from corpus_platform.errors import StorageError, UsageError
from corpus_platform.formats.token_bin import Header, TokenBin, open_token_bin
from corpus_platform.loader.cache import Fetch, RemoteRelease
from corpus_platform.loader.release import Release
from corpus_platform.loader.release_files import (
    MANIFEST,
    POINTER,
    Listing,
    bin_names,
    faults,
    header_faults,
    no_release,
    read_listing,
    read_pointer,
)
from corpus_platform.loader.stream import Stream

__all__ = ["Verify", "check_content", "check_tokenizer", "open_release"]

_TOKENIZER = "tokenizer.json"
# What all files of a stream have in common; what else a header says is of its file alone.
_SHARED = ("tokenizer_sha256", "vocab_size", "eos_id", "bos_id", "pad_id", "row_tokens")
Verify = Literal["header", "sha256"]


@dataclasses.dataclass(frozen=True)
class _BinPart:
    """A token file of a release."""

    folder: Path
    name: str
    header: Header

    @property
    def tokens(self) -> int:
        """The tokens in it."""
        return self.header.tokens

    def open(self) -> TokenBin:
        """Map it in this process; refuse it where it is no longer the one that was checked."""
        opened = open_token_bin(self.folder, self.name)
        if opened.header != self.header:
            raise StorageError(
                f"{self.folder / self.name}.json: was replaced since the release was opened; open it"
                " again"
            )
        return opened


def open_release(
    source: str | Path,
    *,
    split: Literal["train", "val"] = "train",
    expect_content: str | None = None,
    expect_tokenizer: str | Path | None = None,
    verify: Verify = "header",
    fetch: Fetch | None = None,
    cache: str | Path | None = None,
) -> Release:
    """Open a release: its folder, or the current.json that names the one in force.

    Manifest, headers and sizes are always checked, with `verify="sha256"` all bytes of the split's
    files too. `expect_content` is the whole `content` of the one release that may be read,
    `expect_tokenizer` a tokenizer.json or its sha256. What lies elsewhere comes by
    `fetch(name, target)` into the folder `cache`; names are those below the folder of `source`.
    Raises StorageError that names each file at fault, UsageError where it is not what is expected.
    """
    if split not in ("train", "val") or verify not in ("header", "sha256"):
        raise UsageError(
            f"split {split!r}, verify {verify!r}: 'train' or 'val', and 'header' or 'sha256'"
        )
    remote, folder, listing = _located(source, fetch, cache)
    there = remote.source if remote is not None else str(folder)
    check_content(f"{there}: release {listing.id}", listing.content, expect_content)
    names = bin_names(listing, split, str(folder))
    heads = {f"{name}.json": listing.files[f"{name}.json"] for name in names}
    belongs = (*(f"{name}." for name in names), _TOKENIZER)
    data = {n: h for n, h in listing.files.items() if n.startswith(belongs) and n not in heads}
    if remote is not None:
        remote.bring(heads, hashed=True)
        remote.bring(data, hashed=verify == "sha256")
    wrong = list(faults(folder, heads, hashed=True).values())
    if remote is None:
        wrong += faults(folder, data, hashed=verify == "sha256").values()
    _no_faults(wrong)
    headers = [Header.read(folder / f"{name}.json") for name in names]
    for name, header in zip(names, headers, strict=True):
        wrong += header_faults(name, header, listing, str(folder))
    _no_faults(wrong)
    _no_mix(folder, names, headers)
    check_tokenizer(str(folder), headers[0].tokenizer_sha256, expect_tokenizer)
    return _release(listing, split, folder, names, headers)


def _release(
    listing: Listing, split: str, folder: Path, names: Sequence[str], headers: Sequence[Header]
) -> Release:
    parts = [_BinPart(folder, n, h) for n, h in zip(names, headers, strict=True)]
    stream = Stream(parts, headers[0].dtype)
    for number in range(len(parts)):
        stream.part(number)  # mapped now, so that what is renamed later is not seen
    shared = {name: getattr(headers[0], name) for name in _SHARED}
    return Release(
        listing.id,
        listing.content,
        split,
        folder,
        stream,
        documents=sum(header.documents for header in headers),
        has_loss=any(header.loss is not None for header in headers),
        **shared,
    )


def _located(
    source: str | Path, fetch: Fetch | None, cache: str | Path | None
) -> tuple[RemoteRelease | None, Path, Listing]:
    """Return where a release lies on this machine, and its manifest."""
    if fetch is not None:
        if cache is None:
            raise UsageError(f"{source}: fetch needs a folder to put files into: cache=…")
        remote = RemoteRelease(str(source), Path(cache), fetch)
        return remote, remote.folder, remote.listing
    if "://" in str(source):
        raise UsageError(
            f"{source}: the loader reads folders; fetch=function(name, target) and cache=folder"
            " bring it here"
        )
    folder, content = Path(source), None
    if folder.name == POINTER:
        name, content = read_pointer(folder)
        folder = folder.parent / name
    elif not (folder / MANIFEST).is_file():
        raise StorageError(no_release(folder))
    listing = read_listing(folder / MANIFEST)
    if content not in (None, listing.content):
        raise StorageError(
            f"{folder / MANIFEST}: content {listing.content}, but {POINTER} names {content}"
        )
    return None, folder, listing


def _no_faults(wrong: Sequence[str]) -> None:
    if wrong:
        raise StorageError("\n".join([*wrong, "fetch or make these files again"]))


def _no_mix(folder: Path, names: Sequence[str], headers: Sequence[Header]) -> None:
    """Refuse files that do not go together."""
    for name, header in zip(names[1:], headers[1:], strict=True):
        for field in _SHARED:
            mine, first = getattr(header, field), getattr(headers[0], field)
            if mine != first:
                raise StorageError(
                    f"{folder / name}.json: {field} is {mine}, that of {names[0]} is {first}; files"
                    " of one stream have the same"
                )


def check_content(what: str, found: str, expected: str | None) -> None:
    """Raise UsageError where something has another content than is expected."""
    if expected is None:
        return
    if not re.fullmatch("[0-9a-f]{64}", expected):
        raise UsageError(
            f"expect_content {expected!r}: the whole `content` is wanted, 64 digits and small letters"
            f" to f, not an id or a part; {what} has {found}"
        )
    if found != expected:
        raise UsageError(
            f"{what} has content {found}, expected {expected}; open the one that you mean by its own"
            " folder, or expect this one"
        )


def check_tokenizer(where: str, found: str, expected: str | Path | None) -> None:
    """Raise UsageError where tokens are of another tokenizer than a tokenizer.json, or its sha256."""
    if expected is None:
        return
    if isinstance(expected, Path) or expected.endswith(".json"):
        try:
            expected = hashlib.sha256(Path(expected).read_bytes()).hexdigest()
        except OSError as error:
            raise UsageError(f"expect_tokenizer {expected}: cannot be read: {error}") from error
    if found != expected:
        raise UsageError(f"{where}: written with tokenizer {found}, expected {expected}")
