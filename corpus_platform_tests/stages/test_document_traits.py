"""What documents are counted by: crawl, source and language, read part by part."""

from pathlib import Path

import pytest

from corpus_platform.stages import tables
from corpus_platform.stages.document_traits import NAME_CHARS, read_traits
from corpus_platform_tests.small import write_shard
from corpus_platform_tests.stages.near_copies import add_shards, new_corpus, prose


@pytest.mark.parametrize("most", [0, 1 << 20])
def test_documents_have_the_source_of_their_record_or_their_crawl(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "PART_BYTES", most)
    new_corpus(tmp_path, {"2026-42/empty": [], "2026-44/b": [prose(9)]})
    records = [
        {"text": prose(1), "source": "news/documents", "lang": "en"},
        {"text": prose(2), "lang": "de"},
        {"text": prose(3), "source": "x" * 1000, "lang": "en"},
    ]
    write_shard(tmp_path / "source" / "2026-40" / "a.jsonl", records)
    project = add_shards(tmp_path, {})
    traits = read_traits(project, list(project.shards()))
    assert traits.ends.tolist() == [3, 3, 4]
    assert traits.row.tolist() == [0, 1, 2, 0]
    assert traits.crawl.counts() == {"2026-40": 3, "2026-42": 0, "2026-44": 1}
    assert traits.source.counts() == {
        "news/documents": 1,
        "2026-40": 1,
        "x" * NAME_CHARS: 1,
        "2026-44": 1,
    }
    languages = traits.language.counts()
    assert (languages["en"], languages["de"], sum(languages.values())) == (2, 1, 4)
