"""Tests of the judgement: numbers, limits, waivers and a day in, findings out."""

import datetime
import math
from collections.abc import Mapping

import pytest

from corpus_platform.config import ChecksSettings, Waiver
from corpus_platform.gates import GATES, Finding, blocking, holds_back, judge, unmeasured

TODAY = datetime.date(2026, 11, 30)
SHARD = "2026-40/part-00000.jsonl"
CLEANED = {
    "readable": 1,
    "lines": 200,
    "documents": 200,
    "kept": 150,
    "quarantined": 0,
    "unaccounted": 0,
    "dropped/too_short": 20,
    "dropped/dup_lines": 15,
    "dropped/char_repeat": 5,
    "dropped/low_alnum": 5,
    "dropped/low_lang_confidence": 5,
    "language/en/documents": 180,
    "language/en/kept": 140,
    "language/ru/documents": 20,
    "language/ru/kept": 10,
}


def _judged(
    changes: Mapping[str, float],
    *,
    checks: ChecksSettings | None = None,
    waivers: tuple[Waiver, ...] = (),
    asset: str = "cleaned_documents",
    partition: str | None = SHARD,
) -> dict[str, Finding]:
    found = judge(
        asset,
        partition,
        {**CLEANED, **changes},
        checks=checks or ChecksSettings(),
        waivers=waivers,
        today=TODAY,
    )
    return {f.gate: f for f in found}


def _red(findings: Mapping[str, Finding]) -> list[str]:
    return [f.gate for f in blocking(findings.values())]


def _waiver(gate: str, partition: str | None = SHARD, expires: datetime.date = TODAY) -> Waiver:
    return Waiver(gate=gate, partition=partition, reason="known and small", expires=expires)


def test_sound_numbers_pass_every_gate_in_the_order_of_the_table() -> None:
    found = _judged({})
    assert list(found) == [gate.name for gate in GATES["cleaned_documents"]]
    assert all(f.passed for f in found.values())


@pytest.mark.parametrize("asset", GATES)
def test_numbers_that_were_never_measured_fail_every_gate(asset: str) -> None:
    found = judge(asset, None, {}, checks=ChecksSettings(), waivers=(), today=TODAY)
    assert len(found) == len(GATES[asset])
    assert [f.gate for f in found if f.passed] == []
    assert all("was not measured" in f.reason for f in found)


def test_a_missing_number_fails_its_own_gate_only() -> None:
    numbers = {n: v for n, v in CLEANED.items() if n != "dropped/low_alnum"}
    found = judge(
        "cleaned_documents", SHARD, numbers, checks=ChecksSettings(), waivers=(), today=TODAY
    )
    assert [f.gate for f in blocking(found)] == ["drop_rate_low_alnum"]
    assert "'dropped/low_alnum'" in blocking(found)[0].reason


def test_what_cannot_be_measured_fails_every_gate_with_the_reason() -> None:
    found = unmeasured("raw_shards", "the file is gone")
    assert [(f.gate, f.blocks, f.reason) for f in found] == [
        ("sha256", True, "the file is gone"),
        ("size", True, "the file is gone"),
        ("verified", True, "the file is gone"),
    ]


@pytest.mark.parametrize(
    ("number", "at_the_limit", "beyond", "gate"),
    [
        ("quarantined", 2, 3, "quarantined"),  # of 200, limit 0.01
        ("dropped/too_short", 100, 101, "drop_rate_too_short"),  # 0.5
        ("dropped/dup_lines", 60, 61, "drop_rate_dup_lines"),  # 0.3
        ("dropped/char_repeat", 20, 21, "drop_rate_char_repeat"),  # 0.1
        ("dropped/low_alnum", 20, 21, "drop_rate_low_alnum"),  # 0.1
        ("dropped/low_lang_confidence", 100, 101, "drop_rate_low_lang_confidence"),  # 0.5
        ("kept", 50, 49, "kept_share"),  # 0.25
        ("language/ru/kept", 2, 1, "language_yield"),  # of 20, limit 0.1
        ("unaccounted", 0, 1, "ledger"),
        ("readable", 1, 0, "readable"),
        ("kept", 50, 0, "not_empty"),
    ],
)
def test_a_value_at_the_limit_passes_and_the_next_one_does_not(
    number: str, at_the_limit: float, beyond: float, gate: str
) -> None:
    assert _judged({number: at_the_limit})[gate].passed
    failed = _judged({number: beyond})[gate]
    assert failed.blocks
    assert failed.reason


