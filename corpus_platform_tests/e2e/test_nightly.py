"""The nightly refresh by the real `corpus ui`, told to a stand-in for Slack: new shards become a
release by themselves, each piece once, whatever is killed, broken or out of reach meanwhile."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest
import tokenizers

from corpus_platform_tests.defs.nights import NEW, records, source, text
from corpus_platform_tests.e2e.command import Corpus
from corpus_platform_tests.e2e.live import Live, live, prepare
from corpus_platform_tests.slack_server import SlackServer
from corpus_platform_tests.small import SHARDS, write_shard

pytestmark = pytest.mark.xdist_group("live")

MORE = "\nIn a later version of this page one more line was added at its end, and no other."
CLUSTERING = "corpus_platform.stages.dedup_clusters:write_table"  # called twice, in a draft
OUTDATED = "reload the code location"
# The last sequence of a small shard is not full, and of so few sequences that is a warning.
SMALL = {"min_utilisation": {"concat": 0.8}}
LENIENT = {"max_uncleared_share": 0.5, **SMALL}
WAIVER = {
    "gate": "drop_rate_too_short",
    "partition": NEW[0],
    "reason": "short answers",
    "expires": "2099-01-01",
}


@pytest.fixture
def slack() -> Iterator[SlackServer]:
    """A stand-in for Slack."""
    with SlackServer() as server:
        yield server


def _write(corpus: Corpus, shard: str, found: list[dict[str, str]]) -> None:
    write_shard(source(corpus.config, shard), found)


def _write_new(corpus: Corpus) -> list[str]:
    """Drop the two new shards; return the texts that are to be kept of them.

    25 documents pass the rules; one is a copy, and one nearly so.
    """
    first, second = records(0, 12, short=1), records(100, 11, short=2)
    copies = [
        {"id": "exact", "text": text(3), "lang": "en"},
        {"id": "near", "text": text(4) + MORE, "lang": "en"},
    ]
    _write(corpus, NEW[0], first)
    _write(corpus, NEW[1], [*second, *copies])
    return [text(i) for i in (*range(12), *range(100, 111))]


def _tokens(corpus: Corpus, texts: list[str]) -> int:
    """Return the tokens of texts by the corpus's tokenizer, one end token after each."""
    (file,) = corpus.data.glob("tokenizer/*/tokenizer.json")
    tokenizer = tokenizers.Tokenizer.from_file(str(file))
    return sum(len(tokenizer.encode(one).ids) + 1 for one in texts)


def _of_new_shards(slack: SlackServer) -> list[str]:
    """Return the heartbeats of nights that took in two shards."""
    return [told for told in slack.texts if "2 new shards" in told]


def _all_flowed(corpus: Live, slack: SlackServer, before: set[str]) -> None:
    """Wait until a new release is in force and the night was told."""
    corpus.wait_for("a new release in force", lambda: corpus.in_force() not in before)
    corpus.wait_for("the heartbeat", lambda: _of_new_shards(slack))


def test_two_new_shards_become_a_release_by_themselves(made: Corpus, slack: SlackServer) -> None:
    prepare(made, slack)
    kept = _write_new(made)
    with live(made) as served:
        before, packs = served.releases(), _packs(made)
        assert len(before) == 1
        _all_flowed(served, slack, before)
        assert served.materialized("raw_shards") == Counter([*SHARDS, *NEW])
        assert served.materialized("dedup_clusters") == Counter({"": 2})  # that of `made`, and one
        assert served.materialized("packed_bins") == Counter([*SHARDS, *NEW])
        assert served.materialized("shuffled_bins") == Counter({"": 2})
        assert len(served.releases() - before) == 1
        assert all(run.is_success for run in served.instance.get_runs())
        assert "Traceback" not in served.logs()
        release = served.in_force()
    assert {p for p in packs if p in _packs(made)} == packs
    (told,) = _of_new_shards(slack)
    tokens = _tokens(made, kept)
    assert f": 2 new shards with 25 documents, 2 of them copies, {tokens:,} tokens" in told
    assert f"Release in force: {release}" in told


def _packs(corpus: Corpus) -> set[tuple[str, int]]:
    """Return the manifests of all packs, with the times they were written at."""
    found = corpus.data.glob("packed_bins/**/manifest.json")
    return {(str(p), p.stat().st_mtime_ns) for p in found}


def _queued(served: Live) -> bool:
    return len([r for shard in NEW for r in served.runs("ingest_shard", shard)]) == 2


