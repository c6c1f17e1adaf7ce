"""Documents -> token ids and a loss mask, through an engine and the reference beside it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from corpus_platform.tokenization.encoder import Encoded, Encoder, HuggingFaceEncoder
from corpus_platform.tokenization.loss import loss_mask, ranges_of, valid_ranges

__all__ = ["EncodedDocuments", "encode_documents"]


class EncodedDocuments(NamedTuple):
    """Ids of documents back to back without control tokens (uint32), and their ends (int64).

    `loss` marks the tokens that count (bool); None where all do. `bad_no_loss_ranges` are those
    that were none, and were left out.
    """

    flat: np.ndarray
    ends: np.ndarray
    loss: np.ndarray | None
    bad_no_loss_ranges: int = 0


def encode_documents(
    encoder: Encoder, reference: HuggingFaceEncoder, texts: Sequence[str], metas: Sequence[str]
) -> EncodedDocuments:
    """Return the ids of documents; of those with ranges without loss by the reference.

    `metas` are the other fields of each document, as JSON.
    """
    given = [ranges_of(meta) for meta in metas]
    ranged = [i for i, ranges in enumerate(given) if ranges is not None]
    if not ranged:
        return EncodedDocuments(*encoder.encode(texts), loss=None)
    plain = [i for i, ranges in enumerate(given) if ranges is None]
    masked = reference.encode_spanned([texts[i] for i in ranged])
    bad, masks = 0, []
    for i, last in zip(ranged, np.split(masked.last, masked.ends[:-1]), strict=True):
        ranges, wrong = valid_ranges(given[i], chars=len(texts[i]))
        masks.append(loss_mask(last, ranges))
        bad += wrong
    order = np.argsort(np.array(plain + ranged))
    others = encoder.encode([texts[i] for i in plain])
    flat, ends = _ordered(others, Encoded(masked.flat, masked.ends), order)
    counting = Encoded(np.ones(len(others.flat), dtype=np.bool_), others.ends)
    loss, _ = _ordered(counting, Encoded(np.concatenate(masks), masked.ends), order)
    return EncodedDocuments(flat, ends, None if loss.all() else loss, bad)


def _ordered(first: Encoded, second: Encoded, order: np.ndarray) -> Encoded:
    """Return the documents of two encodings, one after the other, in another order."""
    parts = [part for e in (first, second) if len(e.ends) for part in np.split(e.flat, e.ends[:-1])]
    parts = [parts[i] for i in order]
    return Encoded(np.concatenate(parts), np.cumsum([len(p) for p in parts], dtype=np.int64))
