"""What is told when: once each, in order, whatever becomes of Slack, the daemon or the token."""

import datetime
import logging
import signal
import subprocess
import sys
import time

import dagster as dg
import pytest
import sqlalchemy as sa
from sqlalchemy import event

from corpus_platform.defs import alerts, slack
from corpus_platform.defs.alerts import build_alerts, tell
from corpus_platform.defs.ledger import Ledger, recall
from corpus_platform.defs.location import build_definitions
from corpus_platform.defs.memory import Memory
from corpus_platform.defs.resources import load_corpus
from corpus_platform.errors import MissingExtra, SettingsError
from corpus_platform_tests.defs.telling import TOKEN, Scene, checked, failing
from corpus_platform_tests.instances import in_folder
from corpus_platform_tests.slack_server import fault, hang, ok, refuse, wait

DAY = 24 * 3600.0


def test_what_failed_before_the_first_tick_is_not_told(scene: Scene) -> None:
    scene.run(checked(("fits", failing())), "thing")
    assert scene.tick() == "nothing new to tell"
    assert scene.server.requests == []


def test_what_failed_since_the_last_tick_is_told_in_order_of_time(begun: Scene) -> None:
    for name in ("b", "a", "c"):
        begun.run(checked(("fits", failing())), "thing", partition=name)
    assert begun.tick() == "told 3"
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


def test_a_tick_that_falls_between_a_post_and_the_ledger_repeats_that_one_message(
    begun: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("1", "2", "3"):
        begun.run(checked(("fits", failing())), "thing", partition=name)
    save, saved = Ledger.save, []

    def save_until_it_falls(ledger: Ledger, memory: Memory, now: float) -> None:
        saved.append(now)
        if len(saved) == 2:  # after the second post, before it is noted
            raise KeyboardInterrupt
        save(ledger, memory, now)

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "save", save_until_it_falls)
        with pytest.raises(KeyboardInterrupt):
            begun.tick()
    assert begun.tick() == "told 2"
    assert begun.tick() == "nothing new to tell"
    assert [text[25:28] for text in begun.server.texts] == ["[1]", "[2]", "[2]", "[3]"]


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


@pytest.mark.slow
def test_a_tick_killed_between_a_post_and_the_ledger_repeats_that_one_message(
    stored: Scene,
) -> None:
    for name in ("1", "2", "3"):
        stored.run(checked(("fits", failing())), "thing", partition=name)
    script = KILLED.replace("{saves}", "2")  # after the second post, before it is noted
    killed = subprocess.run([sys.executable, "-c", script, str(stored.folder)], check=False)
    assert killed.returncode == -signal.SIGKILL
    with in_folder(stored.folder / "instance") as anew:
        tell(anew, stored.corpus, now=time.time())
        assert tell(anew, stored.corpus, now=time.time()) == "nothing new to tell"
    assert [text[25:28] for text in stored.server.texts] == ["[1]", "[2]", "[2]", "[3]"]


def test_a_restart_tells_what_failed_while_no_daemon_ran_and_nothing_again(stored: Scene) -> None:
    stored.run(checked(("fits", failing())), "thing", partition="1")
    stored.tick()
    stored.run(checked(("fits", failing())), "thing", partition="2")
    with in_folder(stored.folder / "instance") as anew:
        assert tell(anew, stored.corpus, now=time.time()) == "told 1"
    with in_folder(stored.folder / "instance") as anew:
        assert tell(anew, stored.corpus, now=time.time()) == "nothing new to tell"
    assert [text[25:28] for text in stored.server.texts] == ["[1]", "[2]"]


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


def test_a_night_that_was_begun_and_came_to_no_runs_is_told_after_an_hour(scene: Scene) -> None:
    tell(scene.instance, scene.corpus, now=at_utc(10, 12))
    night = {"scheduled": "2026-11-11T02:00:00+00:00", "at": at_utc(11, 2), "begun": False}
    scene.memory.set("night", night)
    assert tell(scene.instance, scene.corpus, now=at_utc(11, 2, 59)) == "nothing new to tell"
    assert tell(scene.instance, scene.corpus, now=at_utc(11, 3, 1)) == "told 1"
    assert "failed: it was begun and came to no runs: the tick of the" in scene.server.texts[0]


