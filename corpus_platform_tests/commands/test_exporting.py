"""Tests of `corpus export`: exit codes, what is printed, and names from a hostile hand."""

import os
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from corpus_platform.cli import main
from corpus_platform.commands.exporting import _Size
from corpus_platform_tests.stages.releases import empty_project, write_release

FILES = {"train-00000": [[5, 6], [7]], "val-00000": [[8]]}


def _corpus(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert isinstance(result.exception, SystemExit | None), result.exception
    assert "Traceback" not in result.output
    return result


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The settings file of a project with one release, which is not in force."""
    write_release(empty_project(tmp_path / "p"), FILES)
    return tmp_path / "p" / "corpus.yaml"


@pytest.fixture
def release(config: Path) -> str:
    """The id of that release."""
    (folder,) = (config.parent / "data" / "releases").iterdir()
    return folder.name


def test_an_export_says_what_it_came_to_and_what_was_lost(
    config: Path, release: str, tmp_path: Path
) -> None:
    arguments = ("export", release[:8], "--format", "nanogpt", "--to", tmp_path / "out", "--config", config)  # fmt: skip
    result = _corpus(*arguments)
    assert result.exit_code == 0
    size = sum(p.stat().st_size for p in (tmp_path / "out").iterdir() if p.name != "export.json")
    assert result.output.splitlines() == [
        f"release {release} as nanogpt in {tmp_path}/out: 3 files written and read again",
        f"7 tokens, 3 documents, {size} bytes",
        "not held: provenance: shard, record and id of each document",
        "not held: header: vocabulary, control tokens and fingerprint: in export.json alone",
    ]
    assert np.fromfile(tmp_path / "out" / "train.bin", "<u2").tolist() == [5, 6, 0, 7, 0]
    again = _corpus(*arguments)
    assert again.exit_code == 0
    assert again.output.startswith(f"nothing to do: release {release} as nanogpt in ")


def test_a_release_in_force_is_exported_by_current(finished: Path) -> None:
    result = _corpus("export", "current", "--format", "megatron", "--config", finished)
    assert result.exit_code == 0, result.output
    (folder,) = (finished.parent / "data" / "exports").iterdir()
    assert {"train-00000.bin", "train-00000.idx", "export.json"} <= {p.name for p in folder.iterdir()}  # fmt: skip


@pytest.mark.parametrize(
    "name", ["..", "../releases", "/etc/passwd", "nope", "", "current/..", "%2e%2e"]
)
def test_a_release_that_is_none_ends_with_2(name: str, config: Path) -> None:
    result = _corpus("export", name, "--format", "olmo", "--config", config)
    assert result.exit_code == 2
    assert "error: no release" in result.output
    assert not (config.parent / "data" / "exports").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["RELEASE"], "what is to be exported, and as what?"),
        (["--format", "olmo"], "what is to be exported, and as what?"),
        (["RELEASE", "--format", "words"], "is not one of"),
        (["RELEASE", "--format", "olmo", "--accept-loss", "all"], "is not one of"),
        (["RELEASE", "--format", "olmo", "--window", "0"], "not in the range"),
        (["RELEASE", "--format", "olmo", "--window", "8"], "olmo knows no such option"),
        (["RELEASE", "--format", "olmo", "--to", "ftp://x/y"], "s3://bucket/prefix is wanted"),
        (["RELEASE", "--format", "olmo", "--to", "s3://"], "--to s3://: a folder or s3://bucket"),
        (
            ["RELEASE", "--format", "olmo", "--to", "s3:///x"],
            "--to s3:///x: a folder or s3://bucket",
        ),
        (["RELEASE", "--format", "olmo", "--upload-block-size", "64 elephants"], "is no size"),
        (["RELEASE", "--format", "olmo", "--upload-block-size", "64M"], "is for exports to s3"),
        (["RELEASE", "--format", "olmo", "--to", "s3://b/p", "--validate"], "a copy of the export"),
        (["--validate"], "which export? Name its folder with --to"),
        (["--validate", "--to", "s3://b/p"], "which export? Name its folder with --to"),
        (["--validate", "--to", ".", "--window", "8"], "leave the others out"),
        (["--validate", "--to", "."], "holds no export.json"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_a_wrong_call_ends_with_2(
    arguments: list[str], words: str, config: Path, release: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(config.parent)
    given = [release if a == "RELEASE" else a for a in arguments]
    result = _corpus("export", *given, "--config", config)
    assert result.exit_code == 2
    assert words in result.output


def test_validation_ends_with_1_and_names_what_differs(
    config: Path, release: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    arguments = ("export", release, "--format", "nanogpt", "--to", out, "--config", config)
    assert _corpus(*arguments, "--validate").output.endswith("3 files validated, 0 not as recorded\n")  # fmt: skip
    seen = (out / "train.bin").stat()
    (out / "train.bin").write_bytes(b"\5\0\6\0\0\0\7\0\1\0")
    os.utime(out / "train.bin", ns=(seen.st_atime_ns, seen.st_mtime_ns))
    result = _corpus(*arguments, "--validate")  # size and time are right, so it counts as there
    assert result.exit_code == 1
    assert f"{out}/train.bin: sha256 is " in result.output
    alone = _corpus("export", "--validate", "--to", out, "--config", tmp_path / "none.yaml")
    assert alone.exit_code == 1
    assert alone.output.endswith(
        "3 files validated, 1 not as recorded; delete them, and the same export makes them again\n"
    )


def test_damage_is_told_and_made_whole_without_validation(
    config: Path, release: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    arguments = ("export", release, "--format", "nanogpt", "--to", out, "--config", config)
    _corpus(*arguments)
    (out / "train.bin").write_bytes(b"\5\0\6\0\0\0\7\0\1\0")
    told = _corpus(*arguments).output.splitlines()
    assert told[0].startswith("damaged, and made again: train.bin: sha256 ")
    assert told[1].endswith(": 1 files written and read again, 2 were there before")
    assert _corpus(*arguments).output.startswith("nothing to do: ")


def test_a_damaged_release_ends_with_1(config: Path, release: str, tmp_path: Path) -> None:
    path = config.parent / "data" / "releases" / release / "train-00000.bin"
    path.write_bytes(b"")
    result = _corpus("export", release, "--format", "olmo", "--to", tmp_path / "o", "--config", config)  # fmt: skip
    assert result.exit_code == 1
    assert "intact: " in result.output
    assert not (tmp_path / "o").exists()


def test_sizes_are_bytes_or_have_a_unit() -> None:
    size = _Size()
    given = (5, "7", "2K", "3MiB", "1G")
    found = [size.convert(value, None, None) for value in given]
    assert found == [5, 7, 2048, 3 << 20, 1 << 30]
