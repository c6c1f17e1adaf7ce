import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.errors import StorageError, UsageError
from corpus_platform.formats.export_writer import WrittenFile
from corpus_platform.formats.nanogpt import NanogptWriter, open_nanogpt

GOLDEN = Path(__file__).parent / "golden"
SMALL = [[5, 6, 0], [], [7, 0], [0], []]


def write(
    path: Path, documents: list[list[int]], *, vocab_size: int = 10
) -> tuple[WrittenFile, ...]:
    with NanogptWriter(path, vocab_size=vocab_size) as writer:
        for document in documents:
            writer.append(np.array(document, np.int64), np.array([len(document)]))
    return writer.written


def test_the_file_is_the_memmap_that_nanogpt_writes(tmp_path: Path) -> None:
    files = write(tmp_path / "train.bin", SMALL)
    assert (tmp_path / "train.bin").read_bytes() == (GOLDEN / "nanogpt.bin").read_bytes()
    assert [(file.name, file.bytes, file.tokens, file.documents) for file in files] == [
        ("train.bin", 12, 6, 5)
    ]


def test_a_file_knows_its_ids_and_no_documents() -> None:
    opened = open_nanogpt(GOLDEN / "nanogpt.bin")
    assert (opened.tokens.tolist(), opened.ends) == ([5, 6, 0, 7, 0, 0], None)


def test_nanogpts_own_access_finds_the_tokens(tmp_path: Path) -> None:
    write(tmp_path / "train.bin", [[0, 65_535]], vocab_size=65_536)
    assert np.memmap(tmp_path / "train.bin", dtype=np.uint16, mode="r").tolist() == [0, 65_535]


@pytest.mark.parametrize("vocab_size", [65_537, 70_001])
def test_pk_01_ids_that_would_wrap_are_refused_at_the_start(
    tmp_path: Path, vocab_size: int
) -> None:
    with pytest.raises(UsageError, match=f"of 1 to 65536, not of {vocab_size}"):
        NanogptWriter(tmp_path / "train.bin", vocab_size=vocab_size)
    assert list(tmp_path.iterdir()) == []


def test_fm_07_a_file_cut_inside_an_id_raises_when_opened(tmp_path: Path) -> None:
    write(tmp_path / "train.bin", [[5, 6, 0]])
    (tmp_path / "train.bin").write_bytes((tmp_path / "train.bin").read_bytes()[:-1])
    with pytest.raises(StorageError, match=r"train\.bin: 5 bytes, which are not whole values"):
        open_nanogpt(tmp_path / "train.bin")


def test_a_file_without_tokens_opens(tmp_path: Path) -> None:
    write(tmp_path / "train.bin", [[], []])
    assert open_nanogpt(tmp_path / "train.bin").tokens.tolist() == []


DOCUMENTS = st.lists(st.lists(st.integers(0, 65_535), max_size=5), max_size=8)


@given(first=DOCUMENTS, second=DOCUMENTS)
@settings(max_examples=25, deadline=None)
def test_concatenated_files_are_the_export_of_all(
    first: list[list[int]], second: list[list[int]]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        a, b, both = (Path(name) / f"{n}.bin" for n in ("a", "b", "both"))
        for path, documents in ((a, first), (b, second), (both, first + second)):
            write(path, documents, vocab_size=65_536)
        assert a.read_bytes() + b.read_bytes() == both.read_bytes()
        ids = [token for document in first + second for token in document]
        assert open_nanogpt(both).tokens.tolist() == ids
