import dataclasses
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from corpus_platform.errors import StorageError
from corpus_platform.formats import token_file
from corpus_platform.formats.hdf5 import Hdf5Writer
from corpus_platform.formats.llmc import LlmcWriter
from corpus_platform.formats.megatron import MegatronWriter
from corpus_platform.formats.token_bin_writer import Policy, TokenBinWriter
from corpus_platform.formats.token_file import TokenFile, faults, open_tokens

GOLDEN = Path(__file__).parent / "golden"


def write_native(folder: Path, *, eos_id: int | None = 0) -> None:
    policy = Policy(vocab_size=10, tokenizer_sha256="5e" * 32, eos_id=eos_id)
    with TokenBinWriter(folder, "train", policy) as writer:
        writer.append_many(np.array([5, 6, 7]), np.array([2, 3, 3]), loss=np.array([1, 0, 1]))


@pytest.mark.parametrize(
    ("name", "kind", "documents"),
    [
        ("megatron_uint16", "megatron", 5),
        ("megatron_uint16.bin", "megatron", 5),
        ("megatron_uint16.idx", "megatron", 5),
        ("megatron_sequences", "megatron", 3),
        ("datatrove/small.ds", "datatrove", 5),
        ("nanogpt.bin", "nanogpt", None),
        ("nanogpt", "nanogpt", None),
        ("llmc_gpt-2.bin", "llmc", None),
        ("llmc_llama-3.bin", "llmc", None),
        ("olmo-core.npy", "olmo", 3),
        ("dolma.npy", "olmo", 2),
    ],
)
def test_files_of_other_tools_are_told_by_name_and_magic(
    name: str, kind: str, documents: int | None
) -> None:
    opened = open_tokens(GOLDEN / name)
    count = None if opened.ends is None else len(opened.ends)
    assert (opened.format, count) == (kind, documents)
    assert faults(opened, vocab_size=70_001) == []


@pytest.mark.parametrize("name", ["train", "train.bin", "train.json", "train.index"])
def test_the_native_files_say_what_they_are(tmp_path: Path, name: str) -> None:
    write_native(tmp_path)
    opened = open_tokens(tmp_path / name)
    assert opened.ends is not None
    assert opened.loss is not None
    assert (opened.format, opened.vocab_size, opened.eos_id) == ("native", 10, 0)
    assert opened.tokenizer == "5e" * 32
    assert opened.tokens.tolist() == [5, 6, 0, 7, 0, 0]
    assert opened.loss.tolist() == [1, 0, 0, 1, 1, 1]
    assert opened.document(1).tolist() == [7, 0]
    assert faults(opened) == []


@pytest.mark.parametrize("name", ["train.h5", "train.hdf5"])
def test_hdf5_is_opened_and_checked_through_slices(tmp_path: Path, name: str) -> None:
    pytest.importorskip("h5py")
    tokens, ends, loss = np.array([5, 6, 0, 7, 0]), np.array([3, 5]), np.array([1, 1, 1, 0, 1])
    with Hdf5Writer(
        tmp_path / name, vocab_size=8, eos_id=0, tokenizer_sha256="5e" * 32, loss=True
    ) as writer:
        writer.append(tokens, ends, loss)
    opened = open_tokens(tmp_path / name)
    assert (opened.format, opened.vocab_size, opened.eos_id) == ("hdf5", 8, 0)
    assert opened.document(1).tolist() == [7, 0]
    assert faults(opened) == []
    assert faults(dataclasses.replace(opened, eos_id=6)) == [
        "2 documents do not end in the end token 6, the first is 0"
    ]


def test_what_numpy_saves_is_opened_and_warned_of(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([1, 2], np.uint16))
    opened = open_tokens(tmp_path / "a.npy")
    assert opened.format == "npy"
    assert faults(opened) == [
        "is what numpy.save writes: OLMo-core would take its header for token ids"
    ]


