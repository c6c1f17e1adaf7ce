"""What is told in Slack and what is not, once each: real runs on SQLite, and a server for Slack.

Most runs are of tiny definitions whose checks and assets fail as a test wants it; the last tests
use the real ones over a small corpus.
"""

import datetime
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy

from corpus_platform.defs import alerts, slack
from corpus_platform.defs.alerts import build_alerts, tell
from corpus_platform.defs.ledger import recall
from corpus_platform.defs.location import build_definitions
from corpus_platform.defs.memory import Memory
from corpus_platform.defs.partitions import SHARDS_NAME
from corpus_platform.defs.resources import TASK_TAG, Corpus, load_corpus
from corpus_platform.errors import MissingExtra, SettingsError
from corpus_platform_tests.slack_server import SlackServer, fault, hang, ok, refuse, wait
from corpus_platform_tests.small import SHARDS, register, write_shard

TOKEN = "xoxb-1234-secret"
SILENT = {"telemetry": {"enabled": False}}
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
DAY = 24 * 3600.0
THINGS = dg.DynamicPartitionsDefinition(name="things")
Check = Callable[[], dg.AssetCheckResult]


def open_instance(folder: Path) -> dg.DagsterInstance:
    """Open the instance of a folder: SQLite files, as Dagster makes them by default."""
    folder.mkdir(exist_ok=True)
    return dg.DagsterInstance.local_temp(str(folder), overrides=SILENT)


@dataclass
class Scene:
    """An instance, a corpus whose alerts go to a server, and what is run and told there."""

    folder: Path
    instance: dg.DagsterInstance
    corpus: Corpus
    server: SlackServer
    words: list[str] = field(default_factory=list)

    def tick(self, *, later: float = 0.0) -> str:
        """Run one tick, `later` seconds from now; return its words."""
        self.words.append(tell(self.instance, self.corpus, now=time.time() + later))
        return self.words[-1]

    @property
    def memory(self) -> Memory:
        """What ticks know of earlier ones."""
        return Memory(self.instance, self.corpus.name)

    def run(
        self,
        definitions: dg.Definitions,
        *assets: str,
        partition: str = "2026-40/a",
        tags: dict[str, str] | None = None,
    ) -> dg.ExecuteInProcessResult:
        """Run assets with their checks for a partition, whatever becomes of it."""
        self.instance.add_dynamic_partitions("things", [partition])
        job = dg.define_asset_job("things_job", selection=dg.AssetSelection.assets(*assets))
        whole = dg.Definitions.merge(definitions, dg.Definitions(jobs=[job]))
        return whole.resolve_job_def("things_job").execute_in_process(
            instance=self.instance,
            partition_key=partition,
            tags=tags,
            run_config=QUIET,
            raise_on_error=False,
        )


@pytest.fixture
def server() -> Iterator[SlackServer]:
    """A running stand-in for Slack."""
    with SlackServer() as running:
        yield running


