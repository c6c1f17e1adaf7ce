"""The settings of `corpus.yaml`: the only place that knows keys, defaults and where numbers come from.

`load_settings` reads a file into frozen models and refuses unknown keys, wrong types and
impossible values with an error that names file, key and value. Paths are relative to the file.
Sources of numbers: [S0]..[S4] are the five documents the platform was specified in.
"""

import datetime
import difflib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

import pydantic
import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
)
from pydantic_core import ErrorDetails

from corpus_platform.errors import SettingsError

__all__ = [
    "SPECIAL_TOKENS",
    "CharRepeat",
    "ChecksSettings",
    "CleanSettings",
    "DedupSettings",
    "DupLines",
    "Fields",
    "LowAlnum",
    "LowLangConfidence",
    "PackSettings",
    "ReleaseSettings",
    "RuleSettings",
    "Settings",
    "ShuffleSettings",
    "SourceSettings",
    "SplitSettings",
    "TokenizerSettings",
    "TooShort",
    "Waiver",
    "load_settings",
]


def _from_list(value: object) -> object:
    """Return a YAML list as the tuple that a frozen section holds."""
    if isinstance(value, list | tuple):
        return tuple(value)
    raise ValueError("a list is wanted")


def _not_empty(value: tuple) -> tuple:
    if not value:
        raise ValueError("at least one is wanted")
    return value


def _from_text(value: object) -> object:
    """Return a date that was written in quotes as the date."""
    return datetime.date.fromisoformat(value) if isinstance(value, str) else value


def _local(value: str) -> str:
    if not value or "://" in value:
        raise ValueError("the path of a local folder is wanted")
    return value


Share = Annotated[float, Field(ge=0.0, le=1.0)]
Names = Annotated[tuple[str, ...], BeforeValidator(_from_list)]
Folder = Annotated[str, AfterValidator(_local)]
Date = Annotated[datetime.date, BeforeValidator(_from_text)]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
GateName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*(/[a-z0-9_]+)?$")]

# Reserved before training, since they cannot be added later without new embeddings [S1, 4.8].
SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    *(f"<|reserved_{i}|>" for i in range(8)),
)

# Files that are code whatever a language model thinks of their comments.
CODE_SUFFIXES = (
    *(
        ".c",
        ".cc",
        ".cpp",
        ".cs",
        ".css",
        ".cu",
        ".go",
        ".h",
        ".hpp",
        ".ipynb",
        ".java",
        ".jl",
        ".js",
    ),
    *(
        ".json",
        ".jsx",
        ".kt",
        ".lua",
        ".m",
        ".php",
        ".pl",
        ".ps1",
        ".py",
        ".pyi",
        ".r",
        ".rb",
        ".rs",
    ),
    *(".scala", ".sh", ".sql", ".swift", ".toml", ".ts", ".tsx", ".xml", ".yaml", ".yml", ".zig"),
)


class _Section(BaseModel):
    # Strict: YAML has types, so "300", true or 16.5 where a whole number belongs is a mistake.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Fields(_Section):
    """Names of the source's fields; everything else of a record goes to `meta`."""

    id: str = Field("id", description="Identifier; where it is missing, `<shard>:<row>` counts.")
    url: str = Field("url", description="Address; may be missing.")
    text: str = Field("text", description="The text; a record without one goes to the quarantine.")
    lang: str = Field("lang", description="Language code (`code` for programs); may be missing.")


class SourceSettings(_Section):
    """Where shards come from: a glob over local files."""

    glob: str = Field(
        description="Files, relative to the settings file; {crawl} names the crawl, * and {a,b} are patterns, ** is any depth."
    )
    crawl: Name | None = Field(None, description="The crawl, where the glob has no {crawl}.")
    exclude: Names = Field(
        (), description="Patterns of files to leave out: of names, or of any end of a path."
    )
    fields: Fields = Fields()

    @pydantic.model_validator(mode="after")
    def _one_crawl(self) -> "SourceSettings":
        if self.glob.count("{crawl}") > 1:
            raise ValueError(f"glob names {{crawl}} more than once: {self.glob!r}")
        if ("{crawl}" in self.glob) == (self.crawl is not None):
            raise ValueError("name the crawl exactly once: {crawl} in `glob`, or the key `crawl`")
        return self


