"""Peak memory of reading one large shard of each container, seen from outside the process.

    python benchmarks/read_memory.py [--gigabytes 2] [CONTAINER ...]

Writes each shard into a temporary folder, of so many plain bytes (of Parquet: of text, in row
groups of 1 GB), reads it batch by batch in a process of its own and prints the largest sum of the
resident memory of that process and all below it, sampled every 10 ms. 400 MB are allowed.
"""

import argparse
import gzip
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from backports import zstd

LIMIT = 400  # MB
# The largest window that the settings allow by default.
LONG: dict[int, int] = {
    int(zstd.CompressionParameter.compression_level): 1,
    int(zstd.CompressionParameter.window_log): 28,
}
READ = """
import sys
from pathlib import Path
from corpus_platform.config import Fields
from corpus_platform.formats.shard import read_shard
shard = read_shard([Path(sys.argv[1])], Fields(), shard="b/s", max_record_bytes=1 << 25)
print(sum(len(batch) for batch in shard), shard.decompressed_bytes)
"""
Write = Callable[[Path, int], int]


def main() -> None:
    """Print a row per container."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("containers", nargs="*", default=list(CONTAINERS), metavar="CONTAINER")
    parser.add_argument("--gigabytes", type=float, default=2.0)
    asked = parser.parse_args()
    print(
        f"{'container':14} {'stored MB':>9} {'plain MB':>9} {'records':>9} {'seconds':>8} {'peak MB':>8}"
    )
    for name in asked.containers:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "shard"
            written = CONTAINERS[name](path, int(asked.gigabytes * 1e9))
            start = time.perf_counter()
            records, plain, peak = _read(path)
            seconds, stored = time.perf_counter() - start, path.stat().st_size / 1e6
        print(f"{name:14} {stored:9.0f} {plain / 1e6:9.0f} {records:9} {seconds:8.1f} {peak:8.0f}")
        if records != written or peak > LIMIT:
            sys.exit(f"{name}: {written} records were written, and {LIMIT} MB are allowed")


def _read(path: Path) -> tuple[int, int, float]:
    """Return records, plain bytes, and the peak of the process tree in MB."""
    command = [sys.executable, "-c", READ, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        peak = 0
        while process.poll() is None:
            peak = max(peak, _resident(psutil.Process(process.pid)))
            time.sleep(0.01)
        assert process.stdout is not None
        answer = process.stdout.read().split()
    if process.returncode:
        sys.exit(f"reading {path} ended with {process.returncode}")
    return int(answer[0]), int(answer[1]), peak / 1e6


def _resident(process: psutil.Process) -> int:
    total = 0
    try:
        for one in (process, *process.children(recursive=True)):
            total += one.memory_info().rss
    except psutil.NoSuchProcess:  # it has just ended
        pass
    return total


def _documents(plain_bytes: int) -> Iterator[dict[str, str]]:
    """Yield seeded documents of 1 to 60 kB until there are so many bytes of text."""
    rng = random.Random(42)
    words = [
        "".join(rng.choices("abcdefghijklmnopqrstuvwxyzäéж中", k=rng.randint(2, 9)))
        for _ in range(9999)
    ]
    texts = [" ".join(rng.choices(words, k=rng.choice((150, 400, 900, 8000)))) for _ in range(3000)]
    total = number = 0
    while total < plain_bytes:
        text = f"{number} {texts[number * 7919 % len(texts)]}"
        total += len(text.encode())
        yield {
            "id": f"{number:032x}",
            "url": f"https://example.org/{number}",
            "lang": "en",
            "text": text,
        }
        number += 1


def _write_with(open_file: Callable, record: Callable[[dict[str, str]], bytes]) -> Write:
    def write(path: Path, plain_bytes: int) -> int:
        count = 0
        with open_file(path) as file:
            for document in _documents(plain_bytes):
                file.write(record(document))
                count += 1
        return count

    return write


def _line(document: dict[str, str]) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def _conversion(document: dict[str, str]) -> bytes:
    block = document["text"].encode()
    head = f"WARC/1.0\r\nWARC-Type: conversion\r\nWARC-Target-URI: {document['url']}\r\n"
    record = f"{head}Content-Length: {len(block)}\r\n\r\n".encode() + block + b"\r\n\r\n"
    return gzip.compress(record, 1)  # a member each, as in a WET file


def _write_parquet(path: Path, plain_bytes: int) -> int:
    documents, count = _documents(plain_bytes), 0
    with pq.ParquetWriter(
        path, pa.schema(dict.fromkeys(("id", "url", "lang", "text"), pa.string()))
    ) as writer:
        while rows := list(_gigabyte(documents)):
            writer.write_table(pa.Table.from_pylist(rows, writer.schema), row_group_size=len(rows))
            count += len(rows)
    return count


def _gigabyte(documents: Iterator[dict[str, str]]) -> Iterator[dict[str, str]]:
    size = 0
    for document in documents:
        yield document
        size += len(document["text"].encode())
        if size >= 10**9:
            return


CONTAINERS: dict[str, Write] = {
    "jsonl": _write_with(lambda path: path.open("wb"), _line),
    "jsonl.gz": _write_with(lambda path: gzip.GzipFile(path, "wb", 1), _line),
    "jsonl.zst": _write_with(lambda path: zstd.ZstdFile(path, "wb", level=1), _line),
    "jsonl.long.zst": _write_with(lambda path: zstd.ZstdFile(path, "wb", options=LONG), _line),
    "parquet": _write_parquet,
    "warc.wet.gz": _write_with(lambda path: path.open("wb"), _conversion),
}

if __name__ == "__main__":
    main()
