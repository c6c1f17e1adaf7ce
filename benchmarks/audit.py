"""CPU time and memory of the audit of a release: sound, damaged in one line, and in all of them.

    python benchmarks/audit.py [--gigabytes 0.4] [--documents 500_000 2_000_000] [--shards 50] [--windows]

Documents are random ids of two bytes, one of a hundred in validation; lengths are log-normal. Only what
is read from the table of documents and from the tokens is measured, not the hashes of whole files.
Each audit has a process of its own; memory is the peak of what is resident beyond what was before.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from corpus_platform.document import PACKED_DOCUMENTS, RELEASE_DOCUMENTS
from corpus_platform.formats.token_bin import open_token_bin
from corpus_platform.formats.token_bin_writer import Policy, TokenBinWriter
from corpus_platform.stages.release_audit import train_lines
from corpus_platform.stages.release_comparing import Pack, compare, listed_in_both
from corpus_platform.stages.release_lines import ReleaseLines
from corpus_platform.stages.release_order import order_numbers
from corpus_platform.stages.shuffle_units import Level
from corpus_platform.stages.shuffling import LinesWriter, PackedShard, Shuffle, shuffle_split

POLICY = Policy(32_000, "5e" * 32, eos_id=0)
NOTHING, ONE, ALL = "sound", "one line damaged", "all lines damaged"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=0.4)
    parser.add_argument("--documents", type=int, nargs="+", default=[500_000, 2_000_000])
    parser.add_argument("--shards", type=int, default=50)
    parser.add_argument(
        "--windows", action="store_true", help="a release of windows of 2,048 tokens"
    )
    parser.add_argument("--audit", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.audit:
        print(json.dumps(audit(args.audit)))
        return
    for documents in args.documents:
        with tempfile.TemporaryDirectory() as name:
            tokens = int(args.gigabytes * 5e8 / documents)
            make(Path(name), documents // args.shards, tokens, args.shards, windows=args.windows)
            for damage in (NOTHING, ONE, ALL):
                hurt(Path(name) / "out" / "documents.parquet", damage)
                told = json.loads(
                    subprocess.check_output([sys.executable, __file__, "--audit", name])
                )
                print(f"{documents:,} documents, {damage}: {told}", flush=True)


def make(folder: Path, documents: int, tokens: int, shards: int, *, windows: bool) -> None:
    """Write packed shards of documents with so many tokens in the mean, and a release of them."""
    packed = [pack(folder, number, documents, tokens) for number in range(shards)]
    for name in ("out", "scratch"):
        (folder / name).mkdir()
    level = Level("windows", 2048) if windows else Level("documents", 0)
    by = Shuffle(42, level, 10**11, 1 if windows else None, 1 << 27, 1, folder / "scratch")
    with LinesWriter(folder / "out" / "documents.parquet") as lines:
        for name in ("train", "val"):
            shuffle_split(folder / "out", name, packed, by, lines=lines, told=lambda _: None)


def pack(folder: Path, number: int, documents: int, tokens: int) -> PackedShard:
    """Write a packed shard."""
    rng, home = np.random.default_rng(number), folder / "packed" / f"{number:03d}"
    home.mkdir(parents=True)
    drawn = np.clip(rng.lognormal(0, 1.25, documents), 0.05, 100)
    lengths = np.maximum(drawn * tokens / drawn.mean(), 5).astype(np.int64)
    held_out, starts = rng.random(documents) < 0.01, np.zeros(documents, np.int64)
    for name, chosen in (("train", ~held_out), ("val", held_out)):
        with TokenBinWriter(home, name, POLICY) as writer:
            for first in range(0, int(chosen.sum()), 4096):
                ends = np.cumsum(lengths[chosen][first : first + 4096] - 1)
                writer.append_many(rng.integers(2, 32_000, int(ends[-1]), dtype=np.uint16), ends)
        starts[chosen] = np.cumsum(lengths[chosen]) - lengths[chosen]
    columns = {
        "file": pa.array(np.where(held_out, "val.bin", "train.bin")),
        "start": starts,
        "tokens": lengths,
        "shard": pa.repeat(f"c/{number:03d}", documents),
        "row": np.sort(rng.choice(3 * documents, documents, replace=False)),
        "id": pa.array([f"{number}-{i}" for i in range(documents)]),
        "offset": np.zeros(documents, np.int64),
        "lang": pa.nulls(documents, pa.string()),
        "cut": np.zeros(documents, np.int64),
    }
    pq.write_table(pa.table(columns, schema=PACKED_DOCUMENTS), home / "documents.parquet")
    return PackedShard(f"c/{number:03d}", home, home / "documents.parquet")


def hurt(path: Path, damage: str) -> None:
    """Give some lines of the table another row."""
    if damage != NOTHING:
        lines = pl.read_parquet(path)
        hit = pl.lit(value=True) if damage == ALL else pl.int_range(pl.len()) == 777
        row = pl.when(hit).then(pl.col("row") + (1 << 40)).otherwise("row")
        table = lines.with_columns(row=row).to_arrow().cast(RELEASE_DOCUMENTS)
        pq.write_table(table, path, compression="zstd", row_group_size=1 << 16)


def audit(folder: Path) -> dict[str, float]:
    """Return what was found, and what that took."""
    packed = sorted((folder / "packed").iterdir())
    before, begun = peak(), time.process_time()
    lines = ReleaseLines(folder / "out" / "documents.parquet", [f"c/{p.name}" for p in packed])
    bins = {p.stem: open_token_bin(folder / "out", p.stem) for p in sorted((folder / "out").glob("*.json"))}  # fmt: skip
    found = compare(bins, lines, [Pack(p, p / "documents.parquet") for p in packed])
    leaked = found.leaked + listed_in_both(lines)
    row_tokens = next(iter(bins.values())).header.row_tokens
    order_numbers(partial(train_lines, lines), row_tokens=row_tokens, chunk_tokens=0)
    seconds = round(time.process_time() - begun, 2)
    return {
        "differing": found.differing,
        "leaked": leaked,
        "cpu_seconds": seconds,
        "peak_mb": round(peak() - before),
    }


def peak() -> float:
    """Return the most MB that were resident; `ru_maxrss` begins with that of the process before."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1e3


if __name__ == "__main__":
    main()
