"""Tests of the settings: what a file may say, and that each mistake names file, key and value."""

import datetime
import os
from pathlib import Path
from typing import Any  # values of any YAML type, looked up by their key

import pytest

from corpus_platform.config import Settings
from corpus_platform.errors import SettingsError
from corpus_platform.rule_settings import PRESETS, RULES
from corpus_platform.settings_file import load_settings

SOURCE = "sources: [{glob: 'a/{crawl}/*'}]\n"
NOT_WHOLE = "Input should be a valid integer"
NOT_NUMBER = "Input should be a valid number"


def _load(folder: Path, text: str) -> Settings:
    path = folder / "corpus.yaml"
    path.write_text(text, encoding="utf-8")
    return load_settings(path)


def _value(settings: Settings, key: str) -> Any:
    found: Any = settings
    for part in key.split("."):
        found = found[part] if isinstance(found, dict) else getattr(found, part)
    return found


def _refusal(folder: Path, text: str) -> str:
    with pytest.raises(SettingsError) as refusal:
        _load(folder, text)
    return str(refusal.value).replace(str(folder / "corpus.yaml"), "FILE")


# The binding keys, each with a value that is not the default.
GIVEN = [
    ("storage: elsewhere", "storage", "elsewhere"),
    ("clean: {preset: source_document}", "clean.preset", "source_document"),
    ("clean: {preset: [char_repeat, too_short]}", "clean.preset", ("char_repeat", "too_short")),
    ("clean: {set: {too_short.min_chars: 300}}", "clean.set", {"too_short.min_chars": 300}),
    ("dedup: {shingle: char}", "dedup.shingle", "char"),
    ("dedup: {width: 3}", "dedup.width", 3),
    ("dedup: {permutations: 64, bands: 8}", "dedup.permutations", 64),
    ("dedup: {bands: 32, rows: 4}", "dedup.bands", 32),
    ("dedup: {bands: 32, rows: 4}", "dedup.rows", 4),
    ("dedup: {threshold: 0.7}", "dedup.threshold", 0.7),
    ("dedup: {threshold: 1}", "dedup.threshold", 1.0),
    ("dedup: {keep: one_per_cluster}", "dedup.keep", "one_per_cluster"),
    ("tokenizer: {algorithm: bpe}", "tokenizer.algorithm", "bpe"),
    ("tokenizer: {vocab_size: 50_000}", "tokenizer.vocab_size", 50000),
    ("split: {validation: 0.01}", "split.validation", 0.01),
    ("split: {validation: 0}", "split.validation", 0.0),
    ("split: {seed: 7}", "split.seed", 7),
    ("pack: {strategy: concat}", "pack.strategy", "concat"),
    ("pack: {sequence_length: 4096}", "pack.sequence_length", 4096),
    ("shuffle: {seed: 7}", "shuffle.seed", 7),
    ("shuffle: {max_tokens_per_file: 1_000_000}", "shuffle.max_tokens_per_file", 1000000),
    ("release: {when: manual}", "release.when", "manual"),
    ("release: {keep: 5}", "release.keep", 5),
    ("checks: {uncleared: refuse}", "checks.uncleared", "refuse"),
    ("checks: {max_uncleared_share: 0.2}", "checks.max_uncleared_share", 0.2),
    ("schedule: {cron: '0 3 * * *'}", "schedule.cron", "0 3 * * *"),
    ("tokenizer: {sample_bytes: 2147483647}", "tokenizer.sample_bytes", 2147483647),
    (
        "schedule: {cron: '*/15 1-5,22 1 jan-mar Mon,7'}",
        "schedule.cron",
        "*/15 1-5,22 1 jan-mar Mon,7",
    ),
    ("schedule: {timezone: Europe/Berlin}", "schedule.timezone", "Europe/Berlin"),
    ("alerts: {slack: {channel: '#data'}}", "alerts.slack.channel", "#data"),
]


@pytest.mark.parametrize(("text", "key", "value"), GIVEN)
def test_a_key_of_the_design_takes_this_value(
    text: str, key: str, value: object, tmp_path: Path
) -> None:
    assert _value(_load(tmp_path, SOURCE + text), key) == value