def test_a_clock_that_was_set_back_silences_nothing(scene: Scene) -> None:
    scene.tick(later=400 * DAY)  # the first tick
    scene.run(checked(("fits", failing())), "thing")
    assert scene.tick() == "told 1"
    assert scene.tick() == "nothing new to tell"


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


def test_nights_an_hour_apart_are_missed_too(scene: Scene) -> None:
    with scene.corpus.config_file.open("a") as config:
        config.write('schedule: {cron: "0 * * * *"}\n')
    corpus = load_corpus(scene.corpus.config_file)
    tell(scene.instance, corpus, now=at_utc(10, 12, 30))
    assert tell(scene.instance, corpus, now=at_utc(10, 13, 50)) == "nothing new to tell"
    assert tell(scene.instance, corpus, now=at_utc(10, 14, 10)) == "told 1"
    assert "the night of 2026-11-10T13:00:00+00:00 was not started" in scene.server.texts[0]


def test_a_night_that_was_started_is_not_missed(scene: Scene) -> None:
    tell(scene.instance, scene.corpus, now=at_utc(10, 12))
    scene.memory.set("night", {"scheduled": "2026-11-11T02:00:00+00:00", "at": at_utc(11, 2)})
    assert tell(scene.instance, scene.corpus, now=at_utc(11, 9)) == "nothing new to tell"


def test_a_night_in_the_hour_that_comes_twice_is_expected_in_the_later_one(scene: Scene) -> None:
    with scene.corpus.config_file.open("a") as config:
        config.write("schedule: {timezone: Europe/Berlin}\n")
    corpus, autumn = load_corpus(scene.corpus.config_file), datetime.datetime(2026, 10, 25)
    utc = autumn.replace(tzinfo=datetime.UTC).timestamp()
    hour = 3600.0
    tell(scene.instance, corpus, now=utc - 5 * hour)
    assert tell(scene.instance, corpus, now=utc + 1.9 * hour) == "nothing new to tell"
    assert tell(scene.instance, corpus, now=utc + 2.1 * hour) == "told 1"  # 02:00 was 01:00 UTC
    assert "the night of 2026-10-25T02:00:00+01:00 was not" in scene.server.texts[0]


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
    assert "SLACK_BOT_TOKEN is not set" in scene.tick()
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
    stored: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    stored.run(checked(("fits", failing())), "thing")
    for answer in (fault, refuse("invalid_auth"), ok):
        stored.server.answer(answer)
        stored.tick()
    seen = [*stored.words, *stored.server.texts, caplog.text, str(stored.memory.get("alerts"))]
    assert [text for text in seen if TOKEN in text] == []
    files = (path for path in stored.folder.rglob("*") if path.is_file())
    assert [path for path in files if TOKEN.encode() in path.read_bytes()] == []


def test_a_tick_without_news_is_a_few_queries(begun: Scene) -> None:
    for _ in range(3):
        begun.run(checked(("fits", failing())), "thing")
    begun.tick()
    statements: list[str] = []

    def note(connection: object, cursor: object, statement: str, *rest: object) -> None:
        if not statement.startswith("PRAGMA"):
            statements.append(statement)

    event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        assert begun.tick() == "nothing new to tell"
    finally:
        event.remove(sa.Engine, "before_cursor_execute", note)
    assert len(statements) == 5  # the ledger, runs ended and at work, the heartbeats, the night


def test_there_is_a_sensor_only_where_a_channel_was_named(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [sensor.name for sensor in build_alerts(scene.corpus)] == ["slack_alerts"]
    config = scene.folder / "plain.yaml"
    config.write_text("sources: [{glob: 'source/crawl={crawl}/*'}]\n")
    plain = load_corpus(config)
    assert build_alerts(plain) == []
    monkeypatch.setenv("SLACK_CHANNEL", "#ops")
    assert len(build_alerts(plain)) == 1


def test_the_sensor_runs_from_the_start_and_its_tick_says_what_it_did(scene: Scene) -> None:
    definitions = build_definitions(scene.corpus.config_file)
    sensor = definitions.resolve_sensor_def("slack_alerts")
    assert sensor.default_status == dg.DefaultSensorStatus.RUNNING
    assert sensor.minimum_interval_seconds == 30
    tick = sensor.evaluate_tick(dg.build_sensor_context(instance=scene.instance))
    assert tick.skip_message == "nothing new to tell"