class TooShort(_Section):
    """Drop texts of fewer than `min_chars` code points."""

    min_chars: int = Field(200, ge=0, description="Fewest code points that stay [S1, 2.2].")


class DupLines(_Section):
    """Drop texts whose lines repeat: 1 - distinct lines / lines above `max_share`."""

    max_share: Share = Field(
        0.30, description="Largest share of repeated lines that stays [S1, 2.2]."
    )
    count_blank: bool = Field(
        False,
        description="Count blank lines, as the rule was written: then five paragraphs score 0.33 and are dropped.",
    )


class CharRepeat(_Section):
    """Drop texts in which one character stands more than `max_run` times in a row."""

    max_run: int = Field(
        50, ge=1, description=r"Longest run of one character that stays [S1, 2.2: `(.)\1{50,}`]."
    )


class LowAlnum(_Section):
    """Drop texts whose share of letters and numbers is below `min_share`."""

    min_share: Share = Field(
        0.50, description="Least share of letters and numbers that stays [S1, 2.2]."
    )
    count_marks: bool = Field(
        True,
        description="Count vowel signs too. As the rule was written they are junk: Hindi reaches 0.48, vowelled Arabic 0.42.",
    )


class LowLangConfidence(_Section):
    """Drop texts whose language cannot be told with confidence `min_score`."""

    min_score: Share = Field(0.80, description="Least score of the language model [S1, 2.2].")
    max_bytes: int = Field(
        2000,
        ge=100,
        description="Bytes of text that the model looks at; same label as the whole text in 98.8 % of documents (measured).",
    )
    trust_given: bool = Field(
        True,
        description="Leave documents with a given `lang` alone: half of all technical English scores below 0.8 (measured).",
    )
    exempt_code: bool = Field(True, description="Leave program code alone.")
    code_suffixes: Names = Field(
        CODE_SUFFIXES, description="Ends of addresses that are program code."
    )


RuleSettings = TooShort | DupLines | CharRepeat | LowAlnum | LowLangConfidence

RULES: dict[str, type[RuleSettings]] = {
    "too_short": TooShort,
    "dup_lines": DupLines,
    "char_repeat": CharRepeat,
    "low_alnum": LowAlnum,
    "low_lang_confidence": LowLangConfidence,
}

# What a preset changes in the defaults above; the order of RULES is the order of judgement.
PRESETS: dict[str, dict[str, dict[str, object]]] = {
    "web": {name: {} for name in RULES},
    "source_document": {
        "too_short": {},
        "dup_lines": {"count_blank": True},
        "char_repeat": {},
        "low_alnum": {"count_marks": False},
        "low_lang_confidence": {"trust_given": False, "exempt_code": False},
    },
    "none": {},
}


class CleanSettings(_Section):
    """Which documents are dropped, by which rules, in which order."""

    preset: Literal["web", "source_document", "none"] | Names = Field(
        "web",
        description="`web`, `source_document` (the five rules as written), `none`, or a list of rule names in order.",
    )
    set: dict[str, float | int | bool | list[str]] = Field(
        default_factory=dict, description="Single values, e.g. {too_short.min_chars: 300}."
    )
    max_record_bytes: int = Field(
        32 * 1024 * 1024,
        ge=1024,
        description="A longer record is quarantined as record_too_long; bounds memory against decompression bombs.",
    )

    @pydantic.model_validator(mode="after")
    def _rules_exist(self) -> "CleanSettings":
        self.rules()
        return self

    def rules(self) -> dict[str, RuleSettings]:
        """Return the rules in force, in the order in which they judge."""
        chosen = (
            PRESETS[self.preset] if isinstance(self.preset, str) else {n: {} for n in self.preset}
        )
        if not isinstance(self.preset, str) and len(chosen) < len(self.preset):
            raise ValueError(f"preset: a rule is named twice in {list(self.preset)}")
        values = {name: dict(changes) for name, changes in chosen.items()}
        for name in values:
            if name not in RULES:
                raise ValueError(f"preset: no rule {name!r}; rules are {', '.join(RULES)}")
        for key, value in self.set.items():
            rule, _, field = key.partition(".")
            if rule not in values:
                raise ValueError(f"set: {key!r}: rule {rule!r} is not in force under this preset")
            if field not in RULES[rule].model_fields:
                known = ", ".join(f"{rule}.{f}" for f in RULES[rule].model_fields)
                raise ValueError(f"set: {key!r}: unknown key; this rule has {known}")
            values[rule][field] = value
        return {name: _rule(name, fields) for name, fields in values.items()}