@pytest.mark.parametrize(
    ("documents", "short", "warns"), [(99, 60, True), (100, 60, False), (100, 50, None)]
)
def test_a_share_of_few_records_warns_and_of_many_blocks(
    documents: int, short: int, warns: bool | None
) -> None:
    found = _judged({"documents": documents, "kept": 40, "dropped/too_short": short})
    gate = found["drop_rate_too_short"]
    assert (gate.passed, gate.warns, gate.blocks) == (warns is None, warns is True, warns is False)


def test_few_documents_of_which_none_is_kept_warn() -> None:
    found = _judged({"documents": 99, "kept": 0})
    assert (found["not_empty"].passed, found["not_empty"].warns) == (False, True)
    assert (found["kept_share"].passed, found["kept_share"].warns) == (False, True)


def test_an_empty_shard_passes_what_is_a_share() -> None:
    empty = {n: 0 for n in CLEANED if n.startswith(("dropped/", "language/"))}
    found = _judged({**empty, "lines": 0, "documents": 0, "kept": 0, "quarantined": 0})
    assert _red(found) == []


def test_a_limit_of_few_records_can_be_set() -> None:
    found = _judged({"documents": 10, "kept": 2}, checks=ChecksSettings(min_records=10))
    assert found["kept_share"].blocks


def test_a_language_of_too_few_documents_is_not_judged() -> None:
    assert _judged({"language/ru/documents": 19, "language/ru/kept": 0})["language_yield"].passed


def test_the_worst_of_several_languages_is_named() -> None:
    worse = {"language/hi/documents": 40, "language/hi/kept": 1, "language/ru/kept": 1}
    found = _judged(worse)["language_yield"]
    assert found.value == pytest.approx(0.025)
    assert found.reason == "kept 0.0250 of 40 documents in 'hi', limit 0.1"


def test_a_language_may_be_named_with_a_slash() -> None:
    found = _judged({"language/zh/Hant/documents": 30, "language/zh/Hant/kept": 0})
    assert "'zh/Hant'" in found["language_yield"].reason
    assert found["language_yield"].blocks


@pytest.mark.parametrize(("uncleared", "share", "blocks"), [(0, 0.1, False), (1, 0.1, False), (2, 0.1, True), (1, 0.0, True)])  # fmt: skip
def test_the_limit_on_shards_left_out_holds_for_any_number(
    uncleared: int, share: float, blocks: bool
) -> None:
    numbers = {"uncleared": uncleared, "shards": 10}
    checks = ChecksSettings(max_uncleared_share=share)
    found = _judged(numbers, checks=checks, asset="dedup_clusters", partition=None)
    assert found["uncleared"].blocks is blocks


def test_no_shard_may_be_left_out_where_the_settings_refuse_that() -> None:
    checks = ChecksSettings(uncleared="refuse", max_uncleared_share=0.5)
    numbers = {"uncleared": 1, "shards": 10}
    found = _judged(numbers, checks=checks, asset="dedup_clusters", partition=None)
    assert found["uncleared"].blocks


def test_a_waiver_lets_pass_and_says_so() -> None:
    found = _judged({"quarantined": 50}, waivers=(_waiver("quarantined"),))["quarantined"]
    assert (found.passed, found.warns, found.blocks) == (False, True, False)
    assert found.waived == "waived until 2026-11-30: known and small"
    assert found.reason.endswith("(waived until 2026-11-30: known and small)")


