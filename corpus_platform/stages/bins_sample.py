"""A sample of the packed documents of a shard, encoded and decoded again from the cleaned texts."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from corpus_platform.formats.token_bin import TokenBin, open_token_bin
from corpus_platform.formats.token_bin_writer import Policy, with_controls
from corpus_platform.packing.truncation import truncate
from corpus_platform.stages.bins_writing import BIN_NAMES, bin_file
from corpus_platform.tokenization.documents import encode_documents
from corpus_platform.tokenization.encoder import HuggingFaceEncoder
from corpus_platform.tokenization.loss import FIELD

__all__ = ["measure_sample"]

SAMPLED_DOCUMENTS = 50  # and as many again of those that name ranges without loss


class Packed(NamedTuple):
    """The tokens of one document as the bins hold them, and which count."""

    tokens: np.ndarray
    loss: np.ndarray


def measure_sample(
    folder: Path, texts: Path, lines: pl.DataFrame, reference: HuggingFaceEncoder, policy: Policy
) -> Counter[str]:
    """Count sampled documents whose tokens do not decode to their text, and wrong masks."""
    bins = {bin_file(n): open_token_bin(folder, n) for n in BIN_NAMES.values()}
    rows = _sampled(texts, lines)
    found = pl.scan_parquet(texts).filter(pl.col("row").is_in(rows)).select("row", "text", "meta")
    pieces = lines.filter(pl.col("row").is_in(rows)).partition_by("row", as_dict=True)
    counts: Counter[str] = Counter(undecodable=len(rows), mask_faults=0)
    for row, text, meta in found.collect().iter_rows():
        part = pieces[(row,)].sort("offset")
        packed = _packed(bins, part)
        whole = not part["cut"].sum()
        counts["undecodable"] -= _is_text(packed.tokens, text, whole, reference, policy)
        counts["mask_faults"] += _mask_faults(packed, text, meta, whole, reference, policy)
    return counts


def _sampled(texts: Path, lines: pl.DataFrame) -> list[int]:
    rows = lines["row"].unique().sort()
    named = pl.scan_parquet(texts).filter(pl.col("meta").str.contains(f'"{FIELD}"', literal=True))
    masked = named.select("row").collect()["row"]
    masked = masked.filter(masked.is_in(rows.to_list()))
    return sorted({*_spread(rows), *_spread(masked)})


def _spread(rows: pl.Series) -> list[int]:
    return rows.gather_every(max(1, len(rows) // SAMPLED_DOCUMENTS)).to_list()


def _packed(bins: dict[str, TokenBin], part: pl.DataFrame) -> Packed:
    tokens, masks = [], []
    for file, start, count in part.select("file", "start", "tokens").iter_rows():
        bin_ = bins[file]
        tokens.append(bin_.tokens[start : start + count])
        loss = np.ones(count, np.uint8) if bin_.loss is None else bin_.loss[start : start + count]
        masks.append(loss.astype(np.bool_))
    return Packed(np.concatenate(tokens), np.concatenate(masks))


def _is_text(
    tokens: np.ndarray, text: str, whole: bool, reference: HuggingFaceEncoder, policy: Policy
) -> bool:
    begin, end = int(policy.bos_id is not None), int(policy.eos_id is not None)
    ids = tokens[begin : len(tokens) - end]
    if whole:
        return reference.decode(ids) == text
    # What is cut may end within a character, so it has no text of its own.
    return np.array_equal(ids, reference.encode([text]).flat[: len(ids)])


def _mask_faults(
    packed: Packed, text: str, meta: str, whole: bool, reference: HuggingFaceEncoder, policy: Policy
) -> int:
    encoded = encode_documents(reference, reference, [text], [meta])
    if encoded.loss is None:
        return int(np.count_nonzero(~packed.loss))
    limit = None if whole else len(packed.tokens) - policy.controls
    cut = truncate(encoded.flat, encoded.ends, encoded.loss, limit=limit)
    _, _, wanted = with_controls(policy, cut.flat, cut.ends, cut.loss)
    assert wanted is not None
    if len(wanted) != len(packed.loss):
        return len(packed.loss)
    return int(np.count_nonzero(wanted != packed.loss))
