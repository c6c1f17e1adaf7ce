"""Releases are opened when all is as manifest and headers say, and each file at fault is named."""

import hashlib
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from corpus_platform.errors import StorageError, UsageError
from corpus_platform.formats.token_bin import Hashed
from corpus_platform.loader.opening import open_release
from corpus_platform.loader.release_files import Listing, bin_names
from corpus_platform.stages.project import Project
from corpus_platform_tests.loader.made import places
from corpus_platform_tests.stages.releases import (
    TOKENIZER,
    empty_project,
    policy_of,
    write_release,
    write_rows,
)

FILES = {
    "train-00000": [[1, 2, 3], [4]],
    "train-00001": [],
    "train-00002": [[5, 6], [7, 8, 9]],
    "val-00000": [[11, 12]],
}
TOKENS = [1, 2, 3, 0, 4, 0, 5, 6, 0, 7, 8, 9, 0]
FINGERPRINT = hashlib.sha256(TOKENIZER).hexdigest()


def made(folder: Path, **more: Any) -> Path:
    """Return the folder of a release."""
    project = empty_project(folder)
    return releases(project) / write_release(project, FILES, **more)


def releases(project: Project) -> Path:
    return project.store.folder("shuffled_bins", None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A release of three files, the second without a token, and a mask in the third."""
    mask = [1, 0, 1, 1, 1]
    return made(tmp_path, masks={"train-00002": mask})


def flip(path: Path, at: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def digest(values: object) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def sign(manifest: Path, **changed: object) -> None:
    """Change a manifest, and with it its content and its hash, where they are not changed too."""
    raw = {**json.loads(manifest.read_bytes()), **changed}
    raw.pop("sha256")
    parts = ("asset", "partition", "version", "settings", "inputs", "outputs", "ledger")
    raw = {**raw, "content": digest({name: raw[name] for name in parts}), **changed}
    manifest.write_text(json.dumps({**raw, "sha256": digest(raw)}))


@pytest.mark.parametrize("verify", ["header", "sha256"])
def test_a_release_is_one_stream_of_its_files(folder: Path, verify: str) -> None:
    release = open_release(folder, verify=verify)  # ty: ignore[invalid-argument-type]
    assert release.get_slice(0, len(release)).tolist() == TOKENS
    assert release.stream.offsets.tolist() == [0, 6, 6, 13]
    assert release.stream.loss(6, 13).tolist() == [True, False, False, True, True, True, True]
    assert (release.documents, release.split, release.id) == (4, "train", folder.name)
    assert (release.eos_id, release.vocab_size, release.row_tokens) == (0, 100, None)
    assert release.has_loss
    val = open_release(str(folder), split="val")
    assert val.get_slice(0, len(val)).tolist() == [11, 12, 0]


def test_ids_of_four_bytes_are_read_as_such(tmp_path: Path) -> None:
    project = empty_project(tmp_path)
    policy = policy_of(vocab_size=70_000)
    name = write_release(project, {"train-00000": [[69_999, 5]], "val-00000": []}, policy=policy)
    release = open_release(releases(project) / name)
    assert release.get_slice(0, 3).tolist() == [69_999, 5, 0]
    assert next(iter(release.sequential(1, 2))).x.tolist() == [[69_999], [5]]
    with pytest.raises(UsageError, match="uint16: does not hold ids up to 69999"):
        release.sequential(1, 2, dtype="uint16")  # ty: ignore[invalid-argument-type]


def test_current_json_names_the_release_in_force(folder: Path) -> None:
    pointer = folder.parent / "current.json"
    content = json.loads((folder / "manifest.json").read_bytes())["content"]
    pointer.write_text(json.dumps({"id": folder.name, "content": content}))
    assert open_release(pointer).id == folder.name
    pointer.write_text(json.dumps({"id": folder.name, "content": "0" * 64}))
    with pytest.raises(StorageError, match=r"content .*, but current.json names 0000"):
        open_release(pointer)


@pytest.mark.parametrize(
    "said",
    [
        "",
        "[]",
        "[" * 100_000,
        '{"id": "a"}',
        '{"id": "../a", "content": "c"}',
        '{"id": 1, "content": "c"}',
    ],
)
def test_a_pointer_that_names_no_release_is_refused(tmp_path: Path, said: str) -> None:
    (tmp_path / "current.json").write_text(said)
    with pytest.raises(StorageError, match=r"current.json: names no release"):
        open_release(tmp_path / "current.json")


def test_where_no_release_is_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"current.json: cannot be read: .* is there a release"):
        open_release(tmp_path / "current.json")
    with pytest.raises(
        StorageError, match=r"manifest.json: cannot be read: .* no finished release"
    ):
        open_release(tmp_path)


def _said(path: Path) -> str:
    with pytest.raises(StorageError) as error:
        open_release(path)
    return str(error.value)


def test_the_folder_above_releases_says_what_to_open(folder: Path) -> None:
    above = folder.parent
    (above / ".trash-1").mkdir()
    (above / ".trash-1" / "manifest.json").write_bytes((folder / "manifest.json").read_bytes())
    (above / "broken").mkdir()
    (above / "broken" / "manifest.json").write_text("{}")
    own = f"a release by its own folder in {above}: {folder.name}"
    without = f"{own} (there is no current.json, so none is in force)"
    for place in (above, above.parent, above.parent.parent):  # releases, storage, corpus
        assert _said(place) == f"{place}: is the folder above releases, and none itself; open {without}"  # fmt: skip
    content = json.loads((folder / "manifest.json").read_bytes())["content"]
    pointer = above / "current.json"
    pointer.write_text(json.dumps({"id": folder.name, "content": content}))
    ways = f"{pointer}, which names {folder.name}, or {own}"
    assert _said(above) == f"{above}: is the folder above releases, and none itself; open {ways}"
    assert _said(above / "current") == f"{above / 'current'}: is not there; open {ways}"


def test_of_many_releases_three_are_named(folder: Path) -> None:
    for name in ("a", "b", "c", "d"):
        (folder.parent / name).mkdir()
        (folder.parent / name / "manifest.json").write_bytes((folder / "manifest.json").read_bytes())  # fmt: skip
    ids = sorted([folder.name, "a", "b", "c", "d"])
    assert f": {', '.join(ids[:3])} and 2 more (there is no current.json" in _said(folder.parent)


def test_a_file_and_an_export_are_no_release(folder: Path, tmp_path: Path) -> None:
    for name in ("manifest.json", "train-00000.bin"):
        path = folder / name
        assert _said(path) == f"{path}: is a file; open the folder of a release, {folder}"
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "export.json").write_text("{}")
    assert _said(tmp_path / "out").startswith(f"{tmp_path}/out: is an export, and no release")


def test_files_that_are_cut_or_gone_are_all_named(folder: Path) -> None:
    (folder / "train-00000.bin").write_bytes(b"\0" * 10)
    (folder / "train-00002.loss").unlink()
    with pytest.raises(StorageError) as caught:
        open_release(folder)
    told = str(caught.value)
    assert f"{folder / 'train-00000.bin'}: 10 bytes, expected 12" in told
    assert f"{folder / 'train-00002.loss'}: cannot be read: " in told


def test_bytes_that_are_others_are_all_named_where_they_are_hashed(folder: Path) -> None:
    for name in ("train-00000.bin", "train-00002.index", "tokenizer.json", "val-00000.bin"):
        flip(folder / name, 0)
    open_release(folder)
    with pytest.raises(StorageError) as caught:
        open_release(folder, verify="sha256")
    named = [line.split(": sha256")[0] for line in str(caught.value).splitlines()[:-1]]
    assert sorted(named) == [
        str(folder / n) for n in ("tokenizer.json", "train-00000.bin", "train-00002.index")
    ]


def test_a_header_that_is_another_is_refused_without_hashing_all(folder: Path) -> None:
    flip(folder / "train-00001.json")
    with pytest.raises(StorageError, match=r"train-00001.json: sha256 .* expected"):
        open_release(folder)


def test_a_manifest_that_was_changed_is_refused(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"tokens": 6', '"tokens": 7'))
    with pytest.raises(StorageError, match=r"manifest.json: sha256 .* it is damaged"):
        open_release(folder)


def content_of(folder: Path) -> str:
    return json.loads((folder / "manifest.json").read_bytes())["content"]


def test_files_that_are_exchanged_under_the_same_content_are_refused(folder: Path) -> None:
    """A pin holds the content alone: a manifest may not say one that its own files do not make."""
    said, path = content_of(folder), folder / "manifest.json"
    outputs = json.loads(path.read_bytes())["outputs"]
    sign(path, outputs=outputs[::-1], content=said)
    with pytest.raises(StorageError, match=rf"content [0-9a-f]{{64}}, stated {said}: it was alt"):
        open_release(folder)


def test_what_does_not_belong_to_the_content_may_be_others(folder: Path) -> None:
    said = content_of(folder)
    sign(folder / "manifest.json", measured={"host": "another"}, numbers={}, content=said)
    assert open_release(folder, expect_content=said).content == said


def test_only_the_release_of_the_expected_content_is_opened(folder: Path, tmp_path: Path) -> None:
    said = content_of(folder)
    assert open_release(folder, expect_content=said, split="val").content == said
    pointer = folder.parent / "current.json"
    pointer.write_text(json.dumps({"id": folder.name, "content": said}))
    other = "ab" * 32
    for source in (folder, pointer, str(folder)):
        with pytest.raises(UsageError) as caught:
            open_release(source, expect_content=other)
        assert str(caught.value) == (
            f"{folder}: release {folder.name} has content {said}, expected {other}; open the one that"
            " you mean by its own folder, or expect this one"
        )


@pytest.mark.parametrize("cut", [0, 12, 16, 63, 65])
def test_a_part_of_a_content_is_none(folder: Path, cut: int) -> None:
    """Nor is nothing, as a variable that is not set gives it."""
    part = (content_of(folder) + "0")[:cut]
    with pytest.raises(
        UsageError, match=rf"expect_content '{part}': the whole `content` is wanted"
    ):
        open_release(folder, expect_content=part)


def test_a_manifest_of_something_else_is_refused(folder: Path) -> None:
    sign(folder / "manifest.json", asset="packed_bins")
    with pytest.raises(StorageError, match="is of packed_bins, and no release"):
        open_release(folder)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"sha256": 1}', "[" * 100_000])
def test_a_manifest_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(StorageError, match=r"manifest.json: "):
        open_release(tmp_path)


def test_a_file_that_the_manifest_does_not_list_is_not_read(folder: Path) -> None:
    path = folder / "manifest.json"
    outputs = json.loads(path.read_bytes())["outputs"]
    sign(path, outputs=[o for o in outputs if o["name"] != "train-00002.loss"])
    with pytest.raises(StorageError, match=r"train-00002.loss: train-00002.json says Hashed"):
        open_release(folder)


def listing(*names: str) -> Listing:
    one = Hashed(1, "x")
    return Listing("r", "c", {f"{name}.json": one for name in names})


def test_files_come_in_the_order_of_their_numbers_and_not_of_their_names() -> None:
    names = [f"train-{n:05d}" for n in range(100_002)]
    found = bin_names(listing("val-00000", *reversed(names)), "train", "r")
    assert found[99_999:] == ["train-99999", "train-100000", "train-100001"]


@pytest.mark.parametrize("names", [(), ("train-00001",), ("train-00000", "train-00002")])
def test_a_number_that_is_missing_is_told(names: tuple[str, ...]) -> None:
    with pytest.raises(StorageError, match="expected 0, 1, … without a gap"):
        bin_names(listing(*names), "train", "r")


def mixed(folder: Path, other: Path, name: str) -> None:
    """Put the files of another release in the place of one file, as its manifest lists it then."""
    outputs = json.loads((folder / "manifest.json").read_bytes())["outputs"]
    own = {o["name"]: o for o in outputs if not o["name"].startswith(f"{name}.")}
    for path in sorted(other.glob("train-00000.*")):
        target = folder / f"{name}{path.suffix}"
        target.write_bytes(path.read_bytes())
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        about = {"name": target.name, "bytes": path.stat().st_size, "sha256": digest}
        own[target.name] = about
    sign(folder / "manifest.json", outputs=list(own.values()))


@pytest.mark.parametrize(
    ("field", "policy"),
    [
        ("vocab_size is 70000, that of train-00000 is 100", {"vocab_size": 70_000}),
        ("eos_id is 50", {"eos_id": 50}),
        ("tokenizer_sha256 is", {"tokenizer": "ab" * 32}),
    ],
)
def test_files_that_do_not_go_together_are_refused(
    folder: Path, tmp_path: Path, field: str, policy: dict[str, Any]
) -> None:
    tokenizer = policy.pop("tokenizer", None)
    other = policy_of(**policy)
    other = other if tokenizer is None else other._replace(tokenizer_sha256=tokenizer)
    mixed(folder, made(tmp_path / "other", policy=other), "train-00002")
    with pytest.raises(StorageError, match=rf"train-00002.json: {field}"):
        open_release(folder)


def test_rows_do_not_go_with_documents(tmp_path: Path) -> None:
    project = empty_project(tmp_path / "rows")
    rows = write_rows(project, {"train-00000": [[(0, 0, [1, 2, 3, 0])]], "val-00000": []})
    folder = made(tmp_path, policy=policy_of(pad_id=9))
    mixed(folder, releases(project) / rows, "train-00002")
    with pytest.raises(StorageError, match=r"train-00002.json: (pad_id|row_tokens) is"):
        open_release(folder)


def test_tokens_of_another_tokenizer_are_refused(folder: Path, tmp_path: Path) -> None:
    open_release(folder, expect_tokenizer=FINGERPRINT)
    open_release(folder, expect_tokenizer=folder / "tokenizer.json")
    open_release(folder, expect_tokenizer=str(folder / "tokenizer.json"))
    with pytest.raises(UsageError, match=f"written with tokenizer {FINGERPRINT}, expected abab"):
        open_release(folder, expect_tokenizer="ab" * 32)
    with pytest.raises(UsageError, match=r"expect_tokenizer .*/t.json: cannot be read"):
        open_release(folder, expect_tokenizer=tmp_path / "t.json")


@pytest.mark.parametrize("options", [{"split": "test"}, {"verify": "md5"}])
def test_what_cannot_be_asked_for_is_refused(folder: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="'train' or 'val', and 'header' or 'sha256'"):
        open_release(folder, **options)


def test_pk_09_too_few_tokens_for_a_window_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """0, 5, 8 and 9 tokens, windows of 8."""
    project = empty_project(tmp_path)
    found = []
    for count in (0, 5, 8, 9):
        documents = [[1] * (count - 1)] if count else []
        name = write_release(project, {"train-00000": documents, "val-00000": []})
        release = open_release(releases(project) / name)
        found += [places(release.windows(8, 1, seed=1))]
    assert found == [[], [], [], [0]]
    told = [message.partition("(")[2] for message in caplog.messages]
    assert told == [
        "train-00000): no tokens, so no window of 8",
        "train-00000): 5 tokens make no window of 8, which needs 9",
        "train-00000): 8 tokens make no window of 8, which needs 9",
    ]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_a_state_belongs_to_a_release(folder: Path, tmp_path: Path) -> None:
    state = open_release(folder).windows(2, 1, seed=1).state()
    assert state["release"] == folder.name
    other = open_release(made(tmp_path / "other"))
    with pytest.raises(UsageError, match=f"open release {folder.name} by its own folder"):
        other.windows(2, 1, seed=1).load_state(state)


def test_a_reader_goes_on_with_the_files_that_it_opened(folder: Path) -> None:
    """What takes their names by a rename, or takes the whole folder away, is not seen."""
    release = open_release(folder)
    batches = release.sequential(2, 1)
    first = next(iter(batches))
    new = folder / "new"
    new.write_bytes(b"\x63\0" * 6)
    os.replace(new, folder / "train-00000.bin")
    folder.rename(folder.parent / "away")
    assert first.x.tolist() == [[1, 2]]
    rest = [batch.x[0].tolist() for batch in batches]
    assert rest == [[3, 0], [4, 0], [5, 6], [0, 7], [8, 9]]
