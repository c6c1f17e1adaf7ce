"""Tests of finding a release: by id, beginning or `current`, whole and cleared, never by a path."""

from itertools import pairwise
from pathlib import Path

import pytest

from corpus_platform.errors import Uncleared, UsageError
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.pinned_release import find_release, pinned
from corpus_platform.stages.project import Project
from corpus_platform_tests.stages.releases import (
    empty_project,
    policy_of,
    write_release,
    write_rows,
)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project without a release."""
    return empty_project(tmp_path / "p")


def test_a_release_is_found_by_the_beginning_of_its_id(project: Project) -> None:
    one = write_release(project, {"train-00000": [[5]]})
    two = write_release(project, {"train-00000": [[6]]})
    for name in (one, one[:10]):
        assert find_release(project, name).id == one
    assert find_release(project, two).id == two


def test_a_beginning_that_several_have_is_refused(project: Project) -> None:
    made = sorted(write_release(project, {"train-00000": [[i]]}) for i in range(1, 20))
    first = next(a[0] for a, b in pairwise(made) if a[0] == b[0])
    with pytest.raises(UsageError, match="is more than one"):
        find_release(project, first)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../releases", "/", "/etc", "*", "current.json", ".draft-1", "ffff\0", "x" * 5000]
)  # fmt: skip
def test_a_name_is_no_path(name: str, project: Project) -> None:
    made = write_release(project, {"train-00000": [[5]]})
    with pytest.raises(UsageError, match=f"there are {made}"):
        find_release(project, name)


def test_without_a_release_the_way_out_is_said(project: Project) -> None:
    for name in ("current", "ab"):
        with pytest.raises(UsageError, match="corpus run"):
            find_release(project, name)


def test_the_release_in_force_is_current(finished: Path) -> None:
    project = open_project(load_settings(finished))
    release = find_release(project, "current")
    assert release.artifact.folder == project.present("shuffled_bins", None).folder
    assert list(release.headers) == ["train-00000", "val-00000"]
    assert (release.policy.vocab_size, release.policy.eos_id, release.has_mask) == (400, 0, False)


def test_a_damaged_file_refuses_the_release(project: Project) -> None:
    made = write_release(project, {"train-00000": [[5, 6]]})
    path = project.store.generation("shuffled_bins", None, made) / "train-00000.bin"
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(Uncleared, match=r"intact: .*train-00000.bin: 4 bytes, expected 6"):
        find_release(project, made)


def test_a_gate_that_fails_refuses_and_left_out_shards_do_not(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = write_release(project, {"train-00000": [[5, 6]]}, excluded=["2026-40/b.jsonl"])
    assert find_release(project, made).excluded == ["2026-40/b.jsonl"]
    monkeypatch.setattr("corpus_platform_tests.stages.releases._passing", dict)
    made = write_release(project, {"train-00000": [[7]]})
    with pytest.raises(Uncleared, match="shuffled_bins: documents: "):
        find_release(project, made)


def test_a_mask_is_more_than_padding(project: Project) -> None:
    rows = write_rows(project, {"train-00000": [[(0, 0, [5, 6, 0]), (-1, 0, [9])]]})
    release = find_release(project, rows)
    assert (release.padding, release.has_mask, release.row_tokens) == (1, False, 4)
    masked = write_release(project, {"train-00000": [[5, 6]]}, masks={"train-00000": [1, 0]})
    assert find_release(project, masked).has_mask is True


def test_empty_documents_are_counted_where_no_control_token_makes_them_longer(
    project: Project,
) -> None:
    files = {"train-00000": [[], [5], []], "val-00000": [[]]}
    bare = write_release(project, files, policy=policy_of(eos_id=None))
    assert find_release(project, bare).empty_documents == 3


def test_an_older_generation_is_found_by_its_content(finished: Path) -> None:
    project = open_project(load_settings(finished))
    shard = "2026-44/part-00000.parquet"
    old = project.present("packed_bins", shard)
    with finished.open("a", encoding="utf-8") as file:
        file.write("pack: {max_document_tokens: 50}\n")
    changed = open_project(load_settings(finished))
    assert changed.artifact("packed_bins", shard) is None
    found = pinned(changed, "packed_bins", [shard], {shard: old.content}, of="release x")
    assert found[shard].folder == old.folder
    (old.folder / "val.index").unlink()
    with pytest.raises(Uncleared, match=r"intact: .*val.index: the file is missing"):
        pinned(changed, "packed_bins", [shard], {shard: old.content}, of="release x")
    with pytest.raises(Uncleared, match="current: the generation 0000000000000000… that release x was made of is not there"):  # fmt: skip
        pinned(changed, "packed_bins", [shard], {shard: "0" * 64}, of="release x")
