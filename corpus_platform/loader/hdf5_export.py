"""An export of HDF5 files as a training run reads it: the same batches as of a release.

Needs h5py and msgspec besides numpy, for the files and for their index shards.json, which alone
says what there is. The order of the tokens is that of the shards in it.
"""

import dataclasses
import hashlib
from pathlib import Path

import numpy as np

from corpus_platform.errors import StorageError, UsageError
from corpus_platform.formats.hdf5 import open_hdf5
from corpus_platform.formats.shards_json import (
    NAME,
    ShardEntry,
    ShardIndex,
    read_index,
    verify_shards,
)
from corpus_platform.formats.token_arrays import TokenFile, file_size, no_wrong_size
from corpus_platform.loader.opening import Verify, check_content, check_tokenizer
from corpus_platform.loader.release import Release
from corpus_platform.loader.stream import Stream

__all__ = ["open_hdf5_export"]


@dataclasses.dataclass(frozen=True)
class _ShardPart:
    """A file of an export."""

    path: Path
    entry: ShardEntry
    tokenizer_sha256: str
    dtype: str

    @property
    def name(self) -> str:
        """Its path in the folder."""
        return self.entry.path

    @property
    def tokens(self) -> int:
        """The tokens in it."""
        return self.entry.tokens

    def open(self) -> TokenFile:
        """Open it in this process; refuse it where it is not what the index says."""
        no_wrong_size(self.path, file_size(self.path), self.entry.bytes, why=f"what {NAME} says")
        opened = open_hdf5(self.path)
        found = (len(opened.tokens), opened.tokens.dtype.name, opened.tokenizer)
        stated = (self.entry.tokens, self.dtype, self.tokenizer_sha256)
        for name, mine, said in zip(("tokens", "dtype", "tokenizer"), found, stated, strict=True):
            if mine != said:
                raise StorageError(f"{self.path}: {name} is {mine}, {NAME} says {said}")
        return opened


def open_hdf5_export(
    folder: str | Path,
    *,
    split: str = "train",
    expect_content: str | None = None,
    expect_tokenizer: str | Path | None = None,
    verify: Verify = "header",
) -> Release:
    """Open the folder of a shards.json, or that of an export with a folder for each split.

    Each file is opened once, and checked against the index; with `verify="sha256"` all bytes are.
    A state of its batches belongs to this index: a shard more, and it is refused. So does
    `expect_content`, the sha256 of shards.json. Rows are read as windows: with `seq_len` as long as
    a row a window begins where a row does.
    """
    if verify not in ("header", "sha256"):
        raise UsageError(f"verify {verify!r}: 'header' or 'sha256'")
    place = Path(folder)
    if not (place / NAME).is_file() and (place / split / NAME).is_file():
        place = place / split
    if not (place / NAME).is_file() and (found := _exports(place)):
        raise StorageError(f"{place}: {found}")
    index = read_index(place)
    content = hashlib.sha256(index.to_json()).hexdigest()
    check_content(str(place / NAME), content, expect_content)
    check_tokenizer(str(place), index.tokenizer_sha256, expect_tokenizer)
    if verify == "sha256" and (wrong := verify_shards(place)):
        raise StorageError("\n".join([*wrong, "copy or make these files again"]))
    return _release(place, index, content)


def _exports(place: Path) -> str:
    """Say in words what a folder without an index is; nothing where that cannot be told."""
    if (place / "export.json").is_file():
        return "is an export to another format, or has no such split; open one to HDF5"
    if (place / "manifest.json").is_file() or (place / "current.json").is_file():
        return "holds a release and no export; corpus_platform.loader.opening opens those"
    within = {path.parent for path in place.glob(f"*/{NAME}")}
    within |= {path.parent.parent for path in place.glob(f"*/*/{NAME}")}
    if not within:
        return ""
    named = ", ".join(str(path) for path in sorted(within)[:4])
    return f"is the folder above exports to HDF5, and none itself; open one of {named}"


def _release(place: Path, index: ShardIndex, content: str) -> Release:
    of = (index.tokenizer_sha256, index.dtype)
    parts = [_ShardPart(place / entry.path, entry, *of) for entry in index.shards]
    stream = Stream(parts, np.dtype(index.dtype).newbyteorder("<"))
    has_loss = False
    for number in range(len(parts)):
        has_loss = stream.part(number).loss is not None or has_loss
    return Release(
        place.resolve().parent.name,
        content,
        place.name,
        place,
        stream,
        documents=sum(entry.docs for entry in index.shards),
        vocab_size=index.vocab_size,
        tokenizer_sha256=index.tokenizer_sha256,
        eos_id=index.eos_id,
        has_loss=has_loss,
    )
