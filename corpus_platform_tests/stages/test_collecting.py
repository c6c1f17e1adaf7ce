"""Tests of collections: what is wanted, in force, pinned or new enough stays, with all it was made of."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any  # arguments that are handed on

import numpy as np
import pytest

from corpus_platform.errors import Busy, StorageError, UsageError
from corpus_platform.planner import survey
from corpus_platform.settings_file import load_settings
from corpus_platform.stages import exporting
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.collecting import KINDS, collect, look
from corpus_platform.stages.export_target import held
from corpus_platform.stages.exporting import ExportOptions, export_release
from corpus_platform.stages.keeping import RELEASES
from corpus_platform.stages.packed_bins import pack_shard
from corpus_platform.stages.pinned_release import find_release, pinned
from corpus_platform.stages.project import Project
from corpus_platform.stages.release_pins import pin_release, pins_path
from corpus_platform.stages.shuffled_bins import (
    current_path,
    publish_release,
    release_in_force,
    scratch_of,
    shuffle_scratch,
)
from corpus_platform.storage import lease
from corpus_platform.storage.pointer import move_pointer
from corpus_platform_tests.once import made_once
from corpus_platform_tests.small import SHARDS

OLD = 7200.0  # seconds, beyond the grace


def _set(config: Path, lines: str) -> Project:
    with config.open("a", encoding="utf-8") as file:
        file.write(lines + "\n")
    return open_project(load_settings(config))


def _another_order(config: Path, seed: int = 43) -> Project:
    """Make a release of the same packs in another order, of which one is kept."""
    project = _set(config, f"shuffle: {{seed: {seed}}}\nrelease: {{keep: 1}}")
    publish_release(project)
    return project


def _other_packs(config: Path) -> Project:
    project = _set(config, "pack: {bos_token: '<|im_start|>'}\nrelease: {keep: 1}")
    for shard in SHARDS:
        pack_shard(project, shard)
    publish_release(project)
    return project


def _changed(
    name: str, change: Callable[[Path], Project], finished: Path, factory: pytest.TempPathFactory
) -> Path:
    """Return the folder of the finished corpus with a second release, made in a later second."""

    def make(folder: Path) -> None:
        shutil.copytree(finished, folder, dirs_exist_ok=True)
        time.sleep(1)  # of two releases of one second the larger id counts as newer
        change(folder / "corpus.yaml")

    return made_once(factory.getbasetemp(), name, make)


def _copy(of: Path, to: Path) -> Project:
    shutil.copytree(of, to)
    return open_project(load_settings(to / "corpus.yaml"))


@pytest.fixture(scope="module")
def reordered_once(finished_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _changed("reordered", _another_order, finished_once, tmp_path_factory)


@pytest.fixture(scope="module")
def repacked_once(finished_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _changed("repacked", _other_packs, finished_once, tmp_path_factory)


@pytest.fixture
def reordered(reordered_once: Path, tmp_path: Path) -> Project:
    """The finished corpus with a second release of the same packs, of which one is kept."""
    return _copy(reordered_once, tmp_path / "reordered")


@pytest.fixture
def repacked(repacked_once: Path, tmp_path: Path) -> Project:
    """The finished corpus with other packs and a second release of these, of which one is kept."""
    return _copy(repacked_once, tmp_path / "repacked")


@pytest.fixture
def old_id(finished_once: Path) -> str:
    """The id of the release that was in force before the second one."""
    first = open_project(load_settings(finished_once / "corpus.yaml"), read_only=True)
    return find_release(first, "current").id


def _tree(folder: Path) -> Iterator[str]:
    return (str(p.relative_to(folder)) for p in sorted(folder.rglob("*")) if "leases" not in p.parts)  # fmt: skip


def _aged(path: Path) -> Path:
    for one in [path, *path.rglob("*")] if path.is_dir() else [path]:
        os.utime(one, (os.stat(one).st_atime, os.stat(one).st_mtime - OLD))
    return path


def _gone(project: Project, *kinds: str) -> list[str]:
    chosen = [kind for kind in KINDS if kind in kinds] or list(KINDS)
    return [item.name for item in collect(project, chosen) if not item.skipped]


def test_of_a_corpus_that_is_up_to_date_nothing_goes(finished: Path) -> None:
    project = open_project(load_settings(finished))
    current = release_in_force(project)
    assert current is not None
    assert _gone(project) == []
    assert look(project).kept == {
        "the clusters in force": 1,  # and its parts, which are wanted by themselves
        f"release {current['id']} is in force": 1,
        "wanted now": 3 + 3 + 3 + 3 + 3 + 1,  # raw, cleaned, signed, verdicts, packs, tokenizer
    }


def test_an_older_release_goes_and_the_newer_one_stays_in_force(
    reordered: Project, old_id: str
) -> None:
    before, after = find_release(reordered, old_id), release_in_force(reordered)
    assert after is not None
    assert _gone(reordered) == [f"shuffled_bins {old_id}"]
    assert not before.artifact.folder.exists()
    assert find_release(reordered, "current").id == after["id"] != old_id
    assert _gone(reordered) == []


def test_as_many_of_the_newest_stay_as_the_settings_say(finished: Path) -> None:
    made = [release_in_force(_another_order(finished.with_name(f"{i}.yaml"), i)) for i in _copies(finished)]  # fmt: skip
    project = _set(finished, "release: {keep: 3}\nshuffle: {seed: 3}")
    names = [m["id"] for m in made if m is not None]
    assert len(set(names)) == 3
    first = next(p.parent.name for p in project.store.folder("shuffled_bins", None).glob("*/manifest.json") if p.parent.name not in names)  # fmt: skip
    # All were made in the same second or so: of one second the larger ids count as newer.
    order = sorted([first, *names], key=lambda name: (_made_at(project, name), name))
    in_force = release_in_force(project)
    assert in_force is not None
    expected = [f"shuffled_bins {order[0]}"] if order[0] != in_force["id"] else []
    assert _gone(project, "releases") == expected


def _copies(config: Path) -> list[int]:
    for i in (1, 2, 3):
        config.with_name(f"{i}.yaml").write_text(config.read_text())
    return [1, 2, 3]


def _made_at(project: Project, name: str) -> str:
    return find_release(project, name).manifest.measured["made_at"]


def test_a_pinned_release_stays_with_all_it_was_made_of(repacked: Project, old_id: str) -> None:
    project, old = repacked, find_release(repacked, old_id)
    inputs = {k: v for k, v in old.manifest.inputs.items() if k.startswith("packed_bins")}
    contents = {shard: inputs[f"packed_bins[{shard}]"] for shard in SHARDS}
    pin_release(project, old.id, "run-7")
    assert _gone(project) == []
    assert f"release {old.id} is pinned as run-7" in look(project).kept
    assert set(pinned(project, "packed_bins", SHARDS, contents, of="it")) == set(SHARDS)


def test_without_a_pin_the_packs_of_an_older_release_go_with_it(
    repacked: Project, old_id: str
) -> None:
    project = repacked
    before = [(s.asset, s.partition, s.state) for s in survey(project).states]
    gone = _gone(project)
    assert gone[0] == f"shuffled_bins {old_id}"
    assert [name.split(" ")[0] for name in gone[1:]] == [f"packed_bins[{s}]" for s in SHARDS]
    assert [(s.asset, s.partition, s.state) for s in survey(project).states] == before
    catalog = (project.store.root / "catalog" / "packed_bins.jsonl").read_text()
    assert [name.split(" ")[1] in catalog for name in gone[1:]] == [False] * 3
    assert catalog.count('"partition"') == 3
    assert publish_release(open_project(project.settings)).made is False


def test_a_release_in_force_stays_though_others_are_newer(reordered: Project, old_id: str) -> None:
    project, old = reordered, find_release(reordered, old_id)
    move_pointer(current_path(project), {"id": old.id, "content": old.content})
    assert _gone(project, "releases") == []


def test_while_it_cannot_be_told_what_is_wanted_all_stays(finished: Path) -> None:
    project = _set(finished, "dedup: {threshold: 0.85}\nclean: {set: {too_short.min_chars: 210}}")
    assert _gone(project) == []
    assert look(project).kept["what is wanted now cannot be told before `corpus run`"] > 0


def test_a_retired_shard_keeps_its_last_generations(finished: Path) -> None:
    project = open_project(load_settings(finished))
    project.registry.retire(SHARDS[2])
    assert _gone(open_project(load_settings(finished))) == []


def test_looking_changes_nothing(reordered: Project) -> None:
    project, folder = reordered, reordered.settings.base
    before = list(_tree(folder))
    found = look(open_project(project.settings, read_only=True))
    assert len(found.items) == 1
    assert found.bytes == sum(p.stat().st_size for p in found.items[0].path.iterdir())
    assert list(_tree(folder)) == before
    assert project.store.root.exists()


def test_a_training_run_goes_on_reading_what_it_has_mapped(reordered: Project, old_id: str) -> None:
    old = find_release(reordered, old_id)
    path = old.artifact.path("train-00000.bin")
    wanted, mapped = path.read_bytes(), np.memmap(path, "<u2", mode="r")
    assert _gone(reordered, "releases") == [f"shuffled_bins {old_id}"]
    assert not path.exists()
    assert mapped.tobytes() == wanted


def test_kinds_that_were_not_asked_for_stay(repacked: Project) -> None:
    project = repacked
    draft = project.store.folder("tokenizer", None) / ".draft-dead"
    draft.mkdir()
    assert _gone(project, "scratch") == ["tokenizer .draft-dead"]
    assert [n.split("[")[0] for n in _gone(project, "artifacts")] == []  # the release has them
    assert len(_gone(project, "releases")) == 1
    assert [n.split("[")[0] for n in _gone(project, "artifacts")] == ["packed_bins"] * 3


@pytest.mark.parametrize("name", ["run", "dedup_clusters/lease", "shuffled_bins/lease", "pins"])
def test_while_something_is_made_of_all_shards_nothing_goes(name: str, reordered: Project) -> None:
    project = reordered
    path = project.store.root / "leases" / (name if "/" in name else f"{name}.lease")
    with lease.hold(path), pytest.raises(Busy, match="nothing was collected"):
        _gone(project)
    assert len(_gone(project)) == 1


def test_of_a_shard_in_use_nothing_goes(repacked: Project) -> None:
    project = repacked
    crawl, name = SHARDS[0].split("/")
    path = project.store.root / "leases" / "packed_bins" / crawl / name / "lease"
    with lease.hold(path):
        stayed = [item for item in collect(project) if item.skipped]
    assert [(i.place, i.skipped.split(":")[0]) for i in stayed] == [
        (("packed_bins", SHARDS[0]), "in use")
    ]
    assert stayed[0].path.exists()


def test_leftovers_of_killed_processes_go_when_they_are_old_enough(finished: Path) -> None:
    project = open_project(load_settings(finished))
    releases, root = project.store.folder("shuffled_bins", None), project.store.root
    folders = [releases / ".draft-1", releases / ".trash-2", shuffle_scratch(project) / "3"]
    bare, young = releases / "0123456789abcdef", releases / "fedcba9876543210"
    for folder in [*folders, bare, young]:
        folder.mkdir(parents=True)
        (folder / "train-00000.bin").write_bytes(b"12")
    parts = [root / f".registry.json.{'0' * 32}.part", releases / f".current.json.{'1' * 32}.part"]
    others = [root / ".mine.part", root / f".registry.json.{'2' * 32}.part"]
    for part in [*parts, *others]:
        part.write_bytes(b"123")
    for old in [bare, others[0], *parts]:
        _aged(old)
    assert {item.path: item.bytes for item in collect(project)} == {
        **dict.fromkeys([*folders, bare], 2),
        **dict.fromkeys(parts, 3),
    }
    assert [p.exists() for p in [*folders, bare, *parts]] == [False] * 6
    assert [p.exists() for p in [young, *others]] == [True] * 3


def test_what_lies_ready_for_a_shuffle_to_go_on_with_stays(finished: Path) -> None:
    project = _set(finished, "shuffle: {seed: 43}")
    key = project.expected(RELEASES, None).key
    ready = scratch_of(project, key)
    others = [ready.with_name(key[:16]), ready.with_name(f"{ready.name}-earlier")]
    for folder in (ready, *others):
        folder.mkdir(parents=True)
    assert [item.path for item in look(project, ["scratch"]).items] == others
    publish_release(project)
    ready.mkdir(parents=True)  # as if it could not be removed
    assert [item.path for item in look(project, ["scratch"]).items] == [ready]


def test_a_pinned_release_that_lost_its_manifest_stays(reordered: Project, old_id: str) -> None:
    project, old = reordered, find_release(reordered, old_id)
    pin_release(project, old.id)
    old.artifact.manifest_path.unlink()
    _aged(old.artifact.folder)
    assert _gone(project) == []


def test_a_release_whose_manifest_is_damaged_stays_until_a_person_has_looked(
    reordered: Project, old_id: str
) -> None:
    project, old = reordered, find_release(reordered, old_id)
    old.artifact.manifest_path.write_text("{")
    _aged(old.artifact.folder)
    assert _gone(project) == []


def test_pins_that_cannot_be_read_stop_a_collection(reordered: Project) -> None:
    project = reordered
    pins_path(project).write_text('{"format": 2, "pins": {}}')
    with pytest.raises(StorageError, match=r"pins.json: no file of pins: .*format 2 is unknown"):
        _gone(project)
    pins_path(project).unlink()
    assert len(_gone(project)) == 1


@pytest.mark.parametrize("pointer", ["releases/current.json", "dedup_clusters/latest.json"])
@pytest.mark.parametrize("data", [b"", b"{}", b'{"id": 5, "key": ""}'])
def test_a_pointer_that_names_nothing_stops_a_collection(
    pointer: str, data: bytes, finished: Path
) -> None:
    project = open_project(load_settings(finished))
    (project.store.root / pointer).write_bytes(data)
    with pytest.raises(StorageError, match="not a pointer; first `corpus run`"):
        _gone(project)


def test_while_a_release_is_exported_nothing_is_collected(
    reordered: Project, tmp_path: Path
) -> None:
    project = reordered
    with (
        held(project.settings.storage_path, str(tmp_path / "to"), None),
        pytest.raises(Busy, match="a release is being exported: process"),
    ):
        _gone(project)
    assert len(_gone(project)) == 1


def test_a_draft_that_comes_and_goes_meanwhile_is_no_fault(reordered: Project) -> None:
    project, over = reordered, threading.Event()
    draft = project.store.folder("raw_shards", SHARDS[0]) / ".draft-x"

    def written_again_and_again() -> None:
        while not over.is_set():
            (draft / "a").mkdir(parents=True, exist_ok=True)
            for name in "bcdef":
                (draft / "a" / name).touch()
            shutil.rmtree(draft / "a")

    writer = threading.Thread(target=written_again_and_again)
    writer.start()
    try:
        for _ in range(10):
            look(project, ["scratch"], grace=-1.0)
    finally:
        over.set()
        writer.join()


@pytest.mark.parametrize("when", ["before its lease", "while it waits"])
def test_an_export_that_begins_while_its_release_is_collected_writes_nothing(
    when: str,
    reordered: Project,
    old_id: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project, old = reordered, old_id
    out, told, errors = tmp_path / "out", list[str](), list[UsageError]()
    real = exporting.held

    def late(*arguments: Any) -> AbstractContextManager[None]:
        assert f"{RELEASES} {old}" in _gone(project, "releases")
        return real(*arguments)

    def collecting(holder: str) -> None:
        told.append(holder)
        waited.set()

    def run() -> None:
        own, options = open_project(project.settings), ExportOptions(to=str(out))
        with pytest.raises(UsageError) as error:
            export_release(own, old, "nanogpt", options, collecting=collecting)
        errors.append(error.value)

    waited = threading.Event()
    if when == "before its lease":
        monkeypatch.setattr(exporting, "held", late)
        run()
        assert str(errors[0]).startswith(f"release {old} was removed (corpus gc) just when this export began")  # fmt: skip
    else:
        thread = threading.Thread(target=run)
        collection = collect(project, ["releases"])
        assert next(collection).name == f"{RELEASES} {old}"  # it goes on to hold its leases
        thread.start()
        assert waited.wait(5)
        assert list(collection) == []
        thread.join()
        assert told[0].startswith(f"process {os.getpid()} on ")
        assert str(errors[0]).startswith(f"no release '{old}': there are ")
    assert not out.exists()


def test_exports_stay(reordered: Project) -> None:
    project = reordered
    export = project.store.root / "exports" / "0-megatron" / ".export-parts"
    export.mkdir(parents=True)
    (_aged(export) / "train.bin").write_bytes(b"")
    _gone(project)
    assert (export / "train.bin").exists()


def test_a_release_that_was_collected_cannot_be_pinned(reordered: Project, old_id: str) -> None:
    _gone(reordered)
    with pytest.raises(UsageError, match=f"no release '{old_id}'"):
        pin_release(reordered, old_id)


KILLED = """
import os, shutil, signal, sys
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.collecting import collect
from pathlib import Path
remove = os.unlink if sys.argv[2] == "files" else os.rename
def killed(event, arguments):
    wanted = ("os.remove", "os.rename")[sys.argv[2] == "name"]
    if event == wanted and "/releases/" in str(arguments[0]) and (
        sys.argv[2] == "name" or str(arguments[0]).endswith("manifest.json")
    ):
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(killed)
list(collect(open_project(load_settings(Path(sys.argv[1])))))
"""


@pytest.mark.slow
@pytest.mark.parametrize("when", ["name", "manifest"])
def test_a_collection_that_is_killed_is_gone_on_with_by_the_next(
    when: str, reordered: Project, old_id: str
) -> None:
    project, old = reordered, find_release(reordered, old_id)
    config = str(project.settings.base / "corpus.yaml")
    killed = subprocess.run([sys.executable, "-c", KILLED, config, when], check=False)
    assert killed.returncode == -signal.SIGKILL
    home = project.store.folder("shuffled_bins", None)
    assert (home / old.id).exists() is (when == "name")
    assert find_release(project, "current").id != old.id
    assert len(_gone(project)) == 1
    assert [p for p in home.iterdir() if p.name.startswith(".trash")] == []
    assert not (home / old.id).exists()
