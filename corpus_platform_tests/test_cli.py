"""Tests of the command: help, exit codes, words instead of tracebacks, and the JSON forms."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from corpus_platform import cli, planner
from corpus_platform.cli import main
from corpus_platform.planner import INGEST
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform_tests.small import SHARDS, write_small_corpus

COMMANDS = sorted(main.commands)
WITH_CONFIG = sorted(
    name for name, c in main.commands.items() if any(p.name == "config_file" for p in c.params)
)


def _corpus(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert isinstance(result.exception, SystemExit | None), result.exception
    assert "Traceback" not in result.output
    return result


def _parameters() -> Iterator[tuple[str, click.Option]]:
    for name, command in main.commands.items():
        yield from ((name, p) for p in command.params if isinstance(p, click.Option))


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CORPUS_CONFIG", "DAGSTER_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """The settings file of a small corpus of which nothing is made."""
    return write_small_corpus(tmp_path)


def test_these_are_the_commands() -> None:
    assert COMMANDS == [
        "diff",
        "explain",
        "export",
        "fetch",
        "gc",
        "inspect",
        "lock",
        "pin",
        "plan",
        "retire",
        "run",
        "sample",
        "settings",
        "status",
        "tokenizer",
        "tokens",
        "ui",
        "verify",
        "warm",
        "whatif",
    ]
    assert sorted(set(COMMANDS) - {"sample", "warm", "whatif"}) == WITH_CONFIG


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_help_that_says_what_it_does(command: str) -> None:
    result = _corpus(command, "--help")
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: main {command} [OPTIONS]")
    assert len(main.commands[command].help or "") > 30
    assert _corpus(command, "-h").output == result.output


@pytest.mark.parametrize(("command", "option"), list(_parameters()), ids=lambda v: str(getattr(v, "name", v)))  # fmt: skip
def test_an_option_has_help(command: str, option: click.Option) -> None:
    assert option.help, f"{command} {option.name}"


def test_the_command_alone_lists_all_commands_and_says_its_version() -> None:
    result = _corpus("--help")
    assert all(f"\n  {name} " in result.output for name in COMMANDS)
    assert _corpus("--version").output.startswith("main, version 0.")


@pytest.mark.parametrize(
    "arguments",
    [
        ["nope"],
        ["run", "--nope"],
        ["plan", "extra"],
        ["sample", "--megabytes", "many"],
        ["sample", "--megabytes", "0"],
        ["ui", "--port", "70000"],
        ["lock", "--accept"],
        ["retire"],
    ],
    ids=" ".join,
)
def test_a_wrong_call_ends_with_2(arguments: list[str]) -> None:
    result = _corpus(*arguments)
    assert result.exit_code == 2
    assert "Error: " in result.output


@pytest.mark.parametrize("command", WITH_CONFIG)
def test_settings_that_cannot_be_used_end_with_2_and_nothing_starts(
    command: str, tmp_path: Path
) -> None:
    config = tmp_path / "corpus.yaml"
    arguments = [
        p.name or "" for p in main.commands[command].params if isinstance(p, click.Argument)
    ]
    result = _corpus(command, *arguments, "--config", config)
    assert result.exit_code == 2
    assert result.output.startswith("error: ")  # inspect says what else its argument could be
    assert str(config) in result.output
    assert "with --config" in result.output
    config.write_text("sources: [{glob: '{crawl}/*'}]\ndedup: {treshold: 1}", encoding="utf-8")
    result = _corpus(command, *arguments, "--config", config)
    assert result.exit_code == 2
    assert f"error: {config}: dedup.treshold: unknown key" in result.output
    assert [p.name for p in tmp_path.iterdir()] == ["corpus.yaml"]


def test_the_environment_names_the_settings_file(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(fresh.parent / "source")
    assert "corpus.yaml: no such settings file" in _corpus("plan").output
    monkeypatch.setenv("CORPUS_CONFIG", str(fresh))
    assert _corpus("plan").exit_code == 0


@pytest.mark.parametrize("command", [["plan"], ["plan", "--json"], ["status"], ["settings"]])
def test_a_look_at_a_new_corpus_writes_nothing(command: list[str], fresh: Path) -> None:
    before = sorted(fresh.parent.rglob("*"))
    assert _corpus(*command, "--config", fresh).exit_code == 0
    assert not (fresh.parent / "data").exists()
    assert sorted(fresh.parent.rglob("*")) == before


def test_the_plan_of_a_new_corpus_is_everything(fresh: Path) -> None:
    due = json.loads(_corpus("plan", "--json", "--config", fresh).output)
    assert [(d["asset"], d["partition"]) for d in due] == [
        *((asset, shard) for shard in SHARDS for asset in INGEST),
        ("dedup_clusters", None),
        ("tokenizer", None),
        *(("packed_bins", shard) for shard in SHARDS),
        ("shuffled_bins", None),
    ]
    assert {tuple(d) for d in due} == {("asset", "partition", "reason")}
    lines = _corpus("plan", "--config", fresh).output.splitlines()
    assert lines[0] == f"raw_shards[{SHARDS[0]}]: never made"
    assert len(lines) == 16
    assert lines[-1].startswith("15 due")


def test_the_plan_of_a_finished_corpus_is_empty(finished: Path) -> None:
    assert json.loads(_corpus("plan", "--json", "--config", finished).output) == []
    assert _corpus("plan", "--config", finished).output.startswith("nothing is due")


@pytest.mark.parametrize("command", ["plan", "status", "run"])
def test_sources_that_list_nothing_end_with_2_and_name_the_globs(
    command: str, tmp_path: Path
) -> None:
    config = tmp_path / "corpus.yaml"
    config.write_text("sources: [{glob: 'in/{crawl}/*.jsonl'}]", encoding="utf-8")
    result = _corpus(command, "--config", config)
    assert result.exit_code == 2
    assert f"error: sources: there is no shard: no file matches {tmp_path}/in/" in result.output


def test_status_says_of_every_shard_and_asset_how_it_stands(finished: Path) -> None:
    whole = json.loads(_corpus("status", "--json", "--config", finished).output)
    assert list(whole) == [*SHARDS, "corpus"]
    for shard in SHARDS:
        assert list(whole[shard]) == [*INGEST, "packed_bins"]
    assert list(whole["corpus"]) == ["dedup_clusters", "tokenizer", "shuffled_bins"]
    for states in whole.values():
        for state in states.values():
            assert list(state) == ["state", "reason", "manifest"]
            assert state["state"] == "current"
            assert json.loads(Path(state["manifest"]).read_bytes())["content"]


def test_status_of_a_new_corpus_is_missing_without_manifests(fresh: Path) -> None:
    whole = json.loads(_corpus("status", "--json", "--config", fresh).output)
    states = [state for states in whole.values() for state in states.values()]
    assert {s["state"] for s in states} == {"missing"}
    assert {s["manifest"] for s in states} == {None}


def test_status_ends_with_the_release_in_force_and_its_whole_content(finished: Path) -> None:
    said = json.loads((finished.parent / "data" / "releases" / "current.json").read_bytes())
    folder = finished.parent / "data" / "releases" / said["id"]
    lines = _corpus("status", "--config", finished).output.splitlines()
    assert lines[-2:] == [f"release {said['id']} in {folder}", f"content {said['content']}"]


def test_status_of_a_corpus_without_a_release_says_so(fresh: Path) -> None:
    lines = _corpus("status", "--config", fresh).output.splitlines()
    assert lines[-1] == "no release is in force"


def test_status_shows_a_row_per_shard(finished: Path) -> None:
    output = _corpus("status", "--config", finished).output
    assert all(shard in output.replace("\n", "") or shard[:12] in output for shard in SHARDS)
    assert "current" in output


def test_a_new_shard_in_the_source_is_planned_before_it_is_registered(finished: Path) -> None:
    source = finished.parent / "source"
    data = (source / "crawl=2026-40" / "part-00001.jsonl.gz").read_bytes()
    (source / "crawl=2026-44" / "part-00001.jsonl.gz").write_bytes(data)
    due = json.loads(_corpus("plan", "--json", "--config", finished).output)
    assert due[0] == {
        "asset": "raw_shards",
        "partition": "2026-44/part-00001.jsonl.gz",
        "reason": "never made",
    }


def test_settings_prints_those_in_force_and_the_rules_they_make_as_comments(fresh: Path) -> None:
    output = _corpus("settings", "--config", fresh).output
    whole = yaml.safe_load(output)
    assert whole["tokenizer"]["vocab_size"] == 400
    assert whole["dedup"]["threshold"] == 0.8
    assert "base" not in whole
    assert "rules" not in whole["clean"]
    comments = [line[4:] for line in output.splitlines() if line.startswith("#   ")]
    assert yaml.safe_load("\n".join(comments))["too_short"] == {"min_chars": 200}


MANY = """
storage: elsewhere
sources:
  - {glob: "in/{crawl}/*", exclude: ["*.tmp"], fields: {text: content}}
  - {glob: "x/*", crawl: "2026-10-01"}
