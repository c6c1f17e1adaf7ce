"""The kept documents of a shard -> token bins: one stream of documents a split, or rows cut from it.

Documents go in source order and in batches; rows are planned over the lengths of a whole split, so
their stream is written first, beside, and read again. Encoding is handed in.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpus_platform.document import PACKED_DOCUMENTS
from corpus_platform.formats.token_bin import TokenBin, open_token_bin, pieces_of
from corpus_platform.formats.token_bin_writer import Policy, RowBinWriter, TokenBinWriter
from corpus_platform.packing.rows import RowPlan, permuted, plan_rows
from corpus_platform.packing.shuffle import document_keys
from corpus_platform.packing.truncation import truncate

__all__ = ["BIN_NAMES", "Batch", "Encode", "Packing", "bin_file", "write_bins"]

BIN_NAMES = {"train": "train", "validation": "val"}  # split -> base name of its files
STREAM_FOLDER = "stream"
BLOCK_TOKENS = 1 << 20  # of rows that are put together at a time
# Rows come out of the planner longest piece first; their order is drawn again in a release.
ROW_SEED = 0


class EncodedDocuments(Protocol):
    """Ids of documents back to back without control tokens, their ends, and which count."""

    @property
    def flat(self) -> np.ndarray: ...
    @property
    def ends(self) -> np.ndarray: ...
    @property
    def loss(self) -> np.ndarray | None: ...


class Batch(NamedTuple):
    """Kept documents of a shard, in source order."""

    rows: np.ndarray
    validation: np.ndarray  # which are held out
    columns: pa.RecordBatch  # id, text, lang, meta


Encode = Callable[[Batch], EncodedDocuments]


class Packing(NamedTuple):
    """How streams become files; `row_tokens` is None where they stay streams of documents."""

    strategy: str
    row_tokens: int | None
    max_document_tokens: int | None


def bin_file(name: str) -> str:
    """Return the file that holds the tokens of a bin."""
    return f"{name}.bin"


def write_bins(
    folder: Path,
    shard: str,
    batches: Iterable[Batch],
    *,
    encode: Encode,
    policy: Policy,
    packing: Packing,
) -> pa.Table:
    """Write the bins of both splits; return the table of their documents or pieces."""
    if packing.row_tokens is None:
        return _write_streams(folder, shard, batches, encode, policy, packing)
    streams = folder / STREAM_FOLDER
    shutil.rmtree(streams, ignore_errors=True)
    streams.mkdir()
    documents = _write_streams(streams, shard, batches, encode, policy, packing)
    tables = [
        _write_rows(folder, shard, name, documents, policy=policy, packing=packing)
        for name in BIN_NAMES.values()
    ]
    shutil.rmtree(streams)
    return pa.concat_tables(tables).combine_chunks()


def _write_streams(
    folder: Path,
    shard: str,
    batches: Iterable[Batch],
    encode: Encode,
    policy: Policy,
    packing: Packing,
) -> pa.Table:
    limit = packing.max_document_tokens
    text_limit = None if limit is None else limit - policy.controls
    parts, written = [], [0] * len(BIN_NAMES)
    with ExitStack() as stack:
        writers = [
            stack.enter_context(TokenBinWriter(folder, name, policy)) for name in BIN_NAMES.values()
        ]
        for batch in batches:
            encoded = encode(batch)
            cut = truncate(encoded.flat, encoded.ends, encoded.loss, limit=text_limit)
            lengths = np.diff(cut.ends, prepend=0)
            tokens, start = lengths + policy.controls, np.zeros(len(lengths), np.int64)
            for number, writer in enumerate(writers):
                chosen = batch.validation == bool(number)
                flat, ends, loss = _chosen(cut.flat, lengths, cut.loss, chosen)
                writer.append_many(flat, ends, loss=loss)
                after = written[number] + np.cumsum(tokens[chosen])
                start[chosen] = after - tokens[chosen]
                written[number] = int(after[-1]) if len(after) else written[number]
            parts.append(_lines(shard, batch, start, tokens, cut.cut))
    return pa.concat_tables(parts or [PACKED_DOCUMENTS.empty_table()]).combine_chunks()


def _lines(
    shard: str, batch: Batch, start: np.ndarray, tokens: np.ndarray, cut: np.ndarray
) -> pa.Table:
    """Return the lines of a batch in the table of documents."""
    names = pa.array([bin_file(name) for name in BIN_NAMES.values()])
    columns = {
        "file": names.take(pa.array(batch.validation.astype(np.int8))),
        "start": start,
        "tokens": tokens,
        "shard": pa.repeat(shard, len(tokens)),
        "row": batch.rows,
        "id": batch.columns["id"],
        "offset": np.zeros(len(tokens), np.int64),
        "lang": batch.columns["lang"],
        "cut": cut,
    }
    return pa.table(columns, schema=PACKED_DOCUMENTS)


def _chosen(
    flat: np.ndarray, lengths: np.ndarray, loss: np.ndarray | None, chosen: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return the documents of a batch that are chosen, without a copy where all or none are."""
    ends = np.cumsum(lengths[chosen])
    if chosen.all():
        return flat, ends, loss
    if not chosen.any():
        return flat[:0], ends, None
    tokens = np.repeat(chosen, lengths)
    return flat[tokens], ends, None if loss is None else loss[tokens]


