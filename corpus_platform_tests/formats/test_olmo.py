import gzip
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.errors import StageFailed, StorageError, UsageError
from corpus_platform.formats.export_writer import WrittenFile
from corpus_platform.formats.olmo import (
    OlmoWriter,
    is_true_npy,
    olmo_dtype,
    open_olmo,
    open_true_npy,
)

GOLDEN = Path(__file__).parent / "golden"
SMALL = [[5, 6, 0], [], [7, 0], [0], []]
WIDE = [[0, 65535, 65536, 70000], [], [1]]


def write(
    path: Path, documents: list[list[int]], *, vocab_size: int = 10, masked: int | None = None
) -> tuple[WrittenFile, ...]:
    """Write documents; the mask leaves out the id `masked`, None writes no mask."""
    loss = masked is not None
    with OlmoWriter(path, vocab_size=vocab_size, loss=loss) as writer:
        for document in documents:
            ids = np.array(document, np.int64)
            writer.append(ids, np.array([len(ids)]), ids != masked if loss else None)
    return writer.written


def lines(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes())


def ends_of(path: Path) -> list[int]:
    ends = open_olmo(path).ends
    assert ends is not None
    return ends.tolist()


def test_ids_and_lines_are_those_of_olmo_core(tmp_path: Path) -> None:
    write(tmp_path / "part.npy", SMALL)
    assert (tmp_path / "part.npy").read_bytes() == (GOLDEN / "olmo-core.npy").read_bytes()
    assert lines(tmp_path / "part.csv.gz") == lines(GOLDEN / "olmo-core.csv.gz")


def test_ids_and_lines_with_their_source_are_those_of_dolma(tmp_path: Path) -> None:
    with OlmoWriter(tmp_path / "part.npy", vocab_size=70_001) as writer:
        writer.append(
            np.array([0, 65535, 65536, 70000, 1]),
            np.array([4, 4, 5]),
            ids=['page, "0"', "empty", 'page, "2"'],
            shards=["2026-40/a.jsonl.zst"] * 3,
            rows=[0, 1, 2],
        )
    assert (tmp_path / "part.npy").read_bytes() == (GOLDEN / "dolma.npy").read_bytes()
    assert lines(tmp_path / "part.csv.gz") == lines(GOLDEN / "dolma.csv.gz")


def test_what_both_tools_write_is_read() -> None:
    assert open_olmo(GOLDEN / "olmo-core.npy").tokens.tolist() == [5, 6, 0, 7, 0, 0]
    assert ends_of(GOLDEN / "olmo-core.npy") == [3, 5, 6]
    assert open_olmo(GOLDEN / "dolma.npy").tokens.tolist() == [0, 65535, 65536, 70000, 1]
    assert ends_of(GOLDEN / "dolma.npy") == [4, 5]


def test_gzip_has_no_time_and_no_name(tmp_path: Path) -> None:
    write(tmp_path / "part.npy", [[1]])
    assert (tmp_path / "part.csv.gz").read_bytes()[:10].hex() == "1f8b0800000000000003"


def test_the_mask_has_a_name_that_a_glob_of_tokens_does_not_catch(tmp_path: Path) -> None:
    files = write(tmp_path / "part.npy", SMALL, masked=7)
    assert [path.name for path in tmp_path.glob("*.npy")] == ["part.npy"]
    assert [(file.name, file.bytes, file.tokens, file.documents) for file in files] == [
        ("part.npy", 6, 6, 5),
        ("part.csv.gz", len((tmp_path / "part.csv.gz").read_bytes()), 0, 0),
        ("part.label_mask", 6, 0, 0),
    ]
    mask = np.memmap(tmp_path / "part.label_mask", dtype=np.bool_, mode="r")
    assert mask.tolist() == [True, True, True, False, True, True]