clean: {preset: [low_lang_confidence, too_short], set: {too_short.min_chars: 7, low_lang_confidence.code_suffixes: [.py]}}
tokenizer: {vocab_size: 400}
split: {validation: 0.000001}
waivers:
  - {gate: raw_shards/sha256, partition: "c/ä: #1", reason: "yes: 'so'", expires: 2027-01-31}
alerts: {slack: {channel: "#corpus"}}
"""


@pytest.mark.parametrize("text", ["sources: [{glob: '{crawl}/*'}]", MANY], ids=["least", "many"])
def test_what_settings_prints_loads_as_the_same_settings(text: str, tmp_path: Path) -> None:
    first, again = tmp_path / "corpus.yaml", tmp_path / "again.yaml"
    first.write_text(text, encoding="utf-8")
    again.write_text(_corpus("settings", "--config", first).output, encoding="utf-8")
    assert load_settings(again) == load_settings(first)


def test_verify_ends_with_0_when_all_is_as_recorded(finished: Path) -> None:
    result = _corpus("verify", "--config", finished)
    assert result.exit_code == 0
    assert "artifacts verified, 0 not as recorded" in result.output


def test_verify_ends_with_1_and_names_what_is_not_as_recorded(finished: Path) -> None:
    path = next((finished.parent / "data" / "packed_bins").rglob("train.bin"))
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[7] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # nothing but the hash tells
    result = _corpus("verify", "--config", finished)
    assert result.exit_code == 1
    assert f"{path}: sha256 " in result.output
    assert "1 not as recorded" in result.output


def test_verify_names_an_asset_of_the_whole_corpus_without_brackets(finished: Path) -> None:
    (manifest,) = (finished.parent / "data" / "dedup_clusters").glob("*/manifest.json")
    manifest.unlink()
    result = _corpus("verify", "--config", finished)
    assert result.exit_code == 1
    lines = [line for line in result.output.splitlines() if line.startswith("dedup_clusters")]
    assert lines[0].startswith(f"dedup_clusters: {manifest.parent}: there is no manifest; ")
    assert lines[1].startswith(f"dedup_clusters: {manifest.parents[1]}/latest.json: points to ")


def test_lock_writes_a_file_beside_the_settings(finished: Path) -> None:
    result = _corpus("lock", "--config", finished)
    assert result.exit_code == 0
    assert "corpus.lock: 3 shards" in result.output
    assert list(json.loads((finished.parent / "corpus.lock").read_bytes())["shards"]) == list(SHARDS)  # fmt: skip


def test_a_shard_that_is_not_registered_cannot_be_accepted(finished: Path) -> None:
    result = _corpus("lock", "--accept", "2026-40/nope", "--config", finished)
    assert result.exit_code == 2
    assert "error: shard '2026-40/nope' is not registered" in result.output


def test_a_source_with_the_recorded_bytes_cannot_be_accepted(finished: Path) -> None:
    result = _corpus("lock", "--accept", SHARDS[1], "--config", finished)
    assert result.exit_code == 2
    assert "there is nothing to accept" in result.output


def test_accepting_a_shard_makes_it_due(finished: Path) -> None:
    found = finished.parent.rglob(SHARDS[1].rsplit("/", 1)[1])
    source = next(path for path in found if "data" not in path.parts)
    source.write_bytes(source.read_bytes() * 2)
    result = _corpus("lock", "--accept", SHARDS[1], "--config", finished)
    assert "generation 1" in result.output
    due = json.loads(_corpus("plan", "--json", "--config", finished).output)
    assert due[0]["partition"] == SHARDS[1]


def _planned(config: Path) -> set[tuple[str, str | None]]:
    due = json.loads(_corpus("plan", "--json", "--config", config).output)
    return {(d["asset"], d["partition"]) for d in due}


def test_a_retired_shard_is_left_out_of_what_comes_after_and_its_files_stay(finished: Path) -> None:
    files = sorted((finished.parent / "data").rglob("*.*"))
    result = _corpus("retire", SHARDS[1], "--config", finished)
    assert result.exit_code == 0
    assert f"to take it in again: corpus retire --undo {SHARDS[1]}" in result.output
    assert SHARDS[1] not in json.loads(_corpus("status", "--json", "--config", finished).output)
    packs = {("packed_bins", shard) for shard in (SHARDS[0], SHARDS[2])}
    due = {("dedup_clusters", None), ("shuffled_bins", None)}
    assert due <= _planned(finished) <= due | packs
    assert sorted((finished.parent / "data").rglob("*.*")) == files


def test_a_retired_shard_that_is_taken_in_again_is_not_made_again(finished: Path) -> None:
    _corpus("retire", SHARDS[1], "--config", finished)
    result = _corpus("retire", "--undo", SHARDS[1], "--config", finished)
    assert (result.exit_code, "taken in again" in result.output) == (0, True)
    assert _planned(finished) == set()


def test_a_shard_can_be_retired_before_anything_is_run(fresh: Path) -> None:
    assert _corpus("retire", SHARDS[2], "--config", fresh).exit_code == 0
    assert {shard for _, shard in _planned(fresh)} == {SHARDS[0], SHARDS[1], None}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["2026-40/nope"], "shard '2026-40/nope' is not registered; `corpus status` lists"),
        (["--undo", "2026-40/nope"], "shard '2026-40/nope' is not registered"),
        (["--undo", SHARDS[0]], f"shard {SHARDS[0]!r} is not retired; nothing was changed"),
        ([SHARDS[1]], f"shard {SHARDS[1]!r} is retired already; nothing was changed"),
    ],
)
def test_what_cannot_be_retired_ends_with_2(
    arguments: list[str], said: str, finished: Path
) -> None:
    _corpus("retire", SHARDS[1], "--config", finished)
    result = _corpus("retire", *arguments, "--config", finished)
    assert (result.exit_code, f"error: {said}" in result.output) == (2, True)
    registry = open_project(load_settings(finished)).registry
    assert list(registry.shards()) == [SHARDS[0], SHARDS[2]]


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (OSError(28, "No space left on device"), 3, "error: [Errno 28] No space left on device"),
        (PermissionError(13, "Permission denied", "x"), 3, "error: [Errno 13] Permission denied"),
        (KeyboardInterrupt(), 130, "stopped; the same command goes on where this one ended"),
    ],
)
def test_what_the_machine_does_is_said_in_words(
    error: BaseException, code: int, said: str, fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> planner.Survey:
        raise error

    monkeypatch.setattr(cli.planner, "survey", fail)
    result = _corpus("plan", "--config", fresh)
    assert result.exit_code == code
    assert said in result.output


def test_a_registry_that_cannot_be_read_ends_with_3_and_says_the_way_out(finished: Path) -> None:
    (finished.parent / "data" / "registry.json").write_text("{", encoding="utf-8")
    result = _corpus("status", "--config", finished)
    assert result.exit_code == 3
    assert "registry.json: not a registry: " in result.output
    assert "restore it from a backup" in result.output
