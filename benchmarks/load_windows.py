"""Random windows of 2,049 tokens from files: this package's loader against those of other formats.

    python benchmarks/load_windows.py [--tokens 60000000] [--window 2048] [--rounds 5]

Needs numpy; what of megatron-core, datatrove and litdata is installed beside it takes part. The
tokens are random numbers below 32,000 in documents of 100 to 2,000, the same for all; files are in
the page cache. One process; a row is windows a second of the processor, the median over rounds in
which all take turns. Ours are whole batches of 64 as training gets them: order, inputs, labels and
mask, int64. Of the others one window at a time is asked for, without putting batches together:

- megatron: get(offset, length) of the documents that a window touches, joined, as its GPTDataset does
- datatrove: DatatroveFolderDataset[i], a tensor
- litdata: StreamingDataset[i] with TokensLoader, a tensor; tokens were written as int32

How the chunks of HDF5 files compare to windows: benchmarks/hdf5_chunks.py.
"""

import argparse
import hashlib
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from corpus_platform.formats.datatrove import DatatroveWriter, datatrove_name
from corpus_platform.formats.megatron import MegatronWriter
from corpus_platform.formats.token_bin import files_of
from corpus_platform.formats.token_bin_writer import Policy, TokenBinWriter
from corpus_platform.loader.batches import Batches
from corpus_platform.loader.opening import open_release
from corpus_platform.loader.release import Release
from corpus_platform.storage.manifest import Manifest, Output

VOCABULARY, BATCH, READS = 32_000, 64, 4_096
Read = Callable[[], int]  # reads some windows, returns how many