def test_fm_04_empty_documents_have_no_line_and_are_counted(tmp_path: Path) -> None:
    with OlmoWriter(tmp_path / "part.npy", vocab_size=10) as writer:
        writer.append(np.array([1, 2, 3]), np.array([0, 2, 2, 3, 3]))
    assert lines(tmp_path / "part.csv.gz") == b"0,2\n2,3\n"
    assert (writer.documents, writer.empty_documents) == (5, 3)


def test_line_ends_in_an_id_do_not_end_a_line(tmp_path: Path) -> None:
    with OlmoWriter(tmp_path / "part.npy", vocab_size=10) as writer:
        writer.append(np.array([1]), np.array([1]), ids=["a\r\nb"], shards=["s"], rows=[0])
    assert lines(tmp_path / "part.csv.gz") == b"0,1,a\\r\\nb,s,1\r\n"


@pytest.mark.parametrize(
    ("ids", "shards", "rows"),
    [(["a"], None, None), (["a", "b"], ["s"], [0]), ([], [], [])],
)
def test_columns_are_there_for_all_documents_or_not_at_all(
    tmp_path: Path, ids: list[str], shards: list[str] | None, rows: list[int] | None
) -> None:
    with (
        pytest.raises(StageFailed, match="give ids, shards and rows of all or none"),
        OlmoWriter(tmp_path / "part.npy", vocab_size=10) as writer,
    ):
        writer.append(np.array([1]), np.array([1]), ids=ids, shards=shards, rows=rows)


def test_columns_do_not_begin_in_the_middle(tmp_path: Path) -> None:
    writer = OlmoWriter(tmp_path / "part.npy", vocab_size=10)
    writer.append(np.array([1]), np.array([1]))
    with pytest.raises(StageFailed, match="some documents come with ids"):
        writer.append(np.array([1]), np.array([1]), ids=["a"], shards=["s"], rows=[0])
    writer.abandon()


def test_ids_take_the_width_that_both_tools_take() -> None:
    sizes = [256, 257, 65_499, 65_500, 65_535, 65_536, 65_537]
    assert [olmo_dtype(size).name for size in sizes] == ["uint8", *["uint16"] * 5, "uint32"]


@pytest.mark.parametrize("change", [lambda d: d[:-2], lambda d: d[:-1], lambda d: d + b"\0\0"])
@pytest.mark.parametrize("dtype", [None, "uint16"])
def test_fm_07_ids_of_another_size_than_the_lines_say_raise_when_opened(
    tmp_path: Path, change: Callable[[bytes], bytes], dtype: str | None
) -> None:
    path = tmp_path / "part.npy"
    write(path, SMALL, vocab_size=300)
    path.write_bytes(change(path.read_bytes()))
    real = path.stat().st_size
    with pytest.raises(StorageError, match=rf"part\.npy: {real} bytes, expected .*12"):
        open_olmo(path, dtype=dtype)


def test_a_mask_of_another_size_raises_when_opened(tmp_path: Path) -> None:
    write(tmp_path / "part.npy", SMALL, masked=7)
    (tmp_path / "part.label_mask").write_bytes(b"\1" * 5)
    with pytest.raises(StorageError, match=r"label_mask: 5 bytes, expected 6 for one a token"):
        open_olmo(tmp_path / "part.npy")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"0,2\n3,6\n", r"document 1 is \[3, 6\), expected to start at 2"),
        (b"0,2\n2,1\n", r"document 1 is \[2, 1\)"),
        (b"0,2\nx,6\n", "line 2 is no document"),
        (b"0\n", "line 1 is no document"),
        (b"0,99999999999999999999\n", "line 1 is no document"),
    ],
)
def test_lines_that_leave_tokens_out_or_are_none_raise(
    tmp_path: Path, text: bytes, said: str
) -> None:
    (tmp_path / "part.npy").write_bytes(bytes(6))
    (tmp_path / "part.csv.gz").write_bytes(gzip.compress(text))
    with pytest.raises(StorageError, match=said):
        open_olmo(tmp_path / "part.npy")


