"""A sample of the packed documents of a shard, encoded and decoded again from the cleaned texts.

Texts are read in batches and looked at one by one: all that are sampled may be gigabytes.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from corpus_platform.formats.token_bin import TokenBin, open_token_bin
from corpus_platform.formats.token_bin_writer import Policy, with_controls
from corpus_platform.packing.truncation import truncate
from corpus_platform.stages.bins_writing import BIN_NAMES, bin_file
from corpus_platform.stages.tables import read_batches
from corpus_platform.tokenization.documents import encode_documents
from corpus_platform.tokenization.encoder import HuggingFaceEncoder
from corpus_platform.tokenization.loss import FIELD, ranges_of, valid_ranges

__all__ = ["measure_sample"]

SAMPLED_DOCUMENTS = 50  # and as many again of those that name ranges without loss
NAMED_RECORDS = 5  # of those whose ranges are none; the gate shows them in one line


class Packed(NamedTuple):
    """The tokens of one document as the bins hold them, and which count."""

    tokens: np.ndarray
    loss: np.ndarray


def measure_sample(
    folder: Path,
    texts: Path,
    lines: pl.DataFrame,
    reference: HuggingFaceEncoder,
    policy: Policy,
    *,
    shard: str | None,
) -> Counter[str]:
    """Count sampled documents whose tokens do not decode to their text, and wrong masks.

    Ranges without loss that are none are counted over all documents, and of the first that have
    such each by itself, as `bad_no_loss_ranges/<shard>:<row>`.
    """
    bins = {bin_file(n): open_token_bin(folder, n) for n in BIN_NAMES.values()}
    packed_rows = lines["row"].unique().sort()
    ranged = _ranged(texts, packed_rows)
    rows = sorted({*_spread(packed_rows.to_list()), *_spread([*ranged])})
    pieces = lines.filter(pl.col("row").is_in(rows)).partition_by("row", as_dict=True)
    counts: Counter[str] = Counter(undecodable=len(rows), mask_faults=0)
    counts["bad_no_loss_ranges"] = sum(ranged.values())
    bad = sorted(row for row, count in ranged.items() if count)
    counts.update({f"bad_no_loss_ranges/{shard}:{r}": ranged[r] for r in bad[:NAMED_RECORDS]})
    for row, text, meta in _documents(texts, rows):
        part = pieces[(row,)].sort("offset")
        packed, cut = _packed(bins, part), int(part["cut"].sum())
        counts["undecodable"] -= _is_text(packed.tokens, text, cut, reference, policy)
        counts["mask_faults"] += _mask_faults(packed, text, meta, cut, reference, policy)
    return counts


def _documents(texts: Path, rows: list[int]) -> Iterator[tuple[int, str, str]]:
    """Yield row, text and meta of some documents, one after the other."""
    for batch in read_batches(texts, ["row", "text", "meta"]):
        chosen = batch.filter(pa.array(np.isin(batch.column("row").to_numpy(), rows)))
        columns = [chosen.column(name) for name in ("row", "text", "meta")]
        for i in range(len(chosen)):
            row, text, meta = (column[i].as_py() for column in columns)
            yield row, text, meta


def _ranged(texts: Path, rows: pl.Series) -> dict[int, int]:
    """Return which of some documents name ranges without loss, and how many of these are none."""
    found: dict[int, int] = {}
    for batch in read_batches(texts, ["row", "meta"]):
        named = pl.Series(batch.column("meta")).str.contains(f'"{FIELD}"', literal=True)
        chosen = named.to_numpy() & np.isin(batch.column("row").to_numpy(), rows.to_numpy())
        for i in np.flatnonzero(chosen).tolist():
            given = ranges_of(batch.column("meta")[i].as_py())
            if given is not None:
                found[batch.column("row")[i].as_py()] = valid_ranges(given, chars=0)[1]
    return found


def _spread(rows: list[int]) -> list[int]:
    return rows[:: max(1, len(rows) // SAMPLED_DOCUMENTS)]


def _packed(bins: dict[str, TokenBin], part: pl.DataFrame) -> Packed:
    tokens, masks = [], []
    for file, start, count in part.select("file", "start", "tokens").iter_rows():
        bin_ = bins[file]
        tokens.append(bin_.tokens[start : start + count])
        loss = np.ones(count, np.uint8) if bin_.loss is None else bin_.loss[start : start + count]
        masks.append(loss.astype(np.bool_))
    return Packed(np.concatenate(tokens), np.concatenate(masks))


def _is_text(
    tokens: np.ndarray, text: str, cut: int, reference: HuggingFaceEncoder, policy: Policy
) -> bool:
    begin, end = int(policy.bos_id is not None), int(policy.eos_id is not None)
    ids = tokens[begin : len(tokens) - end]
    if not cut:
        return reference.decode(ids) == text
    # What is cut may end within a character, so it has no text of its own.
    wanted = reference.encode([text]).flat
    return len(wanted) == len(ids) + cut and np.array_equal(ids, wanted[: len(ids)])


def _mask_faults(
    packed: Packed, text: str, meta: str, cut: int, reference: HuggingFaceEncoder, policy: Policy
) -> int:
    encoded = encode_documents(reference, reference, [text], [meta])
    if encoded.loss is None:
        return int(np.count_nonzero(~packed.loss))
    limit = len(packed.tokens) - policy.controls if cut else None
    kept = truncate(encoded.flat, encoded.ends, encoded.loss, limit=limit)
    _, _, wanted = with_controls(policy, kept.flat, kept.ends, kept.loss)
    assert wanted is not None
    if len(wanted) != len(packed.loss):
        return len(packed.loss)
    return int(np.count_nonzero(wanted != packed.loss))
