"""Which token files a path stands for: one of any format, those of an artifact, or of an export.

Told by content where a name says too little: a shard of raw text is none, whatever it is called.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from corpus_platform.errors import StorageError
from corpus_platform.formats.compression import sniff
from corpus_platform.formats.llmc import is_llmc
from corpus_platform.formats.token_file import TokenFile, open_tokens
from corpus_platform.stages.export_json import Finished, read_export
from corpus_platform.stages.export_target import EXPORT_NAME
from corpus_platform.stages.tokenizer import TOKENIZER_FILE
from corpus_platform.storage.files import file_sha256
from corpus_platform.storage.manifest import MANIFEST_NAME, Manifest, read_manifest

__all__ = [
    "Subject",
    "as_wide",
    "find_subjects",
    "read_artifact",
    "read_exported",
    "tokenizer_beside",
]

_HEADER = b'"corpus-token-bin"'
_HEADER_BYTES, _LINE_BYTES = 1 << 16, 1 << 20
_ALWAYS = {".idx", ".h5", ".hdf5"}
_BARE = {".bin", ".ds", ".npy"}  # ids alone: anything may be called so
_PACKED = {"gzip", "zstd", "parquet", "warc"}


@dataclass(frozen=True)
class Subject:
    """A token file to look at, and what is known of it from beside it; None where nothing is.

    `row_tokens` is the length of its rows where its format does not say so.
    """

    path: Path
    dtype: np.dtype | str | None = None
    vocab_size: int | None = None
    eos_id: int | None = None
    tokenizer: Path | None = None
    row_tokens: int | None = None

    def open(self) -> TokenFile:
        """Open it by its format's own reader; raises StorageError."""
        file = open_tokens(self.path, dtype=self.dtype)
        return file if file.row_tokens else replace(file, row_tokens=self.row_tokens)


def find_subjects(path: Path, *, dtype: str | None = None) -> list[Subject] | None:
    """Return the token files that a path stands for; None where it stands for something else.

    A folder with manifest.json or export.json may have none.
    """
    if path.is_dir():
        if (path / MANIFEST_NAME).is_file():
            return list(_of_artifact(path))
        return list(_of_export(path)) if (path / EXPORT_NAME).is_file() else None
    if not _is_token_file(path):
        return None
    return [Subject(path, dtype, row_tokens=_rows_by_export(path))]


def _rows_by_export(path: Path) -> int | None:
    """Return the length of rows that an export.json says of a file, at most a folder above it."""
    names = {path.name, f"{path.name}.bin", f"{path.stem}.bin"}  # Megatron's, by prefix or index
    for folder in (path.parent, path.parent.parent):
        with contextlib.suppress(StorageError, OSError):
            said = read_export((folder / EXPORT_NAME).read_bytes(), str(folder))
            beside = path.parent.relative_to(folder)
            if any((beside / name).as_posix() in said.files for name in names):
                return said.row_tokens
    return None


def as_wide(subject: Subject, dtype: str) -> Subject:
    """Return a token file with ids of a width, or as it is where it tells that itself."""
    try:
        told = (
            subject.dtype is not None or subject.open().format != "nanogpt"
        )  # which is uint16 else
    except StorageError:
        told = False
    return subject if told else replace(subject, dtype=dtype)


def read_artifact(path: Path) -> tuple[Manifest, list[str]] | None:
    """Return the manifest of an artifact's folder, and which of its files are not as it says.

    None where the folder is none of an artifact. Sizes are compared; `corpus verify` hashes.
    """
    if not (path / MANIFEST_NAME).is_file():
        return None
    manifest = read_manifest(path / MANIFEST_NAME)
    return manifest, [fault for o in manifest.outputs if (fault := _fault(path / o.name, o.bytes))]


def read_exported(path: Path) -> tuple[Finished, list[str]] | None:
    """Return what export.json says of a folder, and which of its files are not so, by size.

    None where the folder is none of an export.
    """
    if not (path / EXPORT_NAME).is_file():
        return None
    said = read_export((path / EXPORT_NAME).read_bytes(), str(path / EXPORT_NAME))
    files = said.files.values()
    return said, [fault for file in files if (fault := _fault(path / file.path, file.bytes))]


def _fault(path: Path, size: int) -> str | None:
    try:
        found = path.stat().st_size
    except OSError as error:
        return f"{path}: cannot be read: {error}"
    return None if found == size else f"{path}: {found} bytes, expected {size}"


def _of_artifact(folder: Path) -> Iterator[Subject]:
    for output in read_manifest(folder / MANIFEST_NAME).outputs:
        path = folder / output.name
        if path.suffix == ".json" and _is_native(path):
            yield Subject(path)


def _of_export(folder: Path) -> Iterator[Subject]:
    path = folder / EXPORT_NAME
    said = read_export(path.read_bytes(), str(path))
    for file in said.files.values():
        if file.tokens:
            dtype = said.dtype if Path(file.path).suffix not in _ALWAYS else None
            yield Subject(
                folder / file.path,
                dtype,
                said.vocab_size,
                said.eos_id,
                folder / TOKENIZER_FILE,
                said.row_tokens,
            )


def _is_token_file(path: Path) -> bool:
    if not path.is_file():
        return Path(f"{path}.idx").is_file()  # the prefix of a Megatron dataset
    if path.suffix in _ALWAYS:
        return True
    if path.suffix == ".json":
        return _is_native(path)
    if path.suffix == ".index":
        return _is_native(path.with_suffix(".json"))
    if path.suffix not in _BARE:
        return False
    beside = path.with_suffix(".idx").is_file() or _is_native(path.with_suffix(".json"))
    return beside or is_llmc(path) or not _is_raw(path)


def _is_native(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return _HEADER in file.read(_HEADER_BYTES)
    except OSError:
        return False


def _is_raw(path: Path) -> bool:
    """Tell whether a file holds records: packed ones, or a JSON object on its first line."""
    try:
        with path.open("rb") as file:
            line = file.readline(_LINE_BYTES)
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error}") from error
    if sniff(line[:64]) in _PACKED:
        return True
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def tokenizer_beside(file: TokenFile) -> Path | None:
    """Return the tokenizer.json in a file's folder, where it is the one that the file names."""
    path = file.path.parent / TOKENIZER_FILE
    if file.tokenizer is None or not path.is_file():
        return None
    return path if file_sha256(path) == file.tokenizer else None
