"""The index shards.json of a folder of exported shards <-> what a training run may believe of it.

What it does not list is not there: readers never list the folder. Here it is read, checked and put
into bytes; its caller publishes them, after the shards that it names. Version 1, UTF-8 JSON, keys
sorted, indented by 2, final newline:

dtype "uint16" or "uint32", eos_id (null: none), files ("hdf5": the format of the shards), format
"corpus-token-shards", shards [{bytes (of the file), docs, path (relative, with /), sha256 (of the
bytes of its tokens), shard (the source shard it was made of), tokens}], tokenizer_sha256, version 1,
vocab_size, window (tokens that training reads at a time and chunks are a multiple of; null: unknown).
"""

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

import msgspec
import numpy as np

from corpus_platform.errors import StorageError, UsageError
from corpus_platform.formats import hdf5
from corpus_platform.formats.token_arrays import TokenFile, file_size, no_wrong_size
from corpus_platform.formats.token_bin import token_dtype

__all__ = ["NAME", "ShardEntry", "ShardIndex", "parse_index", "read_index", "verify_shards"]

NAME = "shards.json"
Count = Annotated[int, msgspec.Meta(ge=0)]
Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class ShardEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One shard: `bytes` are those of the file, `sha256` is that of the bytes of its tokens."""

    path: str
    tokens: Count
    docs: Count
    sha256: Sha256
    bytes: Count
    shard: str


class ShardIndex(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What shards.json says; the order of its shards is that of their tokens."""

    format: Literal["corpus-token-shards"] = "corpus-token-shards"
    version: Literal[1] = 1
    files: Literal["hdf5"] = "hdf5"
    tokenizer_sha256: str
    vocab_size: Annotated[int, msgspec.Meta(ge=1)]
    eos_id: Count | None
    dtype: Literal["uint16", "uint32"]
    window: Annotated[int, msgspec.Meta(ge=1)] | None
    shards: tuple[ShardEntry, ...] = ()

    def with_shard(self, entry: ShardEntry) -> "ShardIndex":
        """Return an index with one more shard, the same one where it holds just that entry.

        Raises StorageError where it holds another entry of that path.
        """
        for known in self.shards:
            if known == entry:
                return self
        added = msgspec.structs.replace(self, shards=(*self.shards, entry))
        _check(added, NAME)
        return added

    def offsets(self) -> np.ndarray:
        """Return where each shard begins in all tokens, and where the last ends."""
        return np.cumsum([0, *(entry.tokens for entry in self.shards)], dtype=np.int64)

    def to_json(self) -> bytes:
        """Return the bytes of shards.json."""
        _check(self, NAME)
        return (json.dumps(msgspec.to_builtins(self), indent=2, sort_keys=True) + "\n").encode()


def parse_index(data: bytes, where: str) -> ShardIndex:
    """Return what an index says; raises StorageError, naming `where` it came from and the fault."""
    try:
        fields = json.loads(data, object_pairs_hook=_no_key_twice)
        index = msgspec.convert(fields, ShardIndex)
        missing = {"format", "version", "files", "shards"} - fields.keys()
        if missing:
            raise ValueError(f"{min(missing)} is missing")
    except (ValueError, RecursionError) as error:  # those of json and msgspec are ValueErrors
        raise StorageError(f"{where}: no index of token shards: {error}; make it again") from error
    _check(index, where)
    return index


def read_index(folder: Path) -> ShardIndex:
    """Read the index of a folder."""
    path = folder / NAME
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error}; is the export finished?") from error
    return parse_index(data, str(path))


def verify_shards(
    folder: Path, *, jobs: int | None = None, checked: Callable[[int], None] | None = None
) -> list[str]:
    """Return what is wrong with the shards of a folder, a sentence each, in their order.

    Each is opened and hashed, several side by side (by default as many as there are processors);
    `checked` hears of the bytes of each one that is done. Packed files are unpacked one at a time.
    Raises StorageError where the index itself cannot be used.
    """
    index = read_index(folder)
    if jobs is not None and jobs < 1:
        raise UsageError(f"jobs {jobs}: at least 1 is wanted")

    def one(entry: ShardEntry) -> str | None:
        try:
            _verify(folder / entry.path, entry, index)
        except StorageError as error:
            return str(error)
        finally:
            if checked is not None:
                checked(entry.bytes)
        return None

    with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:  # hashing lets go of the lock
        return [fault for fault in pool.map(one, index.shards) if fault is not None]


def _verify(path: Path, entry: ShardEntry, index: ShardIndex) -> None:
    no_wrong_size(path, file_size(path), entry.bytes, why=f"what {NAME} says")
    opened = hdf5.open_hdf5(path)
    for name, found, stated in _compared(opened, entry, index):
        if found != stated:
            raise StorageError(f"{path}: {name} is {found}, {NAME} says {stated}")
    digest = hdf5.validate(path)
    if digest != entry.sha256:
        raise StorageError(f"{path}: sha256 of its tokens is {digest}, {NAME} says {entry.sha256}")


def _compared(
    opened: TokenFile, entry: ShardEntry, index: ShardIndex
) -> list[tuple[str, object, object]]:
    documents = 0 if opened.ends is None else len(opened.ends)
    return [
        ("tokens", len(opened.tokens), entry.tokens),
        ("docs", documents, entry.docs),
        ("dtype", opened.tokens.dtype.name, index.dtype),
        ("vocab_size", opened.vocab_size, index.vocab_size),
        ("eos_id", opened.eos_id, index.eos_id),
        ("tokenizer_sha256", opened.tokenizer, index.tokenizer_sha256),
    ]


def _check(index: ShardIndex, where: str) -> None:
    """Check what types cannot say."""
    if index.dtype != token_dtype(index.vocab_size):
        raise StorageError(
            f"{where}: dtype is {index.dtype!r}, but vocab_size {index.vocab_size} makes it"
            f" {token_dtype(index.vocab_size)!r}"
        )
    if index.eos_id is not None and index.eos_id >= index.vocab_size:
        raise StorageError(
            f"{where}: eos_id {index.eos_id} is outside the vocabulary 0..{index.vocab_size - 1}"
        )
    seen: set[str] = set()
    for entry in index.shards:
        if not _is_inside(entry.path):
            raise StorageError(
                f"{where}: path {entry.path!r} does not lie in the folder; a relative one is wanted,"
                " without '..'"
            )
        if entry.path in seen:
            raise StorageError(f"{where}: path {entry.path!r} is listed twice")
        seen.add(entry.path)
    total = sum(entry.tokens for entry in index.shards)
    if total >= 1 << 63:
        raise StorageError(f"{where}: {total} tokens; offsets hold less than 2^63")


def _is_inside(path: str) -> bool:
    """Tell whether it is the one way to write a path below a folder, on any system."""
    parts = PurePosixPath(path).parts
    plain = path == "/".join(parts) and not path.startswith("/") and path.isprintable()
    return bool(parts) and plain and ".." not in parts and not set(path) & set("\\:")


def _no_key_twice(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key stands there twice")
    return fields
