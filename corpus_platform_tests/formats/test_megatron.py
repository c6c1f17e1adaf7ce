import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.errors import StageFailed, StorageError, UsageError
from corpus_platform.formats.export_writer import WrittenFile
from corpus_platform.formats.megatron import (
    MegatronWriter,
    index_blocks,
    megatron_dtype,
    merge_megatron,
    open_megatron,
)

GOLDEN = Path(__file__).parent / "golden"
SMALL = [[5, 6, 0], [], [7, 0], [0], []]
WIDE = [[0, 65535, 65536, 70000], [], [1]]
FM_01_IDX = (
    "4d4d4944494458000001000000000000000803000000000000000400000000000000030000000200000001000000"
    "000000000000000006000000000000000a00000000000000000000000000000001000000000000000200000000000000"
    "0300000000000000"
)


def write(
    prefix: Path, documents: list[list[int]], *, vocab_size: int = 10
) -> tuple[WrittenFile, ...]:
    with MegatronWriter(prefix, vocab_size=vocab_size) as writer:
        for document in documents:
            writer.append(np.array(document, np.int64), np.array([len(document)]))
    return writer.written


def read(prefix: Path) -> list[list[int]]:
    file = open_megatron(prefix)
    assert file.ends is not None
    return [file.document(i).tolist() for i in range(len(file.ends))]


def bytes_of(prefix: Path) -> tuple[bytes, bytes]:
    return Path(f"{prefix}.bin").read_bytes(), Path(f"{prefix}.idx").read_bytes()


def test_fm_01_both_files_are_the_published_bytes(tmp_path: Path) -> None:
    files = write(tmp_path / "m", [[5, 6, 0], [7, 0], [0]])
    assert (tmp_path / "m.bin").read_bytes().hex() == "050006000000070000000000"
    assert (tmp_path / "m.idx").read_bytes().hex() == FM_01_IDX
    assert files == (
        WrittenFile(
            "m.bin", 12, "38cab844552ab2ce61b17d9b4d7539d3b5fa3f000efea2526c73ea757cbb905e", 6, 3
        ),
        WrittenFile(
            "m.idx", 102, "3f86d8b51d9ce3f0962a40d1948215874c708993fd205d40af71059494ede356"
        ),
    )


def test_fm_03_byte_pointers_are_computed_in_64_bits() -> None:
    lengths = np.array([1_500_000_000, 1_500_000_000, 5], np.int32)
    index = b"".join(index_blocks(lengths, np.dtype("<u2")))
    assert np.frombuffer(index, "<i8", count=3, offset=34 + 12).tolist() == [
        0,
        3_000_000_000,
        6_000_000_000,
    ]
    assert hashlib.sha256(index).hexdigest() == (
        "86427cae1e892b05561343ffe8d0a78c57b2a233ccba9f80479896b92ddc3bb3"
    )


def test_fm_03_a_sparse_file_of_six_gigabytes_is_read_behind_the_reach_of_int32(
    tmp_path: Path,
) -> None:
    lengths = np.array([1_500_000_000, 1_500_000_000, 5], np.int32)
    (tmp_path / "m.idx").write_bytes(b"".join(index_blocks(lengths, np.dtype("<u2"))))
    with (tmp_path / "m.bin").open("wb") as file:
        file.seek(6_000_000_000)
        file.write(np.array([1, 2, 3, 4, 5], "<u2").tobytes())
    opened = open_megatron(tmp_path / "m")
    assert opened.document(2).tolist() == [1, 2, 3, 4, 5]
    assert opened.ends is not None
    assert opened.ends.tolist() == [1_500_000_000, 3_000_000_000, 3_000_000_005]


def test_fm_04_an_empty_document_keeps_its_place(tmp_path: Path) -> None:
    write(tmp_path / "m", [[1, 2], [], [3]])
    index = (tmp_path / "m.idx").read_bytes()
    assert np.frombuffer(index, "<i4", 3, 34).tolist() == [2, 0, 1]
    assert np.frombuffer(index, "<i8", 3, 46).tolist() == [0, 4, 4]
    assert np.frombuffer(index, "<i8", 4, 70).tolist() == [0, 1, 2, 3]
    assert read(tmp_path / "m") == [[1, 2], [], [3]]


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
    write(tmp_path / "m", [[5, 6, 0], [7, 0], [0]])
    path = tmp_path / "m.bin"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(StorageError, match=rf"m\.bin: {real} bytes, expected 12 "):
        open_megatron(tmp_path / "m")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: b"MMIDIDY" + d[7:], r"m\.idx: begins with b'MMIDIDY"),
        (lambda d: d[:9] + b"\2" + d[10:], "version 2, expected"),
        (lambda d: d[:17] + b"\6" + d[18:], "has code 6, expected one of 1, 2, 3, 4, 5, 8"),
        (lambda d: d[:30], "30 bytes, expected 34"),
        (lambda d: d[:-8], "94 bytes, expected 102 for 3 sequences and 3 documents"),
        (lambda d: d + b"\0", "103 bytes, expected 102"),
        (lambda d: d + b"\0\0\0", "a multimodal dataset"),
        (lambda d: d[:26] + bytes(8) + d[34:70], "has no document indices"),
        (lambda d: d[:34] + b"\xff\xff\xff\xff" + d[38:], "sequence 0 has -1 tokens"),
        (lambda d: d[:34] + b"\4" + d[35:], "sequence 1 begins at byte 6, expected 8"),
        (lambda d: d[:70] + b"\1" + d[71:], "they begin with 1 and end with 3"),
        (lambda d: d[:94] + b"\2" + d[95:], "they begin with 0 and end with 2"),
        (lambda d: d[:78] + b"\3" + d[79:], "document indices must rise from 0 to the 3"),
    ],
)
def test_an_index_that_contradicts_itself_raises_when_opened(
    tmp_path: Path, change: Callable[[bytes], bytes], said: str
) -> None:
    write(tmp_path / "m", [[5, 6, 0], [7, 0], [0]])
    path = tmp_path / "m.idx"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(StorageError, match=said):
        open_megatron(tmp_path / "m")


