"""How fast near-copies are verified: shingles of both texts, once each, and their exact Jaccard.

    python benchmarks/verification.py [FOLDER]

Texts are those of *.jsonl.gz in FOLDER (one JSON object with `text` a line), or random pages of
English-like words; every text is compared with the one after it. Prints megabytes of compared text
(UTF-8 as it came, each text counted once) per CPU second of one core, best of five, for shingles of
characters and of units, and the parts of it. A second line says what more pairs of texts whose
shingles are there already cost: in a cluster of n texts there are up to n (n - 1) / 2 of them. The
last line is what verification does: the pairs that meet in bands, each text shingled once, both texts
of a pair counted as compared.
"""

import gzip
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from corpus_platform.dedup import cluster_kernels
from corpus_platform.dedup.bands import bucket_pairs, merge_codes, pairs_of
from corpus_platform.dedup.signing import Signer
from corpus_platform.dedup.verification import compare_sets
from corpus_platform.dedup_settings import DedupSettings
from corpus_platform.text.folding import fold_utf8

PAGES, WORDS = 2_000, 700
MOST = 8_000_000  # bytes of a folder


def main() -> None:
    """Print a row per kind of shingle."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    texts = _read(Path(sys.argv[1])) if len(sys.argv) > 1 else _pages()
    size = sum(len(text.encode()) for text in texts)
    print(f"{len(texts)} texts of {size / len(texts) / 1000:.1f} kB")
    cluster_kernels.warm()
    _row("folding alone", size, _seconds(lambda: [fold_utf8(text) for text in texts]))
    for kind in ("char", "auto"):
        signer = Signer(DedupSettings(shingle=kind))
        flat, ends = signer.shingle_sets(texts)
        starts = np.append(0, ends[:-1])
        pairs = np.column_stack([np.arange(len(texts) - 1), np.arange(1, len(texts))])

        def compare(flat=flat, starts=starts, ends=ends, pairs=pairs) -> object:
            return compare_sets(flat, starts, ends, pairs)

        cutting = _seconds(lambda signer=signer: signer.shingle_sets(texts))
        comparing = _seconds(compare)
        _row(f"{kind}: shingle sets and one comparison", size, cutting + comparing)
        _row(f"{kind}: shingle sets", size, cutting)
        _row(f"{kind}: each comparison more", 2 * size, comparing)
        _candidates(kind, signer, texts)


def _candidates(kind: str, signer: Signer, texts: Sequence[str]) -> None:
    bands, number = signer.sign(texts).bands, np.arange(len(texts))
    codes = merge_codes(bucket_pairs(band, number, cap=64).codes for band in bands.T)
    documents, pairs = np.unique(pairs_of(codes), return_inverse=True)
    met = [texts[i] for i in documents]
    sizes = np.array([len(text.encode()) for text in met])
    pairs = pairs.reshape(-1, 2)

    def verify() -> object:
        flat, ends = signer.shingle_sets(met)
        return compare_sets(flat, np.append(0, ends[:-1]), ends, pairs)

    name = f"{kind}: {len(pairs)} candidates of {len(met)} texts"
    _row(name, int(sizes[pairs].sum()), _seconds(verify))


def _row(name: str, size: int, seconds: float) -> None:
    print(f"{name:42} {size / 1e6 / seconds:8.0f} MB/s")


def _seconds(work: Callable[[], object]) -> float:
    """Return the least CPU seconds of five runs."""
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def _read(folder: Path) -> Sequence[str]:
    texts, size = [], 0
    for file in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(file, "rt", encoding="utf-8", newline="\n") as lines:
            for line in lines:
                if size < MOST:
                    texts.append(json.loads(line)["text"])
                    size += len(texts[-1].encode())
    return texts


def _pages() -> Sequence[str]:
    """Return pages of which every second one is a near-copy of the one before."""
    random = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    weights = np.arange(26, 0, -1) / 351
    words = ["".join(random.choice(letters, n, p=weights)) for n in random.poisson(3.5, 20_000) + 1]
    pages = []
    for _ in range(PAGES // 2):
        chosen = np.minimum(random.zipf(1.3, WORDS), len(words)) - 1
        page = " ".join(words[i] for i in chosen).capitalize() + ".\n"
        pages += [page, page.replace(" e", " the E", 3)]
    return pages


if __name__ == "__main__":
    main()