def test_cut_lines_raise(tmp_path: Path) -> None:
    write(tmp_path / "part.npy", SMALL)
    path = tmp_path / "part.csv.gz"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(StorageError, match=r"part\.csv\.gz: cannot be read"):
        open_olmo(tmp_path / "part.npy")


def test_bare_ids_need_their_width(tmp_path: Path) -> None:
    (tmp_path / "part.npy").write_bytes(b"\1\0\2\0")
    with pytest.raises(StorageError, match=r"part\.csv\.gz is not there to tell"):
        open_olmo(tmp_path / "part.npy")
    opened = open_olmo(tmp_path / "part.npy", dtype=np.dtype(np.uint16))
    assert (opened.tokens.tolist(), opened.ends) == ([1, 2], None)


def test_another_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"names that end in \.npy"):
        OlmoWriter(tmp_path / "part.bin", vocab_size=10)


def test_what_numpy_saves_is_told_apart_and_read(tmp_path: Path) -> None:
    np.save(tmp_path / "true.npy", np.array([1, 2, 3], np.uint16))
    np.save(tmp_path / "none.npy", np.array([], np.uint16))
    assert (is_true_npy(tmp_path / "true.npy"), is_true_npy(GOLDEN / "dolma.npy")) == (True, False)
    opened = open_true_npy(tmp_path / "true.npy")
    assert (opened.format, opened.tokens.tolist()) == ("npy", [1, 2, 3])
    assert open_true_npy(tmp_path / "none.npy").tokens.tolist() == []


@pytest.mark.parametrize("values", [np.zeros((2, 2), np.uint16), np.zeros(2), np.array(["a"])])
def test_what_numpy_saves_of_other_values_is_no_token_file(
    tmp_path: Path, values: np.ndarray
) -> None:
    np.save(tmp_path / "true.npy", values)
    with pytest.raises(StorageError, match="expected a row of integers"):
        open_true_npy(tmp_path / "true.npy")


@pytest.mark.parametrize(
    "data",
    [
        b"\x93NUMPY\1\0",
        b"\x93NUMPY\1\0\x0a\0{'shape': (",
        b"\x93NUMPY\1\0\3\0\0\0\n",
        b"\x93NUMPY\1\0\x3a\0{'descr': '<u2', 'fortran_order': False, 'shape': (9**99,)}\n",
    ],
)
def test_a_damaged_npy_raises(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "true.npy").write_bytes(data)
    with pytest.raises(StorageError, match=r"is a \.npy file that cannot be read"):
        open_true_npy(tmp_path / "true.npy")


@pytest.mark.parametrize("documents", [[], [[]], [[], []]])
def test_a_file_without_tokens_opens(tmp_path: Path, documents: list[list[int]]) -> None:
    write(tmp_path / "part.npy", documents)
    assert ends_of(tmp_path / "part.npy") == []


DOCUMENTS = st.lists(st.lists(st.integers(0, 255), max_size=5), max_size=8)


@given(first=DOCUMENTS, second=DOCUMENTS, vocab_size=st.sampled_from([256, 65_536, 1 << 32]))
@settings(max_examples=25, deadline=None)
def test_what_is_written_is_read_and_concatenated_ids_are_the_export_of_all(
    first: list[list[int]], second: list[list[int]], vocab_size: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        a, b, both = (Path(name) / f"{n}.npy" for n in ("a", "b", "both"))
        for path, documents in ((a, first), (b, second), (both, first + second)):
            write(path, documents, vocab_size=vocab_size)
            lengths = [len(document) for document in documents if document]
            assert ends_of(path) == np.cumsum(lengths, dtype=int).tolist()
        assert a.read_bytes() + b.read_bytes() == both.read_bytes()
        ids = [token for document in first + second for token in document]
        assert open_olmo(both).tokens.tolist() == ids