def _write_rows(
    folder: Path,
    shard: str,
    name: str,
    documents: pa.Table,
    *,
    policy: Policy,
    packing: Packing,
) -> pa.Table:
    """Cut the stream of one split into rows; return the table of its pieces, in their order."""
    assert packing.row_tokens is not None
    length = packing.row_tokens
    stream = open_token_bin(folder / STREAM_FOLDER, name)
    listed = documents.filter(pc.field("file") == bin_file(name))
    plan = plan_rows(packing.strategy, listed["tokens"].to_numpy(), length)
    rows = len(plan.row_ends)
    plan = permuted(plan, document_keys(ROW_SEED, f"{shard}\0{name}", np.arange(rows)))
    starts = stream.ends.astype(np.int64) - listed["tokens"].to_numpy()
    with RowBinWriter(folder, name, policy, row_tokens=length) as writer:
        for block in _blocks(plan, length):
            _write_block(writer, stream, starts, block, length)
    return _piece_table(listed, plan, length)


def _blocks(plan: RowPlan, length: int) -> Iterator[RowPlan]:
    """Yield the plan in runs of whole rows of about BLOCK_TOKENS; `row_ends` begin at 0 in each."""
    step = max(1, BLOCK_TOKENS // length)
    for first in range(0, len(plan.row_ends), step):
        ends = plan.row_ends[first : first + step]
        begin, stop = int(plan.row_ends[first - 1]) if first else 0, int(ends[-1])
        piece = slice(begin, stop)
        yield RowPlan(plan.document[piece], plan.offset[piece], plan.length[piece], ends - begin)


def _write_block(
    writer: RowBinWriter, stream: TokenBin, starts: np.ndarray, plan: RowPlan, length: int
) -> None:
    """Move the tokens of some rows, fill up with padding, and mark both."""
    rows = len(plan.row_ends)
    begins = _starts(plan, length)
    sources = _places(starts[plan.document] + plan.offset, plan.length)
    targets = _places(begins, plan.length)
    flat = np.full(rows * length, writer.policy.pad_id, stream.tokens.dtype)
    flat[targets] = stream.tokens[sources]
    loss = None
    if stream.loss is not None:
        loss = np.ones(rows * length, np.bool_)
        loss[targets] = stream.loss[sources]
    borders = np.arange(1, rows + 1) * length
    filled = (begins + plan.length)[plan.row_ends - 1]
    padded = borders[filled < borders]
    ends = np.concatenate((begins + plan.length, padded))
    document = np.concatenate((plan.document, np.full(len(padded), -1)))
    offset = np.concatenate((plan.offset, np.zeros(len(padded), np.int64)))
    order = np.argsort(ends)
    writer.append_rows(flat, ends[order], pieces_of(document, offset)[order], loss=loss)


def _starts(plan: RowPlan, length: int) -> np.ndarray:
    """Return where each piece begins, in tokens from the first row on."""
    counts = np.diff(plan.row_ends, prepend=0)
    before = np.cumsum(plan.length) - plan.length
    row_begins = np.repeat(before[plan.row_ends - counts], counts)
    return before - row_begins + np.repeat(np.arange(len(counts)) * length, counts)


def _places(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the places of all tokens of some pieces, one after the other."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))


def _piece_table(listed: pa.Table, plan: RowPlan, length: int) -> pa.Table:
    """Return a line for each piece as the rows hold them, then one for each document of no token."""
    lines = listed.take(pa.array(plan.document))
    lines = _with(lines, "start", _starts(plan, length))
    lines = _with(lines, "tokens", plan.length)
    lines = _with(lines, "offset", plan.offset)
    lines = _with(lines, "cut", np.where(plan.offset == 0, lines["cut"].to_numpy(), 0))
    return pa.concat_tables([lines, listed.filter(pc.field("tokens") == 0)])


def _with(table: pa.Table, name: str, values: np.ndarray | Sequence[int]) -> pa.Table:
    number = table.schema.get_field_index(name)
    return table.set_column(number, table.schema.field(number), pa.array(values, pa.int64()))
