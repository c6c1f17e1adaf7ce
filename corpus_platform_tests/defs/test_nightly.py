"""The nightly refresh: only what is new or changed is made, once, whatever is killed."""

import os
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from corpus_platform.defs.partitions import SHARDS_NAME
from corpus_platform.defs.resources import load_corpus
from corpus_platform.planner import survey
from corpus_platform.stages.project import Expected, Project
from corpus_platform.stages.raw_shards import accept_source
from corpus_platform.storage.manifest import read_manifest
from corpus_platform_tests.daemon import Daemon, Tick
from corpus_platform_tests.defs.nights import DAY, NEW, NIGHT, change, heartbeats, records, source
from corpus_platform_tests.instances import in_memory
from corpus_platform_tests.small import SHARDS, write_shard, write_small_corpus

pytestmark = pytest.mark.xdist_group("nightly")  # the corpus is made once


def _releases(daemon: Daemon) -> list[str]:
    return sorted(p.parent.name for p in daemon.config.parent.glob("data/releases/*/manifest.json"))


def _materialized(daemon: Daemon, asset: str) -> Counter[str]:
    with daemon.instance() as instance:
        found = instance.fetch_materializations(dg.AssetKey(asset), limit=100).records
    return Counter(record.partition_key or "" for record in found)


def test_the_first_night_makes_all_from_the_sources_to_a_release(tmp_path: Path) -> None:
    config = write_small_corpus(tmp_path)
    with in_memory() as instance:
        daemon = Daemon(config, instance)
        daemon.run(daemon.night(NIGHT - DAY))
        daemon.settle()
        _is_whole(daemon)


def _is_whole(daemon: Daemon) -> None:
    assert [r.partition for r in survey(load_corpus(daemon.config).project()).due] == []
    assert len(_releases(daemon)) == 1
    assert _materialized(daemon, "packed_bins") == Counter(SHARDS)
    (said,) = heartbeats(daemon)
    assert said.startswith("Night of 2026-11-29T02:00:00+00:00: 3 new shards with")


def test_two_new_shards_cost_two_shards(awake: Daemon) -> None:
    for number, shard in enumerate(NEW):
        write_shard(source(awake.config, shard), records(100 * number, 12, short=1))
    before = _releases(awake)
    requests = awake.night(NIGHT)
    assert requests.shards == list(NEW)
    done = awake.run(requests) + awake.settle()
    assert done == [
        ("ingest_shard", NEW[0], True),
        ("ingest_shard", NEW[1], True),
        ("build_corpus", "", True),
        ("pack_shard", NEW[0], True),
        ("pack_shard", NEW[1], True),
        ("publish_release", "", True),
    ]
    assert len(_releases(awake)) == len(before) + 1
    assert awake.settle() == []
    _, said = heartbeats(awake)
    first, second, third = said.split("\n")
    assert first.startswith(
        "Night of 2026-11-30T02:00:00+00:00: 2 new shards with 24 documents, 0 of"
    )
    assert second.startswith("Corpus: 5 shards, ")
    assert third.startswith("Release in force: ")


def test_a_night_without_news_makes_nothing_and_says_so(awake: Daemon) -> None:
    assert awake.night(NIGHT).said == "no shard is to be ingested"
    assert awake.settle() == []
    assert heartbeats(awake)[-1].startswith("Night of 2026-11-30T02:00:00+00:00: 0 new shards")


@pytest.mark.slow
def test_a_night_that_takes_longer_than_to_the_next_is_told_with_all_that_came_of_it(
    daemon: Daemon,
) -> None:
    write_shard(source(daemon.config, NEW[0]), records(0, 12))
    daemon.run(daemon.night(NIGHT))
    assert daemon.night(NIGHT + DAY).said == "no shard is to be ingested"
    daemon.settle()
    long, short = heartbeats(daemon)[-2:]
    assert long.startswith("Night of 2026-11-30T02:00:00+00:00: 1 new shards with 12 documents, 0")
    assert short.startswith("Night of 2026-12-01T02:00:00+00:00: 0 new shards")


