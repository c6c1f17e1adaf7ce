"""What counts as a failure, and as the same one: real runs, and what then stands in the channel.

The last test uses the real definitions over a small corpus.
"""

from pathlib import Path

import dagster as dg
import pytest

from corpus_platform.defs.location import build_definitions
from corpus_platform.defs.partitions import SHARDS_NAME
from corpus_platform.defs.resources import TASK_TAG, load_corpus
from corpus_platform_tests.defs.telling import (
    TOKEN,
    Scene,
    checked,
    crashing,
    failing,
    raising,
    refusing,
)
from corpus_platform_tests.instances import QUIET, in_folder, in_memory
from corpus_platform_tests.slack_server import SlackServer
from corpus_platform_tests.small import SHARDS, register, write_shard

BAD = "2026-44/part-00009.jsonl.gz"
NO_SHARD_LEFT_OUT = "checks: {max_uncleared_share: 0.1}\n"
ONE_LEFT_OUT = "checks: {max_uncleared_share: 0.5}\n"


def test_a_warning_in_a_run_that_succeeds_is_told_with_all_that_is_known(begun: Scene) -> None:
    warning = failing(severity=dg.AssetCheckSeverity.WARN)
    run = begun.run(checked(("fits", warning), blocking=False), "thing", "next_thing")
    assert run.success
    assert begun.tick() == "told 1"
    assert begun.server.texts == [
        ":large_yellow_circle: WARN thing [2026-40/a]: check fits 0.6 against limit 0.5:"
        f" too much of it <http://ui:3000/runs/{run.run_id}|run {run.run_id[:8]}>"
    ]
    assert begun.tick() == "nothing new to tell"


def test_a_warning_in_a_run_that_goes_on_is_told_at_once_and_once(begun: Scene) -> None:
    warning = failing(severity=dg.AssetCheckSeverity.WARN)
    begun.run(checked(("fits", warning), then=begun.tick), "thing", "next_thing")
    assert begun.words[1:] == ["told 1"]
    assert begun.tick() == "nothing new to tell"


def test_a_failed_blocking_check_of_retried_assets_is_one_message(begun: Scene) -> None:
    definitions = checked(("fits", failing()))
    assert not begun.run(definitions, "thing", "next_thing").success
    begun.tick()
    assert not begun.run(definitions, "thing", "next_thing").success  # a re-run
    begun.tick()
    assert len(begun.server.texts) == 1
    assert begun.server.texts[0].startswith(":red_circle: ERROR thing [2026-40/a]: check fits 0.6")


def test_failures_of_other_content_or_partition_are_other_failures(begun: Scene) -> None:
    begun.run(checked(("fits", failing())), "thing")
    begun.run(checked(("fits", failing(content="c2"))), "thing")
    begun.run(checked(("fits", failing())), "thing", partition="2026-40/b")
    begun.tick()
    assert ["2026-40/b" in text for text in begun.server.texts] == [False, False, True]


def test_a_check_that_raises_is_told_once(begun: Scene) -> None:
    definitions = checked(("fits", crashing))
    run = begun.run(definitions, "thing")
    begun.tick()
    begun.run(definitions, "thing")
    begun.tick()
    assert begun.server.texts == [
        ":red_circle: ERROR thing [2026-40/a]: check thing_gates crashed: ZeroDivisionError:"
        f" no documents to divide by <http://ui:3000/runs/{run.run_id}|run {run.run_id[:8]}>"
    ]


def test_a_failed_run_is_told_once_however_often_its_step_was_tried(begun: Scene) -> None:
    begun.run(raising(lambda: OSError("disk full"), retries=2), "thing")
    begun.tick()
    begun.tick()
    [text] = begun.server.texts
    assert "ERROR thing [2026-40/a]: run of things_job failed: OSError: disk full <" in text


def test_each_failed_run_is_told(begun: Scene) -> None:
    for _ in range(2):
        begun.run(raising(lambda: OSError("disk full")), "thing")
    begun.tick()
    assert len(begun.server.texts) == 2


