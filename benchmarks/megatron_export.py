"""Speed of writing Megatron's files, ours beside Megatron's own builder, with the same bytes.

    python benchmarks/megatron_export.py [--peers PYTHON] [--tokens 200_000_000] [--rounds 3]

PYTHON is an interpreter that can import megatron.core (0.16.1 was measured) and torch; without it
ours is measured alone. Documents are random ids, lengths drawn from a log-normal; both get the ids
from memory, uint16 of one array: ours in blocks of a million ids, the builder document by document
as its interface wants, tensors over the same memory. Ours hashes both files besides. Rounds of the
two alternate; seconds are CPU time of one process, the system's included, least of the rounds: the
clock says more of the disk and of what else runs. What is written is compared.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from corpus_platform.formats.megatron import MegatronWriter

BLOCK = 1 << 20
VOCAB_SIZES = {"uint16": 50_000, "int32": 128_000}
PEER = """
import json, sys, time
import numpy as np, torch
from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder
folder, vocab_size = sys.argv[1], int(sys.argv[2])
ids, ends = np.load(f"{folder}/ids.npy"), np.load(f"{folder}/ends.npy").tolist()
begun = time.process_time()
builder = IndexedDatasetBuilder(f"{folder}/theirs.bin", dtype=DType.optimal_dtype(vocab_size))
start = 0
for end in ends:
    builder.add_item(torch.from_numpy(ids[start:end]))
    builder.end_document()
    start = end
builder.finalize(f"{folder}/theirs.idx")
print(json.dumps(time.process_time() - begun))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", help="an interpreter that has megatron.core and torch")
    parser.add_argument("--tokens", type=int, default=200_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    print("| ids | tokens a document | documents | ours GB/s | builder GB/s | ratio |")
    print("| --- | --- | --- | --- | --- | --- |")
    for dtype, vocab_size in VOCAB_SIZES.items():
        for mean in (300, 1000):
            with tempfile.TemporaryDirectory() as name:
                report(Path(name), dtype, vocab_size, mean, args)


def report(folder: Path, dtype: str, vocab_size: int, mean: int, args: argparse.Namespace) -> None:
    """Print one line of the table."""
    rng = np.random.default_rng(1)
    lengths = np.maximum(1, rng.lognormal(np.log(mean) - 0.5, 1, args.tokens // mean).astype(int))
    ends = np.cumsum(lengths, dtype=np.int64)
    ids = rng.integers(0, min(vocab_size, 1 << 16), ends[-1], dtype=np.uint16)
    np.save(folder / "ids.npy", ids)
    np.save(folder / "ends.npy", ends)
    ours, theirs = [], []
    for _ in range(args.rounds):
        ours.append(write_ours(folder, ids, ends, vocab_size))
        if args.peers:
            theirs.append(write_theirs(folder, args.peers, vocab_size))
            same_bytes(folder)
    size = sum(Path(f"{folder}/ours.{kind}").stat().st_size for kind in ("bin", "idx")) / 1e9
    peer = f"{size / min(theirs):.2f} | {min(theirs) / min(ours):.2f}" if theirs else "- | -"
    print(f"| {dtype} | {mean} | {len(ends):,} | {size / min(ours):.2f} | {peer} |", flush=True)


def blocks(ends: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield ranges of documents of about BLOCK ids."""
    first = 0
    while first < len(ends):
        start = int(ends[first - 1]) if first else 0
        after = max(first + 1, int(np.searchsorted(ends, start + BLOCK, side="right")))
        yield first, after
        first = after


def write_ours(folder: Path, ids: np.ndarray, ends: np.ndarray, vocab_size: int) -> float:
    begun = time.process_time()
    with MegatronWriter(folder / "ours", vocab_size=vocab_size) as writer:
        for first, after in blocks(ends):
            start = int(ends[first - 1]) if first else 0
            part = ends[first:after] - start
            writer.append(ids[start : start + int(part[-1])], part)
    return time.process_time() - begun


def write_theirs(folder: Path, python: str, vocab_size: int) -> float:
    command = [python, "-W", "ignore", "-c", PEER, str(folder), str(vocab_size)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{python}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def same_bytes(folder: Path) -> None:
    """Stop where the two wrote different files."""
    for kind in ("bin", "idx"):
        command = ["cmp", str(folder / f"ours.{kind}"), str(folder / f"theirs.{kind}")]
        if subprocess.run(command).returncode:
            sys.exit(f".{kind} differs")


if __name__ == "__main__":
    main()
