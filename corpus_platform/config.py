"""The settings of `corpus.yaml`: the only place that knows keys, defaults and where numbers come from.

`load_settings` reads a file into frozen models and refuses unknown keys, wrong types and
impossible values with an error that names file, key and value. Paths are relative to the file.
Sources of numbers: [S0]..[S4] are the five documents the platform was specified in.
"""

import datetime
import difflib
from pathlib import Path
from typing import Annotated, Literal

import pydantic
import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
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

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
GateName = Annotated[str, StringConstraints(pattern=r"^[a-z_]+(/[a-z_]+)?$")]

# Reserved before training, since they cannot be added later without new embeddings [S1, 4.4].
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
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class Fields(_Section):
    """Names of the source's fields; everything else of a record goes to `meta`."""

    id: str = "id"
    url: str = "url"
    text: str = "text"
    lang: str = "lang"


class SourceSettings(_Section):
    """Where shards come from: a glob over local files."""

    glob: str = Field(
        description="Files, relative to the settings file; {crawl} names the crawl, * and {a,b} are patterns, ** is any depth."
    )
    crawl: Name | None = Field(None, description="The crawl, where the glob has no {crawl}.")
    exclude: tuple[str, ...] = Field((), description="Patterns of files to leave out.")
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

    min_chars: int = Field(200, ge=0)  # [S1, 2.2]


class DupLines(_Section):
    """Drop texts whose lines repeat: 1 - distinct lines / lines above `max_share`."""

    max_share: Share = 0.30  # [S1, 2.2]
    # As written the rule counts blank lines, so that five paragraphs score 0.33 and are dropped.
    count_blank: bool = False


class CharRepeat(_Section):
    """Drop texts in which one character stands more than `max_run` times in a row."""

    max_run: int = Field(50, ge=1)  # [S1, 2.2]: (.)\1{50,}


class LowAlnum(_Section):
    """Drop texts whose share of letters and numbers is below `min_share`."""

    min_share: Share = 0.50  # [S1, 2.2]
    # As written (str.isalnum) vowel signs count as junk: Hindi reaches 0.48, vowelled Arabic 0.42.
    count_marks: bool = True