def test_two_formats_at_once_are_ambiguous_until_one_is_named(tmp_path: Path) -> None:
    write_native(tmp_path)
    with MegatronWriter(tmp_path / "train", vocab_size=10) as writer:
        writer.append(np.array([5, 6, 0, 7, 0, 0]), np.array([3, 5, 6]))
    for name in ("train", "train.bin"):
        with pytest.raises(StorageError, match=r"both train\.idx \(Megatron\) and train\.json"):
            open_tokens(tmp_path / name)
    kinds = [open_tokens(tmp_path / name).format for name in ("train.idx", "train.json")]
    assert kinds == ["megatron", "native"]


def test_json_of_something_else_does_not_make_a_file_native(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "nanogpt.bin", tmp_path / "train.bin")
    (tmp_path / "train.json").write_text('{"format": "other"}')
    assert open_tokens(tmp_path / "train.bin").format == "nanogpt"
    with pytest.raises(StorageError, match=r'train\.json: is not there or has no "format"'):
        open_tokens(tmp_path / "train.json")


def test_bare_ids_take_the_width_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "wide.bin").write_bytes(np.array([70_000], "<u4").tobytes())
    assert open_tokens(tmp_path / "wide.bin", dtype="uint32").tokens.tolist() == [70_000]
    assert open_tokens(tmp_path / "wide.bin").tokens.tolist() == [4464, 1]


def test_another_width_than_the_file_has_is_refused() -> None:
    with pytest.raises(StorageError, match="is megatron with ids of uint16, and uint32 is asked"):
        open_tokens(GOLDEN / "megatron_uint16", dtype=np.dtype(np.uint32))


def test_floats_are_no_ids(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(8))
    with pytest.raises(StorageError, match="ids are integers, so they cannot be read as float32"):
        open_tokens(tmp_path / "a.bin", dtype="float32")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none", r"none: is no file, and there is no none\.idx, none\.json, none\.bin beside it"),
        ("none.ds", r"none\.ds: is no file"),
        ("odd.bin", r"odd\.bin: 3 bytes, .* tried as bare ids \(nanoGPT\), as odd\.idx"),
        ("page.txt", r"names of token files end in \.bin, \.idx, .*; this one in \.txt"),
        ("page", "this one in nothing"),
        ("bare.npy", r"bare\.csv\.gz is not there to tell"),
        ("alone.idx", r"alone\.idx: 3 bytes, expected 34 of header at least"),
    ],
)
def test_what_is_no_token_file_is_refused_with_what_was_tried(
    tmp_path: Path, name: str, said: str
) -> None:
    for there in ("odd.bin", "page.txt", "page", "bare.npy", "alone.idx"):
        (tmp_path / there).write_bytes(b"abc")
    with pytest.raises(StorageError, match=said):
        open_tokens(tmp_path / name)


def test_a_cut_llmc_file_is_not_taken_for_bare_ids(tmp_path: Path) -> None:
    with LlmcWriter(tmp_path / "l.bin", vocab_size=10) as writer:
        writer.append(np.array([1, 2]), np.array([2]))
    (tmp_path / "l.bin").write_bytes((tmp_path / "l.bin").read_bytes()[:-2])
    with pytest.raises(StorageError, match="1026 bytes, expected 1028"):
        open_tokens(tmp_path / "l.bin")


