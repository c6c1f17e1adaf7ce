"""Speed and memory of the shuffle, beside datatrove's two steps on the same tokens.

    python benchmarks/shuffle.py [--peers PYTHON] [--gigabytes 0.8] [--shards 8] [--rounds 3]
    python benchmarks/shuffle.py --memory [--gigabytes 5]

PYTHON is an interpreter that can import datatrove (0.10.1 was measured). Documents are random ids of
two bytes, lengths log-normal with a median of 450. Inside one shard: the first pass of ours beside
TokenizedFile.copy of a permutation. Over all: both passes, with the hashes and the table of
documents, beside copy of every shard and DocumentTokenizerMerger; seconds are CPU time, the least of
the rounds, which alternate. Two workers against one: by the clock. With --memory the process is looked
at from outside, ten times a second: what it has for itself (USS) and what is resident (RSS), which
counts pages of maps too.
"""

import argparse
import dataclasses
import json
import multiprocessing
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from corpus_platform.document import PACKED_DOCUMENTS
from corpus_platform.formats.token_bin_writer import Policy, TokenBinWriter
from corpus_platform.stages import shuffling
from corpus_platform.stages.shuffle_scatter import scatter
from corpus_platform.stages.shuffle_units import Level
from corpus_platform.stages.shuffling import LinesWriter, PackedShard, Shuffle, shuffle_split

