"""The index of band hashes on disk against one in memory: how long pairs take, and what is held.

    python benchmarks/index_on_disk.py [--documents 1_000_000] [--shards 20]

Signatures are random but for three of ten documents, which are near-copies of others. On disk: bucket
rows of every shard, written once, read piece by piece as `dedup_clusters` does. In memory: the same
hashes as arrays. And one new document against both, as an index would be asked: the rows of its
buckets alone are read.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from corpus_platform.dedup.bands import band_hashes, bucket_pairs, merge_codes
from corpus_platform.formats.bucket_rows import BucketRows, write_bucket_rows
from corpus_platform.stages.minhash_signatures import big_endian

BANDS, ROWS, CAP, ASKED = 16, 8, 64, 50


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--shards", type=int, default=20)
    options = parser.parse_args()
    bands = band_hashes(_signatures(options.documents), BANDS, ROWS)
    bucket_pairs(bands[:10, 0].copy(), np.arange(10), cap=CAP)  # compiled
    merge_codes([np.arange(2, dtype=np.uint64)])
    with tempfile.TemporaryDirectory() as folder:
        cuts = np.linspace(0, options.documents, options.shards + 1).astype(int)
        paths = [Path(folder) / f"{i}.rows" for i in range(options.shards)]
        _timed("rows written", options.documents, lambda: _write(bands, cuts, paths))
        size = sum(path.stat().st_size for path in paths)
        print(f"{'on disk':32s} {size / options.documents:8.0f} bytes a document")
        print(f"{'in memory':32s} {bands.nbytes / options.documents:8.0f} bytes a document")
        numbers = np.arange(options.documents, dtype=np.int64)
        memory = _timed(
            "all pairs, in memory", options.documents, lambda: _in_memory(bands, numbers)
        )
        disk = _timed("all pairs, on disk", options.documents, lambda: _on_disk(cuts, paths))
        assert memory[0] == disk[0] > 0
        print(f"{'on disk / in memory':32s} {disk[1] / memory[1]:8.2f} times the seconds")
        ordered = [np.argsort(band) for band in bands.T]
        asked = range(0, options.documents, options.documents // ASKED)
        held = _timed(
            "one document, sorted in memory", ASKED, lambda: _ask_memory(bands, ordered, asked)
        )
        read = _timed("one document, on disk", ASKED, lambda: _ask_disk(bands, paths, asked))
        assert held[0] == read[0]
        print(f"{'on disk / in memory':32s} {read[1] / held[1]:8.1f} times the seconds")


def _signatures(documents: int) -> np.ndarray:
    chosen = np.random.default_rng(0)
    signatures = chosen.integers(0, 1 << 32, (documents, BANDS * ROWS), dtype=np.uint32)
    copies = np.flatnonzero(chosen.random(documents) < 0.3)
    of = chosen.integers(0, documents, len(copies))
    same = chosen.random((len(copies), BANDS * ROWS)) < 0.9
    signatures[copies] = np.where(same, signatures[of], signatures[copies])
    return signatures


def _write(bands: np.ndarray, cuts: np.ndarray, paths: list[Path]) -> int:
    for path, low, high in zip(paths, cuts[:-1], cuts[1:], strict=True):
        write_bucket_rows(path, big_endian(bands[low:high]), scheme="benchmark")
    return 0


def _in_memory(bands: np.ndarray, numbers: np.ndarray) -> int:
    parts = [bucket_pairs(np.ascontiguousarray(band), numbers, cap=CAP).codes for band in bands.T]
    return len(merge_codes(parts))


def _on_disk(cuts: np.ndarray, paths: list[Path]) -> int:
    parts, files = [], [BucketRows(path, scheme="benchmark") for path in paths]
    for band in range(BANDS):
        keys, numbers = [], []
        for file, start in zip(files, cuts[:-1], strict=True):
            rows = file.read(band)
            keys.append(rows.keys.view(">u8").astype(np.uint64)[:, 0])
            numbers.append(rows.documents.astype(np.int64) + start)
        found = bucket_pairs(np.concatenate(keys), np.concatenate(numbers), cap=CAP)
        parts.append(found.codes)
    return len(merge_codes(parts))


def _ask_memory(bands: np.ndarray, ordered: list[np.ndarray], asked: range) -> int:
    found = 0
    for document in asked:
        for band, order in enumerate(ordered):
            key = bands[document, band]
            low = np.searchsorted(bands[:, band], key, sorter=order)
            high = np.searchsorted(bands[:, band], key, side="right", sorter=order)
            found += int(high - low)
    return found


def _ask_disk(bands: np.ndarray, paths: list[Path], asked: range) -> int:
    files, found = [BucketRows(path, scheme="benchmark") for path in paths], 0
    for document in asked:
        for band in range(BANDS):
            key = np.frombuffer(int(bands[document, band]).to_bytes(8, "big"), np.uint8)
            for file in files:
                rows = file.read(band, int(key[0]), int(key[0]) + 1)
                found += int((rows.keys == key).all(axis=1).sum())
    return found


def _timed(name: str, documents: int, work: Callable[[], int]) -> tuple[int, float]:
    started = time.perf_counter()
    found = work()
    seconds = time.perf_counter() - started
    print(f"{name:32s} {seconds:8.3f} s  {documents / seconds:14,.0f} documents/s")
    return found, seconds


if __name__ == "__main__":
    main()
