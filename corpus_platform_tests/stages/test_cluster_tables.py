"""The written tables of the clusters where ids are many or long."""

import json
from pathlib import Path

import pytest

from corpus_platform.stages import cluster_tables
from corpus_platform_tests.stages.near_copies import (
    changed,
    cluster,
    clusters,
    new_corpus,
    prose,
    sign_new,
    signed_copy,
)

SHARDS = {"2026-40/a": [prose(1), prose(2)], "2026-40/b": [prose(1), changed(prose(2), 1)] * 3}


def test_ids_that_are_taken_in_parts_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = new_corpus(tmp_path / "1", SHARDS)
    usual = cluster(project)
    monkeypatch.setattr(cluster_tables, "IDS", 2)
    again = cluster(signed_copy(project, tmp_path / "2"))
    twins = ["2026-40/a#0", "2026-40/a#1"] * 3
    assert clusters(again)["twin_id"].to_list() == [None, None, *twins]
    assert clusters(again).equals(clusters(usual))
    assert not [f for f in again.findings if not f.passed]


def test_an_id_of_a_megabyte_is_not_repeated_for_every_copy(tmp_path: Path) -> None:
    project = new_corpus(tmp_path, {"2026-40/a": [prose(1)] * 50})
    path = tmp_path / "source" / "2026-40" / "b.jsonl"
    lines = [json.dumps({"id": "i" * 1_000_000, "text": prose(2)})] + [
        json.dumps({"id": str(i), "text": prose(2)}) for i in range(50)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert sign_new(project) == 1
    table = clusters(cluster(project))
    assert set(table["twin_id"].drop_nulls()) == {"2026-40/a#0", "2026-40/b.jsonl:0"}