@pytest.mark.parametrize(
    "waiver",
    [
        _waiver("quarantined", expires=datetime.date(2026, 11, 29)),
        _waiver("quarantined", "2026-40/part-00001.jsonl"),
        _waiver("quarantined", None),
        _waiver("kept_share"),
    ],
    ids=["expired", "another shard", "the corpus", "another gate"],
)
def test_a_waiver_of_something_else_changes_nothing(waiver: Waiver) -> None:
    found = _judged({"quarantined": 50}, waivers=(waiver,))["quarantined"]
    assert found.blocks
    assert found.waived is None


def test_a_waiver_may_name_the_asset_where_several_have_a_gate_of_that_name() -> None:
    numbers = {"unaccounted": 1}
    for gate, waived in (
        ("ledger", True),
        ("cleaned_documents/ledger", True),
        ("dedup_clusters/ledger", False),
    ):
        found = _judged(numbers, waivers=(_waiver(gate),))["ledger"]
        assert (found.waived is not None) is waived


def test_a_waiver_of_a_gate_that_passes_is_not_shown() -> None:
    found = _judged({}, waivers=(_waiver("quarantined"),))["quarantined"]
    assert (found.passed, found.waived) == (True, None)


def test_a_waiver_without_a_partition_is_for_the_whole_corpus() -> None:
    numbers = {"uncleared": 5, "shards": 10}
    waivers = (_waiver("uncleared", None),)
    found = _judged(numbers, waivers=waivers, asset="dedup_clusters", partition=None)
    assert found["uncleared"].waived is not None


def test_gates_have_different_names_and_a_description() -> None:
    for gates in GATES.values():
        assert len({g.name for g in gates}) == len(gates)
        assert all(g.description.endswith(".") for g in gates)


def test_files_that_nothing_confirms_are_warned_of_and_block_nothing() -> None:
    sizes = {"files": 3, "files_differing": 0, "sizes_differing": 0}
    found = _judged({**sizes, "verified/nothing": 1}, asset="raw_shards")["verified"]
    assert (found.passed, found.warns, found.value) == (False, True, 1)
    assert found.reason == "1 of 3 files came without a stated length or hash"
    assert _judged({**sizes, "verified/nothing": 0}, asset="raw_shards")["verified"].passed


SIGNED = {
    "uncovered": 0,
    "wrong_digests": 0,
    "wrong_signatures": 0,
    "wrong_bands": 0,
    "estimate_pairs": 32,
    "estimate_ratio": 1.02,
    "estimate_bias": -0.4,
    "witness_ratio": 0.97,
}
CLUSTERED = {
    "documents": 1200,
    "texts": 1000,
    "kept": 900,
    "language/en/documents": 1200,
    "language/en/kept": 900,
    "source/2026-40/documents": 1100,
    "source/2026-40/outlast": 1000,
    "source/forum/de/documents": 100,
    "source/forum/de/outlast": 90,
    "unaccounted": 0,
    "bad_twins": 0,
    "wrong_copies": 0,
    "wrong_similarities": 0,
    "policy_breaks": 0,
    "canaries": 8,
    "canaries_found": 8,
    "largest_near_cluster": 4,
    "bad_splits": 0,
    "leaks": 0,
    "leak_pairs": 3,
    "bad_verdicts": 0,
    "shards": 10,
    "uncleared": 0,
}


def _signed(changes: Mapping[str, float]) -> dict[str, Finding]:
    return _judged({**SIGNED, **changes}, asset="minhash_signatures")


def _clustered(changes: Mapping[str, float]) -> dict[str, Finding]:
    return _judged({**CLUSTERED, **changes}, asset="dedup_clusters", partition=None)


def test_sound_signatures_and_clusters_pass_every_gate() -> None:
    assert all(f.passed for f in _signed({}).values())
    assert all(f.passed for f in _clustered({}).values())