def _clustering(served: Live) -> bool:
    """Tell whether the clusters that follow from the night are being made."""
    statuses = [r.status for r in served.runs("build_corpus") if "corpus/night" in r.tags]
    return dg.DagsterRunStatus.STARTED in statuses


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "killed"),
    [(_queued, "daemon"), (_clustering, "daemon"), (_clustering, "all"), (_queued, "all")],
)
def test_what_is_killed_in_the_night_is_finished_after_a_new_start(
    made: Corpus, slack: SlackServer, tmp_path: Path, moment: Callable[[Live], bool], killed: str
) -> None:
    made.set(checks=SMALL)
    twin = made.copy(tmp_path / "twin")
    _write_new(twin)
    assert twin.run()[0].code == 0
    prepare(made, slack)
    _write_new(made)
    with live(made, fault={"function": CLUSTERING, "stall": 20}) as served:
        before = served.releases()
        served.wait_for("the moment to kill", lambda: moment(served))
        _kill(served, killed)
    with live(made) as served:
        _all_flowed(served, slack, before)
        _settled(served)
        for asset in ("raw_shards", "cleaned_documents", "minhash_signatures", "packed_bins"):
            assert set(served.materialized(asset)) == {*SHARDS, *NEW}
            assert all(served.materialized(asset)[shard] == 1 for shard in SHARDS)
            assert all(_made_once(served, asset, shard) for shard in NEW)
        assert len(served.releases() - before) == 1
    assert made.products() == twin.products()
    assert made.leftovers() == []
    assert len(_of_new_shards(slack)) in (1, 2)
    assert _failures(slack) == []


def _kill(served: Live, what: str) -> None:
    """Kill the daemon, and wait for `corpus ui` to end by that; or kill all of it."""
    if what == "all":
        served.ui.kill()
        return
    served.process_of("dagster._daemon").kill()
    ended = served.ui.wait()
    assert ended.code == 3
    assert "the daemon ended with exit code -9" in ended.printed


def _settled(served: Live) -> None:
    """Wait until nothing is at work, and a sensor has looked since."""

    def look() -> bool:
        over = all(run.is_finished for run in served.instance.get_runs())
        return over and served.said("carry_on", limit=1) == ["nothing changed since the last look"]

    served.wait_for("that all has settled", look)


def _made_once(served: Live, asset: str, shard: str) -> bool:
    """Tell whether all materializations of an artifact but one say that it was there already."""
    records = served.instance.fetch_materializations(
        dg.AssetRecordsFilter(dg.AssetKey(asset), asset_partitions=[shard]), limit=10
    ).records
    found = [served.instance.all_logs(record.run_id) for record in records]
    again = [
        any(e.step_key == asset and "already there" in e.user_message for e in log) for log in found
    ]
    return again.count(False) == 1 or len(records) == 1


def _failures(slack: SlackServer) -> list[str]:
    """Return all failures that were told, grouped or not."""
    told = [line for message in slack.texts for line in message.split("\n")]
    return [line for line in told if re.search("red_circle|yellow_circle", line)]


def _drops_too_much(corpus: Corpus) -> None:
    """Drop a shard of which two thirds are too short, and one that is all right."""
    _write(corpus, NEW[0], records(0, 40, short=80))
    _write(corpus, NEW[1], records(100, 12))


def _release_without_it(served: Live, slack: SlackServer, before: set[str]) -> str:
    """Wait until there is a release without the shard that is not in force; return its id."""
    served.wait_for("a release without the shard", lambda: served.releases() - before)
    _settled(served)
    (made,) = served.releases() - before
    assert {served.in_force()} == before
    run = served.first_ended("publish_release")
    assert served.steps(run, dg.DagsterEventType.STEP_FAILURE) == {"shuffled_bins_gates"}
    blocked = f"Blocked: cleaned_documents[{NEW[0]}]: drop_rate_too_short: "
    served.wait_for("the heartbeat", lambda: any(blocked in told for told in slack.texts))
    return made


def _refused_everywhere(served: Live) -> None:
    """Try to get past the shard's gate on every way there is."""
    run = served.first_ended("ingest_shard", NEW[0])
    assert run.is_failure
    assert "cleaned_documents" in served.steps(run, dg.DagsterEventType.STEP_START)
    assert "minhash_signatures" not in served.steps(run, dg.DagsterEventType.STEP_START)
    for asset in ("minhash_signatures", "packed_bins"):
        run = served.ended(served.launch(asset, NEW[0]))
        assert served.steps(run, dg.DagsterEventType.STEP_FAILURE) == {asset}
    assets = ("cleaned_documents", "minhash_signatures", "packed_bins")
    backfill = served.backfill(assets, [SHARDS[2], *NEW])
    by_shard = _runs_of(served, backfill)
    assert {r.status for r in by_shard[SHARDS[2]]} == {dg.DagsterRunStatus.SUCCESS}
    assert {r.status for r in by_shard[NEW[1]]} == {dg.DagsterRunStatus.SUCCESS}
    assert dg.DagsterRunStatus.FAILURE in {r.status for r in by_shard[NEW[0]]}
    assert served.materialized("minhash_signatures")[NEW[0]] == 0
    assert served.materialized("packed_bins")[NEW[0]] == 0
    assert served.runs("pack_shard", NEW[0]) == []  # the sensor never asked


