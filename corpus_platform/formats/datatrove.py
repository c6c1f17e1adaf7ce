"""Documents <-> datatrove's tokenized files, NAME.ds and those beside it.

Byte by byte (huggingface/datatrove a649de79, pipeline/tokens/{tokenizer,merger}.py and
utils/dataset.py), all integers little-endian:

NAME.ds           token ids, nothing else, document after document: uint16 where the vocabulary has
                  at most 65,536 ids, else uint32.
NAME.ds.index     one uint64 a document: where it ends, in tokens from the start, exclusive. No
                  leading 0, no count. Files of datatrove's context shuffler come without.
NAME.ds.loss      optional, one byte a token, 1 where its loss counts, else 0.
NAME.ds.metadata  three lines without a final newline: TOKENIZER|BYTES_OF_AN_ID, the tokens, and
                  the tokens to three digits ("1.23 MT"), as humanize.metric writes them.

Its reader takes all names of a folder that end in `.ds`, sorted; its merger calls its files
NNN_SAVE.ds and puts SAVE.ds.metadata with the total beside them. With positions asked of the index
its reader misses the border at an empty document (it keeps one reset a place), so leave end tokens
on or empty documents out for those who train with positions.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from corpus_platform.errors import StorageError, UsageError
from corpus_platform.formats.export_writer import ExportWriter
from corpus_platform.formats.hashed_file import WrittenFile, hashed_files
from corpus_platform.formats.token_arrays import (
    TokenFile,
    file_size,
    first_fall,
    id_dtype_of,
    map_array,
    no_wrong_size,
)

__all__ = [
    "DatatroveWriter",
    "datatrove_dtype",
    "datatrove_name",
    "merge_datatrove",
    "open_datatrove",
    "three_digits",
    "write_total",
]

_DTYPES = {2: np.dtype("<u2"), 4: np.dtype("<u4")}
_INDEX, _LOSS = np.dtype("<u8"), np.dtype("u1")
_UINT16_VOCABULARY = 65_536
_PREFIXES = ["", "k", "M", "G", "T", "P", "E"]  # of thousands


def datatrove_dtype(vocab_size: int) -> np.dtype:
    """Return the type of ids that datatrove takes for a vocabulary."""
    return _DTYPES[2 if vocab_size <= _UINT16_VOCABULARY else 4]


def datatrove_name(number: int, save: str) -> str:
    """Return the name that datatrove's merger gives its files: `003_train.ds`."""
    return f"{number:03d}_{save}.ds"


class DatatroveWriter(ExportWriter):
    """Write NAME.ds and the files beside it; `tokenizer` is its name, for the metadata."""

    format = "datatrove"
    max_vocab_size = 1 << 32

    def __init__(
        self, target: Path, *, vocab_size: int, tokenizer: str, loss: bool = False
    ) -> None:
        super().__init__(target, vocab_size=vocab_size, loss=loss)
        if target.suffix != ".ds":
            raise UsageError(f"{target}: datatrove reads names that end in .ds only")
        _check_tokenizer(target, tokenizer)
        self._tokenizer, self._dtype = tokenizer, datatrove_dtype(vocab_size)
        self._ds, self._index = self._open(target), self._open(_beside(target, "index"))
        self._loss = self._open(_beside(target, "loss")) if loss else None

    def _put(self, tokens: np.ndarray, ends: np.ndarray, loss: np.ndarray | None) -> None:
        self._ds.write_array(tokens, self._dtype)
        self._index.write_array(ends + self.tokens, _INDEX)
        if self._loss is not None and loss is not None:
            self._loss.write_array(loss, _LOSS)

    def _finish(self) -> None:
        text = _metadata(self._tokenizer, self._dtype.itemsize, self.tokens)
        self._open(_beside(self.target, "metadata")).write(text)


def write_total(folder: Path, save: str, *, tokenizer: str, vocab_size: int, tokens: int) -> Path:
    """Write the metadata of all files of a folder, as datatrove's merger does; return its path."""
    path = folder / f"{save}.ds.metadata"
    _check_tokenizer(path, tokenizer)
    text = _metadata(tokenizer, datatrove_dtype(vocab_size).itemsize, tokens)
    with hashed_files(path) as (file,):
        file.write(text)
    return path


