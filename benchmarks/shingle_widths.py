"""How the verdicts on near-copies depend on the width of a shingle, and on what it is made of.

    python benchmarks/shingle_widths.py CORPUS_FOLDER [--threshold 0.8] [--examples 0]

All shards below the folder are read, in the order of their names, and documents whose folded text
came before are left out. Bands are 32 x 4, which meet 0.9999 of the pairs at 0.8, so that verdicts
differ by the shingles and not by luck. Each row is a way to make shingles; `only here` and `only
there` compare what it drops with what the same units at width 5 drop. For these, the similarity at
width 5 of the documents and what they were dropped for is told apart: near the threshold, or far off.
With --examples the beginnings of some of them are shown.
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from corpus_platform.config import Fields
from corpus_platform.dedup.bands import bucket_pairs, merge_codes, pairs_of
from corpus_platform.dedup.clusters import decide
from corpus_platform.dedup.signing import Signer
from corpus_platform.dedup.verification import Edges, agreements, compare_sets, least_matches
from corpus_platform.dedup_settings import DedupSettings
from corpus_platform.document import Document
from corpus_platform.formats.shard import read_shard
from corpus_platform.text.folding import fold

KINDS, WIDTHS, USUAL = ("auto", "word", "char"), (3, 5, 9), 5
ENDINGS = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet", ".warc.wet.gz")
TRUTH = {"pairs.parquet", "truth.parquet", "crawl_overlap.jsonl"}  # beside the shards, no documents
NEAR = 0.05  # from the threshold


class Made(NamedTuple):
    """One way to make shingles: what it found and dropped."""

    flat: np.ndarray
    ends: np.ndarray
    candidates: int
    edges: Edges
    twin: np.ndarray  # of each dropped document, else -1

    def similarity(self, pairs: np.ndarray) -> np.ndarray:
        """Return the Jaccard of pairs by these shingles."""
        starts = np.append(0, self.ends[:-1])
        return compare_sets(self.flat, starts, self.ends, pairs.reshape(-1, 2))


def main() -> None:
    """Print a row for each kind and width, then what differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="CORPUS_FOLDER")
    parser.add_argument("--threshold", type=float, default=0.8)
    parser.add_argument("--examples", type=int, default=0, metavar="N")
    options = parser.parse_args()
    documents = list(_distinct(options.folder))
    texts = [d.text for d in documents]
    print(f"{len(texts):,} distinct documents, {sum(map(len, texts)):,} characters\n")
    print("| units | width | shingles | candidates | edges | dropped | only here | only there |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    notes = []
    for kind in KINDS:
        usual = _made(texts, kind, USUAL, options.threshold)
        for width in WIDTHS:
            made = usual if width == USUAL else _made(texts, kind, width, options.threshold)
            print(_row(kind, width, made, usual), flush=True)
            if width != USUAL:
                notes += _notes(f"{kind} {width}", made, usual, documents, options)
    print("\n" + "\n".join(notes))


def _distinct(folder: Path) -> Iterator[Document]:
    seen = set()
    for path in sorted(p for p in folder.rglob("*") if p.name.endswith(ENDINGS)):
        if path.name in TRUTH or "planted" in path.parts:
            continue
        for batch in read_shard([path], Fields(), shard="b/s", max_record_bytes=1 << 25):
            for record in batch:
                if isinstance(record, Document) and (folded := fold(record.text)) not in seen:
                    seen.add(folded)
                    yield record


def _made(texts: list[str], kind: str, width: int, threshold: float) -> Made:
    settings = DedupSettings.model_validate(
        {"shingle": kind, "width": width, "threshold": threshold, "bands": 32, "rows": 4}
    )
    signer = Signer(settings)
    signed = signer.sign(texts)
    flat, ends = signer.shingle_sets(texts)
    met = _met(signed.bands)
    pairs = met[_agreements(met, signed.signatures) >= least_matches(128, threshold)]
    found = compare_sets(flat, np.append(0, ends[:-1]), ends, pairs)
    edges = Edges(pairs[found >= threshold], found[found >= threshold])
    decisions = decide(np.arange(len(texts)), edges, keep="first_seen")
    return Made(flat, ends, len(met), edges, decisions.twin)


def _met(bands: np.ndarray) -> np.ndarray:
    numbers = np.arange(len(bands))
    return pairs_of(merge_codes(bucket_pairs(band, numbers, cap=64).codes for band in bands.T))


def _agreements(pairs: np.ndarray, signatures: np.ndarray) -> np.ndarray:
    blocks = np.array_split(pairs, len(pairs) // 65536 + 1)
    return np.concatenate([agreements(signatures[b[:, 0]], signatures[b[:, 1]]) for b in blocks])


def _row(kind: str, width: int, made: Made, usual: Made) -> str:
    here, there = made.twin >= 0, usual.twin >= 0
    counts = (
        made.flat.size,
        made.candidates,
        len(made.edges.pairs),
        here.sum(),
        (here & ~there).sum(),
        (there & ~here).sum(),
    )
    return f"| {kind} | {width} | " + " | ".join(f"{n:,}" for n in counts) + " |"


def _notes(
    name: str, made: Made, usual: Made, documents: list[Document], options: argparse.Namespace
) -> Iterator[str]:
    """Yield what the documents are that only one of the two drops."""
    for what, one, other in (("only here", made, usual), ("only there", usual, made)):
        numbers = np.flatnonzero((one.twin >= 0) & (other.twin < 0))
        if not numbers.size:
            continue
        pairs = np.stack([one.twin[numbers], numbers], axis=1)
        similarity = other.similarity(pairs)
        near = int((similarity >= options.threshold - NEAR).sum())
        short = sum(len(documents[n].text) < 1000 for n in numbers.tolist())
        languages = Counter(documents[n].lang or "?" for n in numbers.tolist()).most_common(4)
        yield (
            f"{name}, {what}: {numbers.size}, of these {near} within {NEAR} of the threshold at the"
            f" other width, median there {np.median(similarity):.3f}, least {similarity.min():.3f};"
            f" {short} below 1,000 characters; {', '.join(f'{n} {c}' for n, c in languages)}"
        )
        for number in numbers[np.argsort(similarity)][: options.examples].tolist():
            begins = (
                documents[i].text[:300].encode("unicode_escape") for i in (one.twin[number], number)
            )
            yield "\n".join(f"    {text.decode()}" for text in begins)


if __name__ == "__main__":
    main()
