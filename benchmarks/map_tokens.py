"""Seconds and memory to open a gigabyte of tokens, ours beside Megatron's own reader.

    python benchmarks/map_tokens.py [--peers PYTHON] [--gigabytes 1]

PYTHON is an interpreter that can import megatron.core (0.16.1 was measured) and torch. The same ids
are written as each format, documents of 1,000 on average. Each is opened in a process of its own:
seconds are CPU time to open (imports aside), memory is what the resident set grew by, and both
again for 10,000 documents (of bare ids: places of 1,000 ids) read at random and summed. Pages of a
map count as resident once they are touched. Our reader checks all of the index, the peer none.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from corpus_platform.formats.datatrove import DatatroveWriter
from corpus_platform.formats.export_writer import ExportWriter
from corpus_platform.formats.llmc import LlmcWriter
from corpus_platform.formats.megatron import MegatronWriter
from corpus_platform.formats.nanogpt import NanogptWriter
from corpus_platform.formats.olmo import OlmoWriter

VOCAB_SIZE, MEAN = 50_000, 1_000
READS = """
import json, sys, time
import numpy as np
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6
def measured(open_file, count, document):
    before, begun = resident(), time.process_time()
    data = open_file()
    opened = time.process_time() - begun, resident() - before
    places = np.random.default_rng(2).integers(0, count(data), 10_000).tolist()
    begun = time.process_time()
    total = sum(int(document(data, i).sum()) for i in places)
    read = time.process_time() - begun, resident() - before
    print(json.dumps([*opened, *read, total]))
"""
OURS = (
    READS
    + """
from pathlib import Path
from corpus_platform.formats.token_file import open_tokens
def document(data, i):
    return data.document(i) if data.ends is not None else data.tokens[i * 1000 : i * 1000 + 1000]
def count(data):
    return len(data.ends) if data.ends is not None else len(data.tokens) // 1000
measured(lambda: open_tokens(Path(sys.argv[1])), count, document)
"""
)
PEER = (
    READS
    + """
from megatron.core.datasets.indexed_dataset import IndexedDataset
measured(lambda: IndexedDataset(sys.argv[1]), len, lambda data, i: data[i])
"""
)


def main() -> None:
    """Print a line per format, and one of the peer."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--peers", help="an interpreter that has megatron.core and torch")
    parser.add_argument("--gigabytes", type=float, default=1)
    args = parser.parse_args()
    print("| file | opened in s | MB more | 10,000 documents in s | MB more |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name:
        for begin in BEGIN:
            with begin(Path(name)) as writer:
                write(writer, int(args.gigabytes * 5e8))
            total = report(writer.format, sys.executable, OURS, writer.target)
            if writer.format == "megatron" and args.peers:
                peer = report("megatron, its own reader", args.peers, PEER, writer.target)
                assert peer == total, "the two read different tokens"
            writer.abandon()


BEGIN: tuple[Callable[[Path], ExportWriter], ...] = (
    lambda folder: MegatronWriter(folder / "m", vocab_size=VOCAB_SIZE),
    lambda folder: DatatroveWriter(folder / "d.ds", vocab_size=VOCAB_SIZE, tokenizer="random"),
    lambda folder: NanogptWriter(folder / "n.bin", vocab_size=VOCAB_SIZE),
    lambda folder: LlmcWriter(folder / "l.bin", vocab_size=VOCAB_SIZE),
    lambda folder: OlmoWriter(folder / "o.npy", vocab_size=VOCAB_SIZE),
)


def write(writer: ExportWriter, tokens: int) -> None:
    """Write random documents, a thousand at a time."""
    rng = np.random.default_rng(1)
    while writer.tokens < tokens:
        lengths = np.maximum(1, rng.lognormal(np.log(MEAN) - 0.5, 1, 1_000).astype(np.int64))
        ids = rng.integers(0, VOCAB_SIZE, int(lengths.sum()), dtype=np.uint16)
        writer.append(ids, np.cumsum(lengths))


def report(name: str, python: str, script: str, path: Path) -> int:
    """Print one line of the table; return the sum of the ids that were read."""
    command = [python, "-W", "ignore", "-c", script, str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{python}: {done.stderr[-2000:]}")
    *numbers, total = json.loads(done.stdout.splitlines()[-1])
    opened, grown, read, touched = numbers
    print(f"| {name} | {opened:.4f} | {grown:.1f} | {read:.3f} | {touched:.1f} |", flush=True)
    return total


if __name__ == "__main__":
    main()
