"""Encoding and writing tokens, ours beside datatrove's DocumentTokenizer, on the text of shards.

    python benchmarks/encode.py FOLDER_OR_SHARD ... [--peer PYTHON] [--megabytes 50] [--tokenizer FILE]

PYTHON is an interpreter that can import datatrove (0.10.1 was compared) with the same tokenizers as
ours. All read the same Parquet file and write ids of 2 bytes, each document ended by one EOS, in
order; the files must be the same byte for byte. Ours encodes through fastokens with the sample of
every shard by the reference, and through tokenizers alone. CPU seconds of one process, held to one
core where the system can; ours is the least of some rounds. The sweep that lets fastokens be used
is timed by itself: it is made once for a tokenizer. Without FILE a tokenizer of 32,000 tokens is
trained on 8 MB of the text.
"""

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from corpus_platform.config import SPECIAL_TOKENS, Fields
from corpus_platform.document import Document
from corpus_platform.formats.shard import read_shard
from corpus_platform.stages.encoding import Encode, Encoding, encode_shard
from corpus_platform.stages.fast_engine import FAST, REFERENCE
from corpus_platform.stages.tables import read_batches
from corpus_platform.tokenization.encoder import (
    HuggingFaceEncoder,
    load_encoder,
    read_tokenizer,
    take_threads,
)
from corpus_platform.tokenization.exactness import sweep
from corpus_platform.tokenization.fast import load_fast
from corpus_platform.tokenization.training import tokenizer_bytes, train

ENDINGS = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet", ".warc.wet.gz")
EOS = SPECIAL_TOKENS[0]
TRAINED_BYTES = 8_000_000
PEER = """
import json, sys, time, os
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
os.environ["TOKENIZERS_PARALLELISM"] = "false"
import pyarrow.parquet as pq
from datatrove.data import Document
from datatrove.pipeline.tokens.tokenizer import DocumentTokenizer
path, tokenizer, target, eos = sys.argv[1:]
def documents():
    for batch in pq.ParquetFile(path).iter_batches(1000, columns=["text"]):
        for text in batch.column(0).to_pylist():
            yield Document(text=text, id="")
step = DocumentTokenizer(target, tokenizer, eos_token=eos, shuffle_documents=False, batch_size=1000,
                         save_final_metadata=False)
step.tokenizer
start, wall = time.process_time(), time.perf_counter()
for _ in step.run(documents()) or ():
    pass
print(json.dumps([time.process_time() - start, time.perf_counter() - wall]))
"""


def main() -> None:
    """Print MB per CPU second of each, and how many times the peer's."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="FOLDER_OR_SHARD")
    parser.add_argument("--peer", metavar="PYTHON")
    parser.add_argument("--megabytes", type=int, default=50)
    parser.add_argument("--tokenizer", type=Path, metavar="FILE")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    take_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        _compare(Path(folder), asked)


def _compare(folder: Path, asked: argparse.Namespace) -> None:
    texts = _texts(asked.paths, asked.megabytes * 1_000_000)
    size = sum(len(text.encode()) for text in texts) / 1e6
    pq.write_table(pa.table({"text": texts}), folder / "texts.parquet", compression="zstd")
    data = asked.tokenizer.read_bytes() if asked.tokenizer else _trained(texts)
    (folder / "tokenizer.json").write_bytes(data)
    print(f"{len(texts)} documents, {size:.1f} MB of text")
    reference = load_encoder(data, eos_token=EOS)
    fast = Encoding(load_fast(data, reference), reference, FAST)
    alone = HuggingFaceEncoder(read_tokenizer(data), fingerprint=reference.fingerprint)
    start = time.process_time()
    found = sweep(alone, fast.encoder, documents=texts[:200], progress=lambda *_: None)
    print(f"sweep: {time.process_time() - start:.1f} s, first difference: {found}")
    ours = min(_ours(folder, "fast", fast, len(texts)) for _ in range(asked.rounds))
    plain = _ours(folder, "reference", Encoding(reference, reference, REFERENCE), len(texts))
    rows = [
        ("ours, fastokens, with the sample", ours, "fast"),
        ("ours, tokenizers", plain, "reference"),
    ]
    theirs = _theirs(folder, asked.peer) if asked.peer else None
    print(f"\n{'encode and write':34} {'MB/s':>7} {'ratio':>7}  ids")
    for name, seconds, file in rows:
        ratio = f"{theirs / seconds:6.1f}x" if theirs else ""
        print(f"{name:34} {size / seconds:7.1f} {ratio:>7}  {_sha256(folder / file)}")
    if theirs:
        (file,) = (folder / "datatrove").glob("*.ds")
        print(
            f"{'datatrove DocumentTokenizer':34} {size / theirs:7.2f} {'1.0x':>7}  {_sha256(file)}"
        )
        if _sha256(file) != _sha256(folder / "fast"):
            sys.exit("the ids are not the same")


def _ours(folder: Path, name: str, encoding: Encoding, documents: int) -> float:
    """Return the CPU seconds to encode and write; raise where the engine is not exact."""
    start = time.process_time()

    def write(encode: Encode) -> None:
        with (folder / name).open("wb", buffering=0) as file:
            done = 0
            for batch in read_batches(folder / "texts.parquet", ["text"], rows=500):
                texts = batch.column(0).to_pylist()
                rows = np.arange(done, done + len(texts))
                found = encode(rows, texts, [""] * len(texts))
                file.write(_ended(found.flat, found.ends, encoding.reference.eos_id or 0).data)
                done += len(texts)

    written = encode_shard(encoding, "a/b", np.arange(documents), write)
    if written.engine_differences:
        sys.exit("fastokens is not exact on this text")
    return time.process_time() - start


def _ended(flat: np.ndarray, ends: np.ndarray, eos_id: int) -> np.ndarray:
    """Return the ids in 2 bytes, with the end token after each document."""
    places = ends + np.arange(1, len(ends) + 1) - 1
    ids = np.full(len(flat) + len(ends), eos_id, np.dtype("<u2"))
    inside = np.ones(len(ids), np.bool_)
    inside[places] = False
    ids[inside] = flat
    return ids


def _theirs(folder: Path, python: str) -> float:
    """Return the CPU seconds of datatrove to read, encode and write."""
    target = folder / "datatrove"
    command = [python, "-c", PEER, *map(str, (folder / "texts.parquet", folder / "tokenizer.json", target)), EOS]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        sys.exit(result.stderr.strip().splitlines()[-1])
    return json.loads(result.stdout.splitlines()[-1])[0]


def _texts(paths: Sequence[Path], size: int) -> list[str]:
    """Return texts of so many bytes, drawn over all shards."""
    texts = [*_all(paths)]
    random.Random(1).shuffle(texts)
    chosen, held = [], 0
    for text in texts:
        if held >= size:
            break
        held += len(text.encode())
        chosen.append(text)
    return chosen


def _all(paths: Sequence[Path]) -> Iterator[str]:
    for given in paths:
        found = [given] if given.is_file() else sorted(given.rglob("*"))
        for path in (p for p in found if p.name.endswith(ENDINGS)):
            shard = read_shard([path], Fields(), shard="b/s", max_record_bytes=1 << 25)
            yield from (d.text for batch in shard for d in batch if isinstance(d, Document))


def _trained(texts: Sequence[str]) -> bytes:
    sample, held = [], 0
    for text in texts:
        held += len(text.encode())
        sample.append(text)
        if held >= TRAINED_BYTES:
            break
    return tokenizer_bytes(train(sample, vocab_size=32_000, special_tokens=list(SPECIAL_TOKENS)))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:12]


if __name__ == "__main__":
    main()
