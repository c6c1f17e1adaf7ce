"""What chunks and gzip of an HDF5 export cost: writing, size, and random windows.

    python benchmarks/hdf5_chunks.py [--tokens 10000000] [--window 2048] [--rounds 3]

The tokens are words and signs of Python's own library, numbered by how often they come (ids above
31,999 are folded). Reads are of window + 1 tokens at random starts from a file in the page cache: by
our reader (`ours`, past HDF5 where nothing is packed) and by an h5py handle with HDF5's default
cache. Seconds are those of the processor. All ways take turns in each round; the medians are printed,
and ratios to a chunk of one window.
"""

import argparse
import random
import re
import statistics
import sysconfig
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Literal, NamedTuple

import h5py
import numpy as np

from corpus_platform.formats.hdf5 import CHUNK_TOKENS, Hdf5Writer, open_hdf5

VOCABULARY = 32_000
READS = 400  # a round
Packing = Literal["gzip"] | None


class Way(NamedTuple):
    """A chunk and whether it is packed."""

    chunk: int
    compression: Packing


class Times(NamedTuple):
    """Million tokens written and windows read a second of the processor."""

    write: float
    ours: float
    h5py: float


def main() -> None:
    """Print a row for each way."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=10_000_000)
    parser.add_argument("--window", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    tokens, ends = _tokens(asked.tokens)
    print(f"{len(tokens):,} tokens of {len(ends):,} files, windows of {asked.window} + 1\n")
    window = asked.window
    chunks = (window // 2, window, 2 * window, CHUNK_TOKENS)
    ways = [Way(chunk, packing) for packing in (None, "gzip") for chunk in chunks]
    measured: dict[Way, list[Times]] = {way: [] for way in ways}
    sizes: dict[Way, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens.h5"
        for seed in range(asked.rounds):
            for way in ways:
                measured[way].append(_measure(path, way, tokens, ends, window, seed))
                sizes[way] = path.stat().st_size
    _print(ways, measured, sizes, window, len(tokens))


def _measure(
    path: Path, way: Way, tokens: np.ndarray, ends: np.ndarray, window: int, seed: int
) -> Times:
    start = time.process_time()
    with Hdf5Writer(
        path,
        vocab_size=VOCABULARY,
        eos_id=None,
        tokenizer_sha256="0" * 64,
        chunk_tokens=way.chunk,
        compression=way.compression,
    ) as file:
        file.append(tokens, ends)
    write = len(tokens) / 1e6 / (time.process_time() - start)
    choose = random.Random(seed)
    starts = [choose.randrange(len(tokens) - window) for _ in range(READS)]
    ours = _reads(open_hdf5(path).tokens, starts, window + 1)
    with h5py.File(path, "r") as plain:
        return Times(write, ours, _reads(plain["tokens"], starts, window + 1))


def _reads(tokens: Any, starts: list[int], length: int) -> float:
    """Return windows a second, each copied into a batch as training does."""
    batch = np.empty(length, np.uint16)
    begin = time.process_time()
    for start in starts:
        batch[:] = tokens[start : start + length]
    return len(starts) / (time.process_time() - begin)


def _print(
    ways: list[Way],
    measured: dict[Way, list[Times]],
    sizes: dict[Way, int],
    window: int,
    count: int,
) -> None:
    medians = {
        way: Times(*map(statistics.median, zip(*times, strict=True)))
        for way, times in measured.items()
    }
    print("| packing | chunk | B a token | write M/s | x | ours reads/s | x | h5py reads/s | x |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    base = medians[Way(window, None)]
    for way in ways:
        cells = [
            f"{value:,.{digits}f} | {value / of:.2f}"
            for value, of, digits in zip(medians[way], base, (1, 0, 0), strict=True)
        ]
        size = sizes[way] / count
        name = way.compression or "none"
        print(f"| {name} | {way.chunk:,} | {size:.2f} | {' | '.join(cells)} |")


def _tokens(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return tokens of real text, and where its files end."""
    words: list[list[str]] = []
    left = count
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        found = re.findall(r"\w+|\s+|[^\w\s]", path.read_text(errors="ignore"))[:left]
        left -= len(found)
        words.append(found)
        if not left:
            break
    often = Counter(word for file in words for word in file).most_common()
    ids = {word: number % VOCABULARY for number, (word, _) in enumerate(often)}
    flat = np.array([ids[word] for file in words for word in file], np.uint16)
    return flat, np.cumsum([len(file) for file in words])


if __name__ == "__main__":
    main()