@pytest.mark.parametrize(
    ("pairs", "ratio", "bias", "passed"),
    [
        (32, 1.75, 6.0, True),  # 1 + 6 / sqrt(2 * 32) = 1.75
        (32, 1.751, 0.0, False),
        (32, 1.0, -6.01, False),
        (32, 1.0, 6.01, False),
        (200, 1.3, 0.0, True),  # 1 + 6 / sqrt(400) = 1.3
        (200, 1.31, 0.0, False),
        (32, math.nan, 0.0, False),
        (32, 1.0, math.nan, False),
        (32, 0.2, 0.0, True),  # better than theory is no fault
    ],
)
def test_estimates_may_be_off_by_what_chance_explains(
    pairs: int, ratio: float, bias: float, passed: bool
) -> None:
    numbers = {"estimate_pairs": pairs, "estimate_ratio": ratio, "estimate_bias": bias}
    found = _signed(numbers)["estimates"]
    assert (found.passed, found.blocks) == (passed, not passed)


def test_the_reason_of_estimates_says_all_figures() -> None:
    assert _signed({})["estimates"].reason == (
        "errors of 32 estimates are 1.020 of theory, limit 1.750 (datasketch: 0.970);"
        " their mean is -0.40 standard errors, limit 6"
    )


def test_a_shard_without_a_text_to_estimate_passes() -> None:
    numbers = {"estimate_pairs": 0, "estimate_ratio": 0, "estimate_bias": 0, "witness_ratio": 0}
    found = _signed(numbers)["estimates"]
    assert (found.passed, found.reason) == (True, "no text of the sample is long enough")


@pytest.mark.parametrize(
    ("planted", "found", "documents", "passed"),
    [(8, 8, 1200, True), (8, 7, 1200, False), (0, 0, 1200, False), (0, 0, 0, True)],
)
def test_every_planted_canary_is_found(
    planted: int, found: int, documents: int, passed: bool
) -> None:
    numbers = {"canaries": planted, "canaries_found": found, "documents": documents}
    gate = _clustered(numbers)["canaries"]
    assert gate.blocks is not passed
    assert passed or gate.reason.startswith(("7 of 8", "no canary"))


@pytest.mark.parametrize(
    ("number", "gate"), [("policy_breaks", "policy"), ("leaks", "leaks"), ("bad_twins", "twins")]
)
def test_one_fault_of_the_clusters_blocks(number: str, gate: str) -> None:
    assert _red(_clustered({number: 1})) == [gate]


def test_leaks_are_told_with_the_pairs_that_are_listed() -> None:
    assert _clustered({"leaks": 2})["leaks"].reason == (
        "2 pairs of a validation and a train document are at or above the threshold;"
        " 3 are listed from 0.5 on"
    )


@pytest.mark.parametrize(
    ("largest", "texts", "passed", "warns"),
    [
        (20, 2000, True, False),  # 0.01
        (101, 10_000, False, False),
        (100, 9_999, False, False),
        (100, 10_000, True, False),
        (99, 9_000, False, True),  # a small family is no runaway
        (21, 2000, False, True),
        (19, 100, True, False),
        (20, 100, False, True),
        (99, 99, False, True),  # few texts
        (0, 0, True, False),
    ],
)
def test_the_largest_cluster_is_a_small_share_of_the_texts(
    largest: int, texts: int, passed: bool, warns: bool
) -> None:
    found = _clustered({"largest_near_cluster": largest, "texts": texts})["largest_cluster"]
    assert (found.passed, found.warns) == (passed, warns)


@pytest.mark.parametrize(("outlast", "passed"), [(20, True), (19, False)])
def test_a_source_that_is_eaten_by_its_own_near_copies_blocks(outlast: int, passed: bool) -> None:
    found = _clustered({"source/forum/de/outlast": outlast})["source_yield"]
    assert found.blocks is not passed
    assert found.reason == (
        f"{outlast / 100:.4f} of 100 documents of 'forum/de' outlast their own near-copies, limit 0.2"
    )