@pytest.mark.slow
def test_at_most_so_many_shards_begin_in_a_night_and_the_rest_in_the_next(daemon: Daemon) -> None:
    change(daemon.config, schedule={"max_shards": 1})
    daemon.reload()
    for number, shard in enumerate(NEW):
        write_shard(source(daemon.config, shard), records(100 * number, 12))
    first = daemon.night(NIGHT)
    assert first.shards == [NEW[0]]
    assert daemon.run(first) + daemon.settle() == [
        ("ingest_shard", NEW[0], True),
        ("build_corpus", "", True),
        ("pack_shard", NEW[0], True),
        ("publish_release", "", True),
    ]
    assert "Left for the next nights: 1 shards" in heartbeats(daemon)[-1]
    second = daemon.night(NIGHT + DAY)
    assert second.shards == [NEW[1]]
    daemon.run(second)
    daemon.settle()
    assert "Left for" not in heartbeats(daemon)[-1]


@pytest.mark.slow
def test_a_tick_that_comes_again_loses_and_doubles_nothing(daemon: Daemon) -> None:
    for number, shard in enumerate(NEW):
        write_shard(source(daemon.config, shard), records(100 * number, 12))
    killed = daemon.night(NIGHT)  # the daemon dies after the first of the two runs was made
    daemon.run(Tick(killed.requests[:1]))
    assert daemon.look().requests == []
    again = daemon.night(NIGHT)
    assert daemon.run(again) == [("ingest_shard", NEW[1], True)]
    daemon.settle()
    assert _materialized(daemon, "raw_shards")[NEW[0]] == 1
    assert heartbeats(daemon)[-1].startswith("Night of 2026-11-30T02:00:00+00:00: 2 new shards")


@pytest.mark.slow
def test_nothing_is_carried_on_while_the_runs_of_the_night_are_being_made(daemon: Daemon) -> None:
    write_shard(source(daemon.config, NEW[0]), records(0, 12))
    requests = daemon.night(NIGHT)
    assert daemon.look().said == "the runs of the night 2026-11-30T02:00:00+00:00 are being started"
    assert len(heartbeats(daemon)) == 1
    daemon.run(requests)
    daemon.settle()
    assert len(heartbeats(daemon)) == 2


@pytest.mark.slow
def test_a_changed_file_is_blocked_until_it_is_accepted_and_then_flows_on(daemon: Daemon) -> None:
    shard = SHARDS[1]
    write_shard(source(daemon.config, shard), records(500, 120))
    assert daemon.night(NIGHT).said == "no shard is to be ingested"
    daemon.settle()
    blocked = [line for line in heartbeats(daemon)[-1].split("\n") if line.startswith("Blocked")]
    assert blocked[0].startswith(f"Blocked: raw_shards[{shard}]: source_unchanged: ")
    accept_source(load_corpus(daemon.config).project(), shard)
    done = daemon.settle()
    assert done[0] == ("ingest_shard", shard, True)
    assert ("publish_release", "", True) in done


def test_a_file_with_an_old_date_that_comes_late_is_found(awake: Daemon) -> None:
    path = source(awake.config, NEW[0])
    write_shard(path, records(0, 12))
    os.utime(path, (1_000_000_000, 1_000_000_000))
    assert awake.night(NIGHT).shards == [NEW[0]]


def test_a_file_that_is_listed_no_more_stays_and_is_told(awake: Daemon) -> None:
    source(awake.config, SHARDS[0]).unlink()
    assert awake.night(NIGHT).said == "no shard is to be ingested"
    assert awake.settle() == []
    assert f"Listed no more, and kept: 1 shards, such as {SHARDS[0]}" in heartbeats(awake)[-1]
    assert list(load_corpus(awake.config).project().shards()) == list(SHARDS)
    with awake.instance() as instance:
        assert set(instance.get_dynamic_partitions(SHARDS_NAME)) == set(SHARDS)


def test_sources_that_cannot_be_listed_are_told_and_the_rest_goes_on(awake: Daemon) -> None:
    broken = awake.config.parent / "source" / "crawl=bad name!"
    broken.mkdir()
    write_shard(broken / "a.jsonl", records(0, 2))
    assert awake.night(NIGHT).said == "no shard is to be ingested"
    awake.settle()
    assert "Trouble: the sources cannot be listed: " in heartbeats(awake)[-1]
    assert "Listed no more" not in heartbeats(awake)[-1]


def test_changed_settings_are_said_and_not_acted_on_before_a_reload(awake: Daemon) -> None:
    change(awake.config, clean={"set": {"too_short.min_chars": 210}})
    for tick in (awake.night(NIGHT), awake.look()):
        assert tick.requests == []
        assert "reload the code location" in tick.said
    awake.reload()
    assert awake.night(NIGHT).shards == list(SHARDS)


