"""Tests of looks at token files: numbers counted by hand, faults that were put in, comparisons."""

from pathlib import Path

import numpy as np
import pytest

from corpus_platform.errors import StorageError
from corpus_platform.formats.datatrove import DatatroveWriter
from corpus_platform.formats.hdf5 import Hdf5Writer
from corpus_platform.formats.megatron import MegatronWriter
from corpus_platform.formats.nanogpt import NanogptWriter
from corpus_platform.formats.olmo import OlmoWriter
from corpus_platform.settings_file import load_settings
from corpus_platform.stages import token_inspection
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.export_formats import FormatName
from corpus_platform.stages.exporting import ExportOptions, export_release
from corpus_platform.stages.project import Project
from corpus_platform.stages.token_files import Subject, find_subjects
from corpus_platform.stages.token_inspection import (
    Comparison,
    TokenInspection,
    compare_tokens,
    inspect_tokens,
    load_tokenizer,
)
from corpus_platform_tests.stages.releases import (
    empty_project,
    policy_of,
    write_release,
    write_rows,
)

DOCUMENTS = [[5, 6, 7, 0], [8, 0], [9, 9, 9, 9, 9, 0]]


def _flat(documents: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    ids = np.array([i for d in documents for i in d], np.uint16)
    return ids, np.cumsum([len(d) for d in documents])


def _native(folder: Path, documents: list[list[int]], **policy: int | None) -> Path:
    project = empty_project(folder)
    made = write_release(project, {"train-00000": documents}, policy=policy_of(**policy))
    release = project.store.generation("shuffled_bins", None, made)
    (release / "tokenizer.json").unlink()  # it is none
    return release / "train-00000.json"


def _look(path: Path, **options: int) -> TokenInspection:
    return inspect_tokens(Subject(path), **options)  # ty: ignore[invalid-argument-type]


@pytest.fixture
def without_end(tmp_path: Path) -> list[list[int]]:
    """The documents as the native writer takes them."""
    return [d[:-1] for d in DOCUMENTS]


def test_a_native_file_says_all_of_itself(tmp_path: Path, without_end: list[list[int]]) -> None:
    found = _look(_native(tmp_path, without_end))
    assert (found.format, found.dtype, found.tokens) == ("native", "uint16", 12)
    assert (found.documents, found.documents_by) == (3, "index")
    assert found.lengths == {"0%": 2, "5%": 2, "25%": 2, "50%": 4, "75%": 6, "95%": 6, "100%": 6}
    assert (found.mean_length, found.max_id, found.vocab_size) == (4.0, 9, 100)
    assert (found.eos_id, found.eos_by, found.eos_count) == (0, "header", 3)
    assert found.eos_density == 0.25
    assert (found.without_loss, found.faults, found.beginnings) == (0, [], [])
    assert found.header["layout"] == "documents"


def test_without_an_index_documents_are_counted_by_the_end_token(tmp_path: Path) -> None:
    with NanogptWriter(tmp_path / "x.bin", vocab_size=10) as writer:
        writer.append(*_flat(DOCUMENTS))
    found = inspect_tokens(Subject(tmp_path / "x.bin", eos_id=0))
    assert (found.documents, found.documents_by) == (3, "end tokens")
    assert (found.lengths["0%"], found.lengths["50%"], found.lengths["100%"]) == (2, 4, 6)
    assert (found.eos_by, found.without_loss) == ("export.json", None)
    found = _look(tmp_path / "x.bin")
    assert (found.documents, found.eos_id, found.eos_count) == (None, None, None)


def test_blocks_do_not_change_what_is_counted(
    tmp_path: Path, without_end: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _native(tmp_path, without_end)
    with NanogptWriter(tmp_path / "x.bin", vocab_size=10) as writer:
        writer.append(*_flat(DOCUMENTS))
    bare = Subject(tmp_path / "x.bin", eos_id=0)
    whole = _look(path), inspect_tokens(bare)
    for size in (1, 2, 3, 5):
        monkeypatch.setattr(token_inspection, "BLOCK", size)
        assert (_look(path), inspect_tokens(bare)) == whole


def test_the_end_token_of_a_foreign_file_is_what_ends_its_documents(tmp_path: Path) -> None:
    with MegatronWriter(tmp_path / "m", vocab_size=10) as writer:
        writer.append(*_flat(DOCUMENTS))
    found = _look(tmp_path / "m")
    assert (found.eos_id, found.eos_by, found.eos_count) == (0, "ends of documents", 3)
    assert found.header == {"version": 1, "dtype_code": 8, "sequences": 3, "document_indices": 4}
    with MegatronWriter(tmp_path / "n", vocab_size=10) as writer:
        writer.append(*_flat([[5, 6], [7]]))
    assert _look(tmp_path / "n").eos_id is None


def test_rows_have_pieces_and_padding(tmp_path: Path) -> None:
    project = empty_project(tmp_path)
    rows = [[(0, 0, [5, 6, 7, 8])], [(0, 4, [5, 0]), (1, 0, [0]), (-1, 0, [9])]]
    made = write_rows(project, {"train-00000": rows})
    release = project.store.generation("shuffled_bins", None, made)
    found = _look(release / "train-00000.json")
    assert "tokenizer.json: cannot be read" in found.faults[0]
    (release / "tokenizer.json").unlink()
    found = _look(release / "train-00000.json")
    assert (found.row_tokens, found.entries, found.documents, found.padding) == (4, 4, 2, 1)
    assert (found.without_loss, found.faults) == (1, [])


@pytest.mark.parametrize(
    ("name", "at", "value", "faults"),
    [
        ("index", 1, 5, ["1 pieces reach over the end of a row of 4"]),
        ("pieces", 2, -2, ["1 pieces are of no document, or begin before it", "3 tokens are padding, the header says 1"]),
        ("pieces", 3, 0, ["3 documents begin here, the header says 2"]),
        ("pieces", 7, 1, ["1 pieces are of no document, or begin before it"]),
    ],
)  # fmt: skip
def test_pieces_that_are_not_as_rows_have_them_are_faults(
    name: str, at: int, value: int, faults: list[str], tmp_path: Path
) -> None:
    project = empty_project(tmp_path)
    rows = [[(0, 0, [5, 6, 7, 8])], [(0, 4, [5, 0]), (1, 0, [0]), (-1, 0, [9])]]
    made = write_rows(project, {"train-00000": rows})
    release = project.store.generation("shuffled_bins", None, made)
    (release / "tokenizer.json").unlink()
    path = release / f"train-00000.{name}"
    values = np.fromfile(path, "<i8")
    values[at if name == "pieces" else 0] = value
    values.tofile(path)
    assert _look(release / "train-00000.json").faults == faults


def test_rows_in_hdf5_are_known_as_rows_whose_pieces_end_in_no_end_token(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="needs the extra hdf5")
    with Hdf5Writer(
        tmp_path / "x.h5", vocab_size=10, eos_id=0, tokenizer_sha256="a" * 64, row_tokens=4
    ) as writer:
        writer.append(*_flat([[5, 6, 7, 8], [5, 0], [9, 9]]))
    found = _look(tmp_path / "x.h5")
    assert (found.row_tokens, found.entries, found.documents, found.padding) == (4, 3, None, None)
    assert (found.eos_count, found.faults) == (1, [])
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        file.attrs["row_tokens"] = 5
    with pytest.raises(StorageError, match="8 tokens are no rows of 5"):
        _look(tmp_path / "x.h5")


def test_ids_outside_the_vocabulary_are_a_fault(tmp_path: Path) -> None:
    with NanogptWriter(tmp_path / "x.bin", vocab_size=10) as writer:
        writer.append(*_flat(DOCUMENTS))
    assert _look(tmp_path / "x.bin", vocab_size=10).faults == []
    (fault,) = _look(tmp_path / "x.bin", vocab_size=8).faults
    assert fault == "6 ids outside the vocabulary 0..7, the first is 8 at token 4"


def test_an_end_token_inside_a_document_is_a_fault(
    tmp_path: Path, without_end: list[list[int]]
) -> None:
    path = _native(tmp_path, without_end)
    ids = np.fromfile(path.with_suffix(".bin"), "<u2")
    ids[1] = 0
    ids.tofile(path.with_suffix(".bin"))
    assert _look(path).faults == ["the end token 0 stands 1 times inside documents"]


def test_a_tokenizer_decodes_beginnings_and_is_held_against_the_header(finished: Path) -> None:
    project = open_project(load_settings(finished))
    release = project.present("shuffled_bins", None)
    found = _look(release.path("val-00000.bin"))  # tokenizer.json lies beside
    assert len(found.beginnings) == 3
    assert all(len(text) > 50 for _, text in found.beginnings)
    other = finished.parent / "other.json"
    other.write_bytes(release.path("tokenizer.json").read_bytes() + b"\n")
    (fault,) = inspect_tokens(Subject(release.path("val-00000.bin")), tokenizer=other).faults
    assert fault.startswith("was written with tokenizer ")
    assert load_tokenizer(other).fingerprint in fault


def test_the_same_documents_are_equal_in_any_format(
    tmp_path: Path, without_end: list[list[int]]
) -> None:
    native = Subject(_native(tmp_path, without_end))
    ids, ends = _flat(DOCUMENTS)
    with MegatronWriter(tmp_path / "m", vocab_size=10) as writer:
        writer.append(ids, ends)
    with DatatroveWriter(tmp_path / "d.ds", vocab_size=10, tokenizer="t") as writer:
        writer.append(ids, ends)
    with OlmoWriter(tmp_path / "o.npy", vocab_size=1000) as writer:
        writer.append(ids, ends)
    said = {
        name: compare_tokens(native, Subject(tmp_path / name)) for name in ("m", "d.ds", "o.npy")
    }
    assert {name: one.difference for name, one in said.items()} == dict.fromkeys(said)
    assert said["m"].not_compared == ["masks: megatron has no place for one"]
    assert said["d.ds"].not_compared == []
    assert said["o.npy"].not_compared == ["empty documents: olmo lists none"]


def test_the_first_difference_of_two_files_is_told(tmp_path: Path) -> None:
    for name, documents, mask in (
        ("a", [[5, 6], [7]], [1, 1, 1]),
        ("b", [[5, 6], [8]], [1, 1, 1]),
        ("c", [[5], [6, 7]], [1, 1, 1]),
        ("d", [[5, 6], [7]], [1, 0, 1]),
    ):
        with DatatroveWriter(tmp_path / f"{name}.ds", vocab_size=10, tokenizer="t", loss=True) as w:
            w.append(*_flat(documents), np.array(mask, np.uint8))
    a = Subject(tmp_path / "a.ds")
    found = {
        name: compare_tokens(a, Subject(tmp_path / f"{name}.ds")).difference for name in "abcd"
    }
    assert found["a"] is None
    assert found["b"] == f"document 1 of {tmp_path}/b.ds, token 0 of it (token 2 here): 7 here and 8 there"  # fmt: skip
    assert found["c"] == "document 0 ends at token 2 here and at 1 there"
    assert found["d"] == f"document 0 of {tmp_path}/d.ds, token 1 of it (token 1 here): counts here and not there"  # fmt: skip


def test_empty_documents_are_left_out_of_a_comparison_with_olmo(tmp_path: Path) -> None:
    native = Subject(_native(tmp_path, [[5], [], [6]], eos_id=None))
    with OlmoWriter(tmp_path / "o.npy", vocab_size=1000) as writer:
        writer.append(np.array([5, 6], np.uint16), np.array([1, 2]))
    olmo = Subject(tmp_path / "o.npy")
    assert compare_tokens(native, olmo).difference is None
    assert compare_tokens(olmo, native).difference is None


ROWS = [
    [(0, 0, [5, 6, 7, 0])],
    [(1, 0, [5, 0]), (2, 0, [6, 0])],
    [(3, 0, [7, 8, 0]), (-1, 0, [9])],
]
OF_ROWS = ["masks: megatron has no place for one", "pieces: megatron has each row of 4 tokens for a document"]  # fmt: skip


def _rows(folder: Path) -> Project:
    project = empty_project(folder)
    write_rows(project, {"train-00000": ROWS})
    return project


def _exported(project: Project, name: FormatName, to: Path) -> Path:
    (artifact,) = project.store.generations("shuffled_bins", None)
    options = ExportOptions(to=str(to), accept_loss=frozenset({"padding"}))
    export_release(project, artifact.folder.name, name, options)
    return artifact.path("train-00000.json")


def _one(path: Path) -> Subject:
    (subject,) = find_subjects(path) or []
    return subject


@pytest.mark.parametrize("end", ["", ".bin", ".idx"])
def test_rows_of_megatron_are_compared_by_tokens_and_rows(end: str, tmp_path: Path) -> None:
    native = _one(_exported(_rows(tmp_path / "p"), "megatron", tmp_path / "m"))
    megatron = _one(tmp_path / "m" / f"train-00000{end}")
    assert megatron.row_tokens == 4
    for pair in ((megatron, native), (native, megatron)):
        assert compare_tokens(*pair) == Comparison(None, OF_ROWS)
    tokens = np.fromfile(tmp_path / "m" / "train-00000.bin", "<u2")
    tokens[5] = 1
    tokens.tofile(tmp_path / "m" / "train-00000.bin")
    found = compare_tokens(megatron, native)
    assert found.difference == f"document 1 of {tmp_path}/p/data/releases/{native.path.parent.name}/train-00000.json, token 1 of it (token 5 here): 1 here and 0 there"  # fmt: skip


def test_rows_of_two_formats_that_do_not_say_so_are_rows_by_their_export_json(
    tmp_path: Path,
) -> None:
    project = _rows(tmp_path / "p")
    for name in ("megatron", "datatrove"):
        _exported(project, name, tmp_path / name)
    pieces = _one(tmp_path / "datatrove" / "train" / "000_train.ds")
    rows = _one(tmp_path / "megatron" / "train-00000.bin")
    assert compare_tokens(pieces, rows) == Comparison(None, OF_ROWS)
    seen = [inspect_tokens(one) for one in (pieces, rows)]
    assert [(one.entries, one.documents, one.row_tokens) for one in seen] == [(5, None, 4), (3, None, 4)]  # fmt: skip


def test_documents_as_long_as_rows_are_no_rows_where_another_file_has_them_elsewhere(
    tmp_path: Path,
) -> None:
    """A piece that reaches over the end of a row is a difference, though all tokens are the same."""
    native = _one(_exported(_rows(tmp_path / "p"), "llmc", tmp_path / "l"))
    flat = [i for row in ROWS for _, _, ids in row for i in ids]
    with DatatroveWriter(tmp_path / "d.ds", vocab_size=100, tokenizer="t") as writer:
        writer.append(np.array(flat, np.uint16), np.array([4, 9, 12]))
    with MegatronWriter(tmp_path / "m", vocab_size=100) as writer:
        writer.append(np.array(flat, np.uint16), np.array([4, 8, 12]))
    assert compare_tokens(Subject(tmp_path / "m"), native).difference is None
    pieces = Subject(tmp_path / "d.ds", row_tokens=4)
    found = compare_tokens(Subject(tmp_path / "m"), pieces).difference
    assert found == "document 1 ends at token 8 here and at 12 there"


def test_why_an_hdf5_file_differs_from_a_release_is_said(finished: Path, tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    project = open_project(load_settings(finished))
    native = _one(_exported(project, "hdf5", tmp_path / "out"))
    (path,) = (tmp_path / "out" / "train" / "2026-44").glob("*.h5")
    shard = "2026-44/part-00000.parquet"
    packed = _one(project.present("packed_bins", shard).path("train.json"))
    for pair in ((_one(path), native), (native, _one(path))):
        assert "an .h5 file holds one source shard in its own order" in str(compare_tokens(*pair).difference)  # fmt: skip
    assert compare_tokens(_one(path), packed) == Comparison(None, [])