def test_a_missing_half_is_named(tmp_path: Path) -> None:
    write(tmp_path / "m", [[1]])
    (tmp_path / "m.bin").unlink()
    with pytest.raises(StorageError, match=r"m\.bin: cannot be read"):
        open_megatron(tmp_path / "m.idx")


@pytest.mark.parametrize(
    ("name", "documents", "vocab_size"),
    [("megatron_uint16", SMALL, 10), ("megatron_int32", WIDE, 70_001)],
)
def test_the_bytes_are_those_of_megatrons_builder(
    tmp_path: Path, name: str, documents: list[list[int]], vocab_size: int
) -> None:
    write(tmp_path / "m", documents, vocab_size=vocab_size)
    assert bytes_of(tmp_path / "m") == bytes_of(GOLDEN / name)
    assert read(GOLDEN / name) == documents


def test_documents_of_several_sequences_are_read_whole() -> None:
    assert read(GOLDEN / "megatron_sequences") == [[1, 2, 3], [], [4]]


def test_the_merge_has_the_bytes_of_megatrons_own(tmp_path: Path) -> None:
    parts = [GOLDEN / "megatron_uint16", GOLDEN / "megatron_sequences"]
    files = merge_megatron(parts, tmp_path / "all")
    assert bytes_of(tmp_path / "all") == bytes_of(GOLDEN / "megatron_merged")
    assert [(file.name, file.tokens, file.documents) for file in files] == [
        ("all.bin", 10, 8),
        ("all.idx", 0, 0),
    ]


def test_datasets_of_different_ids_are_not_merged(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"of 2 datasets with ids of \['int32', 'uint16'\]"):
        merge_megatron([GOLDEN / "megatron_uint16", GOLDEN / "megatron_int32"], tmp_path / "all")
    assert list(tmp_path.iterdir()) == []


def test_a_merge_does_not_write_over_what_it_reads(tmp_path: Path) -> None:
    write(tmp_path / "m", [[1]])
    with pytest.raises(UsageError, match="none of them the target"):
        merge_megatron([tmp_path / "m"], tmp_path / "m")
    assert read(tmp_path / "m") == [[1]]


def test_ids_are_two_bytes_wide_below_65500_and_signed_four_from_there_on() -> None:
    sizes = [65_499, 65_500, 65_535, 65_536, 65_537]
    assert [megatron_dtype(size).name for size in sizes] == ["uint16", *["int32"] * 4]


def test_pk_01_ids_above_65535_do_not_wrap(tmp_path: Path) -> None:
    write(tmp_path / "m", [[0, 65535, 65536, 70000]], vocab_size=70_001)
    assert (tmp_path / "m.bin").read_bytes().hex() == "00000000ffff00000000010070110100"


def test_pk_03_lengths_count_the_end_tokens(tmp_path: Path) -> None:
    write(tmp_path / "m", [[1, 2, 0], [3, 0], [4, 5, 6, 0]])
    assert (tmp_path / "m.bin").read_bytes().hex() == "010002000000030000000400050006000000"
    assert np.frombuffer((tmp_path / "m.idx").read_bytes(), "<i4", 3, 34).tolist() == [3, 2, 4]


def test_a_document_of_two_to_the_31_tokens_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    endless = np.broadcast_to(np.uint16(1), ((1 << 31) + 1,))  # takes no memory
    with (
        pytest.raises(StageFailed, match=r"document 1 has 2147483648 tokens; .* 2147483647 a docu"),
        MegatronWriter(tmp_path / "m", vocab_size=10) as writer,
    ):
        writer.append(endless, np.array([1, (1 << 31) + 1]))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("documents", [[], [[]], [[], []]])
def test_a_dataset_without_tokens_opens(tmp_path: Path, documents: list[list[int]]) -> None:
    write(tmp_path / "m", documents)
    assert (tmp_path / "m.bin").stat().st_size == 0
    assert read(tmp_path / "m") == documents


def test_a_mask_has_no_place(tmp_path: Path) -> None:
    with (
        pytest.raises(StageFailed, match="a mask is given, and this file of megatron has no place"),
        MegatronWriter(tmp_path / "m", vocab_size=10) as writer,
    ):
        writer.append(np.array([1]), np.array([1]), np.array([True]))


DOCUMENTS = st.lists(st.lists(st.integers(0, 69_999), max_size=5), max_size=8)


@given(documents=DOCUMENTS, vocab_size=st.sampled_from([70_000, 1 << 31]))
@settings(max_examples=25, deadline=None)
def test_what_is_written_is_read(documents: list[list[int]], vocab_size: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "m", documents, vocab_size=vocab_size)
        assert read(Path(folder) / "m") == documents


@given(parts=st.lists(DOCUMENTS, min_size=1, max_size=3))
@settings(max_examples=25, deadline=None)
def test_a_merge_of_exports_is_the_export_of_all(parts: list[list[list[int]]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for i, documents in enumerate(parts):
            write(folder / f"part{i}", documents, vocab_size=70_000)
        merged = merge_megatron([folder / f"part{i}" for i in range(len(parts))], folder / "merged")
        whole = write(
            folder / "whole", [d for documents in parts for d in documents], vocab_size=70_000
        )
        assert bytes_of(folder / "merged") == bytes_of(folder / "whole")
        assert [file[1:] for file in merged] == [file[1:] for file in whole]