class LowLangConfidence(_Section):
    """Drop texts whose language cannot be told with confidence `min_score`."""

    min_score: Share = 0.80  # [S1, 2.2]
    max_bytes: int = Field(2000, ge=100)  # same label as the whole text in 98.8 % of documents
    trust_given: bool = True  # half of all technical English is below 0.8
    exempt_code: bool = True
    code_suffixes: tuple[str, ...] = CODE_SUFFIXES


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

    preset: Literal["web", "source_document", "none"] | tuple[str, ...] = Field(
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
        values = {name: dict(changes) for name, changes in chosen.items()}
        for name in values:
            if name not in RULES:
                raise ValueError(f"preset: no rule {name!r}; rules are {', '.join(RULES)}")
        for key, value in self.set.items():
            rule, _, field = key.partition(".")
            if rule not in values:
                raise ValueError(f"set: {key!r}: rule {rule!r} is not in force under this preset")
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
    width: int = Field(5, ge=1, le=64, description="Units in a shingle [S1, 3.3; S4].")
    permutations: int = Field(128, ge=8, le=1024, description="Values in a signature, k [S1, 3.4].")
    bands: int = Field(16, ge=1, description="b; finds 0.947 of pairs at 0.8 with r = 8 [S1, 3.5].")
    rows: int = Field(8, ge=1, description="r; b * r = k.")
    threshold: float = Field(0.8, gt=0.0, le=1.0, description="Exact Jaccard of a near-copy [S1].")
    keep: Literal["first_seen", "one_per_cluster"] = "first_seen"

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

    algorithm: Literal["bpe"] = "bpe"  # byte-level: no unknown token ever [S1, 4.4]
    vocab_size: int = Field(32000, ge=300, le=1_000_000)  # [S1, 4.4]
    sample_bytes: int = Field(
        50_000_000, ge=1000, description="Upper bound of the text it is trained on, in UTF-8 bytes."
    )
    seed: int = Field(42, ge=0)


class SplitSettings(_Section):
    """Which kept documents are held out for validation, by a keyed hash of their content."""

    validation: float = Field(0.001, ge=0.0, lt=1.0)  # 0.1 % of documents [S1, 5.2]
    seed: int = Field(42, ge=0)  # [S1, 5.2]


class PackSettings(_Section):
    """How documents become token sequences."""

    strategy: Literal["concat"] = "concat"
    sequence_length: int = Field(
        2048, ge=1, description="For concat only the report uses it: windows of the release."
    )


class ShuffleSettings(_Section):
    """The global order of a release."""

    seed: int = Field(42, ge=0)  # [S1, 5.2]
    max_tokens_per_file: int = Field(100_000_000_000, ge=1)  # [S0, 2]


class ReleaseSettings(_Section):
    """When a release is made, and how many are kept."""

    when: Literal["nightly", "weekly", "manual"] = "nightly"
    keep: int = Field(2, ge=1)


class ChecksSettings(_Section):
    """Limits of the gates; shares are judged from `min_records` records on, below they warn."""

    uncleared: Literal["exclude", "refuse"] = "exclude"
    max_uncleared_share: Share = 0.1
    min_records: int = Field(100, ge=1)
    max_quarantined_share: Share = 0.01
    max_drop_share: dict[str, Share] = Field(
        default_factory=lambda: {
            "too_short": 0.5,
            "dup_lines": 0.3,
            "char_repeat": 0.1,
            "low_alnum": 0.1,
            "low_lang_confidence": 0.5,
        },
        # Twice to ten times what preset `web` drops of shards of eight languages and code.
        description="Per rule, the share of a shard's documents that it may drop.",
    )
    min_kept_share: Share = 0.25  # the least of these shards kept 0.35
    min_language_documents: int = Field(20, ge=1)
    min_language_kept_share: Share = 0.1

    @pydantic.field_validator("max_drop_share")
    @classmethod
    def _known_rules(cls, value: dict[str, float]) -> dict[str, float]:
        for name in value:
            if name not in RULES:
                raise ValueError(f"no rule {name!r}; rules are {', '.join(RULES)}")
        return value


class Waiver(_Section):
    """A named exception to one gate for one partition."""

    gate: GateName
    partition: str | None = Field(None, description="None for an all-shard asset.")
    reason: str = Field(min_length=3)
    expires: datetime.date


class ScheduleSettings(_Section):
    """When the nightly refresh runs."""

    cron: str = "0 2 * * *"
    timezone: str = "UTC"


class SlackSettings(_Section):
    """Where alerts go; the token comes from SLACK_BOT_TOKEN."""

    channel: str = "#corpus"


class AlertsSettings(_Section):
    """Who hears of failures."""

    slack: SlackSettings | None = None


class RunSettings(_Section):
    """What a command may take of this machine; no product depends on it."""

    workers: int = Field(0, ge=0, description="Processes side by side; 0 means one per core.")


class Settings(_Section):
    """Everything in `corpus.yaml`. `base` is the folder of the file."""

    storage: str = "data"
    sources: tuple[SourceSettings, ...] = Field(min_length=1)
    clean: CleanSettings = CleanSettings()
    dedup: DedupSettings = DedupSettings()
    tokenizer: TokenizerSettings = TokenizerSettings()
    split: SplitSettings = SplitSettings()
    pack: PackSettings = PackSettings()
    shuffle: ShuffleSettings = ShuffleSettings()
    release: ReleaseSettings = ReleaseSettings()
    checks: ChecksSettings = ChecksSettings()
    waivers: tuple[Waiver, ...] = ()
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
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SettingsError(f"{path}: no such settings file; name one with --config") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise SettingsError(f"{path}: not YAML: {error}") from error
    if not isinstance(raw, dict):
        raise SettingsError(f"{path}: a mapping of keys is wanted, found {type(raw).__name__}")
    if "base" in raw:
        raise SettingsError(f"{path}: base: unknown key")
    try:
        return Settings.model_validate({**raw, "base": path.parent.absolute()})
    except pydantic.ValidationError as error:
        raise SettingsError("\n".join(_explain(path, e) for e in error.errors())) from error


def _explain(path: Path, error: ErrorDetails) -> str:
    key = ".".join(str(part) for part in error["loc"]) or "(the file)"
    if error["type"] == "extra_forbidden":
        close = difflib.get_close_matches(str(error["loc"][-1]), _known_keys(), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        return f"{path}: {key}: unknown key{hint}"
    message = error["msg"].removeprefix("Value error, ")
    return f"{path}: {key}: {message} (got {_short(error['input'])})"


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
