"""Artifacts appear whole, are found by what went in, and damage is seen."""

import os
from pathlib import Path

import pytest

from corpus_platform.errors import StorageError
from corpus_platform.storage.artifacts import Artifact, ArtifactStore, file_stamps
from corpus_platform.storage.files import file_sha256
from corpus_platform.storage.manifest import Manifest, Output


def _manifest(draft: Path, text: str, *, settings: dict | None = None) -> Manifest:
    (draft / "data").write_text(text)
    path = draft / "data"
    output = Output("data", path.stat().st_size, file_sha256(path), rows=1)
    return Manifest("stage", "c/s", 1, settings or {}, {}, (output,), {"documents": 1}, {"n": 1.0})


def _publish(store: ArtifactStore, text: str = "hello", **settings: object) -> Artifact:
    with store.lease("stage", "c/s"), store.draft("stage", "c/s") as draft:
        return store.publish(draft, _manifest(draft, text, settings=settings))


def test_a_published_artifact_is_found_by_its_generation(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    made = _publish(store)
    found = ArtifactStore(tmp_path).find("stage", "c/s", made.entry.key)
    assert found is not None
    assert found.path("data").read_text() == "hello"
    assert store.damage(found) == []


def test_other_settings_are_another_generation_and_leave_the_first_untouched(
    tmp_path: Path,
) -> None:
    store = ArtifactStore(tmp_path)
    first, second = _publish(store, "one", a=1), _publish(store, "two", a=2)
    assert first.folder != second.folder
    assert first.path("data").read_text() == "one"


def test_content_does_not_depend_on_what_is_merely_measured(tmp_path: Path) -> None:
    draft = tmp_path / "d"
    draft.mkdir()
    plain = _manifest(draft, "x")
    measured = Manifest(
        plain.asset,
        plain.partition,
        1,
        {},
        {},
        plain.outputs,
        plain.ledger,
        {"n": 2.0},
        {"host": "h"},
    )
    assert plain.content == measured.content


@pytest.mark.parametrize(
    "other",
    [
        Output("a", 2, "0" * 64, rows=1),
        Output("a", 1, "1" * 64, rows=1),
        Output("a", 1, "0" * 64, rows=2),
    ],
)
def test_content_depends_on_every_output_field(other: Output) -> None:
    outputs = (Output("a", 1, "0" * 64, rows=1), other)
    contents = {Manifest("s", None, 1, {}, {}, (o,), {}, {}).content for o in outputs}
    assert len(contents) == 2


def test_an_artifact_without_manifest_does_not_exist(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    made = _publish(store)
    made.manifest_path.unlink()
    assert store.find("stage", "c/s", made.entry.key) is None


def test_a_manifest_with_a_changed_ledger_is_no_manifest(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    made = _publish(store)
    text = made.manifest_path.read_text().replace('"documents": 1', '"documents": 2')
    made.manifest_path.write_text(text)
    assert store.find("stage", "c/s", made.entry.key) is None


def test_a_missing_file_and_a_flipped_byte_are_damage(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    made = _publish(store)
    made.path("data").write_text("hellp")
    assert "sha256" in store.damage(made)[0].reason
    made.path("data").unlink()
    assert store.damage(made)[0].reason == "the file is missing"


def test_a_touched_but_whole_file_is_hashed_once_and_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ArtifactStore(tmp_path)
    made = _publish(store)
    os.utime(made.path("data"), ns=(1, 1))
    assert store.damage(made) == []
    monkeypatch.setattr(
        "corpus_platform.storage.artifacts.file_sha256", lambda _: "not hashed again"
    )
    found = store.find("stage", "c/s", made.entry.key)
    assert found is not None
    assert store.damage(found) == []


def test_a_flip_that_hides_behind_size_and_time_is_seen_after_distrust(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    made = _publish(store)
    before = made.path("data").stat()
    made.path("data").write_text("hellp")
    os.utime(made.path("data"), ns=(before.st_atime_ns, before.st_mtime_ns))
    assert store.damage(made) == []
    assert store.deep_damage(made.folder, made.manifest.outputs)
    store.distrust("stage", made.folder)
    found = store.find("stage", "c/s", made.entry.key)
    assert found is not None
    assert store.damage(found)


def test_a_lost_catalog_is_rebuilt_from_manifests(tmp_path: Path) -> None:
    made = _publish(ArtifactStore(tmp_path))
    (tmp_path / "catalog" / "stage.jsonl").unlink()
    store = ArtifactStore(tmp_path)
    found = store.find("stage", "c/s", made.entry.key)
    assert found is not None
    assert store.damage(found) == []
    assert found.content == made.content


def test_a_torn_catalog_line_is_ignored(tmp_path: Path) -> None:
    made = _publish(ArtifactStore(tmp_path))
    catalog = tmp_path / "catalog" / "stage.jsonl"
    catalog.write_bytes(catalog.read_bytes()[:-20])
    found = ArtifactStore(tmp_path).find("stage", "c/s", made.entry.key)
    assert found is not None
    assert found.content == made.content


def test_a_repair_replaces_files_without_touching_the_mapped_ones(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    made = _publish(store)
    made.path("data").write_text("hellp")
    with made.path("data").open() as mapped:
        repaired = _publish(store)
        assert mapped.read() == "hellp"
    assert repaired.path("data").read_text() == "hello"
    assert store.damage(repaired) == []


def test_what_a_killed_maker_left_is_removed_by_the_next(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    left = store.folder("stage", "c/s") / ".draft-dead"
    left.mkdir(parents=True)
    _publish(store)
    assert not left.exists()


def test_a_reader_that_may_not_write_leaves_no_trace(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "never", remember=False)
    assert store.find("stage", "c/s", "0" * 64) is None
    assert store.last("stage", "c/s") is None
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize("key", ["c/..", "c/a/b", "c/" + "x" * 300, "c/é?*", "c/."])
def test_any_key_has_a_folder_of_its_own_below_the_asset(tmp_path: Path, key: str) -> None:
    folder = ArtifactStore(tmp_path).folder("stage", key)
    assert folder.parent == tmp_path / "stage" / "c"
    folder.mkdir(parents=True)
    assert folder.resolve().parent == (tmp_path / "stage" / "c").resolve()


def test_a_file_that_changes_while_it_is_hashed_is_not_noted_as_sound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ArtifactStore(tmp_path)
    made = _publish(store)
    os.utime(made.path("data"), ns=(1, 1))  # so that it is hashed

    def hash_and_change(path: Path) -> str:
        found = file_sha256(path)
        path.write_text("hellp")
        return found

    monkeypatch.setattr("corpus_platform.storage.artifacts.file_sha256", hash_and_change)
    assert store.damage(made)[0].reason == "the file changed while it was read"
    monkeypatch.undo()
    found = store.find("stage", "c/s", made.entry.key)
    assert found is not None
    assert "sha256" in store.damage(found)[0].reason


def test_a_file_that_changes_after_it_was_hashed_is_not_published_as_sound(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    with store.lease("stage", "c/s"), store.draft("stage", "c/s") as draft:
        (draft / "data").write_text("hello")
        seen = file_stamps(draft, ["data"])
        manifest = _manifest(draft, "hello")
        (draft / "data").write_text("hellp")
        os.utime(draft / "data", ns=(1, 1))
        with pytest.raises(StorageError, match="changed while it was published; run again"):
            store.publish(draft, manifest, seen=seen)
    found = store.find("stage", "c/s", manifest.key)
    assert found is not None
    assert "sha256" in store.damage(found)[0].reason


def test_generations_without_a_manifest_are_listed_and_drafts_are_not(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    made = _publish(store)
    bare = made.folder.with_name("0123456789abcdef")
    for folder in (
        bare,
        made.folder.with_name(".draft-x"),
        tmp_path / "other" / "0011223344556677",
    ):
        folder.mkdir(parents=True)
    (tmp_path / "other" / "latest.json").write_text("{}")
    assert store.generation_folders("stage", per_shard=True) == sorted([bare, made.folder])
    assert store.generation_folders("other", per_shard=False) == [tmp_path / "other" / "0011223344556677"]  # fmt: skip
    assert store.generation_folders("never", per_shard=True) == []
