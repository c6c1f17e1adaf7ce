"""Tests of what every stage writes beside its files: under which circumstances they were made."""

from importlib.metadata import version
from pathlib import Path

import pytest

from corpus_platform.stages import project as module
from corpus_platform_tests.stages.near_copies import new_corpus


def test_a_manifest_names_the_libraries_at_work_which_are_looked_up_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def counting(name: str) -> str:
        asked.append(name)
        return version(name)

    monkeypatch.setattr(module, "package_version", counting)
    module._versions.cache_clear()
    project = new_corpus(tmp_path, {"2026-40/a": ["some words"], "2026-44/b": ["other words"]})
    names = ("pyarrow", "polars", "numpy", "numba", "tokenizers", "datasketch", "msgspec")
    for asset in ("raw_shards", "cleaned_documents", "minhash_signatures"):
        for shard in ("2026-40/a.jsonl", "2026-44/b.jsonl"):
            found = project.present(asset, shard).manifest.measured["versions"]
            assert found == {name: version(name) for name in names}
    assert sorted(asked) == sorted(names)