def _runs_of(served: Live, backfill: str) -> dict[str, list[dg.DagsterRun]]:
    """Return the runs of a backfill by their shard, when all has ended."""

    def look() -> list[dg.DagsterRun]:
        found = served.instance.get_backfill(backfill)
        over = found is not None and found.status.value.startswith(("COMPLETED", "FAILED"))
        runs = served.instance.get_runs(dg.RunsFilter(tags={"dagster/backfill": backfill}))
        return list(runs) if over and all(r.is_finished for r in runs) else []

    by_shard: dict[str, list[dg.DagsterRun]] = {}
    for run in served.wait_for("the end of the backfill", look):
        by_shard.setdefault(run.tags["dagster/partition"], []).append(run)
    return by_shard


@pytest.mark.slow
def test_a_shard_over_its_limit_is_refused_on_every_way_and_flows_on_after_a_waiver(
    made: Corpus, slack: SlackServer
) -> None:
    prepare(made, slack, checks=LENIENT)
    _drops_too_much(made)
    with live(made) as served:
        before = served.releases()
        partial = _release_without_it(served, slack, before)
        _refused_everywhere(served)
        _settled(served)
        made.set(waivers=[WAIVER])
        for name in ("nightly", "carry_on"):
            served.wait_for(
                f"what {name} says of it",
                lambda name=name: any(OUTDATED in one for one in served.said(name, limit=1)),
            )
        count = served.instance.get_runs_count()
        _waits_for_a_reload(served)
        assert served.instance.get_runs_count() == count
        served.reload()
        served.wait_for("a whole release", lambda: served.in_force() not in {*before, partial})
        _settled(served)
        assert served.materialized("packed_bins")[NEW[0]] == 1
        (told,) = _failures(slack)
    assert (
        f"cleaned_documents [{NEW[0]}]: check drop_rate_too_short 0.666667 against limit 0.5"
        in told
    )


def _waits_for_a_reload(served: Live) -> None:
    """Wait for two more ticks of the sensor that act on nothing."""
    served.wait_for(
        "more ticks", lambda: all(OUTDATED in one for one in served.said("carry_on", limit=3))
    )


@pytest.mark.slow
def test_a_shard_over_its_limit_flows_on_after_its_repaired_file_was_accepted(
    made: Corpus, slack: SlackServer
) -> None:
    prepare(made, slack, checks=LENIENT)
    _drops_too_much(made)
    with live(made) as served:
        before = served.releases()
        partial = _release_without_it(served, slack, before)
        _write(made, NEW[0], records(0, 40, short=10))
        ended = made.do("lock", "--accept", NEW[0])
        assert ended.code == 0, ended.printed
        served.wait_for("a whole release", lambda: served.in_force() not in {*before, partial})
        _settled(served)
        assert served.materialized("raw_shards")[NEW[0]] == 2
        assert served.materialized("packed_bins") == Counter([*SHARDS, *NEW])
        assert len(_failures(slack)) == 1


@pytest.mark.slow
def test_slack_out_of_reach_changes_no_run_and_is_told_once_when_it_is_back(
    made: Corpus, slack: SlackServer
) -> None:
    prepare(made, slack, checks=LENIENT)
    _drops_too_much(made)
    slack.stop()
    with live(made) as served:
        before = served.releases()
        served.wait_for("a release without the shard", lambda: served.releases() - before)
        _settled(served)
        assert served.first_ended("ingest_shard", NEW[0]).is_failure
        assert served.first_ended("ingest_shard", NEW[1]).is_success
        assert served.first_ended("pack_shard", NEW[1]).is_success
        served.wait_for(
            "the words of the tick",
            lambda: any("cannot be reached" in one for one in served.said("slack_alerts", limit=1)),
        )
        slack.start()
        served.wait_for("the message", lambda: _failures(slack))
        served.wait_for("the heartbeat", lambda: _of_new_shards(slack))
        count = len(served.said("slack_alerts"))
        served.wait_for("more ticks", lambda: len(served.said("slack_alerts")) > count + 2)
        assert len(_failures(slack)) == 1
        assert len(_of_new_shards(slack)) == 1


@pytest.mark.slow
def test_without_a_token_one_tick_fails_and_later_ones_repeat_the_reason(
    made: Corpus, slack: SlackServer
) -> None:
    prepare(made, slack)
    with live(made, token="") as served:
        served.wait_for("three ticks", lambda: len(served.said("slack_alerts")) >= 3)
        statuses = served.statuses("slack_alerts")
        assert statuses[-1] == "FAILURE"
        assert set(statuses[:-1]) == {"SKIPPED"}
        assert all("SLACK_BOT_TOKEN is not set" in one for one in served.said("slack_alerts"))
    assert slack.requests == []


@pytest.mark.slow
def test_a_reload_of_the_code_location_leaves_a_run_at_work(made: Corpus) -> None:
    _write_new(made)
    prepare(made, None)
    with live(made, fault={"function": CLUSTERING, "stall": 25}) as served:
        before = served.releases()
        served.wait_for("clusters at work", lambda: _clustering(served))
        served.reload()
        assert _clustering(served)
        served.wait_for("a new release in force", lambda: served.in_force() not in before)
        _settled(served)
        assert all(run.is_success for run in served.instance.get_runs())