def _rule(name: str, fields: dict[str, object]) -> RuleSettings:
    try:
        return RULES[name].model_validate(fields)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise ValueError(f"set: {name}.{field}: {first['msg']} (got {first['input']!r})") from error


class DedupSettings(_Section):
    """How near-copies are found and judged."""

    shingle: Literal["auto", "char", "word"] = Field(
        "auto", description="auto: words in spaced scripts, characters in unspaced ones."
    )
    width: int = Field(5, ge=1, le=64, description="Units in a shingle [S1, 3.4; S4].")
    permutations: int = Field(128, ge=8, le=1024, description="Values in a signature, k [S1, 3.4].")
    bands: int = Field(16, ge=1, description="b; finds 0.947 of pairs at 0.8 with r = 8 [S1, 3.5].")
    rows: int = Field(8, ge=1, description="r; b * r = k.")
    threshold: float = Field(0.8, gt=0.0, le=1.0, description="Exact Jaccard of a near-copy [S1].")
    keep: Literal["first_seen", "one_per_cluster"] = Field(
        "first_seen",
        description="first_seen: a document goes only if an earlier kept one is that similar; one_per_cluster: chains of copies keep one document [S1, 3.6].",
    )

    @pydantic.model_validator(mode="after")
    def _bands_fit(self) -> "DedupSettings":
        if self.bands * self.rows != self.permutations:
            raise ValueError(
                f"bands * rows = {self.bands} * {self.rows} = {self.bands * self.rows},"
                f" but permutations = {self.permutations}"
            )
        if self.recall < 0.1:
            raise ValueError(
                f"bands = {self.bands}, rows = {self.rows} finds only {self.recall:.5f} of the pairs"
                f" at threshold {self.threshold}; take more bands of fewer rows"
            )
        return self

    @property
    def recall(self) -> float:
        """Chance that a pair exactly at the threshold meets in a band: 1 - (1 - s^r)^b."""
        return 1.0 - (1.0 - self.threshold**self.rows) ** self.bands


class TokenizerSettings(_Section):
    """The tokenizer that is trained once and then frozen."""

    algorithm: Literal["bpe"] = Field(
        "bpe", description="Byte-level BPE: no text is unknown to it [S1, 4.4]."
    )
    vocab_size: int = Field(
        32000,
        ge=300,
        le=1_000_000,
        description="Tokens asked for; a small corpus yields fewer [S1, 4.6].",
    )
    sample_bytes: int = Field(
        50_000_000,
        ge=1000,
        description="Upper bound of the text it is trained on, in UTF-8 bytes; bounds time and memory.",
    )
    seed: int = Field(42, ge=0, description="Chooses the sample.")


class SplitSettings(_Section):
    """Which kept documents are held out for validation, by a keyed hash of their content."""

    validation: float = Field(
        0.001,
        ge=0.0,
        lt=1.0,
        description="Share of kept documents, at least one document; 0 for none [S1, 5.7].",
    )
    seed: int = Field(42, ge=0, description="Chooses the documents [S1, 5.7].")