@pytest.mark.parametrize(("outlast", "passed"), [(20, True), (19, False)])
def test_a_language_that_is_eaten_by_its_own_near_copies_blocks(outlast: int, passed: bool) -> None:
    numbers = {"surviving_language/th/documents": 100, "surviving_language/th/outlast": outlast}
    assert _clustered(numbers)["language_survival"].blocks is not passed


def test_a_source_without_a_name_is_judged_like_others() -> None:
    found = _clustered({"source//documents": 100, "source//outlast": 1})["source_yield"]
    assert found.blocks
    assert found.reason.startswith("0.0100 of 100 documents of '' outlast their own near-copies")


def test_a_source_of_few_documents_is_not_judged() -> None:
    numbers = {"source/forum/de/documents": 99, "source/forum/de/outlast": 0}
    assert _clustered(numbers)["source_yield"].passed


def test_a_language_and_a_source_of_one_name_are_two() -> None:
    numbers = {"source/en/documents": 500, "source/en/outlast": 1}
    found = _clustered(numbers)
    assert found["source_yield"].blocks
    assert found["language_yield"].passed


PACKED = {
    "strategy/concat": 0.0,
    "strategy/best_fit": 1.0,
    "strategy/pad": 0.0,
    "utilisation/concat": 1.0,
    "utilisation/best_fit": 0.9,
    "utilisation/pad": 0.4,
    "rows/best_fit": 100.0,
    "sequence_length": 2048.0,
}


def _utilisation(changes: dict[str, float], **limits: dict[str, float]) -> Finding:
    found = judge(
        "packed_bins",
        SHARD,
        {**PACKED, **changes},
        checks=ChecksSettings.model_validate(limits),
        waivers=(),
        today=TODAY,
    )
    return next(f for f in found if f.gate == "utilisation")


def test_rows_at_the_limit_of_their_strategy_pass_and_emptier_ones_do_not() -> None:
    assert _utilisation({}).passed
    failed = _utilisation({"utilisation/best_fit": 0.8999})
    assert failed.blocks
    assert failed.reason == (
        "0.8999 of the positions in 100 rows of 2,048 hold tokens (best_fit), limit"
        " checks.min_utilisation 0.9; concat 1.0000, pad 0.4000"
    )


def test_few_rows_only_warn_of_how_empty_they_are() -> None:
    few = _utilisation({"utilisation/best_fit": 0.5, "rows/best_fit": 99.0})
    assert (few.passed, few.warns) == (False, True)


def test_a_shard_without_rows_is_full() -> None:
    assert _utilisation({"utilisation/best_fit": 0.0, "rows/best_fit": 0.0}).passed


def test_a_limit_of_one_strategy_leaves_the_others_as_they_are() -> None:
    pad = {"strategy/best_fit": 0.0, "strategy/pad": 1.0, "rows/pad": 100.0}
    assert _utilisation(pad).limit == 0.1
    assert _utilisation(pad, min_utilisation={"pad": 0.5}).blocks
    assert _utilisation({}, min_utilisation={"pad": 0.5}).limit == 0.9


@pytest.mark.parametrize(("without", "warns"), [(0.0, False), (1.0, True)])
def test_pk_09_train_files_without_a_sequence_are_told_and_block_nothing(
    without: float, warns: bool
) -> None:
    numbers = {
        "files_without_window": without,
        "train_files": 3.0,
        "train_windows": 7.0,
        "sequence_length": 8.0,
    }
    judged = judge("shuffled_bins", None, numbers, checks=ChecksSettings(), waivers=(), today=TODAY)
    found = next(f for f in judged if f.gate == "windows")
    assert (found.warns, found.blocks) == (warns, False)
    assert found.reason == (
        f"{without:.0f} of 3 train files have no sequence of 8 tokens and the one that follows;"
        " 7 sequences in all"
    )