GOOD = TokenFile(
    Path("a"),
    "native",
    np.array([5, 6, 0, 7, 0, 0], np.int32),
    np.array([3, 5, 6]),
    np.array([1, 1, 1, 0, 1, 1], np.uint8),
    vocab_size=8,
    eos_id=0,
)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, []),
        ({"ends": np.array([3, 2, 6])}, ["document 1 ends at token 2, the one before it at 3"]),
        ({"ends": np.array([-1, 6])}, ["document 0 ends at token -1, the one before it at 0"]),
        ({"ends": np.array([3, 5])}, ["the last document ends at token 5 of 6"]),
        ({"ends": np.array([], np.int64)}, ["the last document ends at token 0 of 6"]),
        ({"loss": np.ones(5, bool)}, ["the mask has 5 values for 6 tokens"]),
        (
            {"loss": np.array([1, 1, 3, 0, 1, 1], np.uint8)},
            ["the mask has 3 at token 2, expected 0 or 1"],
        ),
        (
            {"vocab_size": 6},
            ["2 ids outside the vocabulary 0..5, the first is 6 at token 1"],
        ),
        (
            {"tokens": np.array([5, 6, 0, 7, -2, -1]), "vocab_size": None},
            ["2 ids outside the vocabulary, the first is -2 at token 4"],
        ),
        (
            {"ends": np.array([0, 2, 4, 6])},
            ["3 documents do not end in the end token 0, the first is 0"],
        ),
        (
            {"ends": np.array([3, 5, 5, 6])},  # the third is empty: the end token is of the second
            ["1 documents do not end in the end token 0, the first is 2"],
        ),
        ({"eos_id": None, "ends": np.array([2, 4, 6])}, []),
        ({"row_tokens": 2, "ends": np.array([2, 4, 6])}, []),
        ({"ends": None, "loss": None}, []),
    ],
)
@pytest.mark.parametrize("block", [1, 2, 4, 100])
def test_faults_are_told_in_one_sentence_each_whatever_the_block(
    monkeypatch: pytest.MonkeyPatch, change: dict, said: list[str], block: int
) -> None:
    monkeypatch.setattr(token_file, "_BLOCK", block)
    assert faults(dataclasses.replace(GOOD, **change)) == said


def test_the_vocabulary_that_is_asked_for_is_the_one_that_counts() -> None:
    assert faults(GOOD, vocab_size=7) == [
        "says that its vocabulary has 8 ids, not 7",
        "1 ids outside the vocabulary 0..6, the first is 7 at token 3",
    ]


@pytest.mark.parametrize(
    "path", ["megatron_uint16.bin", "datatrove/small.ds", "llmc_gpt-2.bin", "olmo-core.npy"]
)
@pytest.mark.parametrize("change", [lambda d: d[:-1], lambda d: d + b"\0\0"])
def test_fm_07_no_format_opens_ids_that_were_cut_or_grew(
    tmp_path: Path, path: str, change: Callable[[bytes], bytes]
) -> None:
    shutil.copytree(GOLDEN, tmp_path / "golden")
    damaged = tmp_path / "golden" / path
    damaged.write_bytes(change(damaged.read_bytes()))
    with pytest.raises(StorageError, match=str(damaged.stat().st_size)):
        open_tokens(damaged)


@pytest.mark.parametrize(
    ("damaged", "opened"),
    [
        ("megatron_sequences.idx", "megatron_sequences"),
        ("datatrove/small.ds.index", "datatrove/small.ds"),
        ("datatrove/small.ds.metadata", "datatrove/small.ds"),
        ("llmc_gpt-2.bin", "llmc_gpt-2.bin"),
        ("dolma.csv.gz", "dolma.npy"),
        ("true.npy", "true.npy"),
    ],
)
def test_whatever_the_bytes_a_file_is_opened_or_refused(
    tmp_path: Path, damaged: str, opened: str
) -> None:
    shutil.copytree(GOLDEN, tmp_path / "golden")
    np.save(tmp_path / "golden" / "true.npy", np.arange(5, dtype=np.uint16))
    path, rng = tmp_path / "golden" / damaged, random.Random(1)
    good, refused = path.read_bytes(), 0
    for _ in range(50):
        data = bytearray(good)
        for at in rng.choices(range(len(data)), k=rng.randint(1, 3)):
            data[at] = rng.choice([0, 1, 128, 255])
        path.write_bytes(data[: rng.choice([len(data), rng.randrange(len(data))])])
        try:
            faults(open_tokens(tmp_path / "golden" / opened))
        except StorageError:
            refused += 1
    assert refused > 10


def test_a_document_that_is_not_there_is_an_index_error() -> None:
    with pytest.raises(IndexError, match="document 3 of 3"):
        GOOD.document(3)
