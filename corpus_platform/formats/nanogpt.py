"""Documents <-> nanoGPT's train.bin and val.bin.

Byte by byte (karpathy/nanoGPT, data/openwebtext/prepare.py and train.py): token ids, nothing else,
document after document, each an unsigned integer of 2 bytes, little-endian. nanoGPT puts the end
token behind each document and keeps no index; it reads np.memmap(..., dtype=np.uint16) whatever the
vocabulary, so one of more than 65,536 ids cannot be written.
"""

from pathlib import Path

import numpy as np

from corpus_platform.formats.export_writer import ExportWriter
from corpus_platform.formats.token_arrays import TokenFile, id_dtype_of, map_array

__all__ = ["NanogptWriter", "open_nanogpt"]

_ID = np.dtype("<u2")


class NanogptWriter(ExportWriter):
    """Write one file of bare 2-byte ids; files of it can be joined by concatenation."""

    format = "nanogpt"
    max_vocab_size = 1 << 16

    def __init__(self, target: Path, *, vocab_size: int) -> None:
        super().__init__(target, vocab_size=vocab_size)
        self._bin = self._open(target)

    def _put(self, tokens: np.ndarray, ends: np.ndarray, loss: np.ndarray | None) -> None:
        self._bin.write_array(tokens, _ID)


def open_nanogpt(path: Path, *, dtype: np.dtype | str = _ID) -> TokenFile:
    """Open a file of bare ids; StorageError where it is cut inside one."""
    return TokenFile(path, "nanogpt", map_array(path, id_dtype_of(path, dtype)))