@pytest.mark.parametrize(
    ("documents", "before", "passed", "warns"),
    [
        (241.0, 0.0, True, False),  # the first release
        (0.0, 0.0, True, False),
        (1000.0, 900.0, True, False),
        (990.0, 1000.0, True, False),
        (989.0, 1000.0, False, False),
        (0.0, 1000.0, False, False),
        (50.0, 99.0, False, True),  # few
    ],
)
def test_a_release_with_fewer_documents_than_the_one_in_force_is_held_back(
    documents: float, before: float, passed: bool, warns: bool
) -> None:
    numbers = {"documents": documents, "documents_in_force": before}
    judged = judge("shuffled_bins", None, numbers, checks=ChecksSettings(), waivers=(), today=TODAY)
    found = next(f for f in judged if f.gate == "shrunk")
    assert (found.passed, found.warns) == (passed, warns)


def test_what_a_release_lacks_is_told_with_both_numbers() -> None:
    numbers = {"documents": 900.0, "documents_in_force": 1200.0}
    judged = judge("shuffled_bins", None, numbers, checks=ChecksSettings(), waivers=(), today=TODAY)
    assert next(f for f in judged if f.gate == "shrunk").reason == (
        "900 documents, 1,200 to match of the release in force: 0.2500 fewer, limit"
        " checks.max_release_shrink 0.01; it does not become current"
    )


def test_what_holds_a_release_back_does_not_forbid_to_read_it() -> None:
    assert [g.name for gates in GATES.values() for g in gates if holds_back(g.name)] == ["shrunk"]


def test_records_with_bad_ranges_are_named_in_the_order_of_the_shard() -> None:
    numbers = {"documents": 1000.0, "bad_no_loss_ranges": 9.0}
    named = {"bad_no_loss_ranges/2026-40/b:c.jsonl:35": 6.0, "bad_no_loss_ranges/2026-40/b:c.jsonl:4": 2.0}  # fmt: skip

    def reason(more: Mapping[str, float]) -> str:
        found = judge("packed_bins", "2026-40/b:c.jsonl", {**numbers, **more}, checks=ChecksSettings(), waivers=(), today=TODAY)  # fmt: skip
        return next(f.reason for f in found if f.gate == "no_loss_ranges")

    said = "bad_no_loss_ranges 0.0090 of 1,000 documents, limit 0.01"
    assert reason({}) == said
    assert reason(named) == (
        f"{said}; in records 2026-40/b:c.jsonl:4 (2), 2026-40/b:c.jsonl:35 (6) and others"
    )
    assert not reason({**named, "bad_no_loss_ranges/2026-40/b:c.jsonl:5": 1.0}).endswith("others")


VOCABULARY = {"sample_bytes": 48_000.0, "sample_documents": 12.0, "sample_bytes_asked": 50_000.0}


@pytest.mark.parametrize(
    ("size", "asked", "sample", "words"),
    [
        (
            32_000.0,
            32_000.0,
            VOCABULARY,
            "32,000 tokens of 32,000 asked for, trained on 48,000 bytes in 12 documents"
            " (tokenizer.sample_bytes: 50,000)",
        ),
        (
            2_345.0,
            32_000.0,
            VOCABULARY,
            "2,345 tokens of 32,000 asked for, trained on 48,000 bytes in 12 documents"
            " (tokenizer.sample_bytes: 50,000); for more raise tokenizer.sample_bytes where the corpus"
            " has more text for training, or add documents; else ask for fewer (tokenizer.vocab_size)",
        ),
        (32_000.0, 32_000.0, {}, "32,000 tokens of 32,000 asked for"),
    ],
    ids=["enough", "too few", "older than the gate"],
)
def test_a_smaller_vocabulary_than_asked_for_is_told_and_blocks_nothing(
    size: float, asked: float, sample: Mapping[str, float], words: str
) -> None:
    numbers = {"vocab_size": size, "vocab_size_asked": asked, **sample}
    found = _judged(numbers, asset="tokenizer", partition=None)["vocabulary"]
    assert (found.passed, found.warns, found.blocks) == (size == asked, size < asked, False)
    assert (found.reason, found.value, found.limit) == (words, asked - size, 0)