DEFAULTS = [
    ("storage", "data"),
    ("clean.preset", "web"),
    ("dedup.shingle", "auto"),
    ("dedup.width", 5),
    ("dedup.permutations", 128),
    ("dedup.bands", 16),
    ("dedup.rows", 8),
    ("dedup.threshold", 0.8),
    ("dedup.keep", "first_seen"),
    ("tokenizer.algorithm", "bpe"),
    ("tokenizer.vocab_size", 32000),
    ("tokenizer.digits", "together"),
    ("split.validation", 0.001),
    ("split.seed", 42),
    ("pack.strategy", "concat"),
    ("pack.sequence_length", 2048),
    ("shuffle.seed", 42),
    ("shuffle.max_tokens_per_file", 100_000_000_000),
    ("release.when", "nightly"),
    ("release.keep", 2),
    ("checks.uncleared", "exclude"),
    ("checks.max_uncleared_share", 0.1),
    ("waivers", ()),
    ("schedule.cron", "0 2 * * *"),
    ("schedule.timezone", "UTC"),
    ("alerts.slack", None),
]


@pytest.mark.parametrize(("key", "value"), DEFAULTS)
def test_a_key_that_is_left_out_has_the_default_of_the_design(
    key: str, value: object, tmp_path: Path
) -> None:
    assert _value(_load(tmp_path, SOURCE), key) == value


def test_sources_take_lists_fields_and_exclusions(tmp_path: Path) -> None:
    text = (
        "sources:\n"
        "  - glob: x/*.gz\n    crawl: 2026-40\n    exclude: ['*.tmp', b/*]\n"
        "    fields: {text: content}\n"
        "  - glob: 'y/{crawl}/*'\n"
    )
    first, second = _load(tmp_path, text).sources
    assert (first.glob, first.crawl, first.exclude) == ("x/*.gz", "2026-40", ("*.tmp", "b/*"))
    assert first.fields.model_dump() == {
        "id": "id",
        "url": "url",
        "text": "content",
        "lang": "lang",
    }
    assert (second.crawl, second.exclude) == (None, ())


@pytest.mark.parametrize("written", ["2027-01-31", "'2027-01-31'"])
def test_a_waiver_takes_a_date_of_yaml_in_quotes_or_not(written: str, tmp_path: Path) -> None:
    text = f"waivers: [{{gate: sha256, partition: a/b, reason: because, expires: {written}}}]"
    (waiver,) = _load(tmp_path, SOURCE + text).waivers
    assert (waiver.gate, waiver.partition) == ("sha256", "a/b")
    assert waiver.expires == datetime.date(2027, 1, 31)


def test_a_waiver_names_a_gate_of_one_asset_by_a_slash(tmp_path: Path) -> None:
    text = "waivers: [{gate: raw_shards/sha256, reason: because, expires: 2027-01-31}]"
    (waiver,) = _load(tmp_path, SOURCE + text).waivers
    assert waiver.gate == "raw_shards/sha256"


