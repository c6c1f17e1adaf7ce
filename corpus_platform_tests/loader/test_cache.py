"""Releases that lie elsewhere: what is fetched, kept, found damaged, and fetched again once."""

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from corpus_platform.errors import StorageError, UsageError
from corpus_platform.loader.opening import open_release
from corpus_platform_tests.loader.test_opening import TOKENS, flip, made
from corpus_platform_tests.s3_server import BUCKET, S3Server

URL = "s3://bucket/corpus/releases"
OF_TRAIN = [
    "manifest.json",
    *(f"train-{n:05d}.json" for n in range(3)),
    *(f"train-{n:05d}.{kind}" for n in range(3) for kind in ("bin", "index")),
    "tokenizer.json",
]


class Elsewhere:
    """A place that files are fetched from, and the names that were asked of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked = folder, list[str]()
        self.damage: Callable[[Path], None] = lambda path: None

    def fetch(self, name: str, target: Path) -> None:
        self.asked.append(name)
        shutil.copy(self.folder / name, target)
        self.damage(target)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Elsewhere:
    """A release, and the pointer beside it."""
    folder = made(tmp_path / "far")
    content = json.loads((folder / "manifest.json").read_bytes())["content"]
    pointer = {"id": folder.name, "content": content}
    (folder.parent / "current.json").write_text(json.dumps(pointer))
    return Elsewhere(folder.parent)


@pytest.fixture
def name(elsewhere: Elsewhere) -> str:
    """The id of that release."""
    return json.loads((elsewhere.folder / "current.json").read_bytes())["id"]


def test_only_what_a_split_needs_is_fetched_and_only_once(
    elsewhere: Elsewhere, name: str, tmp_path: Path
) -> None:
    for expected in (OF_TRAIN, []):
        elsewhere.asked.clear()
        release = open_release(
            f"{URL}/current.json", fetch=elsewhere.fetch, cache=tmp_path / "cache"
        )
        assert release.get_slice(0, 13).tolist() == TOKENS
        assert sorted(elsewhere.asked) == sorted(
            ["current.json", *(f"{name}/{n}" for n in expected)]
        )
    assert release.folder == tmp_path / "cache" / name
    assert list((tmp_path / "cache").rglob("*.part")) == []


def test_a_release_is_fetched_by_its_own_address_too(
    elsewhere: Elsewhere, name: str, tmp_path: Path
) -> None:
    elsewhere.folder = elsewhere.folder / name
    release = open_release(f"{URL}/{name}/", fetch=elsewhere.fetch, cache=tmp_path, split="val")
    assert release.get_slice(0, 3).tolist() == [11, 12, 0]
    wanted = [
        "manifest.json",
        "tokenizer.json",
        "val-00000.bin",
        "val-00000.index",
        "val-00000.json",
    ]
    assert sorted(elsewhere.asked) == wanted


@pytest.mark.parametrize(
    ("verify", "hurt", "again"),
    [
        ("header", "cut", True),
        ("header", "flipped", False),
        ("sha256", "flipped", True),
        ("header", "gone", True),
    ],
)
def test_a_damaged_file_of_the_cache_is_fetched_again(
    elsewhere: Elsewhere, name: str, tmp_path: Path, verify: str, hurt: str, again: bool
) -> None:
    open_release(f"{URL}/current.json", fetch=elsewhere.fetch, cache=tmp_path / "cache")
    path = tmp_path / "cache" / name / "train-00002.bin"
    {
        "cut": lambda: path.write_bytes(path.read_bytes()[:-1]),
        "flipped": lambda: flip(path),
        "gone": path.unlink,
    }[hurt]()
    elsewhere.asked.clear()
    release = open_release(
        f"{URL}/current.json",
        fetch=elsewhere.fetch,
        cache=tmp_path / "cache",
        verify=verify,  # ty: ignore[invalid-argument-type]
    )
    assert elsewhere.asked == ["current.json", *([f"{name}/train-00002.bin"] if again else [])]
    assert (release.get_slice(0, 13).tolist() == TOKENS) == again


@pytest.mark.parametrize("kind", ["json", "manifest"])
def test_a_damaged_header_or_manifest_of_the_cache_is_fetched_again(
    elsewhere: Elsewhere, name: str, tmp_path: Path, kind: str
) -> None:
    open_release(f"{URL}/current.json", fetch=elsewhere.fetch, cache=tmp_path / "cache")
    file = "train-00001.json" if kind == "json" else "manifest.json"
    flip(tmp_path / "cache" / name / file, 40)
    elsewhere.asked.clear()
    open_release(f"{URL}/current.json", fetch=elsewhere.fetch, cache=tmp_path / "cache")
    assert elsewhere.asked == ["current.json", f"{name}/{file}"]


def test_what_comes_damaged_is_named_and_not_kept(
    elsewhere: Elsewhere, name: str, tmp_path: Path
) -> None:
    elsewhere.damage = lambda path: (
        flip(path) if ".bin." in path.name and path.stat().st_size else None
    )
    with pytest.raises(StorageError) as caught:
        open_release(f"{URL}/current.json", fetch=elsewhere.fetch, cache=tmp_path / "cache")
    told = str(caught.value)
    for number in (0, 2):  # the second has no byte to damage
        assert f"{URL}/{name}/train-{number:05d}.bin came as " in told
    kept = {path.name for path in (tmp_path / "cache" / name).iterdir()}
    assert not kept & {"train-00000.bin", "train-00002.bin"}
    assert elsewhere.asked.count(f"{name}/train-00000.bin") == 1


def test_an_error_of_the_fetch_goes_through_and_leaves_nothing_behind(
    elsewhere: Elsewhere, name: str, tmp_path: Path
) -> None:
    def refuse(path: Path) -> None:
        if "train-00001.index" in path.name:
            raise ConnectionError("403")

    elsewhere.damage = refuse
    with pytest.raises(ConnectionError, match="403"):
        open_release(f"{URL}/current.json", fetch=elsewhere.fetch, cache=tmp_path / "cache")
    assert list((tmp_path / "cache").rglob("*.part")) == []


def test_what_a_killed_fetch_left_behind_is_removed(
    elsewhere: Elsewhere, name: str, tmp_path: Path
) -> None:
    left = tmp_path / name / "train-00000.bin.0.part"
    left.parent.mkdir()
    left.write_bytes(b"half")
    open_release(f"{URL}/current.json", fetch=elsewhere.fetch, cache=tmp_path)
    assert not left.exists()


def test_a_pointer_that_names_another_content_is_refused(
    elsewhere: Elsewhere, name: str, tmp_path: Path
) -> None:
    pointer = {"id": name, "content": "0" * 64}
    (elsewhere.folder / "current.json").write_text(json.dumps(pointer))
    with pytest.raises(StorageError, match=rf"{name}/manifest.json: content .* names 0000"):
        open_release(f"{URL}/current.json", fetch=elsewhere.fetch, cache=tmp_path / "cache")


def test_of_another_content_than_is_expected_no_file_is_fetched(
    elsewhere: Elsewhere, name: str, tmp_path: Path
) -> None:
    said = json.loads((elsewhere.folder / "current.json").read_bytes())["content"]
    for source, asked in (("current.json", ["current.json", f"{name}/manifest.json"]), (name, [])):
        elsewhere.asked.clear()
        elsewhere.folder = elsewhere.folder / name if source == name else elsewhere.folder
        with pytest.raises(UsageError) as caught:
            open_release(
                f"{URL}/{source}",
                fetch=elsewhere.fetch,
                cache=tmp_path / "cache",
                expect_content="0" * 64,
            )
        told = f"{URL}/{name}: release {name} has content {said}, expected {'0' * 64}; "
        assert str(caught.value).startswith(told)
        assert elsewhere.asked == asked
    at = tmp_path / "cache"
    assert open_release(f"{URL}/{name}", fetch=elsewhere.fetch, cache=at, expect_content=said)


def test_two_processes_that_share_a_cache_fetch_once(
    elsewhere: Elsewhere, name: str, tmp_path: Path
) -> None:
    """Threads here: the lock is of the open file, so it holds between them too."""

    def one(number: int) -> int:
        at = tmp_path / "cache"
        return len(open_release(f"{URL}/current.json", fetch=elsewhere.fetch, cache=at))

    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(one, range(4))] == [13] * 4
    asked = [asked for asked in elsewhere.asked if asked != "current.json"]
    assert sorted(asked) == sorted(f"{name}/{n}" for n in OF_TRAIN)


def test_the_loader_itself_knows_no_addresses(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"fetch=function\(name, target\) and cache=folder"):
        open_release(f"{URL}/current.json")
    with pytest.raises(UsageError, match=r"cache="):
        open_release(f"{URL}/current.json", fetch=lambda name, target: None)


@pytest.mark.slow
@pytest.mark.xdist_group("s3")
@pytest.mark.usefixtures("s3_keys")
def test_a_release_in_a_real_s3_server_is_read_by_three_lines_of_the_caller(
    elsewhere: Elsewhere, name: str, weed: S3Server, tmp_path: Path
) -> None:
    for path in elsewhere.folder.rglob("*.*"):
        key = f"corpus/releases/{path.relative_to(elsewhere.folder)}"
        weed.client.upload_file(str(path), BUCKET, key)

    def fetch(name: str, target: Path) -> None:
        weed.client.download_file(BUCKET, f"corpus/releases/{name}", str(target))

    address = f"s3://{BUCKET}/corpus/releases/current.json"
    for _ in range(2):
        release = open_release(address, fetch=fetch, cache=tmp_path / "cache", verify="sha256")
        assert release.get_slice(0, 13).tolist() == TOKENS
    assert release.id == name
