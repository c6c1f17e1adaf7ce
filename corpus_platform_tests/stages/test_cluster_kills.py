"""The clusters' stage killed with SIGKILL in each of its steps, and run again."""

import errno
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from corpus_platform.errors import StorageError
from corpus_platform.settings_file import load_settings
from corpus_platform.stages import deciding
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.pair_join import Found
from corpus_platform_tests.stages.near_copies import changed, cluster, files, new_corpus, prose

# Runs the stage, and dies where a function of it is called for the n-th time.
KILLED = """
import os, signal, sys
from importlib import import_module
from pathlib import Path
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.dedup_clusters import cluster_documents

module, name, left = import_module(sys.argv[2]), sys.argv[3], [int(sys.argv[4])]
real = getattr(module, name)

def dying(*given, **options):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*given, **options)

setattr(module, name, dying)
cluster_documents(open_project(load_settings(Path(sys.argv[1]))))
"""
STEPS = [
    ("pair_join", "collapse_exact", 1),
    ("pair_join", "_join", 5),
    ("deciding", "recall_pairs", 1),
    ("estimating", "agreements", 1),
    ("comparing", "_copy_texts", 2),
    ("comparing", "compare_sets", 1),
    ("deciding", "decide", 1),
    ("deciding", "assign_split", 1),
    ("dedup_clusters", "publish_verdict", 2),
    ("dedup_clusters", "write_pairs", 2),
    ("dedup_clusters", "write_report", 1),
    ("clusters_audit", "_policy_breaks", 1),
    ("dedup_clusters", "move_pointer", 1),
]
SHARDS = {f"2026-40/{s}": [changed(prose(i), s, s) for i in range(1, 6)] for s in range(1, 4)}


@pytest.mark.slow
@pytest.mark.parametrize(("module", "name", "time"), STEPS, ids=[s[1] for s in STEPS])
def test_a_killed_run_leaves_nothing_that_changes_the_next(
    module: str, name: str, time: int, tmp_path: Path
) -> None:
    usual = cluster(new_corpus(tmp_path / "usual", SHARDS))
    new_corpus(tmp_path / "killed", SHARDS)
    config = tmp_path / "killed" / "corpus.yaml"
    place = f"corpus_platform.stages.{module}"
    argv = [sys.executable, "-c", KILLED, str(config), place, name, str(time)]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == -9, ended.stderr
    project = open_project(load_settings(config))
    assert files(cluster(project)) == files(usual)
    assert not list((project.store.root / "scratch").rglob("*.pairs"))
    assert cluster(project).made is False


@pytest.mark.parametrize("fault", ["full", "cleared"])
def test_a_disk_that_is_full_or_cleared_ends_it_in_words(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = new_corpus(tmp_path, {"2026-40/1": [prose(1), changed(prose(1), 1)]})
    scratch = project.store.root / "scratch" / "dedup_clusters"
    real = deciding.find_pairs

    def failing(*given: Any, **options: Any) -> Found:  # Any: passed on
        if fault == "full":
            raise OSError(errno.ENOSPC, "No space left on device")
        shutil.rmtree(scratch)
        return real(*given, **options)

    monkeypatch.setattr(deciding, "find_pairs", failing)
    words = {"full": "No space left on device", "cleared": "No such file"}[fault]
    with pytest.raises(StorageError, match=f"{words}.*writes below {scratch}: make room there"):
        cluster(project)
    assert not scratch.exists()
    monkeypatch.undo()
    assert cluster(project).artifact.manifest.ledger["near_copies"] == 1
