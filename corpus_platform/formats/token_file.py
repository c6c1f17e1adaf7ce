"""A token file of any format: told by name and magic, opened, and checked for faults.

How each format lies on disk, and what must hold before it opens, stands in its own module; here is
which one a path belongs to, and what can only be told by reading all tokens.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from corpus_platform.errors import StorageError
from corpus_platform.formats.datatrove import open_datatrove
from corpus_platform.formats.llmc import is_llmc, open_llmc
from corpus_platform.formats.megatron import open_megatron
from corpus_platform.formats.nanogpt import open_nanogpt
from corpus_platform.formats.olmo import is_true_npy, open_olmo, open_true_npy
from corpus_platform.formats.token_arrays import TokenFile, first_fall, id_dtype_of
from corpus_platform.formats.token_bin import open_token_bin

__all__ = ["TokenFile", "faults", "open_tokens"]

_BLOCK = 1 << 22  # tokens that are looked at together: 16 MB of 4-byte ids
_DOCUMENTS = 1 << 18  # whose ends are
_HEADER_BYTES = 1 << 16  # of NAME.json, which has less than 2,000


def open_tokens(path: Path, *, dtype: np.dtype | str | None = None) -> TokenFile:
    """Open a token file of any format, by name and magic; a Megatron file also by its prefix.

    `dtype` says how wide ids are where a file does not. Raises StorageError where nothing fits,
    more than one does, or a file is cut, grown or contradicts itself.
    """
    found = _opened(path, dtype)
    if dtype is not None and found.tokens.dtype != id_dtype_of(path, dtype):
        raise StorageError(
            f"{path}: is {found.format} with ids of {found.tokens.dtype.name}, and"
            f" {id_dtype_of(path, dtype).name} is asked for"
        )
    return found


def _opened(path: Path, dtype: np.dtype | str | None) -> TokenFile:
    by_suffix: dict[str, Callable[[], TokenFile]] = {
        ".bin": lambda: _open_bin(path, dtype),
        ".idx": lambda: open_megatron(path),
        ".json": lambda: _open_native(path.with_suffix("")),
        ".index": lambda: _open_native(path.with_suffix("")),
        ".ds": lambda: open_datatrove(path, dtype=dtype),
        ".npy": lambda: open_true_npy(path) if is_true_npy(path) else open_olmo(path, dtype=dtype),
        ".h5": lambda: _open_hdf5(path),
        ".hdf5": lambda: _open_hdf5(path),
    }
    if path.suffix in by_suffix and path.is_file():
        return by_suffix[path.suffix]()
    if path.is_file():
        raise StorageError(
            f"{path}: names of token files end in {', '.join(by_suffix)}; this one in"
            f" {path.suffix or 'nothing'}"
        )
    return _open_prefix(path)


def _open_prefix(prefix: Path) -> TokenFile:
    tried = [Path(f"{prefix}{suffix}") for suffix in (".idx", ".json", ".bin")]
    there = [candidate for candidate in tried if candidate.is_file()]
    if not there:
        names = ", ".join(candidate.name for candidate in tried)
        raise StorageError(f"{prefix}: is no file, and there is no {names} beside it")
    return _open_bin(Path(f"{prefix}.bin"), None)


def _open_bin(path: Path, dtype: np.dtype | str | None) -> TokenFile:
    """Open NAME.bin, which four formats have: told by what is beside it, then by its magic."""
    prefix = path.with_suffix("")
    is_megatron = Path(f"{prefix}.idx").is_file()
    is_native = _is_native(Path(f"{prefix}.json"))
    if is_megatron and is_native:
        raise StorageError(
            f"{path}: both {prefix.name}.idx (Megatron) and {prefix.name}.json (native) are beside"
            " it; name the one that is meant"
        )
    if is_megatron:
        return open_megatron(prefix)
    if is_native:
        return _open_native(prefix)
    if is_llmc(path):
        return open_llmc(path)
    try:
        return open_nanogpt(path, dtype="uint16" if dtype is None else dtype)
    except StorageError as error:
        raise StorageError(
            f"{error}; tried as bare ids (nanoGPT), as {prefix.name}.idx (Megatron) and"
            f" {prefix.name}.json (native) are not beside it and it does not begin as llm.c's do"
        ) from error


def _is_native(path: Path) -> bool:
    try:
        return path.is_file() and b'"corpus-token-bin"' in path.read_bytes()[:_HEADER_BYTES]
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error}") from error


def _open_native(prefix: Path) -> TokenFile:
    path = Path(f"{prefix}.json")
    if not _is_native(path):
        raise StorageError(f'{path}: is not there or has no "format": "corpus-token-bin"')
    opened = open_token_bin(prefix.parent, prefix.name)
    header = opened.header
    return TokenFile(
        path,
        "native",
        opened.tokens,
        opened.ends,
        opened.loss,
        vocab_size=header.vocab_size,
        eos_id=header.eos_id,
        tokenizer=header.tokenizer_sha256,
        row_tokens=header.row_tokens,
    )


def _open_hdf5(path: Path) -> TokenFile:
    from corpus_platform.formats.hdf5 import open_hdf5  # h5py is an extra

    return open_hdf5(path)


def faults(file: TokenFile, *, vocab_size: int | None = None) -> list[str]:
    """Return what is wrong with a token file, in one sentence each; all tokens are read.

    Ids are checked against `vocab_size`, or what the file says, and against 0; end tokens where the
    file names one. Memory is bounded by a block.
    """
    found = []
    if file.format == "npy":
        found.append("is what numpy.save writes: OLMo-core would take its header for token ids")
    found += _end_faults(file)
    if file.loss is not None and len(file.loss) != len(file.tokens):
        found.append(f"the mask has {len(file.loss)} values for {len(file.tokens)} tokens")
    limit = file.vocab_size if vocab_size is None else vocab_size
    if None not in (vocab_size, file.vocab_size) and vocab_size != file.vocab_size:
        found.append(f"says that its vocabulary has {file.vocab_size} ids, not {vocab_size}")
    found += _id_faults(file, limit)
    if not found:
        found += _loss_faults(file)
        found += _eos_faults(file)
    return found


def _end_faults(file: TokenFile) -> list[str]:
    if file.ends is None:
        return []
    fall = first_fall(file.ends, block=_BLOCK)
    if fall is not None:
        before = file.ends[fall - 1] if fall else 0
        return [f"document {fall} ends at token {file.ends[fall]}, the one before it at {before}"]
    last = int(file.ends[-1]) if len(file.ends) else 0
    if last != len(file.tokens):
        return [f"the last document ends at token {last} of {len(file.tokens)}"]
    return []


def _blocks(file: TokenFile) -> Iterator[tuple[int, np.ndarray]]:
    for start in range(0, len(file.tokens), _BLOCK):
        yield start, np.asarray(file.tokens[start : start + _BLOCK])


def _id_faults(file: TokenFile, limit: int | None) -> list[str]:
    """Count the ids outside the vocabulary, and name the first."""
    count, first, example = 0, 0, 0
    for start, block in _blocks(file):
        if block.min() >= 0 and (limit is None or block.max() < limit):
            continue
        outside = block < 0 if limit is None else (block < 0) | (block >= limit)
        if not count:
            at = int(outside.argmax())
            first, example = start + at, int(block[at])
        count += int(np.count_nonzero(outside))
    if not count:
        return []
    of = "" if limit is None else f" 0..{limit - 1}"
    return [f"{count} ids outside the vocabulary{of}, the first is {example} at token {first}"]


def _loss_faults(file: TokenFile) -> list[str]:
    if file.loss is None or file.loss.dtype == np.bool_:
        return []
    for start in range(0, len(file.loss), _BLOCK):
        block = np.asarray(file.loss[start : start + _BLOCK])
        if (block > 1).any():
            at = int((block > 1).argmax())
            return [f"the mask has {block[at]} at token {start + at}, expected 0 or 1"]
    return []


def _eos_faults(file: TokenFile) -> list[str]:
    """Count the documents that do not end in the end token, and name the first."""
    if file.eos_id is None or file.ends is None or file.row_tokens is not None:
        return []
    count, first, before = 0, 0, 0
    for start in range(0, len(file.ends), _DOCUMENTS):
        ends = np.asarray(file.ends[start : start + _DOCUMENTS]).astype(np.int64)
        lacking = np.diff(ends, prepend=before) == 0  # an empty document ends in nothing
        before = int(ends[-1])
        lacking[~lacking] = _last_tokens(file, ends[~lacking]) != file.eos_id
        if lacking.any() and not count:
            first = start + int(lacking.argmax())
        count += int(np.count_nonzero(lacking))
    if not count:
        return []
    return [f"{count} documents do not end in the end token {file.eos_id}, the first is {first}"]


def _last_tokens(file: TokenFile, ends: np.ndarray) -> np.ndarray:
    """Return the token before each of these ends, which rise; tokens are read in blocks."""
    parts = [np.empty(0, np.int64)]
    at = 0
    while at < len(ends):
        start = int(ends[at]) - 1
        after = int(np.searchsorted(ends, start + _BLOCK, side="right"))
        block = np.asarray(file.tokens[start : int(ends[after - 1])])
        parts.append(block[ends[at:after] - 1 - start])
        at = after
    return np.concatenate(parts)
