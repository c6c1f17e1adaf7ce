import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from corpus_platform.errors import StageFailed, StorageError, UsageError
from corpus_platform.formats.datatrove import DatatroveWriter
from corpus_platform.formats.export_writer import ExportWriter
from corpus_platform.formats.llmc import LlmcWriter
from corpus_platform.formats.megatron import MegatronWriter
from corpus_platform.formats.nanogpt import NanogptWriter
from corpus_platform.formats.olmo import OlmoWriter
from corpus_platform.formats.token_file import open_tokens

Begin = Callable[[Path], ExportWriter]
WRITERS: dict[str, Begin] = {
    "megatron": lambda folder: MegatronWriter(folder / "m.1", vocab_size=10),
    "datatrove": lambda folder: DatatroveWriter(folder / "d.ds", vocab_size=10, tokenizer="tiny"),
    "nanogpt": lambda folder: NanogptWriter(folder / "n.bin", vocab_size=10),
    "llmc": lambda folder: LlmcWriter(folder / "l.bin", vocab_size=10),
    "olmo": lambda folder: OlmoWriter(folder / "o.npy", vocab_size=10),
}
every_format = pytest.mark.parametrize("begin", WRITERS.values(), ids=WRITERS)


@every_format
@pytest.mark.parametrize(
    ("tokens", "ends", "said"),
    [
        ([1, 2, 10], [1, 3], r"token id 10 in document 1 is outside the vocabulary 0\.\.9"),
        ([1, -1], [2], r"token id -1 in document 0 is outside"),
        ([1, 2], [1], "ends must rise from 0 to the 2 tokens given"),
        ([1, 2], [2, 1, 2], "ends must rise from 0 to the 2 tokens given"),
        ([1, 2], [], "ends must rise from 0 to the 2 tokens given"),
        ([1.0], [1], "token ids must be integers, found float64"),
    ],
)
def test_what_is_no_documents_is_refused_and_leaves_no_file(
    tmp_path: Path, begin: Begin, tokens: list, ends: list[int], said: str
) -> None:
    with pytest.raises(StageFailed, match=said), begin(tmp_path) as writer:
        writer.append(np.array(tokens), np.array(ends, np.int64))
    assert list(tmp_path.iterdir()) == []


@every_format
def test_the_report_has_all_files_with_their_bytes_and_hashes(tmp_path: Path, begin: Begin) -> None:
    with begin(tmp_path) as writer:
        for _ in range(3):
            writer.append(np.arange(10, dtype=np.uint16), np.array([0, 4, 10]))
    files = {file.name: (file.bytes, file.sha256) for file in writer.written}
    assert files == {
        path.name: (len(path.read_bytes()), hashlib.sha256(path.read_bytes()).hexdigest())
        for path in tmp_path.iterdir()
    }
    assert sum(file.tokens for file in writer.written) == 30
    assert sum(file.documents for file in writer.written) == 9


@every_format
def test_the_type_of_the_ids_given_and_the_size_of_a_call_do_not_matter(
    tmp_path: Path, begin: Begin
) -> None:
    tokens, ends = np.arange(600_000) % 10, np.array([200_000, 200_000, 600_000])
    found = []
    for name, dtype, step in (("a", np.uint16, 3), ("b", np.int64, 1), ("c", np.uint32, 1)):
        (tmp_path / name).mkdir()
        with begin(tmp_path / name) as writer:
            for low in range(0, 3, step):
                first = ends[low - 1] if low else 0
                part = ends[low : low + step]
                writer.append(tokens[first : part[-1]].astype(dtype), part - first)
        found.append(writer.written)
    assert found[1] == found[0]
    assert found[2] == found[0]


@every_format
def test_what_is_written_is_told_by_name_and_opened(tmp_path: Path, begin: Begin) -> None:
    with begin(tmp_path) as writer:
        writer.append(np.array([1, 2, 3]), np.array([1, 3]))
    opened = open_tokens(writer.target)
    assert (opened.format, opened.tokens.tolist()) == (writer.format, [1, 2, 3])


@every_format
def test_nothing_is_appended_to_a_finished_file(tmp_path: Path, begin: Begin) -> None:
    writer = begin(tmp_path)
    with pytest.raises(UsageError, match="is still being written"):
        _ = writer.written
    assert writer.close() == writer.close()
    with pytest.raises(UsageError, match="is closed; nothing can be appended"):
        writer.append(np.array([1]), np.array([1]))


@every_format
def test_a_file_that_cannot_be_begun_leaves_none(tmp_path: Path, begin: Begin) -> None:
    with pytest.raises(StorageError, match="cannot be written"):
        begin(tmp_path / "missing")


@pytest.mark.parametrize("vocab_size", [0, (1 << 31) + 1])
def test_a_vocabulary_that_ids_cannot_hold_is_refused(tmp_path: Path, vocab_size: int) -> None:
    with pytest.raises(UsageError, match=f"of 1 to 2147483648, not of {vocab_size}"):
        MegatronWriter(tmp_path / "m", vocab_size=vocab_size)


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (np.array([1, 0], np.uint8), "a mask of 2 for 3 tokens"),
        (np.array([1, 2, 0], np.uint8), "a mask holds 0 and 1 only, found 2"),
        (np.array([1, -1, 0]), "a mask holds 0 and 1 only"),
    ],
)
def test_a_mask_is_one_or_zero_for_each_token(tmp_path: Path, loss: np.ndarray, said: str) -> None:
    with (
        pytest.raises(StageFailed, match=said),
        OlmoWriter(tmp_path / "o.npy", vocab_size=10, loss=True) as writer,
    ):
        writer.append(np.array([1, 2, 3]), np.array([3]), loss)