@pytest.mark.slow
def test_a_shard_over_its_limit_holds_nobody_up_and_flows_on_after_a_waiver(daemon: Daemon) -> None:
    change(daemon.config, checks={"max_uncleared_share": 0.5, "min_records": 20})
    daemon.reload()
    write_shard(source(daemon.config, NEW[0]), records(0, 10, short=30))
    write_shard(source(daemon.config, NEW[1]), records(100, 30))
    done = daemon.run(daemon.night(NIGHT)) + daemon.settle()
    assert ("ingest_shard", NEW[0], False) in done
    assert ("pack_shard", NEW[1], True) in done
    assert not any(shard == NEW[0] and job == "pack_shard" for job, shard, _ in done)
    assert "drop_rate_too_short" in heartbeats(daemon)[-1]
    assert daemon.settle() == []
    waiver = {
        "gate": "drop_rate_too_short",
        "partition": NEW[0],
        "reason": "known",
        "expires": "2099-01-01",
    }
    kept = {**waiver, "gate": "kept_share"}
    change(daemon.config, waivers=[waiver, kept])
    daemon.reload()
    done = daemon.settle()  # by day, without another night
    assert done[0] == ("ingest_shard", NEW[0], True)
    assert ("pack_shard", NEW[0], True) in done
    assert done[-1] == ("publish_release", "", True)


@pytest.mark.slow
def test_a_shard_whose_run_failed_holds_nobody_up_and_is_tried_again_the_next_night(
    daemon: Daemon,
) -> None:
    change(daemon.config, checks={"max_uncleared_share": 0.5})
    daemon.reload()
    write_shard(source(daemon.config, NEW[0]), records(0, 12))
    write_shard(source(daemon.config, NEW[1]), records(100, 12))
    requests = daemon.night(NIGHT)
    draft_home = daemon.config.parent / "data" / "minhash_signatures" / "2026-44"
    draft_home.mkdir(exist_ok=True)
    obstacle = draft_home / NEW[0].split("/")[1]
    obstacle.write_text("a file where the folder of an artifact should be", encoding="utf-8")
    done = daemon.run(requests) + daemon.settle()
    assert Counter(done)["ingest_shard", NEW[0], False] == 1
    assert ("pack_shard", NEW[1], True) in done
    obstacle.unlink()
    again = daemon.night(NIGHT + DAY)
    assert again.shards == [NEW[0]]
    done = daemon.run(again) + daemon.settle()
    assert ("pack_shard", NEW[0], True) in done


@pytest.mark.slow
def test_a_release_is_made_once_in_a_calendar_week_where_the_settings_say_so(
    daemon: Daemon,
) -> None:
    change(daemon.config, release={"when": "weekly"})
    daemon.reload()
    write_shard(source(daemon.config, NEW[0]), records(0, 12))
    daemon.run(daemon.night(NIGHT))
    assert not any(job == "publish_release" for job, _, _ in daemon.settle())
    (manifest,) = daemon.config.parent.glob("data/releases/*/manifest.json")
    made = read_manifest(manifest)
    longer_ago = {**made.measured, "made_at": "2026-01-01T00:00:00+00:00"}
    manifest.write_bytes(replace(made, measured=longer_ago).to_bytes())
    daemon.cursor = None
    assert daemon.settle() == [("publish_release", "", True)]


def test_a_look_is_cheap_while_nothing_changes(awake: Daemon) -> None:
    awake.settle()
    assert awake.look().said == "nothing changed since the last look"


def test_a_look_tells_the_name_of_what_is_wanted_once_for_all_requests(
    awake: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of each pack is told from those of its shard, the clusters and the tokenizer."""
    shutil.rmtree(awake.config.parent / "data" / "packed_bins")
    told, tell = Counter[tuple[str, str | None]](), Project._expect

    def counting(project: Project, asset: str, partition: str | None) -> Expected:
        told[asset, partition] += 1
        return tell(project, asset, partition)

    monkeypatch.setattr(Project, "_expect", counting)
    with in_memory() as instance:  # which has not looked yet
        assert Daemon(awake.config, instance).look().shards == list(SHARDS)
    assert max(told.values()) <= 2  # by the survey, and by what asks for runs
