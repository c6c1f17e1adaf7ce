"""The shuffle killed with SIGKILL in each of its steps, and run again; processes and workers of any number."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.shuffled_bins import (
    publish_release,
    release_in_force,
    shuffle_scratch,
)

pytestmark = pytest.mark.slow

# Publishes a release, and dies where a function is called for the n-th time.
KILLED = """
import os, signal, sys
from importlib import import_module
from pathlib import Path
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.shuffled_bins import publish_release

module, name, left = import_module(sys.argv[2]), sys.argv[3], [int(sys.argv[4])]
real = getattr(module, name)

def dying(*given, **options):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*given, **options)

setattr(module, name, dying)
publish_release(open_project(load_settings(Path(sys.argv[1]))))
"""
STEPS = [
    ("stages.shuffle_scatter", "_lines", 1),
    ("stages.shuffle_scatter", "_write_units", 2),
    ("stages.shuffle_scatter", "ranges", 3),
    ("stages.shuffling", "_ranges", 1),
    ("stages.shuffle_gather", "_slices", 4),
    ("formats.token_bin_parts", "write_slices", 9),
    ("stages.shuffling", "TableWriter", 1),
    ("stages.shuffle_gather", "_placed", 6),
    ("formats.token_bin_parts", "Header", 2),
    ("stages.shuffled_bins", "canonical_json", 1),
    ("stages.release_audit", "_compare", 1),
    ("storage.artifacts", "_write_manifest", 1),
    ("stages.shuffled_bins", "move_pointer", 1),
]
SETTINGS = "shuffle: {seed: 5, max_tokens_per_file: 60000}\n"


def _config(finished: Path, more: str = "") -> Path:
    """Return the settings of a corpus of which the release is due: another seed."""
    text = finished.read_text(encoding="utf-8")
    finished.write_text(text.replace("run: {workers: 1}", f"run: {{workers: 1{more}}}") + SETTINGS)
    return finished


def _release(config: Path) -> dict[str, str]:
    project = open_project(load_settings(config))
    artifact = publish_release(project).artifact
    named = {"id": artifact.folder.name, "content": artifact.content, "path": str(artifact.folder)}
    assert release_in_force(project) == named
    assert not shuffle_scratch(project).exists()
    return {
        p.name: hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(artifact.folder.iterdir())
        if p.name != "manifest.json"
    }


@pytest.fixture(scope="module")
def usual(finished_once: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files of a release that nothing disturbed."""
    folder = tmp_path_factory.mktemp("usual") / "c"
    shutil.copytree(finished_once, folder)
    return _release(_config(folder / "corpus.yaml"))


@pytest.mark.parametrize(("module", "name", "time"), STEPS, ids=[f"{s[1]}" for s in STEPS])
def test_a_killed_shuffle_leaves_nothing_that_changes_the_next(
    module: str, name: str, time: int, finished: Path, usual: dict[str, str]
) -> None:
    config = _config(finished, ", bucket_bytes: 20000")
    argv = [sys.executable, "-c", KILLED, str(config), f"corpus_platform.{module}", name, str(time)]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == -9, ended.stderr
    assert _release(config) == usual


@pytest.mark.parametrize(("workers", "bucket_bytes"), [(1, 120_000), (2, 6_000), (8, 1 << 27)])
def test_neither_workers_nor_ranges_change_a_release(
    workers: int,
    bucket_bytes: int,
    finished: Path,
    usual: dict[str, str],
) -> None:
    config = _config(finished, f", bucket_bytes: {bucket_bytes}")
    config.write_text(config.read_text().replace("workers: 1,", f"workers: {workers},"))
    assert _release(config) == usual