def main() -> None:
    """Print a row for each reader, and how ours compares to the fastest of the others."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=60_000_000)
    parser.add_argument("--window", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    tokens, ends = _tokens(asked.tokens)
    with tempfile.TemporaryDirectory() as name:
        ours = dict(_ours(Path(name), tokens, ends, asked.window))
        peers = dict(_peers(Path(name), tokens, ends, asked.window))
        measured = _measure({**ours, **peers}, asked.rounds)
    best = max((measured[peer] for peer in peers), default=None)
    print(f"{len(tokens):,} tokens, {len(ends):,} documents, windows of {asked.window} + 1\n")
    print("| reader | windows/s | µs | x best of the others |\n| --- | --- | --- | --- |")
    for reader, rate in measured.items():
        ratio = "" if best is None else f"{rate / best:.2f}"
        print(f"| {reader} | {rate:,.0f} | {1e6 / rate:.1f} | {ratio} |")


def _measure(readers: dict[str, Read], rounds: int) -> dict[str, float]:
    rates: dict[str, list[float]] = {name: [] for name in readers}
    for turn in range(rounds + 1):
        for name, read in readers.items():
            begin = time.process_time()
            count = read()
            if turn:  # the first one fills caches
                rates[name].append(count / (time.process_time() - begin))
    return {name: statistics.median(found) for name, found in rates.items()}


def _ours(
    folder: Path, tokens: np.ndarray, ends: np.ndarray, window: int
) -> Iterator[tuple[str, Read]]:
    for files in (1, 8):
        release = _release(folder / f"release-{files}", tokens, ends, files)
        windows = release.windows(window, BATCH, seed=1)
        yield f"ours, {files} file{'s' * (files > 1)}", _by_batches(windows)
    more: dict[str, dict[str, Any]] = {
        "dtype=None": {"dtype": None},
        "random_starts": {"random_starts": True},
    }
    more |= {"borders": {"borders": True}, "mask_boundary": {"mask_boundary": True}}
    for name, options in more.items():
        yield f"ours, 8 files, {name}", _by_batches(release.windows(window, BATCH, 1, **options))
    starts = np.random.default_rng(1).integers(0, len(tokens) - window, READS).tolist()
    yield (
        "ours, 1 window at a time, get_slice.astype(int64)",
        _each(lambda i: release.get_slice(i, i + window + 1).astype(np.int64), starts),
    )


def _by_batches(batches: Batches) -> Read:
    def read() -> int:
        return sum(len(batch.x) for batch in islice(batches, READS // BATCH))

    return read


def _each(get: Callable[[int], Any], numbers: list[int]) -> Read:
    def read() -> int:
        for number in numbers:
            get(number)
        return len(numbers)

    return read


def _release(folder: Path, tokens: np.ndarray, ends: np.ndarray, files: int) -> Release:
    """Write a release with its manifest, and open it."""
    folder.mkdir()
    outputs: list[Output] = []
    policy = Policy(VOCABULARY, "0" * 64, eos_id=None)
    for number, documents in enumerate(np.array_split(np.arange(len(ends)), files)):
        name = f"train-{number:05d}"
        begin = int(ends[documents[0] - 1]) if documents[0] else 0
        with TokenBinWriter(folder, name, policy) as writer:
            part = ends[documents]
            writer.append_many(tokens[begin : int(part[-1])], part - begin)
            header = writer.close()
        data = (folder / f"{name}.json").read_bytes()
        outputs.append(Output(f"{name}.json", len(data), hashlib.sha256(data).hexdigest()))
        outputs += [Output(n, h.bytes, h.sha256) for n, h in files_of(name, header).items()]
    manifest = Manifest("shuffled_bins", None, 1, {}, {}, tuple(outputs), {}, {})
    (folder / "manifest.json").write_bytes(manifest.to_bytes())
    return open_release(folder)


def _peers(
    folder: Path, tokens: np.ndarray, ends: np.ndarray, window: int
) -> Iterator[tuple[str, Read]]:
    """Yield those that are installed, after a look at whether they read the right tokens."""
    made = {"megatron": _megatron, "datatrove": _datatrove, "litdata": _litdata}
    for name, peer in made.items():
        (folder / name).mkdir()
        try:
            get, numbers, at = peer(folder / name, tokens, ends, window)
        except ImportError as missing:
            print(f"{name}: not installed ({missing})", file=sys.stderr)
            continue
        for number in numbers[:20]:
            start = at(number)
            assert np.array_equal(np.asarray(get(number)), tokens[start : start + window + 1])
        yield name, _each(get, numbers)


Peer = tuple[Callable[[int], Any], list[int], Callable[[int], int]]


def _megatron(folder: Path, tokens: np.ndarray, ends: np.ndarray, window: int) -> Peer:
    from megatron.core.datasets.indexed_dataset import (  # ty: ignore[import-not-found]
        IndexedDataset,
    )

    with MegatronWriter(folder / "m", vocab_size=VOCABULARY) as writer:
        writer.append(tokens, ends)
    data = IndexedDataset(str(folder / "m"))
    begins = np.concatenate(([0], ends))

    def get(start: int) -> np.ndarray:
        document = int(np.searchsorted(begins, start, side="right")) - 1
        offset, wanted, pieces = start - int(begins[document]), window + 1, []
        while wanted:
            count = min(wanted, int(begins[document + 1] - begins[document]) - offset)
            pieces.append(data.get(document, offset=offset, length=count))
            document, offset, wanted = document + 1, 0, wanted - count
        return np.concatenate(pieces).astype(np.int64)

    starts = np.random.default_rng(2).integers(0, len(tokens) - window, READS).tolist()
    return get, starts, lambda start: start


def _datatrove(folder: Path, tokens: np.ndarray, ends: np.ndarray, window: int) -> Peer:
    from datatrove.utils.dataset import (  # ty: ignore[import-not-found]
        DatatroveFolderDataset,
    )
    from loguru import logger  # ty: ignore[import-not-found]

    logger.remove()
    path = folder / datatrove_name(0, "train")
    with DatatroveWriter(path, vocab_size=VOCABULARY, tokenizer="none") as writer:
        writer.append(tokens, ends)
    data = DatatroveFolderDataset(str(folder), window, token_size=2)
    numbers = np.random.default_rng(3).integers(0, len(data), READS).tolist()
    return lambda i: data[i]["input_ids"], numbers, lambda i: i * (window + 1)


def _litdata(folder: Path, tokens: np.ndarray, ends: np.ndarray, window: int) -> Peer:
    os.environ["LITDATA_DISABLE_VERSION_CHECK"] = "1"
    import torch  # ty: ignore[import-not-found]
    from litdata import StreamingDataset  # ty: ignore[import-not-found]
    from litdata.streaming import Cache, TokensLoader  # ty: ignore[import-not-found]

    cache = Cache(str(folder), chunk_bytes="64MB", item_loader=TokensLoader(block_size=window + 1))
    size = 512 * (window + 1)  # so that blocks lie as the tokens do
    whole = len(tokens) // size * size
    for number, begin in enumerate(range(0, whole, size)):
        cache[number] = torch.from_numpy(tokens[begin : begin + size].astype(np.int32))
    cache.done()
    cache.merge()
    loader = TokensLoader(block_size=window + 1)
    data = StreamingDataset(str(folder), item_loader=loader, shuffle=False)
    numbers = np.random.default_rng(4).integers(0, len(data), READS).tolist()
    return lambda i: data[i], numbers, lambda i: i * (window + 1)


def _tokens(count: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    ends = np.cumsum(random.integers(100, 2_000, count // 1000))
    return random.integers(0, VOCABULARY, int(ends[-1]), dtype=np.uint16), ends


if __name__ == "__main__":
    main()