@pytest.fixture
def scene(tmp_path: Path, server: SlackServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """A new corpus with a token, before its first tick."""
    monkeypatch.setenv("SLACK_BOT_TOKEN", TOKEN)
    monkeypatch.delenv("SLACK_CHANNEL", raising=False)
    monkeypatch.delenv("CORPUS_UI_URL", raising=False)
    config = tmp_path / "corpus.yaml"
    config.write_text(
        "sources: [{glob: 'source/crawl={crawl}/*'}]\n"
        f"alerts: {{slack: {{base_url: '{server.base_url}'}}, ui_url: 'http://ui:3000/'}}\n"
    )
    with open_instance(tmp_path / "instance") as instance:
        yield Scene(tmp_path, instance, load_corpus(config), server)


@pytest.fixture
def begun(scene: Scene) -> Scene:
    """The same after its first tick, which found nothing."""
    assert scene.tick() == "nothing new to tell"
    return scene


def failing(
    *,
    gate: str = "fits",
    content: str = "c1",
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
    reason: str = "too much of it",
) -> Check:
    """Return what a failing check says."""
    metadata = {"value": 0.6, "limit": 0.5, "reason": reason, "content": content}
    return lambda: dg.AssetCheckResult(
        asset_key="thing", check_name=gate, passed=False, severity=severity, metadata=metadata
    )


def crashing() -> dg.AssetCheckResult:
    """Raise instead of saying anything."""
    raise ZeroDivisionError("no documents to divide by")


def checked(*checks: tuple[str, Check], blocking: bool = True) -> dg.Definitions:
    """Return an asset `thing` with checks, and `next_thing` after it; both may be retried twice."""
    retry = dg.RetryPolicy(max_retries=2)

    @dg.asset(partitions_def=THINGS, retry_policy=retry)
    def thing() -> None: ...

    @dg.asset(partitions_def=THINGS, deps=[thing], retry_policy=retry)
    def next_thing() -> None: ...

    specs = [
        dg.AssetCheckSpec(name, asset="thing", blocking=blocking, partitions_def=THINGS)
        for name, _ in checks
    ]

    @dg.multi_asset_check(name="thing_gates", specs=specs)
    def thing_gates() -> Iterator[dg.AssetCheckResult]:
        for _, check in checks:
            yield check()

    return dg.Definitions(
        assets=[thing, next_thing], asset_checks=[thing_gates], executor=dg.in_process_executor
    )


def raising(error: Callable[[], Exception], *, retries: int = 0) -> dg.Definitions:
    """Return an asset `thing` that raises."""

    @dg.asset(partitions_def=THINGS, retry_policy=dg.RetryPolicy(max_retries=retries))
    def thing() -> None:
        raise error()

    return dg.Definitions(assets=[thing], executor=dg.in_process_executor)


def refusing(
    *,
    asset: str = "thing",
    gate: str = "fits",
    content: str = "c1",
    reason: str = "too much of it",
    partition: str = "2026-40/a",
) -> dg.Definitions:
    """Return an asset `thing` that refuses to read an artifact for a gate of its."""
    metadata = {
        "asset": asset,
        "partition": partition,
        "gate": gate,
        "reason": reason,
        "content": content,
    }
    words = f"{asset}: {gate}: {reason}"
    return raising(lambda: dg.Failure(words, metadata=metadata, allow_retries=False))


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
    [text] = [text for text in begun.server.texts if "missed" not in text and "night" not in text]
    assert last.run_id in text


def test_a_retry_that_was_announced_and_never_came_is_told_after_an_hour(begun: Scene) -> None:
    begun.run(raising(lambda: OSError("full")), "thing", tags={"dagster/will_retry": "true"})
    assert begun.tick(later=3000) == "nothing new to tell"
    begun.tick(later=3700)
    assert ["OSError: full" in text for text in begun.server.texts[:1]] == [True]


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


def test_what_failed_before_the_first_tick_is_not_told(scene: Scene) -> None:
    scene.run(checked(("fits", failing())), "thing")
    assert scene.tick() == "nothing new to tell"
    assert scene.server.requests == []


def test_what_failed_while_no_daemon_ran_is_told_in_order_of_time(begun: Scene) -> None:
    for name in ("b", "a", "c"):
        begun.run(checked(("fits", failing())), "thing", partition=name)
    with open_instance(begun.folder / "instance") as anew:
        assert tell(anew, begun.corpus, now=time.time()) == "told 3"
    assert [text[25:28] for text in begun.server.texts] == ["[b]", "[a]", "[c]"]


def test_nothing_is_lost_or_out_of_order_while_slack_is_down(begun: Scene) -> None:
    begun.server.stop()
    for name in ("b", "a"):
        assert begun.run(
            checked(("fits", failing(severity=dg.AssetCheckSeverity.WARN))),
            "thing",
            partition=name,
        ).success
        assert begun.tick().startswith("Slack cannot be reached (URLError); tried again later;")
    begun.server.start()
    begun.server.answer(fault)
    assert "(HTTP 500)" in begun.tick()
    assert len(begun.server.requests) == 1  # the tick stopped at the first failure
    assert begun.tick().endswith("2 of 2 are kept waiting")
    begun.server.answer(ok)
    assert begun.tick() == "told 2"
    assert ["[b]" in text for text in begun.server.texts] == [True, False]
    assert begun.tick() == "nothing new to tell"


def test_a_fault_in_mid_tick_keeps_the_rest_waiting(begun: Scene) -> None:
    for name in ("1", "2", "3"):
        begun.run(checked(("fits", failing())), "thing", partition=name)
    begun.server.answer(fault, ok)
    assert begun.tick().endswith("2 of 3 are kept waiting")
    begun.server.answer(ok)
    begun.tick()
    assert [text[25:28] for text in begun.server.texts] == ["[1]", "[2]", "[3]"]


def test_a_server_that_hangs_costs_one_tick(begun: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slack, "TIMEOUT_SECONDS", 1)
    begun.run(checked(("fits", failing())), "thing")
    begun.server.answer(ok, hang)
    assert begun.tick().startswith("Slack cannot be reached (TimeoutError)")
    assert begun.tick() == "told 1"


def test_slack_is_left_alone_for_as_long_as_it_asks(begun: Scene) -> None:
    begun.run(checked(("fits", failing())), "thing")
    begun.server.answer(ok, wait("20"))
    assert begun.tick().startswith("Slack asked to wait 20 s (HTTP 429); 1 of 1")
    assert begun.tick(later=10).startswith("Slack asked to wait: nothing is sent for")
    assert len(begun.server.requests) == 1
    assert begun.tick(later=21) == "told 1"
    assert len(begun.server.texts) == 1


def test_a_refused_token_is_said_with_the_way_out_and_nothing_is_lost(begun: Scene) -> None:
    begun.run(checked(("fits", failing())), "thing")
    begun.server.answer(refuse("invalid_auth"))
    assert begun.tick() == (
        "Slack refused #corpus: invalid_auth; set SLACK_BOT_TOKEN to a valid bot token (xoxb-...),"
        " and restart what runs the sensors; 1 of 1 are kept waiting"
    )
    begun.server.answer(ok)
    assert begun.tick() == "told 1"


def test_more_than_five_go_as_one_message_and_count_as_told(begun: Scene) -> None:
    checks = [(f"gate_{i}", failing(gate=f"gate_{i}")) for i in range(6)]
    begun.run(checked(*checks), "thing")
    assert begun.tick() == "told 6"
    [text] = begun.server.texts
    assert text.startswith("6 things to tell:\n")
    assert begun.tick() == "nothing new to tell"


def test_a_tick_reads_a_bounded_number_of_runs_and_the_next_goes_on(
    begun: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerts, "MAX_RUNS", 2)
    for name in "12345":
        begun.run(checked(("fits", failing())), "thing", partition=name)
    assert [begun.tick() for _ in range(4)] == ["told 2", "told 2", "told 1", "nothing new to tell"]
    assert [text[25:28] for text in begun.server.texts] == ["[1]", "[2]", "[3]", "[4]", "[5]"]


KILLED = """
import os, signal, sys, time
from pathlib import Path
import dagster as dg
from corpus_platform.defs.alerts import tell
from corpus_platform.defs.ledger import Ledger
from corpus_platform.defs.resources import load_corpus

save, saved = Ledger.save, []
def save_until_killed(self, memory, now):
    saved.append(1)
    if len(saved) == {saves}:
        os.kill(os.getpid(), signal.SIGKILL)
    save(self, memory, now)
Ledger.save = save_until_killed
folder = Path(sys.argv[1])
with dg.DagsterInstance.local_temp(str(folder / "instance")) as instance:
    tell(instance, load_corpus(folder / "corpus.yaml"), now=time.time())
"""


def test_a_tick_killed_between_a_post_and_the_ledger_repeats_that_one_message(begun: Scene) -> None:
    for name in ("1", "2", "3"):
        begun.run(checked(("fits", failing())), "thing", partition=name)
    script = KILLED.replace("{saves}", "2")  # after the second post, before it is noted
    killed = subprocess.run([sys.executable, "-c", script, str(begun.folder)], check=False)
    assert killed.returncode == -signal.SIGKILL
    with open_instance(begun.folder / "instance") as anew:
        tell(anew, begun.corpus, now=time.time())
        assert tell(anew, begun.corpus, now=time.time()) == "nothing new to tell"
    assert [text[25:28] for text in begun.server.texts] == ["[1]", "[2]", "[2]", "[3]"]


def test_a_restart_tells_nothing_again(begun: Scene) -> None:
    begun.run(checked(("fits", failing())), "thing")
    begun.tick()
    with open_instance(begun.folder / "instance") as anew:
        assert tell(anew, begun.corpus, now=time.time()) == "nothing new to tell"


def test_what_was_told_is_forgotten_after_thirty_days_and_not_told_again(begun: Scene) -> None:
    begun.run(checked(("fits", failing())), "thing")
    begun.tick()
    assert len(recall(begun.memory).told) == 1
    begun.tick(later=31 * DAY)
    assert [text for text in begun.server.texts[1:] if "fits" in text] == []
    assert [key for key in recall(begun.memory).told if key.startswith("gate")] == []


def test_heartbeats_are_posted_once_as_they_stand(begun: Scene) -> None:
    at = time.time() + 1
    beats = [{"night": "n1", "text": "Night: 3 new\n<b> & all", "at": at}]
    begun.memory.set("heartbeats", beats)
    begun.tick(later=2)
    begun.memory.set("heartbeats", [*beats, {"night": "n2", "text": "Night: none", "at": at}])
    begun.tick(later=3)
    assert begun.server.texts == ["Night: 3 new\n&lt;b&gt; &amp; all", "Night: none"]


def test_a_night_that_could_not_list_its_sources_is_told_once(begun: Scene) -> None:
    night = {"scheduled": "2026-11-30T02:00:00+00:00", "at": time.time() + 1, "trouble": "HTTP 503"}
    begun.memory.set("night", night)
    begun.tick(later=2)
    begun.tick(later=3)
    [text] = begun.server.texts
    assert "the night of 2026-11-30T02:00:00+00:00 failed: HTTP 503" in text


def at_utc(day: int, hour: int, minute: int = 0) -> float:
    """Return a time in November 2026."""
    return datetime.datetime(2026, 11, day, hour, minute, tzinfo=datetime.UTC).timestamp()


def test_a_missed_night_is_told_once_after_an_hour_of_grace(scene: Scene) -> None:
    def tick(at: float) -> str:
        return tell(scene.instance, scene.corpus, now=at)

    tick(at_utc(10, 12))  # the first tick: the night of the 10th is no matter of it
    scene.memory.set("night", {"scheduled": "2026-11-10T02:00:00+00:00", "at": at_utc(10, 2)})
    assert tick(at_utc(11, 2, 59)) == "nothing new to tell"
    assert tick(at_utc(11, 3, 1)) == "told 1"
    assert tick(at_utc(11, 9)) == "nothing new to tell"
    assert scene.server.texts == [
        ":red_circle: ERROR the night of 2026-11-11T02:00:00+00:00 was not started (the last was"
        " 2026-11-10T02:00:00+00:00): is the schedule stopped, or the daemon?"
    ]
    assert tick(at_utc(12, 4)) == "told 1"  # the next one too


def test_a_night_that_was_started_is_not_missed(scene: Scene) -> None:
    tell(scene.instance, scene.corpus, now=at_utc(10, 12))
    scene.memory.set("night", {"scheduled": "2026-11-11T02:00:00+00:00", "at": at_utc(11, 2)})
    assert tell(scene.instance, scene.corpus, now=at_utc(11, 9)) == "nothing new to tell"


def test_a_night_before_the_first_tick_is_not_missed(scene: Scene) -> None:
    tell(scene.instance, scene.corpus, now=at_utc(10, 2, 1))
    assert tell(scene.instance, scene.corpus, now=at_utc(10, 9)) == "nothing new to tell"


def test_a_night_missed_because_settings_changed_says_so(scene: Scene) -> None:
    tell(scene.instance, scene.corpus, now=at_utc(10, 12))
    with scene.corpus.config_file.open("a") as config:
        config.write("\n# changed\n")
    tell(scene.instance, scene.corpus, now=at_utc(11, 9))
    assert "reload the code location" in scene.server.texts[0]


def test_without_a_token_the_first_tick_fails_and_later_ones_say_why(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLACK_BOT_TOKEN")
    with pytest.raises(SettingsError, match="SLACK_BOT_TOKEN is not set"):
        scene.tick()
    with open_instance(scene.folder / "instance") as anew:  # a restart does not repeat it
        assert "SLACK_BOT_TOKEN is not set" in tell(anew, scene.corpus, now=time.time())
    scene.run(checked(("fits", failing())), "thing")
    monkeypatch.setenv("SLACK_BOT_TOKEN", TOKEN)
    assert scene.tick() == "nothing new to tell"  # its first tick: no older history
    scene.run(checked(("fits", failing())), "thing")
    assert scene.tick() == "told 1"


def test_without_dagster_slack_the_first_tick_says_what_to_type(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "dagster_slack", None)
    slack._resource_class.cache_clear()
    with pytest.raises(MissingExtra, match="pip install"):
        scene.tick()
    assert "pip install" in scene.tick()


def test_names_from_shards_notify_nobody(begun: Scene) -> None:
    begun.run(checked(("fits", failing())), "thing", partition="2026-40/<!channel>\n& co")
    begun.tick()
    assert "[2026-40/&lt;!channel&gt; &amp; co]" in begun.server.texts[0]


def test_the_address_of_the_web_ui_may_come_from_the_environment(
    begun: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORPUS_UI_URL", "https://corpus.example.org")
    run = begun.run(checked(("fits", failing())), "thing")
    begun.tick()
    assert f"<https://corpus.example.org/runs/{run.run_id}|" in begun.server.texts[0]


def test_the_token_is_in_no_text_log_or_memory(
    begun: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    begun.run(checked(("fits", failing())), "thing")
    for answer in (fault, refuse("invalid_auth"), ok):
        begun.server.answer(answer)
        begun.tick()
    seen = [*begun.words, *begun.server.texts, caplog.text, str(begun.memory.get("alerts"))]
    assert [text for text in seen if TOKEN in text] == []
    files = (path for path in begun.folder.rglob("*") if path.is_file())
    assert [path for path in files if TOKEN.encode() in path.read_bytes()] == []


def test_a_tick_without_news_is_a_few_queries(begun: Scene) -> None:
    for _ in range(3):
        begun.run(checked(("fits", failing())), "thing")
    begun.tick()
    statements: list[str] = []

    def note(connection: object, cursor: object, statement: str, *rest: object) -> None:
        if not statement.startswith("PRAGMA"):
            statements.append(statement)

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", note)
    try:
        assert begun.tick() == "nothing new to tell"
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", note)
    assert len(statements) == 4  # the ledger, the runs, the heartbeats, the night


def test_there_is_a_sensor_only_where_a_channel_was_named(
    scene: Scene, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = load_corpus(finished)
    assert build_alerts(plain) == []
    assert [sensor.name for sensor in build_alerts(scene.corpus)] == ["slack_alerts"]
    monkeypatch.setenv("SLACK_CHANNEL", "#ops")
    assert len(build_alerts(plain)) == 1


def test_the_sensor_runs_from_the_start_and_its_tick_says_what_it_did(scene: Scene) -> None:
    definitions = build_definitions(scene.corpus.config_file)
    sensor = definitions.resolve_sensor_def("slack_alerts")
    assert sensor.default_status == dg.DefaultSensorStatus.RUNNING
    assert sensor.minimum_interval_seconds == 30
    tick = sensor.evaluate_tick(dg.build_sensor_context(instance=scene.instance))
    assert tick.skip_message == "nothing new to tell"


BAD = "2026-44/part-00009.jsonl.gz"
NO_SHARD_LEFT_OUT = "checks: {max_uncleared_share: 0.1}\n"
ONE_LEFT_OUT = "checks: {max_uncleared_share: 0.5}\n"


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


def test_a_bad_shard_is_one_message_wherever_what_comes_after_it_is_refused(
    finished: Path, server: SlackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", TOKEN)
    with_a_bad_shard(finished, server.base_url)
    corpus = load_corpus(finished)
    keys = register(corpus.project())
    with open_instance(tmp_path / "instance") as instance:
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
    assert text.startswith(
        f":red_circle: ERROR cleaned_documents [{BAD}]: check drop_rate_too_short 0.666667 against"
        " limit 0.5: dropped/too_short 0.6667 of 150 documents, limit 0.5 <http://127.0.0.1:3000/"
    )
