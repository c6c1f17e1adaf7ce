"""What is taken over of a download that broke off: a true prefix of the same source, or nothing."""

import hashlib
import json
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from corpus_platform.errors import StorageError
from corpus_platform.storage import partial
from corpus_platform.storage.checkpoints import Version, parse_checkpoint
from corpus_platform.storage.partial import Partial, has_checkpoint, identity

URL = "https://host/crawl/0.jsonl.gz?X-Amz-Signature=secret&part=1"
DATA = random.Random(2).randbytes(1_000_000)
V1 = Version('"v1"')
Fault = Callable[[Path], object]
SURE = 300_000  # what the checkpoint counts; marks count 400,000 and 500,000; written are 600,000


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A file to be; beside it lies what a process that died left of it."""
    held = Partial(tmp_path / "o", URL, read=lambda count: None)
    held.begin(V1, len(DATA))
    held.append(DATA[:SURE])
    held.checkpoint()
    held._marked = 1 << 40  # only the marks that are written below
    for end in (400_000, 500_000):
        held.append(DATA[held.held : end])
        assert held._marks is not None
        partial._write_mark(held._marks, end, hashlib.sha256(DATA[:end]).hexdigest())
    held.append(DATA[500_000:600_000])
    return tmp_path / "o"


def data_of(target: Path) -> Path:
    """Return where the data is."""
    return target.with_name("o.partial")


def meta_of(target: Path) -> Path:
    """Return where the checkpoint is."""
    return target.with_name("o.partial.json")


def taken_over(target: Path, url: str = URL) -> int:
    """Return how many bytes a next process holds, all of them true; finish the file then."""
    heard: list[int] = []
    with Partial(target, url, read=heard.append) as found:
        held = found.held
        assert sum(heard) == held
        assert data_of(target).read_bytes() == DATA[:held]
        if held == 0:
            assert found.version is None
            found.begin(V1, len(DATA))
        found.append(DATA[held:])
        assert found.publish() == hashlib.sha256(DATA).hexdigest()
    assert target.read_bytes() == DATA
    assert [p.name for p in target.parent.iterdir()] == ["o"]
    return held


def test_all_that_is_counted_is_taken_over(target: Path) -> None:
    assert has_checkpoint(target)
    assert taken_over(target) == 500_000


def test_the_checkpoint_says_of_what_it_is_and_no_secret(target: Path) -> None:
    text = meta_of(target).read_text()
    assert json.loads(text.splitlines()[0]) == {
        "format": 1,
        "source": identity(URL),
        "url": "https://host/crawl/0.jsonl.gz",
        "verified_bytes": 300_000,
        "sha256": hashlib.sha256(DATA[:300_000]).hexdigest(),
        "expected_size": 1_000_000,
        "version": {"etag": '"v1"', "last_modified": None, "settled": False},
    }
    assert "secret" not in text


def cut_data(size: int) -> Fault:
    """Return a fault: less data is there."""
    return lambda target: data_of(target).write_bytes(DATA[:size])


def alter_data(at: int) -> Fault:
    """Return a fault: a byte of the data is another one."""
    return lambda target: data_of(target).write_bytes(
        DATA[:at] + bytes([DATA[at] ^ 1]) + DATA[at + 1 : 600_000]
    )


def change_meta(old: str, new: str) -> Fault:
    """Return a fault: a text of the checkpoint is another one."""

    def change(target: Path) -> None:
        text = meta_of(target).read_text()
        assert old in text
        meta_of(target).write_text(text.replace(old, new))

    return change


def cut_meta(size: int) -> Fault:
    """Return a fault: the end of the checkpoint is not there."""
    return lambda target: meta_of(target).write_bytes(meta_of(target).read_bytes()[:size])


def zero_data(target: Path) -> None:
    """Have the data behind the checkpoint lost, but not the length: as after a power cut."""
    data_of(target).write_bytes(DATA[:SURE] + bytes(600_000 - SURE))


@pytest.mark.parametrize(
    ("fault", "held"),
    [
        (cut_data(550_000), 500_000),
        (cut_data(500_000), 500_000),
        (cut_data(499_999), 400_000),
        (cut_data(300_000), 300_000),
        (cut_data(299_999), 0),
        (cut_data(0), 0),
        (zero_data, 300_000),
        (alter_data(550_000), 500_000),
        (alter_data(450_000), 400_000),
        (alter_data(350_000), 300_000),
        (alter_data(0), 0),
        (alter_data(299_999), 0),
        (lambda target: data_of(target).unlink(), 0),
        (lambda target: data_of(target).write_bytes(DATA), 500_000),
        (lambda target: meta_of(target).unlink(), 0),
        (lambda target: meta_of(target).write_bytes(b""), 0),
        (lambda target: meta_of(target).write_bytes(b"\0" * 500), 0),
        (lambda target: meta_of(target).write_bytes(b"PK\x03\x04\xff\n" * 9), 0),
        (lambda target: meta_of(target).write_bytes(b"[]\n"), 0),
        (lambda target: meta_of(target).write_bytes(b"[" * 900_000 + b"\n"), 0),
        (cut_meta(100), 0),
        (cut_meta(-40), 400_000),
        (cut_meta(-1), 400_000),
        (change_meta("[400000", "[400001"), 300_000),
        (change_meta("[400000", "[-1"), 300_000),
        (change_meta("[500000", "[1" + "0" * 30), 400_000),
        (change_meta("[500000", "[100"), 400_000),
        (change_meta('"verified_bytes":300000', '"verified_bytes":300001'), 0),
        (change_meta('"verified_bytes":300000', '"verified_bytes":-1'), 0),
        (change_meta('"verified_bytes":300000', '"verified_bytes":"300000"'), 0),
        (change_meta('"format":1', '"format":2'), 0),
        (change_meta('"format":1', '"format":1,"more":1'), 0),
        (change_meta(identity(URL), identity("https://host/other")), 0),
    ],
)
def test_only_a_true_prefix_is_taken_over(target: Path, fault: Fault, held: int) -> None:
    fault(target)
    assert taken_over(target) == held


@pytest.mark.parametrize(
    "fault",
    [
        cut_data(299_999),
        cut_meta(100),
        lambda target: data_of(target).unlink(),
        lambda target: meta_of(target).unlink(),
        change_meta('"\\"v1\\""', '"W/\\"v1\\""'),
        change_meta('"\\"v1\\""', "null"),
    ],
)
def test_what_cannot_go_on_is_no_checkpoint(target: Path, fault: Fault) -> None:
    fault(target)
    assert not has_checkpoint(target)


def test_garbage_of_somebody_else_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "o.partial").write_bytes(b"garbage" * 1000)
    assert not has_checkpoint(tmp_path / "o")
    assert taken_over(tmp_path / "o") == 0


def test_a_version_that_begins_has_no_checkpoint_of_the_one_before(target: Path) -> None:
    with Partial(target, URL, read=lambda count: None) as found:
        found.begin(Version('"v2"'), 1_000_000)
        found.append(DATA[:1000])
        assert not meta_of(target).exists()


def test_marks_of_the_version_before_do_not_count_for_the_next(target: Path) -> None:
    with Partial(target, URL, read=lambda count: None) as found:
        found.begin(Version('"v2"'), 1_000_000)
        found.append(DATA[::-1][:300_000])
        found.checkpoint()
    told = parse_checkpoint(meta_of(target).read_bytes())
    assert told is not None
    assert (told.version, told.verified_bytes, told.marks) == (Version('"v2"'), 300_000, ())


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://h/a?X-Amz-Signature=1&X-Amz-Date=2", "https://h/a?X-Amz-Date=3", True),
        ("https://h/a?Signature=1&Expires=2&Key-Pair-Id=3", "https://h/a", True),
        ("https://h/a?sv=1&se=2&sr=b&sp=r&sig=3", "https://h/a?sig=4", True),
        ("https://u:p@H/a#f", "https://h/a", True),
        ("https://h/a?part=1", "https://h/a?part=2", False),
        ("https://h/a?part=1", "https://h/a", False),
        ("https://h/a?st=1", "https://h/a?st=2", False),
        ("https://h/a?policy=1&sp=2", "https://h/a?policy=2&sp=1", False),
        ("https://h/a?token=1", "https://h/a?token=2", False),
        ("https://h/a", "http://h/a", False),
        ("https://h/a", "https://h:8/a", False),
        ("https://h/a", "https://h/A", False),
    ],
)
def test_signatures_do_not_tell_sources_apart_and_all_else_does(
    one: str, other: str, same: bool
) -> None:
    assert (identity(one) == identity(other)) is same


def test_a_small_file_has_no_checkpoint_on_its_way(tmp_path: Path) -> None:
    with Partial(tmp_path / "o", URL, read=lambda count: None) as found:
        found.begin(V1, 1000)
        found.append(DATA[:1000])
        assert not meta_of(tmp_path / "o").exists()
        found.publish()
    assert (tmp_path / "o").read_bytes() == DATA[:1000]


def test_a_slow_line_gets_a_checkpoint_by_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial, "CHECKPOINT_SECONDS", 0.0)
    found = Partial(tmp_path / "o", URL, read=lambda count: None)
    found.begin(V1, None)
    found.append(b"one byte and more")
    told = parse_checkpoint(meta_of(tmp_path / "o").read_bytes())
    assert told is not None
    assert told.verified_bytes == 17


def _fill(target: Path, data: bytes, error: BaseException | None = None) -> None:
    with Partial(target, URL, read=lambda count: None) as found:
        found.begin(V1, None)
        for at in range(0, len(data), 65_536):
            found.append(data[at : at + 65_536])
        if error is not None:
            raise error


def test_a_block_that_is_left_early_keeps_what_came(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        _fill(tmp_path / "o", DATA[:777], KeyboardInterrupt())
    assert has_checkpoint(tmp_path / "o")
    assert taken_over(tmp_path / "o") == 777


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match=r"file/o\.partial: cannot be written: "):
        Partial(tmp_path / "file" / "o", URL, read=lambda count: None)


def test_a_disk_that_is_full_keeps_the_last_checkpoint(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("may not mount a small disk here")
    try:
        with pytest.raises(StorageError, match=r"No space left on device .* bytes free there"):
            _fill(disk / "o", DATA * 3)
        assert has_checkpoint(disk / "o")
    finally:
        subprocess.run(["umount", str(disk)], check=True)
