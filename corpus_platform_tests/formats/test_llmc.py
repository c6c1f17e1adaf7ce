import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.errors import StageFailed, StorageError
from corpus_platform.formats.export_writer import WrittenFile
from corpus_platform.formats.llmc import LlmcWriter, is_llmc, llmc_dtype, open_llmc

GOLDEN = Path(__file__).parent / "golden"
SMALL = [[5, 6, 0], [], [7, 0], [0], []]
WIDE = [[0, 65535, 65536, 70000], [], [1]]


def write(
    path: Path, documents: list[list[int]], *, vocab_size: int = 10
) -> tuple[WrittenFile, ...]:
    with LlmcWriter(path, vocab_size=vocab_size) as writer:
        for document in documents:
            writer.append(np.array(document, np.int64), np.array([len(document)]))
    return writer.written


@pytest.mark.parametrize(
    ("name", "documents", "vocab_size"),
    [("llmc_gpt-2.bin", SMALL, 10), ("llmc_llama-3.bin", WIDE, 70_001)],
)
def test_the_bytes_are_those_of_llmcs_own_writer(
    tmp_path: Path, name: str, documents: list[list[int]], vocab_size: int
) -> None:
    write(tmp_path / "train.bin", documents, vocab_size=vocab_size)
    assert (tmp_path / "train.bin").read_bytes() == (GOLDEN / name).read_bytes()
    ids = [token for document in documents for token in document]
    assert open_llmc(GOLDEN / name).tokens.tolist() == ids


def test_the_hash_is_that_of_the_file_with_its_count(tmp_path: Path) -> None:
    (file,) = write(tmp_path / "train.bin", SMALL)
    assert file == WrittenFile(
        "train.bin",
        1036,
        hashlib.sha256((GOLDEN / "llmc_gpt-2.bin").read_bytes()).hexdigest(),
        6,
        5,
    )


def test_ids_are_four_bytes_wide_above_65536_of_them() -> None:
    sizes = [65_499, 65_500, 65_535, 65_536, 65_537]
    assert [llmc_dtype(size).name for size in sizes] == [*["uint16"] * 4, "uint32"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d[:-2], "1034 bytes, expected 1036 for header and 6 ids of uint16"),
        (lambda d: d[:-1], "1035 bytes, expected 1036"),
        (lambda d: d + b"\0\0", "1038 bytes, expected 1036"),
        (lambda d: d[:1000], "1000 bytes that begin with"),
        (lambda d: d[:5], r"5 bytes that begin with \(20240520,\), expected"),
        (lambda d: b"", r"0 bytes that begin with \(\)"),
        (lambda d: d[:4] + b"\7" + d[5:], r"begin with \(20240520, 7, 6\)"),
        (lambda d: d[:11] + b"\xff" + d[12:], "expected .* and a count in a header"),
    ],
)
def test_fm_07_a_file_of_another_size_than_its_header_says_raises_when_opened(
    tmp_path: Path, change: Callable[[bytes], bytes], said: str
) -> None:
    path = tmp_path / "train.bin"
    path.write_bytes(change((GOLDEN / "llmc_gpt-2.bin").read_bytes()))
    with pytest.raises(StorageError, match=said):
        open_llmc(path)


def test_a_file_is_known_by_magic_and_version(tmp_path: Path) -> None:
    (tmp_path / "bare.bin").write_bytes(np.array([20240520, 7], "<i4").tobytes())
    names = [GOLDEN / "llmc_gpt-2.bin", GOLDEN / "llmc_llama-3.bin", tmp_path / "bare.bin"]
    assert [is_llmc(name) for name in names] == [True, True, False]


def test_a_document_longer_than_a_file_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    endless = np.broadcast_to(np.uint16(1), (1 << 31,))  # takes no memory
    with (
        pytest.raises(
            StageFailed, match="2147483648 tokens; a file of llmc can hold 2147483647: b"
        ),
        LlmcWriter(tmp_path / "train.bin", vocab_size=10) as writer,
    ):
        writer.append(endless, np.array([1 << 31]))
    assert list(tmp_path.iterdir()) == []


def test_a_writer_says_what_still_fits(tmp_path: Path) -> None:
    with LlmcWriter(tmp_path / "train.bin", vocab_size=10) as writer:
        writer.append(np.array([1, 2, 3]), np.array([3]))
        assert (LlmcWriter.max_tokens, writer.room) == (2_147_483_647, 2_147_483_644)


def test_a_file_without_tokens_opens(tmp_path: Path) -> None:
    write(tmp_path / "train.bin", [[], []])
    assert (tmp_path / "train.bin").stat().st_size == 1024
    assert open_llmc(tmp_path / "train.bin").tokens.tolist() == []


DOCUMENTS = st.lists(st.lists(st.integers(0, 65_535), max_size=5), max_size=8)


@given(first=DOCUMENTS, second=DOCUMENTS, vocab_size=st.sampled_from([65_536, 65_537, 1 << 32]))
@settings(max_examples=25, deadline=None)
def test_the_ids_of_two_files_are_the_export_of_all(
    first: list[list[int]], second: list[list[int]], vocab_size: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        a, b, both = (Path(name) / f"{n}.bin" for n in ("a", "b", "both"))
        for path, documents in ((a, first), (b, second), (both, first + second)):
            (file,) = write(path, documents, vocab_size=vocab_size)
            assert file.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
        assert a.read_bytes()[1024:] + b.read_bytes()[1024:] == both.read_bytes()[1024:]
        ids = [token for document in first + second for token in document]
        assert open_llmc(both).tokens.tolist() == ids
