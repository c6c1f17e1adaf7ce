"""Nights in which something goes wrong beside the data: what fails for ever, what was killed or lost."""

import shutil
from pathlib import Path

import dagster as dg
import pytest

from corpus_platform.defs import nightly
from corpus_platform.defs.partitions import SHARDS_NAME
from corpus_platform.defs.resources import load_corpus
from corpus_platform.storage import lease
from corpus_platform_tests.daemon import Daemon, Tick
from corpus_platform_tests.defs.nights import DAY, NEW, NIGHT, change, heartbeats, records, source
from corpus_platform_tests.instances import in_memory
from corpus_platform_tests.small import SHARDS, write_shard

pytestmark = pytest.mark.xdist_group("nightly")  # the corpus is made once


def _obstruct(config: Path, shard: str) -> None:
    """Let every run for a shard fail: a file stands where the folder of an artifact should be."""
    path = config.parent / "data" / "minhash_signatures" / shard
    path.parent.mkdir(exist_ok=True)
    path.touch()


@pytest.mark.slow
def test_shards_that_fail_every_night_hold_up_neither_new_ones_nor_what_follows(
    daemon: Daemon,
) -> None:
    change(daemon.config, schedule={"max_shards": 1}, checks={"max_uncleared_share": 0.5})
    daemon.reload()
    write_shard(source(daemon.config, NEW[0]), records(0, 12))
    first = daemon.night(NIGHT)
    _obstruct(daemon.config, NEW[0])
    assert daemon.run(first) == [("ingest_shard", NEW[0], False)]
    write_shard(source(daemon.config, NEW[1]), records(100, 12))
    second = daemon.night(NIGHT + DAY)
    assert second.shards == [NEW[1]]
    done = daemon.run(second) + daemon.settle()
    # The release leaves a shard out, so that its gate `whole` fails.
    assert done == [
        ("ingest_shard", NEW[1], True),
        ("build_corpus", "", True),
        ("pack_shard", NEW[1], True),
        ("publish_release", "", False),
    ]
    assert daemon.night(NIGHT + 2 * DAY).shards == [NEW[0]]


@pytest.mark.slow
def test_a_file_that_vanishes_between_a_killed_tick_and_the_next_is_no_new_shard(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    path = source(daemon.config, NEW[0])
    write_shard(path, records(0, 12))
    with monkeypatch.context() as patched:
        patched.setattr(nightly, "register", die)
        with pytest.raises(KeyboardInterrupt):
            daemon.night(NIGHT)
    path.unlink()
    daemon.night(NIGHT)
    daemon.settle()
    assert heartbeats(daemon)[-1].startswith("Night of 2026-11-30T02:00:00+00:00: 0 new shards")


def test_a_night_registers_nothing_that_a_running_command_did_not_list(awake: Daemon) -> None:
    write_shard(source(awake.config, NEW[0]), records(0, 12))
    with lease.hold(awake.config.parent / "data" / "leases" / "run.lease"):
        assert awake.night(NIGHT).requests == []
    assert list(load_corpus(awake.config).project().shards()) == list(SHARDS)
    assert awake.night(NIGHT + DAY).shards == [NEW[0]]


def test_a_new_instance_over_old_artifacts_has_their_partitions_when_their_runs_are_asked_for(
    awake: Daemon,
) -> None:
    shutil.rmtree(awake.config.parent / "data" / "packed_bins")
    with in_memory() as instance:
        assert Daemon(awake.config, instance).look().shards == list(SHARDS)
        assert set(instance.get_dynamic_partitions(SHARDS_NAME)) == set(SHARDS)


@pytest.mark.slow
def test_a_release_that_is_for_a_person_to_make_is_named_in_the_heartbeat(daemon: Daemon) -> None:
    change(daemon.config, release={"when": "manual"})
    daemon.reload()
    write_shard(source(daemon.config, NEW[0]), records(0, 12))
    done = daemon.run(daemon.night(NIGHT)) + daemon.settle()
    assert done[-1] == ("pack_shard", NEW[0], True)
    (line,) = [
        one for one in heartbeats(daemon)[-1].split("\n") if one.startswith("No new release")
    ]
    assert "; release.when is manual: materialize shuffled_bins to make it" in line
    assert "Still due" not in heartbeats(daemon)[-1]


@pytest.mark.slow
def test_a_shard_whose_run_was_canceled_before_it_was_fetched_is_missed_until_the_next_night(
    daemon: Daemon,
) -> None:
    change(daemon.config, checks={"max_uncleared_share": 0.5})
    daemon.reload()
    for number, shard in enumerate(NEW):
        write_shard(source(daemon.config, shard), records(100 * number, 12))
    canceled, other = daemon.night(NIGHT).requests
    daemon.run(Tick([other]))
    with daemon.instance() as instance:
        instance.report_run_canceled(daemon.begin(instance, canceled))
    assert daemon.settle() == []
    assert f"dedup_clusters: missing: 1 shards are missing: {NEW[0]}" in heartbeats(daemon)[-1]
    again = daemon.night(NIGHT + DAY)
    assert again.shards == [NEW[0]]
    assert ("pack_shard", NEW[1], True) in daemon.run(again) + daemon.settle()


@pytest.mark.slow
def test_a_shard_behind_hundreds_of_queued_runs_is_not_asked_for_again(daemon: Daemon) -> None:
    write_shard(source(daemon.config, NEW[0]), records(0, 12))
    (oldest,) = daemon.night(NIGHT).requests
    others = [dg.RunRequest(f"k{i}", partition_key=f"2026-99/{i}") for i in range(100)]
    with daemon.instance() as instance:
        for queued in (oldest, *others):
            daemon.begin(instance, queued)
    assert daemon.night(NIGHT + DAY).said == "no shard is to be ingested"