POLICY = Policy(32_000, "5e" * 32, eos_id=0)
PEER = """
import json, sys, time
import numpy as np
from pathlib import Path
from datatrove.io import get_datafolder
from datatrove.pipeline.tokens.merger import DocumentTokenizerMerger
from datatrove.pipeline.tokens.tokenizer import TokenizedFile
from loguru import logger
logger.remove()
source, target = Path(sys.argv[1]), Path(sys.argv[2])
copied = []
for number, path in enumerate(sorted(source.glob("*/train.bin"))):
    ends = np.fromfile(path.with_suffix(".index"), "<u8").astype(int).tolist()
    file = TokenizedFile(str(path.parent), path.name, save_index=False)
    file.tokens_file.close()
    path.write_bytes(Path(str(path) + ".kept").read_bytes())
    file.doc_ends = ends
    order = np.random.default_rng(number).permutation(len(ends))
    begun = time.process_time()
    file.copy(f"part{number}_", order, get_datafolder(str(target / "copied")), rank=number)
    copied.append(time.process_time() - begun)
begun = time.process_time()
merger = DocumentTokenizerMerger(str(target / "copied"), str(target / "merged"), "all", seed=1, progress=False)
merger.run()
print(json.dumps({"copy": copied, "merge": time.process_time() - begun}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", help="an interpreter that has datatrove")
    parser.add_argument("--gigabytes", type=float)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", action="store_true")
    args = parser.parse_args()
    size = args.gigabytes or (5.0 if args.memory else 0.8)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shards = [
            pack(folder, i, int(size * 5e8 / args.shards), kept=not args.memory)
            for i in range(args.shards)
        ]
        if args.memory:
            for workers in (1, 2):
                print(memory(folder, shards, size, workers), flush=True)
        else:
            speed(folder, shards, args)


def pack(folder: Path, number: int, tokens: int, *, kept: bool = True) -> PackedShard:
    """Write a packed shard of about so many tokens."""
    rng = np.random.default_rng(number)
    lengths = np.clip(rng.lognormal(np.log(450), 1.25, tokens // 900), 20, 200_000).astype(np.int64)
    home = folder / "packed" / f"{number:03d}"
    home.mkdir(parents=True)
    with TokenBinWriter(home, "train", POLICY) as writer:
        for first in range(0, len(lengths), 4096):
            ends = np.cumsum(lengths[first : first + 4096])
            writer.append_many(rng.integers(1, 32_000, int(ends[-1]), dtype=np.uint16), ends)
    if kept:
        shutil.copyfile(
            home / "train.bin", home / "train.bin.kept"
        )  # datatrove opens its files anew
    count, ends = len(lengths), np.cumsum(lengths + 1)
    columns = {
        "file": pa.repeat("train.bin", count),
        "start": ends - lengths - 1,
        "tokens": lengths + 1,
        "shard": pa.repeat(f"c/{number:03d}", count),
        "row": np.arange(count),
        "id": pa.array([f"{number}-{i}" for i in range(count)]),
        "offset": np.zeros(count, np.int64),
        "lang": pa.nulls(count, pa.string()),
        "cut": np.zeros(count, np.int64),
    }
    pq.write_table(pa.table(columns, schema=PACKED_DOCUMENTS), home / "documents.parquet")
    return PackedShard(f"c/{number:03d}", home, home / "documents.parquet")


def how(folder: Path, workers: int = 1) -> Shuffle:
    """Return how all runs are shuffled, into a scratch folder that is empty."""
    scratch = folder / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    return Shuffle(42, Level("documents", 0), 10**11, None, 1 << 27, workers, scratch)


def shuffle(folder: Path, shards: list[PackedShard], by: Shuffle) -> None:
    """Shuffle all shards."""
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    with LinesWriter(out / "documents.parquet") as lines:
        shuffle_split(out, "train", shards, by, lines=lines, told=lambda _: None)


def cpu() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def speed(folder: Path, shards: list[PackedShard], args: argparse.Namespace) -> None:
    """Print the rates of both, and the ratios."""
    sizes = [(s.folder / "train.bin").stat().st_size / 1e9 for s in shards]
    inside, whole, theirs = [], [], []
    for _ in range(args.rounds):
        by = how(folder)
        begun = cpu()
        scatter(shuffling.scatters("train", shards[:1], by)[0])
        inside.append(cpu() - begun)
        begun = cpu()
        shuffle(folder, shards, how(folder))
        whole.append(cpu() - begun)
        if args.peers:
            theirs.append(peer(folder, args.peers))
    one, two = clock(folder, shards, 1), clock(folder, shards, 2)
    print(f"{sum(sizes):.2f} GB of tokens in {len(shards)} shards")
    print(f"inside a shard: ours {sizes[0] / min(inside):.3f} GB/s")
    print(f"over all: ours {sum(sizes) / min(whole):.3f} GB/s a core")
    if theirs:
        copy = min(t["copy"][0] for t in theirs)
        both = min(sum(t["copy"]) + t["merge"] for t in theirs)
        print(f"datatrove: copy {sizes[0] / copy:.3f} GB/s, copy and merge {sum(sizes) / both:.3f}")
        print(f"ratios: {copy / min(inside):.1f} inside a shard, {both / min(whole):.1f} over all")
    print(f"two workers: {one:.2f} s -> {two:.2f} s by the clock, {one / two:.2f} times")


def clock(folder: Path, shards: list[PackedShard], workers: int) -> float:
    """Return the least seconds of two runs with so many workers."""
    seconds = []
    for _ in range(2):
        by = dataclasses.replace(how(folder), workers=workers)
        begun = time.perf_counter()
        shuffle(folder, shards, by)
        seconds.append(time.perf_counter() - begun)
    return min(seconds)


def peer(folder: Path, python: str) -> dict:
    """Return the CPU seconds of datatrove's steps."""
    target = folder / "peer"
    shutil.rmtree(target, ignore_errors=True)
    command = [python, "-c", PEER, str(folder / "packed"), str(target)]
    return json.loads(subprocess.check_output(command, text=True).splitlines()[-1])


def memory(folder: Path, shards: list[PackedShard], size: float, workers: int) -> str:
    """Return the peak of a shuffle with some workers."""
    process = multiprocessing.get_context("spawn").Process(
        target=shuffle, args=(folder, shards, dataclasses.replace(how(folder), workers=workers))
    )
    process.start()
    peaks, begun = [0, 0], time.perf_counter()
    while process.is_alive():
        for i, value in enumerate(held(process.pid)):
            peaks[i] = max(peaks[i], value)
        time.sleep(0.1)
    if process.exitcode:
        sys.exit(process.exitcode)
    uss, rss = (p / 1e9 for p in peaks)
    return (
        f"{size:.1f} GB of tokens, {workers} workers: peak {uss:.2f} GB USS, {rss:.2f} GB RSS,"
        f" {time.perf_counter() - begun:.0f} s"
    )


def held(pid: int | None) -> tuple[int, int]:
    """Return USS and RSS of a process and its children."""
    uss = rss = 0
    try:
        root = psutil.Process(pid)
        for one in [root, *root.children(recursive=True)]:
            info = one.memory_full_info()
            uss, rss = uss + info.uss, rss + info.rss
    except psutil.NoSuchProcess:
        pass
    return uss, rss


if __name__ == "__main__":
    main()
