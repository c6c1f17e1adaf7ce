import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.errors import StageFailed, StorageError, UsageError
from corpus_platform.formats.datatrove import (
    DatatroveWriter,
    datatrove_dtype,
    datatrove_name,
    merge_datatrove,
    open_datatrove,
    three_digits,
    write_total,
)
from corpus_platform.formats.export_writer import WrittenFile

GOLDEN = Path(__file__).parent / "golden" / "datatrove"
SMALL = [[5, 6, 0], [], [7, 0], [0], []]
WIDE = [[0, 65535, 65536, 70000], [], [1]]


def write(
    path: Path, documents: list[list[int]], *, vocab_size: int = 10, masked: int | None = None
) -> tuple[WrittenFile, ...]:
    """Write documents; the mask leaves out the id `masked`, None writes no mask."""
    loss = masked is not None
    with DatatroveWriter(path, vocab_size=vocab_size, tokenizer="tiny", loss=loss) as writer:
        for document in documents:
            ids = np.array(document, np.int64)
            writer.append(ids, np.array([len(ids)]), ids != masked if loss else None)
    return writer.written


def read(path: Path, *, dtype: str | None = None) -> list[list[int]]:
    file = open_datatrove(path, dtype=dtype)
    assert file.ends is not None
    return [file.document(i).tolist() for i in range(len(file.ends))]


def files_of(path: Path) -> dict[str, bytes]:
    """The bytes of NAME.ds and of what begins with its name."""
    found = path.parent.glob(f"{path.name}*")
    return {file.name.removeprefix(path.name): file.read_bytes() for file in found}


def test_the_files_are_the_ones_that_datatrove_writes(tmp_path: Path) -> None:
    write(tmp_path / "small.ds", SMALL, masked=7)
    write(tmp_path / "wide.ds", WIDE, vocab_size=70_001)
    assert files_of(tmp_path / "small.ds") == files_of(GOLDEN / "small.ds")
    assert files_of(tmp_path / "wide.ds") == files_of(GOLDEN / "wide.ds")
    assert set(files_of(tmp_path / "small.ds")) == {"", ".index", ".loss", ".metadata"}


def test_what_datatrove_writes_is_read() -> None:
    assert read(GOLDEN / "small.ds") == SMALL
    assert read(GOLDEN / "wide.ds") == WIDE
    small = open_datatrove(GOLDEN / "small.ds")
    assert small.loss is not None
    assert (small.tokenizer, small.loss.tolist()) == ("tiny", [1, 1, 1, 0, 1, 1])


def test_the_report_names_each_file_and_counts_tokens_once(tmp_path: Path) -> None:
    files = write(tmp_path / "a.ds", SMALL, masked=7)
    assert [(file.name, file.bytes, file.tokens, file.documents) for file in files] == [
        ("a.ds", 12, 6, 5),
        ("a.ds.index", 40, 0, 0),
        ("a.ds.loss", 6, 0, 0),
        ("a.ds.metadata", 15, 0, 0),
    ]


def test_the_merge_is_that_of_datatroves_merger(tmp_path: Path) -> None:
    for name in ("a.ds", "b.ds"):
        write(tmp_path / name, SMALL)
    target = tmp_path / datatrove_name(0, "train")
    merge_datatrove([tmp_path / "a.ds", tmp_path / "b.ds"], target)
    assert files_of(target) == files_of(GOLDEN / "000_train.ds")
    write_total(tmp_path, "train", tokenizer="tiny", vocab_size=10, tokens=12)
    total = "train.ds.metadata"
    assert (tmp_path / total).read_bytes() == (GOLDEN / total).read_bytes()


def test_files_of_different_kinds_are_not_merged(tmp_path: Path) -> None:
    write(tmp_path / "a.ds", SMALL, masked=7)
    write(tmp_path / "b.ds", SMALL)
    with pytest.raises(UsageError, match="at least one, all alike"):
        merge_datatrove([tmp_path / "a.ds", tmp_path / "b.ds"], tmp_path / "all.ds")
    assert not (tmp_path / "all.ds").exists()


def test_files_without_an_index_are_not_merged(tmp_path: Path) -> None:
    write(tmp_path / "a.ds", SMALL)
    (tmp_path / "a.ds.index").unlink()
    with pytest.raises(UsageError, match="need an index and metadata"):
        merge_datatrove([tmp_path / "a.ds"], tmp_path / "all.ds")


@pytest.mark.parametrize(
    ("change", "real"),
    [
        (lambda data: data[:-2], 10),
        (lambda data: data[:-1], 11),
        (lambda data: data + b"\0\0", 14),
    ],
    ids=["cut by an id", "cut inside an id", "grown by an id"],
)
def test_fm_07_ids_of_another_size_than_the_index_says_raise_when_opened(
    tmp_path: Path, change: Callable[[bytes], bytes], real: int
) -> None:
    write(tmp_path / "a.ds", SMALL)
    path = tmp_path / "a.ds"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(StorageError, match=rf"a\.ds: {real} bytes"):
        open_datatrove(path)