class PackSettings(_Section):
    """How documents become token sequences."""

    strategy: Literal["concat"] = Field(
        "concat", description="concat: one stream of tokens, an end token after each document."
    )
    sequence_length: int = Field(
        2048, ge=1, description="For concat only the report uses it: windows of the release."
    )


class ShuffleSettings(_Section):
    """The global order of a release."""

    seed: int = Field(42, ge=0, description="Gives the order.")
    max_tokens_per_file: int = Field(
        100_000_000_000,
        ge=1,
        description="A file ends before the document that would pass it [S0].",
    )


class ReleaseSettings(_Section):
    """When a release is made, and how many are kept."""

    when: Literal["nightly", "weekly", "manual"] = Field(
        "nightly",
        description="manual: `corpus run` publishes nothing, the job `publish_release` in the UI does. Else it publishes when anything changed; nightly and weekly say when a schedule will.",
    )
    keep: int = Field(
        2,
        ge=1,
        description="Newest releases that a collection would spare; nothing is collected yet.",
    )


DROP_SHARES = {
    "too_short": 0.5,
    "dup_lines": 0.3,
    "char_repeat": 0.1,
    "low_alnum": 0.1,
    "low_lang_confidence": 0.5,
}


class ChecksSettings(_Section):
    """Limits of the gates; shares are judged from `min_records` records on, below they warn."""

    uncleared: Literal["exclude", "refuse"] = Field(
        "exclude",
        description="What is done with shards that a gate stopped: exclude leaves them out and lists them, refuse stops all.",
    )
    max_uncleared_share: Share = Field(
        0.1, description="Largest share of shards that may be left out; holds for any number."
    )
    min_records: int = Field(
        100, ge=1, description="With fewer records a share proves nothing: it warns."
    )
    max_quarantined_share: Share = Field(
        0.01, description="Share of a shard's records that cannot be read."
    )
    max_drop_share: dict[str, Share] = Field(
        default_factory=DROP_SHARES.copy,
        description="Per rule, the share of a shard's documents that it may drop; a rule not named keeps its default. 1.6 to 12.5 times the most that `web` drops of 15 real shards (decision 0005).",
    )
    min_kept_share: Share = Field(
        0.25,
        description="Share of a shard's documents that must stay; the least of 15 real shards kept 0.353 (decision 0005).",
    )
    min_language_documents: int = Field(
        20, ge=1, description="A language with at least so many documents is looked at by itself."
    )
    min_language_kept_share: Share = Field(
        0.1, description="Share of such a language's documents that must stay."
    )

    @pydantic.field_validator("max_drop_share")
    @classmethod
    def _known_rules(cls, value: dict[str, float]) -> dict[str, float]:
        for name in value:
            if name not in RULES:
                raise ValueError(f"no rule {name!r}; rules are {', '.join(RULES)}")
        return {**DROP_SHARES, **value}


class Waiver(_Section):
    """A named exception to one gate for one partition."""

    gate: GateName = Field(description="Name of the gate.")
    partition: str | None = Field(
        None, description="The shard; left out for a gate over the whole corpus."
    )
    reason: str = Field(min_length=3, description="Why; shown wherever the gate is.")
    expires: Date = Field(description="Last day on which it holds.")


class ScheduleSettings(_Section):
    """When the nightly refresh runs. Checked, and without effect: no schedule is defined yet."""

    cron: str = Field("0 2 * * *", description="Minute, hour, day, month, weekday.")
    timezone: str = Field("UTC", description="Where that hour is.")


class SlackSettings(_Section):
    """Where alerts go; the token will come from SLACK_BOT_TOKEN."""

    channel: str = Field("#corpus", description="Name of the channel.")


class AlertsSettings(_Section):
    """Who hears of failures. Checked, and without effect: nothing is sent yet."""

    slack: SlackSettings | None = None


class RunSettings(_Section):
    """What a command may take of this machine; no product depends on it."""

    workers: int = Field(0, ge=0, description="Processes side by side; 0 means one per core.")