def test_a_run_that_died_without_a_failed_step_is_told_with_what_was_reported(begun: Scene) -> None:
    run = begun.run(checked(), "thing").dagster_run
    begun.instance.report_run_failed(run, "the worker process ended by signal 9")
    begun.tick()
    assert "things_job failed: the worker process ended by signal 9 <" in begun.server.texts[0]


def test_a_canceled_run_is_not_told(begun: Scene) -> None:
    begun.instance.report_run_canceled(begun.run(checked(), "thing").dagster_run)
    assert begun.tick() == "nothing new to tell"


def test_a_run_is_told_in_its_last_try_only(begun: Scene) -> None:
    broken = raising(lambda: OSError("disk full"))
    first = begun.run(broken, "thing", tags={"dagster/will_retry": "true"})
    assert begun.tick() == "nothing new to tell"
    last = begun.run(broken, "thing", tags={"dagster/parent_run_id": first.run_id})
    begun.tick()
    begun.tick(later=2 * 3600)
    [text] = [text for text in begun.server.texts if "disk full" in text]
    assert last.run_id in text


def test_a_retry_that_was_announced_and_never_came_is_told_after_an_hour(begun: Scene) -> None:
    begun.run(raising(lambda: OSError("full")), "thing", tags={"dagster/will_retry": "true"})
    assert begun.tick(later=3000) == "nothing new to tell"
    begun.tick(later=3700)
    assert "OSError: full" in begun.server.texts[0]


def test_what_a_gate_says_is_told_although_its_run_will_be_tried_again(begun: Scene) -> None:
    definitions = checked(("fits", failing()))
    begun.run(definitions, "thing", tags={"dagster/will_retry": "true"})
    begun.tick()
    assert len(begun.server.texts) == 1


def test_a_refusal_for_a_failure_that_was_told_is_no_second_message(begun: Scene) -> None:
    begun.run(checked(("fits", failing())), "thing")
    begun.tick()
    assert not begun.run(refusing(), "thing").success
    assert begun.tick() == "nothing new to tell"
    assert len(begun.server.texts) == 1


def test_a_refusal_that_nothing_told_before_is_told_once(begun: Scene) -> None:
    for _ in range(2):
        begun.run(refusing(gate="intact", content="", reason="a.parquet: gone"), "thing")
        begun.tick()
    [text] = begun.server.texts
    assert "ERROR thing [2026-40/a]: check intact: a.parquet: gone <" in text


def test_a_refusal_without_content_for_another_reason_is_another_failure(begun: Scene) -> None:
    for reason in ("a.parquet: gone", "b.parquet: gone"):
        begun.run(refusing(gate="intact", content="", reason=reason), "thing")
    begun.tick()
    assert len(begun.server.texts) == 2


def test_what_is_missing_because_a_failure_was_told_gives_no_message(begun: Scene) -> None:
    refused = refusing(asset="raw_shards", gate="fits")
    begun.run(refused, "thing")
    begun.tick()
    missing = refusing(asset="minhash_signatures", gate="current", content="", reason="missing")
    begun.run(missing, "thing")
    assert begun.tick() == "nothing new to tell"


def test_what_is_missing_for_no_reason_that_was_told_is_told(begun: Scene) -> None:
    missing = refusing(asset="minhash_signatures", gate="current", content="", reason="missing")
    begun.run(missing, "thing")
    begun.run(missing, "thing")
    begun.tick()
    [text] = begun.server.texts
    assert "minhash_signatures [2026-40/a]: check current: missing" in text


@pytest.mark.parametrize(
    ("asset", "gate"),
    [("dedup_clusters", "uncleared"), ("shuffled_bins", "uncleared"), ("shuffled_bins", "whole")],
)
def test_gates_that_only_repeat_which_shards_are_left_out_give_no_message(
    asset: str, gate: str, begun: Scene
) -> None:
    begun.run(refusing(asset=asset, gate=gate, partition=""), "thing")
    assert begun.tick() == "nothing new to tell"


def test_runs_that_another_corpus_drove_are_left_to_its_own_sensor(begun: Scene) -> None:
    broken = raising(lambda: OSError("disk full"))
    begun.run(broken, "thing", tags={TASK_TAG: "00000000/abc"})
    assert begun.tick() == "nothing new to tell"
    begun.run(broken, "thing", tags={TASK_TAG: f"{begun.corpus.name}/abc"})
    assert begun.tick() == "told 1"


