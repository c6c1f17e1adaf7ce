import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.errors import StageFailed, StorageError, UsageError
from corpus_platform.formats.token_bin import Header, open_token_bin, token_dtype
from corpus_platform.formats.token_bin_writer import Policy, TokenBinWriter

TOKENIZER = "5e" * 32
POLICY = Policy(10, TOKENIZER, eos_id=0)

# The hashes are those of sha256sum over the bytes of the two files below.
GOLDEN_HEADER = """{
  "bin": {
    "bytes": 12,
    "sha256": "38cab844552ab2ce61b17d9b4d7539d3b5fa3f000efea2526c73ea757cbb905e"
  },
  "bos": "none",
  "bos_id": null,
  "byte_order": "little",
  "documents": 3,
  "dtype": "uint16",
  "eos": "after_each_document",
  "eos_id": 0,
  "format": "corpus-token-bin",
  "index": {
    "bytes": 24,
    "sha256": "2abce197902dabd48e7555d2b891cc3dcad178f08493a4173d49b004c5d0f78c"
  },
  "layout": "documents",
  "loss": null,
  "pad_id": null,
  "padding": 0,
  "pieces": null,
  "row_tokens": null,
  "tokenizer_sha256": "5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e",
  "tokens": 6,
  "version": 2,
  "vocab_size": 10
}
"""


def write(
    folder: Path, documents: list[list[int]], *, vocab_size: int = 10, eos_id: int | None = 0
) -> Header:
    writer = TokenBinWriter(folder, "train", Policy(vocab_size, TOKENIZER, eos_id))
    for document in documents:
        writer.append(np.array(document, dtype=np.int64))
    return writer.close()


def test_the_three_files_are_the_golden_bytes(tmp_path: Path) -> None:
    write(tmp_path, [[5, 6], [7], []])
    assert (tmp_path / "train.bin").read_bytes().hex() == "050006000000070000000000"
    assert (tmp_path / "train.index").read_bytes().hex() == (
        "0300000000000000" + "0500000000000000" + "0600000000000000"
    )
    assert (tmp_path / "train.json").read_text() == GOLDEN_HEADER


def test_pk_01_a_vocabulary_above_65536_takes_four_bytes(tmp_path: Path) -> None:
    write(tmp_path, [[0, 65535, 65536, 70000]], vocab_size=70001, eos_id=None)
    assert (tmp_path / "train.bin").read_bytes().hex() == "00000000ffff00000000010070110100"
    assert open_token_bin(tmp_path, "train").tokens.tolist() == [0, 65535, 65536, 70000]


def test_65536_ids_fit_two_bytes_and_one_more_does_not() -> None:
    assert [token_dtype(65_536), token_dtype(65_537)] == ["uint16", "uint32"]


def test_pk_03_every_document_ends_in_exactly_one_end_token(tmp_path: Path) -> None:
    header = write(tmp_path, [[1, 2], [3], [4, 5, 6]])
    assert (tmp_path / "train.bin").read_bytes().hex() == "010002000000030000000400050006000000"
    assert header.tokens == 9
    opened = open_token_bin(tmp_path, "train")
    assert opened.ends.tolist() == [3, 5, 9]
    assert [opened.document(i).tolist() for i in range(3)] == [[1, 2, 0], [3, 0], [4, 5, 6, 0]]


def test_empty_documents_keep_their_place_without_end_tokens(tmp_path: Path) -> None:
    write(tmp_path, [[8, 9], [], [7]], eos_id=None)
    opened = open_token_bin(tmp_path, "train")
    assert opened.header.eos_id is None
    assert [opened.document(i).tolist() for i in range(3)] == [[8, 9], [], [7]]


def test_a_file_of_no_document_can_be_opened(tmp_path: Path) -> None:
    write(tmp_path, [])
    opened = open_token_bin(tmp_path, "train")
    assert (len(opened), len(opened.tokens), len(opened.ends)) == (0, 0, 0)
    assert opened.tokens.dtype == np.uint16


def test_nanogpt_reads_the_bin_as_it_lies(tmp_path: Path) -> None:
    write(tmp_path, [[1, 2], [3]])
    stream = np.memmap(tmp_path / "train.bin", dtype=np.uint16, mode="r")
    assert stream.tolist() == [1, 2, 0, 3, 0]


@pytest.mark.parametrize("bad", [[1, 10], [1, -1]])
def test_an_id_outside_the_vocabulary_is_refused(tmp_path: Path, bad: list[int]) -> None:
    with pytest.raises(StageFailed, match=rf"train: token id {bad[1]} in document 1 .*0\.\.9"):
        write(tmp_path, [[1], bad])
    assert not (tmp_path / "train.json").exists()


def test_an_end_token_inside_a_document_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StageFailed, match="document 1 holds inside it the end token 0"):
        write(tmp_path, [[1], [2, 0]])


def test_documents_that_carry_their_end_token_get_no_second_one(tmp_path: Path) -> None:
    with TokenBinWriter(tmp_path, "train", POLICY) as writer:
        writer.append_many(np.array([1, 0, 0]), np.array([2, 3]), complete=True)
    assert open_token_bin(tmp_path, "train").tokens.tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("flat", "ends", "message"),
    [
        ([1, 0, 2], [2, 3], "document 1 lacks its end token 0"),
        ([1, 0], [2, 2], "document 1 lacks its end token 0"),
        ([1, 0, 2, 0], [4], "document 0 holds inside it the end token 0"),
        ([1, 0], [1], "rise from 0 to the 2 tokens"),
        ([1, 0], [2, 1, 2], "rise from 0 to the 2 tokens"),
    ],
)
def test_documents_that_end_wrongly_are_refused(
    tmp_path: Path, flat: list[int], ends: list[int], message: str
) -> None:
    writer = TokenBinWriter(tmp_path, "x", POLICY)
    with pytest.raises(StageFailed, match=message):
        writer.append_many(np.array(flat), np.array(ends), complete=True)
    assert writer.close().tokens == 0