def test_metadata_index_and_mask_must_agree_with_the_ids(tmp_path: Path) -> None:
    path = tmp_path / "a.ds"
    write(path, SMALL, masked=7)
    (tmp_path / "a.ds.loss").write_bytes(b"\1" * 7)
    with pytest.raises(StorageError, match=r"a\.ds\.loss: 7 bytes, expected 6 for one a token"):
        open_datatrove(path)
    (tmp_path / "a.ds.loss").write_bytes(b"\1" * 6)
    (tmp_path / "a.ds.metadata").write_text("tiny|2\n5\n5.00 T")
    with pytest.raises(StorageError, match="12 bytes, expected 10 for the 5 tokens of its metadat"):
        open_datatrove(path)
    (tmp_path / "a.ds.metadata").write_text("tiny|3\n6\n6.00 T")
    with pytest.raises(StorageError, match="ids of 3 bytes, expected 2 or 4"):
        open_datatrove(path)
    (tmp_path / "a.ds.metadata").write_text("tiny")
    with pytest.raises(StorageError, match="is no metadata of datatrove"):
        open_datatrove(path)


def test_ends_that_do_not_rise_raise_when_opened(tmp_path: Path) -> None:
    write(tmp_path / "a.ds", SMALL)
    index = np.array([3, 3, 2, 6, 6], "<u8")
    (tmp_path / "a.ds.index").write_bytes(index.tobytes())
    with pytest.raises(StorageError, match=r"a\.ds\.index: document 2 ends before the one before"):
        open_datatrove(tmp_path / "a.ds")


def test_the_width_follows_from_the_index_where_there_is_no_metadata(tmp_path: Path) -> None:
    write(tmp_path / "a.ds", WIDE, vocab_size=70_001)
    (tmp_path / "a.ds.metadata").unlink()
    assert read(tmp_path / "a.ds") == WIDE


def test_ids_alone_need_their_width_and_have_no_documents(tmp_path: Path) -> None:
    (tmp_path / "a.ds").write_bytes(b"\1\0\2\0")
    with pytest.raises(StorageError, match="neither metadata nor an index"):
        open_datatrove(tmp_path / "a.ds")
    opened = open_datatrove(tmp_path / "a.ds", dtype="uint16")
    assert (opened.tokens.tolist(), opened.ends) == ([1, 2], None)


def test_a_width_that_is_not_the_one_of_the_metadata_is_refused() -> None:
    with pytest.raises(StorageError, match="its ids are uint16, and uint32 is asked for"):
        open_datatrove(GOLDEN / "small.ds", dtype="uint32")


def test_metadata_of_a_tokenizer_without_a_name_is_read(tmp_path: Path) -> None:
    write(tmp_path / "a.ds", [[1]])
    (tmp_path / "a.ds.metadata").write_text("Unknown Tokenizer|2|2\n1\n1.00 T")
    assert open_datatrove(tmp_path / "a.ds").tokenizer == "Unknown Tokenizer"


@pytest.mark.parametrize("tokenizer", ["", "a|b", "a\nb"])
def test_a_tokenizer_that_the_metadata_cannot_name_is_refused(
    tmp_path: Path, tokenizer: str
) -> None:
    with pytest.raises(UsageError, match="datatrove's metadata needs one without"):
        DatatroveWriter(tmp_path / "a.ds", vocab_size=10, tokenizer=tokenizer)
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_datatrove_would_not_find_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"names that end in \.ds only"):
        DatatroveWriter(tmp_path / "a.bin", vocab_size=10, tokenizer="tiny")


def test_ids_are_four_bytes_wide_above_65536_of_them() -> None:
    sizes = [65_499, 65_500, 65_535, 65_536, 65_537]
    assert [datatrove_dtype(size).name for size in sizes] == [*["uint16"] * 4, "uint32"]


# humanize.metric(count, unit="T") of humanize 4.17.0
@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0.00 "),
        (7, "7.00 "),
        (999, "999 "),
        (1000, "1.00 k"),
        (9_995, "9.99 k"),
        (9_999, "10.0 k"),
        (999_499, "999 k"),
        (999_999, "1.00 M"),
        (1_234_567, "1.23 M"),
        (100_000_000_000, "100 G"),
        (15_000_000_000_000, "15.0 T"),
    ],
)
def test_counts_are_told_to_three_digits(count: int, text: str) -> None:
    assert three_digits(count) == text


@pytest.mark.parametrize("loss", [np.array([True]), None])
def test_a_mask_comes_with_all_documents_or_with_none(
    tmp_path: Path, loss: np.ndarray | None
) -> None:
    path = tmp_path / "a.ds"
    with (
        pytest.raises(StageFailed, match="mask is given"),
        DatatroveWriter(path, vocab_size=10, tokenizer="tiny", loss=loss is None) as writer,
    ):
        writer.append(np.array([1]), np.array([1]), loss)


@pytest.mark.parametrize("documents", [[], [[]], [[], []]])
def test_a_file_without_tokens_opens(tmp_path: Path, documents: list[list[int]]) -> None:
    write(tmp_path / "a.ds", documents)
    assert read(tmp_path / "a.ds") == documents


DOCUMENTS = st.lists(st.lists(st.integers(0, 65_535), max_size=5), max_size=8)


@given(
    parts=st.lists(DOCUMENTS, min_size=1, max_size=3), vocab_size=st.sampled_from([65_536, 1 << 32])
)
@settings(max_examples=25, deadline=None)
def test_what_is_written_is_read_and_a_merge_is_the_export_of_all(
    parts: list[list[list[int]]], vocab_size: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        paths = [Path(name) / f"part{i}.ds" for i in range(len(parts))]
        for path, documents in zip(paths, parts, strict=True):
            write(path, documents, vocab_size=vocab_size, masked=7)
            assert read(path) == documents
        merge_datatrove(paths, Path(name) / "merged.ds")
        every = [document for documents in parts for document in documents]
        write(Path(name) / "whole.ds", every, vocab_size=vocab_size, masked=7)
        assert files_of(Path(name) / "merged.ds") == files_of(Path(name) / "whole.ds")
