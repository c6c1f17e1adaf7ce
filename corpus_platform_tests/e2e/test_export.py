"""`corpus export` in a process of its own: killed at any point, and on a disk that is full."""

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from corpus_platform_tests.e2e.command import COMMAND
from corpus_platform_tests.e2e.test_full_disk import WORDS, mount
from corpus_platform_tests.stages.releases import empty_project, write_release

pytestmark = pytest.mark.slow
FILES = 6


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a project with a release of six train files, 200 KB each."""
    folder = tmp_path_factory.mktemp("project")
    documents = [[1 + i % 90] * 1000 for i in range(100)]
    files = {f"train-{number:05d}": documents[number:] for number in range(FILES)}
    write_release(empty_project(folder), files)
    return folder


@pytest.fixture(scope="module")
def whole(project: Path) -> dict[str, bytes]:
    """The files of an export that nothing disturbed, by name."""
    assert _run(project, project / "whole").returncode == 0
    return _files(project / "whole")


def _command(project: Path, target: Path) -> list[str]:
    (release,) = (project / "data" / "releases").iterdir()
    options = ["--format", "datatrove", "--to", str(target), "--config", str(project / "corpus.yaml")]  # fmt: skip
    return [str(COMMAND), "export", release.name, *options]


def _run(project: Path, target: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(_command(project, target), capture_output=True, text=True, timeout=120)


def _files(folder: Path) -> dict[str, bytes]:
    """Return what lies under final names."""
    paths = [p for p in folder.rglob("*") if p.is_file()]
    named = {p.relative_to(folder).as_posix(): p for p in paths}
    return {name: p.read_bytes() for name, p in named.items() if not name.startswith(".")}


@pytest.mark.parametrize("there", [0, 1, 4, 9, 15, 23])
def test_a_killed_export_leaves_whole_files_and_goes_on(
    there: int, project: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    target = tmp_path / "out"
    process = subprocess.Popen(_command(project, target), stdout=subprocess.DEVNULL)
    while process.poll() is None and len(list(target.rglob("[!.]*.ds*"))) < there:
        time.sleep(0.001)
    if there == 0:
        time.sleep(0.6)
    process.send_signal(signal.SIGKILL)
    process.wait()
    left = _files(target) if target.exists() else {}
    assert {name: whole[name] for name in left} == left
    ended = _run(project, target)
    assert ended.returncode == 0, ended.stderr
    assert _files(target) == whole
    assert list(target.glob(".*")) == []


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own to export to."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not mount(folder, "100k"):
        pytest.skip("needs the right to mount a disk in memory")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_full_disk_ends_the_export_in_words_and_space_lets_it_complete(
    disk: Path, project: Path, whole: dict[str, bytes]
) -> None:
    # From no room for what is noted to room for all but the last files.
    for size in ("4k", "12k", "100k", "300k", "700k", "1150k"):
        assert mount(disk, size, "remount")
        ended = _run(project, disk / "out")
        assert ended.returncode == 3, ended.stdout + ended.stderr
        assert "Traceback" not in ended.stderr
        assert WORDS[0] in ended.stderr
        left = _files(disk / "out") if (disk / "out").exists() else {}
        assert {name: whole[name] for name in left} == left
        assert not (disk / "out" / ".export-parts").exists()
    assert mount(disk, "20m", "remount")
    ended = _run(project, disk / "out")
    assert ended.returncode == 0, ended.stderr
    assert "were there before" in ended.stdout
    assert _files(disk / "out") == whole
