"""Joining and clustering a million signatures: ours, polars and datatrove, CPU seconds of one core.

    python benchmarks/join_clusters.py [--documents N] [--datatrove PYTHON] [--datatrove-documents M]

Signatures of 128 values with planted clusters: 30 % of the documents, 2 to 20 each, whose members
share 0.80 to 0.98 of the values of the first. 16 bands of 8 rows; no verification.
- ours: band hashes, all pairs of each bucket (64 documents before each), codes merged, components,
  decisions. Memory is the peak beyond the signatures, from /proc.
- polars: group_by and join per band, edges to the first of each bucket only, distinct; streaming and
  in memory, the better counts. Band hashes and components are ours, which polars has none of; their
  time counts, and a second ratio leaves the hashes out on both sides.
- datatrove: MinhashDedupBuckets and MinhashDedupCluster on its own files, sorted beforehand; PYTHON
  is an interpreter with datatrove and xxhash 3.5 (it reads no newer one). With M below N its time
  is scaled by N / M, which favours it: its stages take n log n.

All contenders find the same number of components. Each runs in a process of its own on one core,
once on few documents before the clock starts.
"""

import argparse
import contextlib
import functools
import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

BANDS, ROWS, CAP = 16, 8, 64
FEW = 2_000  # documents of the run that warms up
Signatures = npt.NDArray[np.uint32]
Engine = Literal["streaming", "in-memory"]
ENGINES: tuple[Engine, ...] = get_args(Engine)


def main() -> None:
    """Print a row per contender and the ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--datatrove", help="an interpreter that has datatrove")
    parser.add_argument("--datatrove-documents", type=int)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        CONTENDERS[options.child[0]](np.load(options.child[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "signatures.npy")
        np.save(file, planted(options.documents))
        ours, hashing = _child(sys.executable, "ours", file)
        polars, _ = _child(sys.executable, "polars", file)
        ratio, joining = (polars + hashing) / ours, polars / (ours - hashing)
        print(f"polars: {ratio:.1f} times our time, {joining:.1f} times without band hashes")
        if options.datatrove:
            part = options.datatrove_documents or options.documents
            np.save(file, planted(part))
            theirs = _child(options.datatrove, "datatrove", file)[0] * options.documents / part
            print(f"datatrove: {theirs / ours:.0f} times our time ({theirs:.1f} s)")


def _child(python: str, contender: str, file: str) -> tuple[float, float]:
    """Run a contender, pass on what it prints; return its seconds, and how many are band hashes."""
    command = [python, __file__, "--child", contender, file]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    print(f"{contender}: {output.split(maxsplit=2)[2].strip()}", flush=True)
    seconds, hashing = output.split()[:2]
    return float(seconds), float(hashing)


def planted(documents: int) -> Signatures:
    """Return random signatures of which some are in clusters."""
    random = np.random.default_rng(0)
    signatures = random.integers(0, 2**32, (documents, BANDS * ROWS), dtype=np.uint32)
    order, start = random.permutation(documents), 0
    while start < 0.3 * documents:
        members = order[start : start + 2 + min(18, int(random.geometric(0.4)))]
        for member in members[1:]:
            shared = random.random(BANDS * ROWS) < random.uniform(0.80, 0.98)
            signatures[member, shared] = signatures[members[0], shared]
        start += len(members)
    return signatures


def _pin() -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def _seconds(work: Callable[[], int], times: int) -> tuple[float, int]:
    """Return the least CPU seconds and the result, the number of components."""
    found, best = 0, float("inf")
    for _ in range(times):
        start = time.process_time()
        found = work()
        best = min(best, time.process_time() - start)
    return best, found


def ours(signatures: Signatures) -> None:
    """Print seconds, components and memory; then the seconds of each step."""
    from corpus_platform.dedup import cluster_kernels

    _pin()
    cluster_kernels.warm()
    _join(signatures[:FEW], {})
    before = _memory("VmRSS")
    steps: dict[str, float] = {}
    seconds, found = _seconds(lambda: _join(signatures, steps), 3)
    beyond = (_memory("VmHWM") - before) / 1e6
    parts = ", ".join(f"{name} {taken:.2f}" for name, taken in steps.items())
    print(seconds, steps["hashes"])
    print(f"{seconds:.2f} s, {found} components, {beyond:.0f} MB beyond the signatures; {parts}")


def _join(signatures: Signatures, steps: dict[str, float]) -> int:
    from corpus_platform.dedup.bands import band_hashes, bucket_pairs, merge_codes, pairs_of
    from corpus_platform.dedup.clusters import decide
    from corpus_platform.dedup.verification import Edges

    numbers, clock = np.arange(len(signatures)), [time.process_time()]
    hashes = band_hashes(signatures, BANDS, ROWS)
    clock.append(time.process_time())
    parts = (bucket_pairs(hashes[:, band], numbers, cap=CAP).codes for band in range(BANDS))
    pairs = pairs_of(merge_codes(parts))
    clock.append(time.process_time())
    found = decide(numbers, Edges(pairs, np.ones(len(pairs))), keep="first_seen")
    clock.append(time.process_time())
    steps |= dict(zip(("hashes", "pairs", "decisions"), np.diff(clock).tolist(), strict=True))
    return int(np.count_nonzero(found.cluster == numbers))


def _memory(name: str) -> int:
    """Return a number of bytes that the kernel keeps of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def polars(signatures: Signatures) -> None:
    """Print the seconds of the better engine, and the components of its edges."""
    os.environ["POLARS_MAX_THREADS"] = "1"
    from corpus_platform.dedup.bands import band_hashes

    _pin()
    hashes = band_hashes(signatures, BANDS, ROWS)
    by_engine = {}
    for engine in ENGINES:
        _edges(hashes[:FEW], engine)
        by_engine[engine] = _seconds(functools.partial(_edges, hashes, engine), 3)
    seconds, found = min(by_engine.values())
    both = ", ".join(f"{engine} {taken:.2f} s" for engine, (taken, _) in by_engine.items())
    print(seconds, 0)
    print(f"{seconds:.2f} s, {found} components; {both}")