def open_datatrove(path: Path, *, dtype: np.dtype | str | None = None) -> TokenFile:
    """Open NAME.ds; `ends` is None where there is no index.

    The type of ids stands in the metadata; without these it follows from the index, or is given.
    Raises StorageError for files that do not agree in size, or ends that do not rise.
    """
    size, metadata = file_size(path), _read_metadata(_beside(path, "metadata"))
    ends = _optional(_beside(path, "index"), _INDEX)
    last = int(ends[-1]) if ends is not None and len(ends) else 0
    found = _found_dtype(path, metadata, None if ends is None else last, size)
    if dtype is not None and found is not None and id_dtype_of(path, dtype) != found:
        raise StorageError(f"{path}: its ids are {found.name}, and {dtype} is asked for")
    found = found if dtype is None else id_dtype_of(path, dtype)
    if found is None:
        raise StorageError(
            f"{path}: neither metadata nor an index beside it says how wide its ids are; say so"
            " (uint16 or uint32)"
        )
    tokens = map_array(path, found)
    if ends is not None:
        why = f"{last} ids of {found.name}, where the last document ends"
        no_wrong_size(path, size, last * found.itemsize, why=why)
        if (fall := first_fall(ends)) is not None:
            raise StorageError(f"{path}.index: document {fall} ends before the one before it")
    if metadata is not None and metadata[2] != len(tokens):
        why = f"the {metadata[2]} tokens of its metadata"
        no_wrong_size(path, size, metadata[2] * found.itemsize, why=why)
    loss_path = _beside(path, "loss")
    loss = _optional(loss_path, _LOSS)
    if loss is not None:
        no_wrong_size(loss_path, len(loss), len(tokens), why=f"one a token of {path.name}")
    name = None if metadata is None else metadata[0]
    return TokenFile(path, "datatrove", tokens, ends, loss, tokenizer=name)


def merge_datatrove(paths: Sequence[Path], target: Path) -> tuple[WrittenFile, ...]:
    """Write the documents of all files, in this order, as one.

    The bytes are those of one export of the same documents. Raises UsageError for files that are
    not alike in type of ids, tokenizer and masks, or have no index or no metadata.
    """
    files = [open_datatrove(path) for path in paths]
    kinds = {(f.tokens.dtype.name, f.tokenizer, f.loss is not None) for f in files}
    if len(kinds) != 1 or target.resolve() in {path.resolve() for path in paths}:
        raise UsageError(
            f"{target}: cannot be merged of {len(paths)} files of {sorted(map(str, kinds))} (type of"
            " ids, tokenizer, mask): at least one, all alike, and none of them the target"
        )
    ((dtype, tokenizer, has_loss),) = kinds
    if tokenizer is None or any(file.ends is None for file in files):
        raise UsageError(f"{target}: files to be merged need an index and metadata beside them")
    every_id = 1 << 8 * np.dtype(dtype).itemsize
    with DatatroveWriter(target, vocab_size=every_id, tokenizer=tokenizer, loss=has_loss) as merged:
        for file in files:
            assert file.ends is not None
            merged.append(file.tokens, file.ends, file.loss)
    return merged.written


def _beside(path: Path, what: str) -> Path:
    return Path(f"{path}.{what}")


def _optional(path: Path, dtype: np.dtype) -> np.ndarray | None:
    return map_array(path, dtype) if path.exists() else None


def _check_tokenizer(path: Path, tokenizer: str) -> None:
    if not tokenizer or set(tokenizer) & set("|\r\n"):
        raise UsageError(
            f"{path}: the tokenizer's name is {tokenizer!r}; datatrove's metadata needs one without"
            " '|' and line ends"
        )


def _metadata(tokenizer: str, itemsize: int, tokens: int) -> bytes:
    return f"{tokenizer}|{itemsize}\n{tokens}\n{three_digits(tokens)}T".encode()


def three_digits(count: int) -> str:
    """Return a count to three digits with its thousands: `1.23 M`, `999 `, `12.0 k`."""
    power = math.floor(math.log10(count)) if count else 0
    thousands, place = divmod(power, 3)
    text = f"{count / 1000**thousands:.{2 - place}f}"
    if len(text.partition(".")[0]) > place + 1:  # 9.999 became 10.00
        thousands, place = divmod(power + 1, 3)
        text = f"{count / 1000**thousands:.{2 - place}f}"
    return f"{text} {_PREFIXES[thousands]}"


def _read_metadata(path: Path) -> tuple[str, int | None, int] | None:
    """Return tokenizer, bytes of an id (None where they are not said) and tokens."""
    if not path.exists():
        return None
    try:
        first, count, *_ = path.read_text(encoding="utf-8").split("\n")
        # A tokenizer without a name is written as "Unknown Tokenizer|2|2".
        name, *sizes = first.split("|")
        return name, int(sizes[-1]) if sizes else None, int(count)
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error}") from error
    except ValueError as error:
        raise StorageError(f"{path}: is no metadata of datatrove: {error}") from error


def _found_dtype(
    path: Path, metadata: tuple[str, int | None, int] | None, last: int | None, size: int
) -> np.dtype | None:
    """Return the type of ids that the metadata names or, without these, the index allows."""
    itemsize = None if metadata is None else metadata[1]
    if itemsize is not None and itemsize not in _DTYPES:
        raise StorageError(f"{path}.metadata: ids of {itemsize} bytes, expected 2 or 4")
    if itemsize is None and last is not None:
        if not size and not last:
            return _DTYPES[2]
        return next((t for t in _DTYPES.values() if last and last * t.itemsize == size), None)
    return _DTYPES.get(itemsize or 0)
