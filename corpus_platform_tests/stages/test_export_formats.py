"""Tests of what each format cannot hold of a release, kind by kind."""

from pathlib import Path

import pytest

from corpus_platform.errors import UsageError
from corpus_platform.stages.export_formats import (
    ACCEPTABLE,
    FORMATS,
    STREAMS,
    FormatName,
    check_accepted,
    dtype_of,
    losses,
    notes,
)
from corpus_platform.stages.pinned_release import PinnedRelease, find_release
from corpus_platform_tests.stages.releases import (
    empty_project,
    policy_of,
    write_release,
    write_rows,
)

TRAIN = {"train-00000": [[5, 6], [7]]}


def _kinds(release: PinnedRelease) -> dict[str, list[str]]:
    """Return the kinds that each format loses; those that change training in capitals."""
    return {
        name: [
            loss.kind if loss.accepted is None else loss.kind.upper()
            for loss in losses(name, release, ())
        ]
        for name in FORMATS
    }


def test_of_documents_with_end_tokens_little_is_lost(tmp_path: Path) -> None:
    project = empty_project(tmp_path)
    release = find_release(project, write_release(project, TRAIN))
    assert _kinds(release) == {
        "megatron": ["provenance", "header"],
        "datatrove": ["provenance", "header"],
        "nanogpt": ["provenance", "header"],
        "llmc": ["provenance", "header"],
        "olmo": ["header"],
        "hdf5": ["order", "provenance"],
        "parquet": ["order"],
    }
    assert [notes(name, release) for name in FORMATS[:-1]] == [[]] * 6


def test_without_end_tokens_and_index_nothing_says_where_documents_end(tmp_path: Path) -> None:
    project = empty_project(tmp_path)
    files = {"train-00000": [[5], [], [6]]}
    made = write_release(project, files, policy=policy_of(eos_id=None))
    kinds = _kinds(find_release(project, made))
    assert kinds["nanogpt"] == kinds["llmc"] == ["BOUNDARIES", "empty-documents", "provenance", "header"]  # fmt: skip
    assert kinds["megatron"] == kinds["datatrove"] == ["provenance", "header"]
    assert kinds["olmo"] == ["empty-documents", "header"]
    bos = write_release(project, files, policy=policy_of(eos_id=None, bos_id=1))
    assert _kinds(find_release(project, bos))["nanogpt"] == ["provenance", "header"]


def test_a_mask_has_no_place_in_three_formats(tmp_path: Path) -> None:
    project = empty_project(tmp_path)
    release = find_release(project, write_release(project, TRAIN, masks={"train-00000": [0, 1, 1]}))
    lacking = [name for name, kinds in _kinds(release).items() if "LOSS-MASK" in kinds]
    assert lacking == ["megatron", "nanogpt", "llmc"]


def test_of_rows_padding_counts_where_there_is_no_mask(tmp_path: Path) -> None:
    project = empty_project(tmp_path)
    rows = {"train-00000": [[(0, 0, [5, 6, 0]), (-1, 0, [9])]]}
    release = find_release(project, write_rows(project, rows))
    assert _kinds(release) == {
        "megatron": ["PADDING", "pieces", "continuations", "provenance", "header"],
        "datatrove": ["continuations", "provenance", "header"],
        "nanogpt": ["PADDING", "ROWS", "pieces", "continuations", "provenance", "header"],
        "llmc": ["PADDING", "pieces", "continuations", "provenance", "header"],
        "olmo": ["continuations", "provenance", "header"],
        "hdf5": ["order", "continuations", "provenance"],
        "parquet": ["order"],
    }
    assert notes("datatrove", release) == [
        "samples are of seq_len + 1 tokens: read with seq_len 3, so that they are rows"
    ]


def test_what_is_accepted_passes_and_nothing_else(tmp_path: Path) -> None:
    project = empty_project(tmp_path)
    rows = {"train-00000": [[(0, 0, [5, 6, 0]), (-1, 0, [9])]]}
    release = find_release(project, write_rows(project, rows))
    check_accepted("nanogpt", losses("nanogpt", release, ["padding", "rows"]))
    with pytest.raises(UsageError) as error:
        check_accepted("nanogpt", losses("nanogpt", release, ["padding", "boundaries"]))
    assert str(error.value).endswith("or accept it: --accept-loss rows")
    assert error.value.exit_code == 2
    changing = {"loss-mask", "padding", "boundaries", "rows"}
    assert set(ACCEPTABLE) == changing


@pytest.mark.parametrize(
    ("vocab_size", "wanted"),
    [
        (256, "uint16 uint16 uint16 uint16 uint8 uint16"),
        (65_499, "uint16 uint16 uint16 uint16 uint16 uint16"),
        (65_500, "int32 uint16 uint16 uint16 uint16 uint16"),
        (65_536, "int32 uint16 uint16 uint16 uint16 uint16"),
        (65_537, "int32 uint32 uint16 uint32 uint32 uint32"),
    ],
)
def test_ids_are_as_wide_as_each_reader_takes_them(vocab_size: int, wanted: str) -> None:
    found = [dtype_of(name, vocab_size) for name in FORMATS]
    assert " ".join(d.name for d in found if d is not None) == wanted
    assert found[-1] is None


def test_shards_that_a_release_leaves_out_are_noted(tmp_path: Path) -> None:
    project = empty_project(tmp_path)
    left_out = [f"2026-40/{name}" for name in "bcde"]
    release = find_release(project, write_release(project, TRAIN, excluded=left_out))
    assert notes("olmo", release) == [
        "the release leaves out 4 shards: 2026-40/b, 2026-40/c, 2026-40/d and 1 more"
    ]


@pytest.mark.parametrize("name", list(STREAMS))
def test_a_writer_makes_just_the_files_that_are_planned(name: FormatName, tmp_path: Path) -> None:
    project = empty_project(tmp_path / "p")
    release = find_release(project, write_release(project, TRAIN))
    kind = STREAMS[name]
    for mask in {False, kind.holds_mask}:
        folder = tmp_path / f"{mask}"
        path = kind.path("train", 0, False)
        (folder / path).parent.mkdir(parents=True)
        kind.writer(folder / path, release, mask).close()
        found = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
        assert found == set(kind.files(path, mask))