def _edges(hashes: npt.NDArray[np.uint64], engine: Engine) -> int:
    import polars as pl

    from corpus_platform.dedup.clusters import components

    numbers, edges = np.arange(len(hashes), dtype=np.uint32), []
    for band in range(BANDS):
        rows = pl.LazyFrame({"hash": hashes[:, band], "later": numbers})
        firsts = rows.group_by("hash").agg(pl.col("later").min().alias("earlier"), pl.len())
        found = rows.join(firsts.filter(pl.col("len") > 1), on="hash")
        found = found.filter(pl.col("earlier") < pl.col("later")).select("earlier", "later")
        edges.append(found.collect(engine=engine))
    pairs = pl.concat(edges).unique().to_numpy().astype(np.int64)
    return len(np.unique(components(len(hashes), pairs)))


def datatrove(signatures: Signatures) -> None:
    """Print the seconds of its two stages, and the components that it leaves."""
    from datatrove.utils.logging import logger  # ty: ignore[import-not-found]

    _pin()
    logger.remove()
    with contextlib.redirect_stderr(io.StringIO()):
        _stages(signatures[:FEW])
        buckets, clusters, removed = _stages(signatures)
    found = len(signatures) - removed
    print(buckets + clusters, 0)
    print(f"{buckets + clusters:.2f} s, {found} components; {buckets:.2f} + {clusters:.2f} s")


def _stages(signatures: Signatures) -> tuple[float, float, int]:
    """Return the seconds of the buckets and of the clusters, and the number of removed documents."""
    from datatrove.pipeline.dedup.minhash import (  # ty: ignore[import-not-found]
        MinhashConfig,
        MinhashDedupBuckets,
        MinhashDedupCluster,
    )
    from datatrove.utils.hashing import HashConfig  # ty: ignore[import-not-found]

    config = MinhashConfig(
        num_buckets=BANDS, hashes_per_bucket=ROWS, hash_config=HashConfig(precision=32)
    )
    with tempfile.TemporaryDirectory() as folder:
        _write_sorted(signatures, Path(folder) / "signatures")
        names = [f"{folder}/{name}" for name in ("signatures", "pairs", "removed")]
        clock = [time.process_time()]
        for band in range(BANDS):
            MinhashDedupBuckets(names[0], names[1], config=config).run(None, band, BANDS)
        clock.append(time.process_time())
        MinhashDedupCluster(names[1], names[2], config=config).run(None, 0, 1)
        clock.append(time.process_time())
        removed = sum(file.stat().st_size for file in Path(names[2]).glob("*.remove")) // 4
    return clock[1] - clock[0], clock[2] - clock[1], removed


def _write_sorted(signatures: Signatures, folder: Path) -> None:
    """Write what its first stage writes: the values of a band and the document, in their order."""
    for band in range(BANDS):
        values = signatures[:, band * ROWS : (band + 1) * ROWS]
        rows = np.column_stack([values, np.arange(len(values), dtype=np.uint32)])
        file = folder / f"bucket_{band:03d}" / "00000.minhash.sig"
        file.parent.mkdir(parents=True)
        rows[np.lexsort(values.T[::-1])].astype("<u4").tofile(file)


CONTENDERS = {"ours": ours, "polars": polars, "datatrove": datatrove}

if __name__ == "__main__":
    main()
