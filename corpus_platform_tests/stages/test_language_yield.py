"""A rule that deletes one language trips a gate under the default limits, whichever language.

The rule deletes by what the known faults of such rules look like: the letters of a language count
as junk. On real documents where there are some, and on a few in five scripts everywhere.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from corpus_platform.errors import Uncleared
from corpus_platform.filters import verdicts
from corpus_platform.filters.batch import Batch
from corpus_platform.filters.languages import Languages
from corpus_platform.rule_settings import LowAlnum, RuleSettings
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.cleaned_documents import clean_documents
from corpus_platform.stages.dedup_clusters import cluster_documents
from corpus_platform.stages.minhash_signatures import sign_documents
from corpus_platform.stages.packed_bins import pack_shard
from corpus_platform.stages.project import Project, Report
from corpus_platform.stages.raw_shards import fetch_shard
from corpus_platform.stages.sample import make_sample
from corpus_platform_tests.small import PAGES, Record, documents, register

SHARED_LANGUAGES = ("code", "de", "en", "es", "fr", "ja", "ru", "zh")
MADE_LANGUAGES = ("ar", "en", "hi", "ru", "zh")


def _delete(patch: pytest.MonkeyPatch, language: str) -> None:
    """Have the rule low_alnum take every document of a language for junk."""
    real = verdicts.values_of

    def values_of(
        rule: RuleSettings, batch: Batch, languages: Languages | None = None
    ) -> np.ndarray:
        values = real(rule, batch, languages)
        if isinstance(rule, LowAlnum) and languages is not None:
            values = np.where(np.array(languages.labels, str) == language, 0.0, values)
        return values

    patch.setattr(verdicts, "values_of", values_of)


def _project(folder: Path, glob: str) -> Project:
    config = folder / "corpus.yaml"
    settings = f"sources: [{{glob: '{glob}', exclude: ['*.wet.gz']}}]\nrun: {{workers: 1}}\n"
    config.write_text(settings, encoding="utf-8")
    project = open_project(load_settings(config))
    register(project)
    return project


def _cleaned(project: Project) -> list[Report]:
    reports = []
    for shard in project.shards():
        fetch_shard(project, shard)
        reports.append(clean_documents(project, shard))
    return reports


def _red(reports: list[Report]) -> list[str]:
    return [f"{r.partition}: {f.gate}: {f.reason}" for r in reports for f in r.findings if f.blocks]


def _in_five_scripts(count: int) -> list[Record]:
    """Return `count` documents in each of five languages."""
    english = [d for d in documents() if d["lang"] == "en"][60 : 60 + count]
    pages = [
        {"id": f"{lang}-{i}", "lang": lang, "text": f"{page}\n\n{page[20 * i :]}"}
        for lang, page in PAGES.items()
        for i in range(count)
    ]
    return [*pages, *english]


def _write(path: Path, records: list[Record]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")


@pytest.mark.parametrize("language", MADE_LANGUAGES)
def test_a_made_corpus_without_one_of_its_languages_is_refused(
    language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path / "crawl=2026-40" / "part.jsonl", _in_five_scripts(22))
    _delete(monkeypatch, language)
    project = _project(tmp_path, "crawl={crawl}/*")
    (report,) = _cleaned(project)
    assert f"in '{language}', limit 0.1" in "".join(_red([report]))
    with pytest.raises(Uncleared):
        sign_documents(project, "2026-40/part.jsonl")


def test_a_made_corpus_with_all_its_languages_passes(tmp_path: Path) -> None:
    _write(tmp_path / "crawl=2026-40" / "part.jsonl", _in_five_scripts(22))
    assert _red(_cleaned(_project(tmp_path, "crawl={crawl}/*"))) == []


def test_a_language_that_is_rare_in_every_shard_is_missed_in_the_whole_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = _in_five_scripts(24)
    for part in range(3):
        chosen = [r for i, r in enumerate(records) if i % 3 == part]
        _write(tmp_path / "crawl=2026-40" / f"part-{part}.jsonl", chosen)
    _delete(monkeypatch, "hi")
    project = _project(tmp_path, "crawl={crawl}/*")
    assert _red(_cleaned(project)) == []  # 8 of a language in each shard are too few to tell
    for shard in project.shards():
        sign_documents(project, shard)
    report = cluster_documents(project)
    assert _red([report]) == [
        "None: language_yield: kept 0.0000 of 24 documents in 'hi', limit 0.1"
    ]
    with pytest.raises(Uncleared, match="dedup_clusters: language_yield"):
        pack_shard(project, "2026-40/part-0.jsonl")


@pytest.mark.parametrize("language", SHARED_LANGUAGES)
def test_a_real_shard_without_one_of_its_languages_is_refused(
    language: str, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _delete(monkeypatch, language)
    glob = shared / "corpus" / "crawl={crawl}" / "part-00006.parquet"
    (report,) = _cleaned(_project(tmp_path, str(glob)))
    yielded = next(f for f in report.findings if f.gate == "language_yield")
    assert yielded.blocks
    assert f"in '{language}'" in yielded.reason


def test_a_real_shard_with_all_its_languages_passes(shared: Path, tmp_path: Path) -> None:
    glob = shared / "corpus" / "crawl={crawl}" / "part-00006.parquet"
    assert _red(_cleaned(_project(tmp_path, str(glob)))) == []


@pytest.mark.slow
def test_the_default_limits_hold_on_all_real_shards(shared: Path, tmp_path: Path) -> None:
    project = _project(tmp_path, str(shared / "corpus" / "crawl={crawl}" / "*"))
    reports = _cleaned(project)
    assert len(reports) == 15
    reports += [sign_documents(project, shard) for shard in project.shards()]
    assert _red([*reports, cluster_documents(project)]) == []


@pytest.mark.slow
@pytest.mark.parametrize("language", SHARED_LANGUAGES)
def test_real_shards_without_one_language_are_refused_wherever_it_is_common(
    language: str, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _delete(monkeypatch, language)
    reports = _cleaned(_project(tmp_path, str(shared / "corpus" / "crawl={crawl}" / "*")))
    common = {
        r.partition
        for r in reports
        if r.artifact.numbers.get(f"language/{language}/documents", 0) >= 20
    }
    refused = {
        r.partition
        for r in reports
        if any(f.gate == "language_yield" and f.blocks for f in r.findings)
    }
    assert len(common) >= 9
    assert refused == common


@pytest.mark.slow
def test_the_default_limits_hold_on_the_sample_and_trip_without_english(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_sample(tmp_path / "sample", target_bytes=30_000_000)
    reports = _cleaned(_project(tmp_path, "sample/crawl={crawl}/*"))
    assert len(reports) == 8
    assert _red(reports) == []
    languages = {
        number.split("/")[1]
        for report in reports
        for number, count in report.artifact.numbers.items()
        if number.endswith("/documents") and count >= 20
    }
    assert "en" in languages
    for language in sorted(languages):
        again = tmp_path / language
        again.mkdir()
        with monkeypatch.context() as patch:
            _delete(patch, language)
            found = _cleaned(_project(again, str(tmp_path / "sample" / "crawl={crawl}" / "*")))
        assert any(f"in '{language}'" in line for line in _red(found))
