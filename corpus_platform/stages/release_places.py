"""Where a document lies in a release, and which document lies at an offset of its token files.

Documents are found by a look at the table of documents, which takes 25 ms a million, offsets by
bisection of that table, which stands in the order of the files.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from corpus_platform.errors import UsageError
from corpus_platform.formats.token_bin import TokenBin, open_token_bin
from corpus_platform.stages.bins_writing import bin_file
from corpus_platform.stages.release_audit import DOCUMENTS
from corpus_platform.stages.release_names import NamedRelease
from corpus_platform.stages.tokenizer import TOKENIZER_FILE
from corpus_platform.tokenization.encoder import read_tokenizer

__all__ = ["Line", "TokenPlace", "find_group", "is_token_file", "lines_of", "masked", "token_at"]

AROUND = 32  # tokens that are shown on each side
PART, PARTS = "\ufffd", 3  # how a part of a character decodes; a character has four bytes at most


class Line(NamedTuple):
    """A line of the table of documents: a document, or in rows a piece of one, which begins at
    `offset` tokens in it."""

    file: str
    start: int
    tokens: int
    shard: str
    row: int
    id: str
    offset: int


@dataclass(frozen=True)
class TokenPlace:
    """A token of a release: whose it is (`line` is None for padding), and the text around it.

    `offset` counts from the beginning of the file, `inside` from that of the document.
    """

    release: str
    file: str
    offset: int
    token: int
    line: Line | None
    inside: int | None
    before: str
    text: str
    after: str


def is_token_file(name: str, release: NamedRelease) -> bool:
    """Tell whether a release has a token file of that name, with or without its `.bin`."""
    return any(bin_file(name.removesuffix(".bin")) == o.name for o in release.manifest.outputs)


def lines_of(
    release: NamedRelease, places: Collection[tuple[str, int]]
) -> dict[tuple[str, int], list[Line]]:
    """Return the lines of documents by shard and row, in the order of their tokens.

    A document that is not in the release has none.
    """
    found = dict[tuple[str, int], list[Line]]()
    shards = {shard for shard, _ in places}.intersection(release.shards)
    if not shards:
        return found
    named = pl.col("row").is_in([row for _, row in places]) & pl.col("shard").is_in(list(shards))
    lines = pl.scan_parquet(release.path(DOCUMENTS)).filter(named).select(Line._fields)
    for line in map(Line._make, lines.sort("offset").collect(engine="streaming").iter_rows()):
        if (line.shard, line.row) in places:
            found.setdefault((line.shard, line.row), []).append(line)
    return found


def masked(bin_: TokenBin, start: int, tokens: int) -> int:
    """Return how many tokens of a piece of a file count for nothing."""
    if bin_.loss is None:
        return 0
    return tokens - int(np.count_nonzero(bin_.loss[start : start + tokens]))


def token_at(release: NamedRelease, name: str, offset: int) -> TokenPlace:
    """Return the token at an offset of a release's file.

    Raises UsageError where the file ends before it.
    """
    base = name.removesuffix(".bin")
    bin_ = open_token_bin(release.artifact.folder, base)
    if not 0 <= offset < len(bin_.tokens):
        raise UsageError(
            f"{bin_file(base)} of release {release.id} has {len(bin_.tokens):,} tokens:"
            f" offsets 0 to {len(bin_.tokens) - 1:,}"
        )
    entry = int(np.searchsorted(bin_.ends, np.uint64(offset), side="right"))
    first, after = (int(bin_.ends[entry - 1]) if entry else 0), int(bin_.ends[entry])
    is_padding = bin_.pieces is not None and int(bin_.pieces["document"][entry]) < 0
    line = None if is_padding else _line_at(release.path(DOCUMENTS), bin_file(base), offset)
    before, text, after_text = _texts(release, bin_.tokens, first, offset, after)
    return TokenPlace(
        release=release.id,
        file=bin_file(base),
        offset=offset,
        token=int(bin_.tokens[offset]),
        line=line,
        inside=None if line is None else line.offset + offset - line.start,
        before=before,
        text=text,
        after=after_text,
    )


def _texts(
    release: NamedRelease, tokens: np.ndarray, first: int, at: int, end: int
) -> tuple[str, str, str]:
    """Return the text before, of and after a token, no more than its document or piece has.

    Where a token is a part of a character, its text is that of all tokens of the character.
    """
    tokenizer = read_tokenizer(release.path(TOKENIZER_FILE).read_bytes())

    def decode(start: int, stop: int) -> str:
        return tokenizer.decode(tokens[start:stop].tolist(), skip_special_tokens=False)

    begin, stop = max(first, at - AROUND), min(end, at + 1 + AROUND)
    left, right = at, at + 1
    while left > max(begin, at - PARTS) and decode(begin, left).endswith(PART):
        left -= 1
    while right < min(stop, at + 1 + PARTS) and decode(right, stop).startswith(PART):
        right += 1
    return decode(begin, left), decode(left, right), decode(right, stop)


def _line_at(path: Path, file: str, offset: int) -> Line | None:
    with pq.ParquetFile(path) as table:  # train files come before those of validation
        first, rows = find_group(table, ["file", "start"], (file, offset))
    holds = (pl.col("start") <= offset) & (offset < pl.col("start") + pl.col("tokens"))
    lines = pl.scan_parquet(path).slice(first, rows)
    found = lines.filter((pl.col("file") == file) & holds).select(Line._fields).collect()
    return Line(*found.row(0)) if len(found) else None


def find_group(
    file: pq.ParquetFile,
    columns: list[str],
    key: tuple,
    order: Callable[[tuple], tuple] = lambda key: key,
) -> tuple[int, int]:
    """Return first row and length of the last row group that begins at or before a key.

    The table is in ascending order of the columns, by `order`.
    """
    low, high = 0, file.num_row_groups
    while high - low > 1:
        middle = (low + high) // 2
        begin = file.read_row_group(middle, columns=columns).slice(0, 1).to_pylist()[0]
        if order(tuple(begin[c] for c in columns)) <= order(key):
            low = middle
        else:
            high = middle
    sizes = [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)]
    return sum(sizes[:low]), sizes[low] if sizes else 0
