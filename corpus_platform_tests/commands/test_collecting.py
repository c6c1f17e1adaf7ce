"""Tests of the commands gc and pin."""

from pathlib import Path

from click.testing import CliRunner, Result

from corpus_platform.cli import main
from corpus_platform.stages.project import Project
from corpus_platform.storage import lease
from corpus_platform_tests.stages.releases import empty_project, write_release


def _corpus(config: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--config", str(config)])


def _releases(folder: Path) -> tuple[Path, Project, list[str]]:
    project = empty_project(folder / "p", "release: {keep: 1}\n")
    ids = sorted(write_release(project, {"train-00000": [[i]]}) for i in (5, 6))
    return folder / "p" / "corpus.yaml", project, ids


def test_releases_go_but_for_pinned_and_newest_ones(tmp_path: Path) -> None:
    config, project, (old, new) = _releases(tmp_path)  # of no time: the larger id counts as newer
    assert _corpus(config, "pin", old, "--name", "gpt-1").output == (
        f"release {old} is pinned as gpt-1\n"
    )
    assert "freed 0 bytes\n" in _corpus(config, "gc").output
    assert _corpus(config, "pin", old, "--remove").output == (
        f"release {old}: pin gpt-1 is taken away\n"
    )
    dry = _corpus(config, "gc", "--dry-run")
    assert f"kept 1 for: release {new} is one of the 1 newest\n" in dry.output
    assert f"would remove shuffled_bins {old}: " in dry.output
    assert (project.store.folder("shuffled_bins", None) / old).exists()
    gone = _corpus(config, "gc", "--releases")
    assert gone.exit_code == 0
    assert f"removed shuffled_bins {old}: " in gone.output
    assert ": 1 release\n" in gone.output
    assert not (project.store.folder("shuffled_bins", None) / old).exists()


def test_pins_are_listed(tmp_path: Path) -> None:
    config, _, (old, _) = _releases(tmp_path)
    assert _corpus(config, "pin").output == "no release is pinned\n"
    _corpus(config, "pin", old)
    assert _corpus(config, "pin").output == f"release {old} is pinned\n"


def test_a_pin_without_a_release_is_asked_for_one(tmp_path: Path) -> None:
    config, _, _ = _releases(tmp_path)
    found = _corpus(config, "pin", "--name", "gpt-1")
    assert found.exit_code == 2
    assert "which release? corpus pin RELEASE" in found.output


def test_while_a_run_is_at_work_gc_ends_with_3_and_a_dry_run_looks(tmp_path: Path) -> None:
    config, project, _ = _releases(tmp_path)
    with lease.hold(project.store.root / "leases" / "run.lease"):
        found = _corpus(config, "gc")
        assert (found.exit_code, "nothing was collected" in found.output) == (3, True)
        assert _corpus(config, "gc", "--dry-run").exit_code == 0