def test_paths_are_relative_to_the_file_and_not_to_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "corpus.yaml").write_text(SOURCE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    settings = load_settings(Path("there/corpus.yaml"))
    assert settings.storage_path == tmp_path / "there" / "data"
    absolute = _load(tmp_path, f"{SOURCE}storage: /elsewhere/data\n")
    assert absolute.storage_path == Path("/elsewhere/data")


WRONG = [
    # an unknown key
    ("cleen: {}", "cleen: unknown key; did you mean 'clean'? (got {})"),
    ("dedup: {treshold: 0.8}", "dedup.treshold: unknown key; did you mean 'threshold'? (got 0.8)"),
    ("alerts: {slack: {token: x}}", "alerts.slack.token: unknown key (got 'x')"),
    ("base: /somewhere", "base: unknown key (got '/somewhere')"),
    ("7: 8", "7: Keys should be strings (got 7)"),
    # a wrong type: YAML has types
    ("storage: 3", "storage: Input should be a valid string (got 3)"),
    ("dedup: {bands: 16.5}", f"dedup.bands: {NOT_WHOLE}; or Input should be 'auto' (got 16.5)"),
    ("dedup: {bands: 16.0}", f"dedup.bands: {NOT_WHOLE}; or Input should be 'auto' (got 16.0)"),
    ("dedup: {rows: '8'}", f"dedup.rows: {NOT_WHOLE} (got '8')"),
    ("dedup: {width: true}", f"dedup.width: {NOT_WHOLE} (got True)"),
    ("dedup: {threshold: '0.8'}", f"dedup.threshold: {NOT_NUMBER} (got '0.8')"),
    ("dedup: {threshold: yes}", f"dedup.threshold: {NOT_NUMBER} (got True)"),
    ("tokenizer: {vocab_size: 1e4}", f"tokenizer.vocab_size: {NOT_WHOLE} (got '1e4')"),
    ("split: {validation: true}", f"split.validation: {NOT_NUMBER} (got True)"),
    ("split: {seed: null}", f"split.seed: {NOT_WHOLE} (got None)"),
    ("run: {workers: '2'}", f"run.workers: {NOT_WHOLE} (got '2')"),
    ("schedule: {cron: 5}", "schedule.cron: Input should be a valid string (got 5)"),
    ("checks: {max_drop_share: 0.2}", "checks.max_drop_share: Input should be a valid dictionary (got 0.2)"),
    ("waivers: {gate: x}", "waivers: a list is wanted (got {'gate': 'x'})"),
    ("release: {when: on}", "release.when: Input should be 'nightly', 'weekly' or 'manual' (got True)"),
    ("clean: {set: {dup_lines.count_blank: 1}}", "clean: set: dup_lines.count_blank: Input should be a valid boolean (got 1)"),
    ("clean: {set: {too_short.min_chars: true}}", f"clean: set: too_short.min_chars: {NOT_WHOLE} (got True)"),
    ("clean: {set: {too_short.min_chars: 1.5}}", f"clean: set: too_short.min_chars: {NOT_WHOLE} (got 1.5)"),
    # an impossible value
    ("tokenizer: {sample_bytes: 2147483648}", "tokenizer.sample_bytes: Input should be less than or equal to 2147483647 (got 2147483648)"),
    ("schedule: {timezone: Mars/Olympus}", "schedule.timezone: no such time zone; names are like UTC, Europe/Berlin (got 'Mars/Olympus')"),
    ("schedule: {timezone: ../etc}", "schedule.timezone: no such time zone; names are like UTC, Europe/Berlin (got '../etc')"),
    ("schedule: {timezone: Europe}", "schedule.timezone: no such time zone; names are like UTC, Europe/Berlin (got 'Europe')"),
    ("schedule: {timezone: ''}", "schedule.timezone: no such time zone; names are like UTC, Europe/Berlin (got '')"),
    ("schedule: {cron: 0 2 * *}", "schedule.cron: five fields are wanted (minute hour day month weekday), not 4 (got '0 2 * *')"),
    ("schedule: {cron: '@daily'}", "schedule.cron: five fields are wanted (minute hour day month weekday), not 1 (got '@daily')"),
    ("schedule: {cron: 60 2 * * *}", "schedule.cron: minute '60': numbers from 0 to 59 are wanted"),
    ("schedule: {cron: 0 5-2 * * *}", "schedule.cron: hour '5-2': numbers from 0 to 23 are wanted"),
    ("schedule: {cron: 0 2 0 * *}", "schedule.cron: day '0': numbers from 1 to 31 are wanted"),
    ("schedule: {cron: 0 2 * foo *}", "schedule.cron: month 'foo': numbers from 1 to 12 are wanted"),
    ("schedule: {cron: 0 2 * * 8}", "schedule.cron: weekday '8': numbers from 0 to 7 are wanted"),
    ("schedule: {cron: '*/0 2 * * *'}", "schedule.cron: minute '*/0': numbers from 0 to 59 are wanted"),
    ("schedule: {cron: '0,, 2 * * *'}", "schedule.cron: minute '0,,': numbers from 0 to 59 are wanted"),
    ("storage: ''", "storage: the path of a local folder is wanted (got '')"),
    ("storage: s3://bucket/x", "storage: the path of a local folder is wanted (got 's3://bucket/x')"),
    ("clean: {preset: wbe}", "clean.preset: Input should be 'web', 'source_document' or 'none'; or a list is wanted (got 'wbe')"),
    ("dedup: {threshold: 0}", "dedup.threshold: Input should be greater than 0 (got 0)"),
    ("dedup: {threshold: .nan}", "dedup.threshold: Input should be less than or equal to 1 (got nan)"),
    ("dedup: {width: 0}", "dedup.width: Input should be greater than or equal to 1 (got 0)"),
    ("dedup: {keep: last}", "dedup.keep: Input should be 'first_seen' or 'one_per_cluster' (got 'last')"),
    ("tokenizer: {algorithm: unigram}", "tokenizer.algorithm: Input should be 'bpe' (got 'unigram')"),
    ("tokenizer: {vocab_size: 200}", "tokenizer.vocab_size: Input should be greater than or equal to 300 (got 200)"),
    ("split: {validation: 1}", "split.validation: Input should be less than 1 (got 1)"),
    ("pack: {strategy: next_fit}", "pack.strategy: Input should be 'concat', 'best_fit' or 'pad'"),
    ("pack: {strategy: pad, pad_token: <|endoftext|>}", "pack: pad_token: '<|endoftext|>' ends or begins documents"),
    ("pack: {eos_token: </s>}", "pack: eos_token: '</s>' is no special token; there are <|endoftext|>, <|im_start|>"),
    ("pack: {max_document_tokens: 1}", "pack: max_document_tokens: 1 leaves no token of text beside 1 control tokens"),
    ("checks: {min_utilisation: {next_fit: 0.5}}", "checks.min_utilisation: no strategy 'next_fit'"),
    ("pack: {sequence_length: 0}", "pack.sequence_length: Input should be greater than or equal to 1 (got 0)"),
    ("shuffle: {max_tokens_per_file: 0}", "shuffle.max_tokens_per_file: Input should be greater than or equal to 1 (got 0)"),
    ("release: {keep: 0}", "release.keep: Input should be greater than or equal to 1 (got 0)"),
    ("checks: {uncleared: keep}", "checks.uncleared: Input should be 'exclude' or 'refuse' (got 'keep')"),
    ("checks: {max_uncleared_share: 1.1}", "checks.max_uncleared_share: Input should be less than or equal to 1 (got 1.1)"),
    ("checks: {max_drop_share: {too_short: 2}}", "checks.max_drop_share.too_short: Input should be less than or equal to 1 (got 2)"),
    ("run: {workers: -1}", "run.workers: Input should be greater than or equal to 0 (got -1)"),
    ("waivers: [{gate: Kept Share, reason: because, expires: 2027-01-31}]", "waivers.0.gate: String should match pattern"),
    ("waivers: [{gate: x, reason: because, expires: soon}]", "waivers.0.expires: Invalid isoformat string: 'soon' (got 'soon')"),
    ("waivers: [{gate: x, reason: because, expires: 20270131}]", "waivers.0.expires: Input should be a valid date (got 20270131)"),
    ("waivers: [{gate: x, reason: because}]", "waivers.0.expires: Field required"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), WRONG, ids=[text for text, _ in WRONG])
def test_a_mistake_is_answered_with_file_key_and_value(
    text: str, said: str, tmp_path: Path
) -> None:
    refusal = _refusal(tmp_path, SOURCE + text)
    assert refusal.startswith(f"FILE: {said}")
    assert len(refusal.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("dedup: {bands: 17}", "dedup: bands * rows = 17 * 8 = 136, but permutations = 128; take bands: 16 and rows: 8, or bands: auto without rows"),
        ("dedup: {bands: 1, rows: 128}", "dedup: bands = 1, rows = 128 finds only 0.00000"),
        ("clean: {preset: [too_short, nope]}", "clean: preset: no rule 'nope'"),
        ("clean: {preset: [too_short, too_short]}", "clean: preset: a rule is named twice"),
        ("clean: {set: {nope.x: 1}}", "clean: set: 'nope.x': rule 'nope' is not in force"),
        ("clean: {preset: none, set: {too_short.min_chars: 1}}", "clean: set: 'too_short.min_chars'"),
        ("clean: {set: {too_short.max: 1}}", "clean: set: 'too_short.max': unknown key; this rule has too_short.min_chars"),
        ("clean: {set: {too_short: 1}}", "clean: set: 'too_short': unknown key"),
        ("clean: {set: {too_short.min_chars: -1}}", "clean: set: too_short.min_chars: Input should be greater than or equal to 0 (got -1)"),
        ("clean: {set: {too_short.min_chars: '300'}}", "clean.set.too_short.min_chars: Input should be a valid number"),
        ("checks: {max_drop_share: {to_short: 0.2}}", "checks.max_drop_share: no rule 'to_short'"),
        ("pack: {strategy: pad}\nshuffle: {unit: chunks}", "shuffle.unit: 'chunks' cuts streams; rows of pack.strategy 'pad' move as rows: leave it out"),
        ("pack: {pad_token: <|endoftext|>}\nshuffle: {unit: windows}", "pack.pad_token: '<|endoftext|>' ends or begins documents, and fills up the last window"),
    ],
)  # fmt: skip
def test_values_that_do_not_fit_together_are_refused(text: str, said: str, tmp_path: Path) -> None:
    assert _refusal(tmp_path, SOURCE + text).startswith(f"FILE: {said}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("storage: data", "sources: Field required"),
        ("sources: []", "sources: at least one is wanted (got [])"),
        ("sources: {glob: a}", "sources: a list is wanted (got {'glob': 'a'})"),
        (
            "sources: [{crawl: x}]",
            "sources.0: one of glob, listing and huggingface is wanted, found none of them",
        ),
        (
            "sources: [{glob: a, listing: b, crawl: x}]",
            "sources.0: one of glob, listing and huggingface is wanted, found glob and listing",
        ),
        (
            "sources: [{glob: a, crawl: x, files: b}]",
            "sources.0: files goes with huggingface, not with glob",
        ),
        ("sources: [{huggingface: a/b}]", "sources.0: name the crawl: the key `crawl`"),
        ("sources: [{huggingface: a, crawl: x}]", "sources.0.huggingface: String should match"),
        (
            "sources: [{listing: 'http://h/{crawl}.json'}]",
            "sources.0: {crawl} in `listing` stands for the key `crawl`, which is not there",
        ),
        (
            "sources: [{glob: 'S3://b/*', crawl: x}]",
            "sources.0: S3:// is written in small letters: s3://",
        ),
        (
            "sources: [{glob: 'https://h/*', crawl: x}]",
            "sources.0: https:// has no folders to look into; name a `listing` of URLs",
        ),
        ("sources: [{glob: a}]", "sources.0: name the crawl exactly once"),
        ("sources: [{glob: '{crawl}', crawl: x}]", "sources.0: name the crawl exactly once"),
        ("sources: [{glob: '{crawl}/{crawl}'}]", "sources.0: glob names {crawl} more than once"),
        ("sources: [{glob: a, crawl: ../x}]", "sources.0.crawl: String should match pattern"),
        ("sources: [{glob: a, crawl: 2026}]", "sources.0.crawl: Input should be a valid string (got 2026)"),
        ("sources: [{glob: a, crawl: x, exclude: '*.gz'}]", "sources.0.exclude: a list is wanted (got '*.gz')"),
        ("sources: [{glob: a, crawl: x, fields: {txt: y}}]", "sources.0.fields.txt: unknown key"),
        ("- a", "a mapping of keys is wanted, found list"),
        ("", "a mapping of keys is wanted, found NoneType"),
        ("sources: [", "not YAML: "),
        ("sources: [{glob: a, crawl: x}]\nsources: []", "not YAML: key 'sources' is written twice"),
        ("waivers: [{expires: 2027-02-30}]", "not YAML: day is out of range for month"),
        ("a: !!python/object:os.system x", "not YAML: "),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong_as_a_whole_is_refused(text: str, said: str, tmp_path: Path) -> None:
    assert _refusal(tmp_path, text).startswith(f"FILE: {said}")


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    lines = _refusal(tmp_path, SOURCE + "split: {seed: -1}\npack: {strategy: x}").splitlines()
    assert [line.split(": ")[1] for line in lines] == ["split.seed", "pack.strategy"]


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no such settings file; name one with --config"):
        load_settings(tmp_path / "none.yaml")
    with pytest.raises(SettingsError, match="cannot be read: "):
        load_settings(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"storage: \xe9\n")
    with pytest.raises(SettingsError, match="cannot be read: "):
        load_settings(tmp_path / "latin.yaml")


def test_a_long_value_is_shortened(tmp_path: Path) -> None:
    refusal = _refusal(tmp_path, f"{SOURCE}storage: [{'x' * 5000}]")
    assert len(refusal) < 250


def test_web_and_source_document_are_the_five_rules_in_their_order(tmp_path: Path) -> None:
    five = ["too_short", "dup_lines", "char_repeat", "low_alnum", "low_lang_confidence"]
    assert list(RULES) == five
    for preset in ("web", "source_document"):
        assert list(_load(tmp_path, f"{SOURCE}clean: {{preset: {preset}}}").clean.rules()) == five
    assert list(_load(tmp_path, f"{SOURCE}clean: {{preset: none}}").clean.rules()) == []
    assert set(PRESETS) == {"web", "source_document", "none"}


def test_source_document_keeps_the_two_faults_of_the_rules_as_written(tmp_path: Path) -> None:
    written = _load(tmp_path, f"{SOURCE}clean: {{preset: source_document}}").clean.rules()
    assert written["dup_lines"].model_dump() == {"max_share": 0.3, "count_blank": True}
    assert written["low_alnum"].model_dump() == {"min_share": 0.5, "count_marks": False}
    assert written["low_lang_confidence"].model_dump(exclude={"code_suffixes"}) == {
        "min_score": 0.8,
        "max_bytes": 2000,
        "trust_given": False,
        "exempt_code": False,
    }


def test_a_list_of_rules_gives_their_order_and_set_changes_one_value(tmp_path: Path) -> None:
    text = (
        "clean:\n  preset: [low_lang_confidence, too_short]\n"
        "  set: {too_short.min_chars: 300, low_lang_confidence.code_suffixes: [.py]}\n"
    )
    rules = _load(tmp_path, SOURCE + text).clean.rules()
    assert list(rules) == ["low_lang_confidence", "too_short"]
    assert rules["too_short"].model_dump() == {"min_chars": 300}
    assert rules["low_lang_confidence"].model_dump()["code_suffixes"] == (".py",)


def test_one_limit_on_a_rule_leaves_the_others_their_defaults(tmp_path: Path) -> None:
    checks = _load(tmp_path, SOURCE + "checks: {max_drop_share: {too_short: 0.9}}").checks
    assert checks.max_drop_share == {
        "too_short": 0.9,
        "dup_lines": 0.3,
        "char_repeat": 0.1,
        "low_alnum": 0.1,
        "low_lang_confidence": 0.5,
    }


def test_settings_cannot_be_changed_once_loaded(tmp_path: Path) -> None:
    settings = _load(tmp_path, SOURCE)
    with pytest.raises(Exception, match="frozen"):
        settings.storage = "x"  # ty: ignore[invalid-assignment]


def test_the_environment_gives_no_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _load(tmp_path, SOURCE)
    for name in ("STORAGE", "CORPUS_STORAGE", "SPLIT__SEED"):
        monkeypatch.setitem(os.environ, name, "7")
    assert _load(tmp_path, SOURCE) == before