class Settings(_Section):
    """Everything in `corpus.yaml`. `base` is the folder of the file."""

    storage: Folder = Field(
        "data", description="Folder of all artifacts and releases, relative to the settings file."
    )
    sources: Annotated[
        tuple[SourceSettings, ...], BeforeValidator(_from_list), AfterValidator(_not_empty)
    ]
    clean: CleanSettings = CleanSettings()
    dedup: DedupSettings = DedupSettings()
    tokenizer: TokenizerSettings = TokenizerSettings()
    split: SplitSettings = SplitSettings()
    pack: PackSettings = PackSettings()
    shuffle: ShuffleSettings = ShuffleSettings()
    release: ReleaseSettings = ReleaseSettings()
    checks: ChecksSettings = ChecksSettings()
    waivers: Annotated[tuple[Waiver, ...], BeforeValidator(_from_list)] = ()
    schedule: ScheduleSettings = ScheduleSettings()
    alerts: AlertsSettings = AlertsSettings()
    run: RunSettings = RunSettings()
    base: Path = Field(Path(), exclude=True)

    @property
    def storage_path(self) -> Path:
        """The local artifact folder, absolute."""
        return (self.base / self.storage).absolute()


def load_settings(path: Path) -> Settings:
    """Read and check a settings file.

    Raises SettingsError naming the file, the key and the value.
    """
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # a SafeLoader
    except FileNotFoundError as error:
        raise SettingsError(f"{path}: no such settings file; name one with --config") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read: {error}") from error
    except (yaml.YAMLError, ValueError) as error:  # e.g. the date 2027-02-30
        raise SettingsError(f"{path}: not YAML: {error}") from error
    if not isinstance(raw, dict):
        raise SettingsError(f"{path}: a mapping of keys is wanted, found {type(raw).__name__}")
    if "base" in raw:
        raise SettingsError(f"{path}: base: unknown key (got {_short(raw['base'])})")
    try:
        return Settings.model_validate({**raw, "base": path.parent.absolute()})
    except pydantic.ValidationError as error:
        raise SettingsError("\n".join(_explain(path, raw, error.errors()))) from error


class _Loader(yaml.SafeLoader):
    """Reads YAML, and refuses a key that is written twice: the first would be lost in silence."""

    def construct_mapping(self, node: yaml.Node, deep: bool = False) -> dict:
        seen: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else []:
            if str(key.value) in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"key {key.value!r} is written twice", problem_mark=key.start_mark
                )
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def _explain(path: Path, raw: object, errors: Iterable[ErrorDetails]) -> list[str]:
    """Return a line for each key; what a value might have been instead stands in one line."""
    lines: dict[str, tuple[list[str], str]] = {}
    for error in errors:
        key, value = ".".join(_key(error, raw)) or "(the file)", f" (got {_short(error['input'])})"
        message = error["msg"].removeprefix("Value error, ")
        if error["type"] == "extra_forbidden":
            message = f"unknown key{_hint(str(error['loc'][-1]))}"
        told = error["type"] == "missing" or "(got " in message
        lines.setdefault(key, ([], "" if told else value))[0].append(message)
    return [f"{path}: {key}: {'; or '.join(said)}{got}" for key, (said, got) in lines.items()]


def _key(error: ErrorDetails, raw: object) -> Iterator[str]:
    """Yield the parts of a key as far as the file has them: pydantic adds names of types."""
    for part in error["loc"]:
        inside = dict(enumerate(raw)) if isinstance(raw, list) else raw
        if isinstance(inside, Mapping) and part in inside:
            yield str(part)
            raw = inside[part]
        elif error["type"] == "missing":
            yield str(part)


def _hint(key: str) -> str:
    close = difflib.get_close_matches(key, _known_keys(), n=1, cutoff=0.75)
    return f"; did you mean {close[0]!r}?" if close else ""


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


def _known_keys() -> list[str]:
    sections = [f.annotation for f in Settings.model_fields.values()]
    names = list(Settings.model_fields)
    for section in [*sections, SourceSettings, Fields, Waiver]:
        if isinstance(section, type) and issubclass(section, BaseModel):
            names += section.model_fields
    return names