def with_a_bad_shard(config: Path, base_url: str) -> None:
    """Add a shard of which two thirds of the documents are too short, and where alerts go."""
    folder = config.parent / "source" / "crawl=2026-44"
    long = [{"id": f"long-{i}", "text": f"{i} {'word after word ' * 30}"} for i in range(50)]
    short = [{"id": f"short-{i}", "text": f"Too short {i}."} for i in range(100)]
    write_shard(folder / "part-00009.jsonl.gz", [*long, *short])
    with config.open("a") as file:
        file.write(f"alerts: {{slack: {{base_url: '{base_url}'}}}}\n{NO_SHARD_LEFT_OUT}")


def run_job(scene: Scene, job: str, partition: str | None = None) -> bool:
    """Run a job of the real definitions; return whether it succeeded."""
    resolved = build_definitions(scene.corpus.config_file).resolve_job_def(job)
    result = resolved.execute_in_process(
        instance=scene.instance,
        partition_key=partition,
        run_config=QUIET,
        raise_on_error=False,
    )
    return result.success


def run_asset(scene: Scene, asset: str) -> bool:
    """Run one asset for the bad shard in a run of its own, as a backfill does."""
    job = dg.define_asset_job("alone", selection=dg.AssetSelection.assets(asset))
    whole = dg.Definitions.merge(
        build_definitions(scene.corpus.config_file), dg.Definitions(jobs=[job])
    )
    result = whole.resolve_job_def("alone").execute_in_process(
        instance=scene.instance, partition_key=BAD, run_config=QUIET, raise_on_error=False
    )
    return result.success


TOLD = (
    f":red_circle: ERROR cleaned_documents [{BAD}]: check drop_rate_too_short 0.666667 against"
    " limit 0.5: dropped/too_short 0.6667 of 150 documents, limit 0.5 <http://127.0.0.1:3000/"
)


def test_a_real_shard_that_loses_too_much_is_one_message(
    server: SlackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", TOKEN)
    config = tmp_path / "corpus.yaml"
    config.write_text("sources: [{glob: 'source/crawl={crawl}/*'}]\n")
    with_a_bad_shard(config, server.base_url)
    corpus = load_corpus(config)
    with in_memory() as instance:
        instance.add_dynamic_partitions(SHARDS_NAME, register(corpus.project()))
        scene = Scene(tmp_path, instance, corpus, server)
        scene.tick()
        assert not run_job(scene, "ingest_shard", BAD)
        assert not run_asset(scene, "minhash_signatures")
        assert not run_job(scene, "build_corpus")
        assert scene.tick() == "told 1"
    assert server.texts[0].startswith(TOLD)


@pytest.mark.slow
def test_a_bad_shard_is_one_message_wherever_what_comes_after_it_is_refused(
    finished: Path, server: SlackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", TOKEN)
    with_a_bad_shard(finished, server.base_url)
    corpus = load_corpus(finished)
    keys = register(corpus.project())
    with in_folder(tmp_path / "instance") as instance:
        instance.add_dynamic_partitions(SHARDS_NAME, keys)
        scene = Scene(tmp_path, instance, corpus, server)
        scene.tick()
        assert not run_job(scene, "ingest_shard", BAD)
        scene.tick()
        assert not run_job(scene, "ingest_shard", BAD)  # by the next night
        assert not run_asset(scene, "minhash_signatures")
        assert not run_job(scene, "build_corpus")
        assert not run_asset(scene, "packed_bins")
        scene.tick()
        finished.write_text(finished.read_text().replace(NO_SHARD_LEFT_OUT, ONE_LEFT_OUT))
        assert run_job(scene, "build_corpus")
        assert not run_asset(scene, "packed_bins")
        for shard in SHARDS:
            assert run_job(scene, "pack_shard", shard)
        run_job(scene, "publish_release")
        scene.tick()
    [text] = server.texts
    assert text.startswith(TOLD)
