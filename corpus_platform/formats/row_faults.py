"""What can be wrong with the pieces of rows, NAME.index and NAME.pieces of a native file, held together."""

import numpy as np

from corpus_platform.formats.token_bin import TokenBin

__all__ = ["row_faults"]

BLOCK = 1 << 22  # entries that are looked at together


def row_faults(bin_: TokenBin) -> list[str]:
    """Return what is wrong with the pieces of a file of rows, in one sentence each.

    They cross no row, and are as many as the header says. Memory is bounded by a block.
    """
    length = bin_.header.row_tokens
    assert length is not None
    assert bin_.pieces is not None
    before = over = wrong = padding = begun = 0
    for start in range(0, len(bin_.ends), BLOCK):
        ends = bin_.ends[start : start + BLOCK].astype(np.int64)
        pieces = bin_.pieces[start : start + BLOCK]
        starts = np.append(before, ends[:-1])
        document, offset = pieces["document"], pieces["offset"]
        over += int(np.count_nonzero((ends > starts) & (starts // length != (ends - 1) // length)))
        wrong += int(
            np.count_nonzero((document < -1) | (offset < 0) | ((document < 0) & (offset > 0)))
        )
        padding += int((ends - starts)[document < 0].sum())
        begun += int(np.count_nonzero((document >= 0) & (offset == 0)))
        before = int(ends[-1])
    said = bin_.header
    told = [
        (over, f"{over:,} pieces reach over the end of a row of {length:,}"),
        (wrong, f"{wrong:,} pieces are of no document, or begin before it"),
        (
            padding != said.padding,
            f"{padding:,} tokens are padding, the header says {said.padding:,}",
        ),
        (
            begun != said.documents,
            f"{begun:,} documents begin here, the header says {said.documents:,}",
        ),
    ]
    return [words for is_fault, words in told if is_fault]