def test_an_error_while_writing_leaves_no_header(tmp_path: Path) -> None:
    writer = TokenBinWriter(tmp_path, "x", POLICY)
    with pytest.raises(KeyError), writer:
        raise KeyError
    assert not (tmp_path / "x.json").exists()


def test_an_end_token_outside_the_vocabulary_is_refused_before_any_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"eos_id 10 is outside the vocabulary 0\.\.9"):
        TokenBinWriter(tmp_path, "x", Policy(10, TOKENIZER, eos_id=10))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [10, 11, 14])
def test_a_cut_or_grown_bin_is_refused_when_opened(tmp_path: Path, size: int) -> None:
    write(tmp_path, [[5, 6], [7], []])
    data = (tmp_path / "train.bin").read_bytes()
    (tmp_path / "train.bin").write_bytes((data + b"\0\0")[:size])
    with pytest.raises(StorageError, match=rf"train\.bin: {size} bytes, expected 12"):
        open_token_bin(tmp_path, "train")


def test_a_cut_index_is_refused_when_opened(tmp_path: Path) -> None:
    write(tmp_path, [[5, 6], [7], []])
    (tmp_path / "train.index").write_bytes((tmp_path / "train.index").read_bytes()[:-8])
    with pytest.raises(StorageError, match=r"train\.index: 16 bytes, expected 24"):
        open_token_bin(tmp_path, "train")


def test_an_index_that_ends_elsewhere_is_refused(tmp_path: Path) -> None:
    write(tmp_path, [[5, 6]])
    (tmp_path / "train.index").write_bytes((2).to_bytes(8, "little"))
    with pytest.raises(StorageError, match="last entry ends at token 2, expected 3"):
        open_token_bin(tmp_path, "train")


@pytest.mark.parametrize("suffix", ["bin", "index", "json"])
def test_a_missing_file_is_named(tmp_path: Path, suffix: str) -> None:
    write(tmp_path, [[5, 6]])
    (tmp_path / f"train.{suffix}").unlink()
    with pytest.raises(StorageError, match=rf"train\.{suffix}: cannot be read"):
        open_token_bin(tmp_path, "train")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"version": 2', '"version": 1', "version 1, expected 'corpus-token-bin' version 2"),
        ('"corpus-token-bin"', '"other"', "is 'other' version 2"),
        ('"uint16"', '"uint32"', "dtype is 'uint32', but its other fields make it 'uint16'"),
        ('"little"', '"big"', "byte_order is 'big'"),
        ('"bytes": 6', '"bytes": 8', "bin has 8 bytes, but its other fields make it 6"),
        ('"tokens": 3,', "", "not a token file header"),
        ("{", "[", "not a token file header"),
        pytest.param("{", "[" * 5000, "not a token file header: RecursionError", id="deep"),
        ('"eos_id": 0', '"eos_id": []', r"eos_id \[\], the vocabulary has"),
        ('"eos_id": 0', '"eos_id": true', "eos_id True, the vocabulary has"),
        ('"bytes": 6', '"bytes": 6.0', "bytes=6.0"),
    ],
)
def test_a_header_that_disagrees_is_refused(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    write(tmp_path, [[5, 6]])
    path = tmp_path / "train.json"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(StorageError, match=message):
        open_token_bin(tmp_path, "train")


def test_a_file_of_another_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path, [[5, 6]])
    assert len(open_token_bin(tmp_path, "train", expect_tokenizer=TOKENIZER)) == 1
    with pytest.raises(UsageError, match=rf"train\.json: written with tokenizer {TOKENIZER}"):
        open_token_bin(tmp_path, "train", expect_tokenizer="ab" * 32)


@pytest.mark.parametrize("i", [-1, 1])
def test_a_document_that_is_not_there_is_an_index_error(tmp_path: Path, i: int) -> None:
    write(tmp_path, [[5, 6]])
    with pytest.raises(IndexError, match=f"document {i} of 1"):
        open_token_bin(tmp_path, "train").document(i)


def test_mapped_tokens_cannot_be_written(tmp_path: Path) -> None:
    write(tmp_path, [[5, 6]])
    with pytest.raises(ValueError, match="read-only"):
        open_token_bin(tmp_path, "train").tokens[0] = 1


@given(
    st.lists(st.lists(st.integers(1, 70_000), max_size=8), max_size=8),
    st.sampled_from([65_536, 70_001]),
    st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_documents_come_back_as_written(
    documents: list[list[int]], vocab_size: int, at_once: bool
) -> None:
    documents = [[i % vocab_size or 1 for i in document] for document in documents]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if at_once:
            with TokenBinWriter(folder, "train", Policy(vocab_size, TOKENIZER, eos_id=0)) as writer:
                flat = np.array([i for d in documents for i in d], dtype=np.uint32)
                writer.append_many(flat, np.cumsum([len(d) for d in documents], dtype=np.int64))
        else:
            write(folder, documents, vocab_size=vocab_size)
        opened = open_token_bin(folder, "train")
        found = [opened.document(i).tolist() for i in range(len(opened))]
        assert found == [[*document, 0] for document in documents]


def test_importing_the_format_loads_no_heavy_library() -> None:
    program = (
        "import sys; import corpus_platform.formats.token_bin;"
        "sys.exit(bool({'pyarrow', 'polars', 'pydantic', 'dagster', 'tokenizers'}"
        " & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
