"""The limits on shares, broken by real corpora: the gate is red, and what comes next refuses.

A shard of 120 documents is spoiled just beyond one limit, all others hold.
"""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from corpus_platform.errors import Uncleared
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.cleaned_documents import clean_documents
from corpus_platform.stages.minhash_signatures import sign_documents
from corpus_platform.stages.project import Project, Report
from corpus_platform.stages.raw_shards import fetch_shard
from corpus_platform_tests.small import Record, documents, register

KEY = "2026-40/part.jsonl"
COUNT = 120


def _good() -> list[Record]:
    """Return documents that every rule lets pass: English prose, cut to one length."""
    found, known = [], documents()
    for number in range(COUNT):
        words = [w for d in known[20 + number % 40 :][:3] for w in d["text"].split()]
        prose = " ".join(w for w in words[number : number + 200] if w.isalpha())
        found.append({"id": str(number), "text": prose, "lang": "en"})
    return found


def _spoiled(records: list[Record], count: int, text: Callable[[int, str], str]) -> list[Record]:
    changed = [{**r, "text": text(i, r["text"])} for i, r in enumerate(records[:count])]
    return [*changed, *records[count:]]


def _short(number: int, text: str) -> str:
    return f"{number} {text}"[:199]


def _dup_lines(number: int, text: str) -> str:
    return "\n".join([text, *["the same line"] * 8])


def _char_repeat(number: int, text: str) -> str:
    return f"{text} {'-' * 51}"


def _low_alnum(number: int, text: str) -> str:
    return f"{text} {'-.' * len(text)}"


def _no_language(number: int, text: str) -> str:
    chance = random.Random(number)
    letters = "abcdefghijklmnopqrstuvwxyz"
    return " ".join("".join(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(80))


def _too_short() -> list[Record]:
    return _spoiled(_good(), 61, _short)  # of 120: 0.508, limit 0.5


def _no_language_known() -> list[Record]:
    spoiled = _spoiled(_good(), 61, _no_language)
    return [{**r, "lang": ""} if i < 61 else r for i, r in enumerate(spoiled)]


def _half_short_third_repeated() -> list[Record]:
    short = _spoiled(_good(), 58, _short)  # 0.483
    return [*short[:58], *_spoiled(short[58:], 34, _dup_lines)]  # 0.283; kept 28 of 120: 0.233


def _a_small_language_lost() -> list[Record]:
    """Return 22 documents in Russian of which two pass, among 98 in English."""
    russian = [{**r, "lang": "ru"} for r in _good()[:22]]
    return [*_spoiled(russian, 20, _short), *_good()[22:]]


CORPORA = {
    "drop_rate_too_short": _too_short,
    "drop_rate_dup_lines": lambda: _spoiled(_good(), 37, _dup_lines),  # 0.308, limit 0.3
    "drop_rate_char_repeat": lambda: _spoiled(_good(), 13, _char_repeat),  # 0.108, limit 0.1
    "drop_rate_low_alnum": lambda: _spoiled(_good(), 13, _low_alnum),  # 0.108, limit 0.1
    "drop_rate_low_lang_confidence": _no_language_known,  # 0.508, limit 0.5
    "kept_share": _half_short_third_repeated,
    "language_yield": _a_small_language_lost,
}


def _cleaned(folder: Path, lines: list[str], more: str = "") -> tuple[Project, Report]:
    path = folder / "crawl=2026-40" / "part.jsonl"
    path.parent.mkdir()
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    config = folder / "corpus.yaml"
    settings = f"sources: [{{glob: 'crawl={{crawl}}/*'}}]\n{more}\n"
    config.write_text(settings, encoding="utf-8")
    project = open_project(load_settings(config))
    register(project)
    fetch_shard(project, KEY)
    report = clean_documents(project, KEY)
    return open_project(load_settings(config)), report


def _lines(records: list[Record]) -> list[str]:
    return [json.dumps(r, ensure_ascii=False) for r in records]


def _red(report: Report) -> list[str]:
    return [f.gate for f in report.findings if f.blocks]


def test_the_corpus_that_is_spoiled_passes_every_gate(tmp_path: Path) -> None:
    project, report = _cleaned(tmp_path, _lines(_good()))
    assert [f.gate for f in report.findings if not f.passed] == []
    assert report.artifact.numbers["kept"] == COUNT
    sign_documents(project, KEY)


@pytest.mark.parametrize("gate", CORPORA)
def test_a_corpus_beyond_one_limit_is_refused_by_that_gate_alone(gate: str, tmp_path: Path) -> None:
    project, report = _cleaned(tmp_path, _lines(CORPORA[gate]()))
    assert _red(report) == [gate]
    with pytest.raises(Uncleared) as refusal:
        sign_documents(project, KEY)
    assert (refusal.value.asset, refusal.value.gate) == ("cleaned_documents", gate)


def test_more_records_in_quarantine_than_the_limit_are_refused(tmp_path: Path) -> None:
    lines = _lines(_good())
    lines[:2] = ['{"id": "a", "text": ', "not JSON"]  # of 120: 0.017, limit 0.01
    project, report = _cleaned(tmp_path, lines)
    assert _red(report) == ["quarantined"]
    assert report.artifact.manifest.ledger["quarantined"] == {"invalid_json": 2}
    with pytest.raises(Uncleared, match=r"quarantined 0\.0167 of 120 lines, limit 0\.01"):
        sign_documents(project, KEY)


def test_no_document_out_of_many_is_a_failure_of_its_own(tmp_path: Path) -> None:
    wide = "checks: {min_kept_share: 0, max_drop_share: {too_short: 1}, min_language_kept_share: 0}"
    project, report = _cleaned(tmp_path, _lines(_spoiled(_good(), COUNT, _short)), wide)
    assert _red(report) == ["not_empty"]
    with pytest.raises(Uncleared, match="not_empty: 0 documents out of 120"):
        sign_documents(project, KEY)


def test_fewer_records_than_prove_anything_warn_and_go_on(tmp_path: Path) -> None:
    project, report = _cleaned(tmp_path, _lines(_spoiled(_good()[:99], 90, _short)))
    failed = {f.gate: f.warns for f in report.findings if not f.passed}
    assert failed == {"drop_rate_too_short": True, "kept_share": True, "language_yield": False}
    with pytest.raises(Uncleared, match="language_yield"):
        sign_documents(project, KEY)


def test_a_waiver_lets_one_shard_pass_one_gate(tmp_path: Path) -> None:
    waiver = (
        f"waivers: [{{gate: drop_rate_too_short, partition: {KEY}, reason: short on purpose,"
        " expires: 2999-12-31}]"
    )
    project, report = _cleaned(tmp_path, _lines(_too_short()), waiver)
    found = {f.gate: f for f in report.findings}["drop_rate_too_short"]
    assert (found.passed, found.waived) == (False, "waived until 2999-12-31: short on purpose")
    assert sign_documents(project, KEY).made
