"""What tests have other processes do with HDF5 files; few imports, so that these begin soon."""

from pathlib import Path
from typing import Any

import numpy as np

from corpus_platform.formats.hdf5 import Hdf5Writer

__all__ = ["DOCUMENTS", "TOKENIZER", "send_windows", "windows_of", "write", "writer"]

TOKENIZER = "5e" * 32
DOCUMENTS = [[5, 6, 7, 0], [], [8, 0], [9, 9, 9, 9, 9, 0]]  # 12 tokens


def writer(path: Path, **options: Any) -> Hdf5Writer:
    """Return a writer of chunks of 4 tokens, unless `options` say otherwise."""
    usual: dict[str, Any] = {
        "vocab_size": 1000,
        "eos_id": 0,
        "tokenizer_sha256": TOKENIZER,
        "chunk_tokens": 4,
    }
    return Hdf5Writer(path, **{**usual, **options})


def write(path: Path, documents: list[list[int]], **options: Any) -> Path:
    """Write documents at once; with `loss`, odd tokens count."""
    flat = np.array([t for d in documents for t in d], dtype=np.int64)
    with writer(path, **options) as file:
        mask = (flat % 2).astype(bool) if options.get("loss") else None
        file.append(flat, np.cumsum([len(d) for d in documents], dtype=np.int64), mask)
    return path


def windows_of(tokens: Any, numbers: range) -> list[tuple[int, ...]]:
    """Return windows of 10 tokens by number."""
    return [tuple(tokens[10 * i : 10 * i + 10].tolist()) for i in numbers]


def send_windows(files: list[Any], numbers: range, results: Any) -> None:
    """Put windows of each file into a queue."""
    results.put([windows_of(tokens, numbers) for tokens in files])
