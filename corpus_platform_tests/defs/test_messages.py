"""Tests of what stands in a message: everything that is needed, and nothing that a shard could forge."""

from dataclasses import replace
from typing import Any  # fields of several types, checked by the test that gives them

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus_platform.defs.messages import (
    CrashedCheck,
    Fact,
    FailedNight,
    FailedRun,
    GateFailure,
    Heartbeat,
    MissedNight,
    line,
    messages,
    plain,
)

UI = "http://ui:3000/"
RUN = "0a1b2c3d-0000-4000-8000-000000000000"


FAILURE = GateFailure(
    asset="cleaned_documents",
    partition="2026-40/part-00000",
    gate="drop_rate_too_short",
    reason="dropped/too_short 0.6000 of 200 documents, limit 0.5",
    content="c1",
    run_id=RUN,
    at=1.0,
    value=0.6,
    limit=0.5,
)


def gate(**changes: Any) -> GateFailure:
    """Return a failed gate with some of it changed."""
    return replace(FAILURE, **changes)


def one(fact: Fact) -> str:
    """Return the message of one fact."""
    [(text, facts)] = messages([fact], UI)
    assert facts == [fact]
    return text


def test_a_failed_gate_is_told_with_all_that_is_known_of_it() -> None:
    assert one(gate()) == (
        ":red_circle: ERROR cleaned_documents [2026-40/part-00000]:"
        " check drop_rate_too_short 0.6 against limit 0.5:"
        " dropped/too_short 0.6000 of 200 documents, limit 0.5"
        f" <http://ui:3000/runs/{RUN}|run 0a1b2c3d>"
    )


def test_a_waived_gate_says_so_and_warns() -> None:
    told = one(gate(severity="WARN", waived="waived until 2027-01-01: known"))
    assert told.startswith(":large_yellow_circle: WARN (waived) cleaned_documents [")


def test_a_gate_over_the_whole_corpus_names_no_partition() -> None:
    whole = gate(asset="dedup_clusters", partition=None, gate="twins", value=3.0, limit=0.0)
    assert ": ERROR dedup_clusters: check twins 3 against limit 0: " in one(whole)


def test_a_refusal_without_numbers_gives_its_reason() -> None:
    assert ": check intact: a.parquet: gone <http" in one(
        gate(gate="intact", reason="a.parquet: gone", value=None, limit=None)
    )


def test_a_crashed_check_names_the_check_and_the_error() -> None:
    crash = CrashedCheck("raw_shards", "2026-40/a", "raw_shards_gates", "KeyError: 'x'", RUN, 1.0)
    assert one(crash) == (
        ":red_circle: ERROR raw_shards [2026-40/a]: check raw_shards_gates crashed: KeyError: 'x'"
        f" <http://ui:3000/runs/{RUN}|run 0a1b2c3d>"
    )


def test_a_failed_run_names_its_job_where_no_asset_is_known() -> None:
    failed = FailedRun("ingest_shard", None, "2026-40/a", "the process died", RUN, 1.0)
    assert one(failed).startswith(
        ":red_circle: ERROR ingest_shard [2026-40/a]: run of ingest_shard failed: the process died <"
    )


def test_a_missed_night_says_the_last_and_asks_what_is_stopped() -> None:
    assert one(MissedNight("2026-11-30T02:00:00+00:00", "2026-11-29T02:00:00+00:00", 1.0)) == (
        ":red_circle: ERROR the night of 2026-11-30T02:00:00+00:00 was not started (the last was"
        " 2026-11-29T02:00:00+00:00): is the schedule stopped, or the daemon?"
    )


def test_a_missed_night_says_that_settings_wait_to_be_loaded() -> None:
    told = one(MissedNight("2026-11-30", None, 1.0, outdated="corpus.yaml changed: reload"))
    assert told.endswith("not started (none was ever recorded): corpus.yaml changed: reload")


def test_a_failed_night_gives_its_reason() -> None:
    told = one(FailedNight("2026-11-30", "the sources cannot be listed: HTTP 503", 1.0))
    assert told.endswith("the night of 2026-11-30 failed: the sources cannot be listed: HTTP 503")


def test_a_heartbeat_stands_as_it_is_with_its_lines() -> None:
    assert one(Heartbeat("n", "Night: 3 new\nBlocked: a & b <x>", 1.0)) == (
        "Night: 3 new\nBlocked: a &amp; b &lt;x&gt;"
    )


def test_a_heartbeat_without_words_is_no_empty_message() -> None:
    assert one(Heartbeat("n", "\u0000 \n", 1.0)) == "a heartbeat without words"


@pytest.mark.parametrize(
    ("forged", "shown"),
    [
        ("<!channel> all", "&lt;!channel&gt; all"),
        ("a & b", "a &amp; b"),
        ("<http://evil|run>", "&lt;http://evil|run&gt;"),
        ("one\ntwo\r\n\tthree", "one two three"),
        ("bell\x07 null\x00", "bell null"),
        ("\u202egnp.exe", "gnp.exe"),  # right-to-left override
        ("line\u2028break", "line break"),
        ("half \ud800 pair", "half pair"),
    ],
)
def test_text_of_shards_is_shown_and_never_obeyed(forged: str, shown: str) -> None:
    assert plain(forged, 100) == shown


@given(st.text(max_size=3000), st.integers(10, 300))
def test_text_of_any_kind_is_one_bounded_line_without_markup(text: str, most: int) -> None:
    shown = plain(text, most)
    assert len(shown) <= most
    assert "<" not in shown
    assert ">" not in shown
    assert len(shown.splitlines()) <= 1
    shown.encode()


def test_a_line_of_the_longest_parts_stays_under_600_characters_and_keeps_its_link() -> None:
    long = "&" * 5000
    fact = gate(asset=long, partition=long, gate=long, reason=long, value=1 / 3, limit=1e300)
    told = line(fact, UI)
    assert len(told) < 600
    assert told.endswith(f"<http://ui:3000/runs/{RUN}|run 0a1b2c3d>")


def test_five_things_are_five_messages() -> None:
    five = [gate(partition=str(i)) for i in range(5)]
    told = list(messages(five, UI))
    assert [facts for _, facts in told] == [[fact] for fact in five]
    assert ["[3]" in text for text, _ in told] == [False, False, False, True, False]


def test_more_than_five_go_as_one_message_of_twenty_lines_and_a_count() -> None:
    facts = [gate(partition=f"shard-{i:02}") for i in range(23)]
    [(text, told)] = messages(facts, UI)
    assert told == facts
    lines = text.splitlines()
    assert lines[0] == "23 things to tell:"
    assert [i for i in range(23) if f"[shard-{i:02}]" in text] == list(range(20))
    assert lines[-1] == "and 3 more"
    assert len(lines) == 22


def test_a_failure_is_the_same_for_the_same_content_whoever_met_it() -> None:
    seen = gate(run_id="other", at=9.0, severity="WARN", reason="other words", refused_in="x")
    assert seen.key == gate().key


@pytest.mark.parametrize("change", [{"content": "c2"}, {"partition": "p"}, {"gate": "g"}])
def test_a_failure_of_other_content_partition_or_gate_is_another(change: dict[str, str]) -> None:
    assert gate(**change).key != gate().key


def test_without_content_the_reason_tells_failures_apart() -> None:
    assert gate(content="", reason="a").key != gate(content="", reason="b").key
