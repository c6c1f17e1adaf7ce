"""The settings of `corpus.yaml`: the only place that knows keys, defaults and where numbers come from.

Frozen models that refuse unknown keys, wrong types and impossible values; paths are relative to the
file. The rules' own settings are in `rule_settings`, those of sources in `source_settings`, those of
near-copies in `dedup_settings`, those of the night and of alerts in `night_settings`; reading the
file is in `settings_file`.
Sources of numbers: [S0]..[S4] are the five documents the platform was specified in.
"""

import datetime
from pathlib import Path
from typing import Annotated, Literal

import pydantic
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
)

from corpus_platform.dedup_settings import DedupSettings
from corpus_platform.night_settings import AlertsSettings, Owners, ScheduleSettings, SlackSettings
from corpus_platform.rule_settings import (
    PRESETS,
    RULES,
    Names,
    RuleSettings,
    Section,
    Share,
    from_list,
)
from corpus_platform.source_settings import (
    DownloadSettings,
    Fields,
    Folder,
    S3Settings,
    SourceSettings,
)

__all__ = [
    "MIN_UTILISATION",
    "SPECIAL_TOKENS",
    "ChecksSettings",
    "CleanSettings",
    "DedupSettings",
    "DownloadSettings",
    "Fields",
    "PackSettings",
    "ReadSettings",
    "ReleaseSettings",
    "S3Settings",
    "ScheduleSettings",
    "Settings",
    "ShuffleSettings",
    "SlackSettings",
    "SourceSettings",
    "SplitSettings",
    "TokenizerSettings",
    "Waiver",
]


def _not_empty(value: tuple) -> tuple:
    if not value:
        raise ValueError("at least one is wanted")
    return value


def _from_text(value: object) -> object:
    """Return a date that was written in quotes as the date."""
    return datetime.date.fromisoformat(value) if isinstance(value, str) else value


Date = Annotated[datetime.date, BeforeValidator(_from_text)]
GateName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*(/[a-z0-9_]+)?$")]

# Reserved before training, since they cannot be added later without new embeddings [S1, 4.8].
SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    *(f"<|reserved_{i}|>" for i in range(8)),
)


class CleanSettings(Section):
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


class ReadSettings(Section):
    """What the bytes of a shard may ask for; a shard that wants more is refused, and named."""

    max_window_bytes: int = Field(
        1 << 28,
        ge=1 << 23,
        le=1 << 31,
        description="Window of a zstd frame, or page of a Parquet column: both are memory. zstd itself stops at 2^27 and goes to 2^31 with --long=31; RFC 8878 wants 2^23 at least. Pages have 1 MB, or up to 100 MB.",
    )
    max_ratio: int = Field(
        1000,
        ge=10,
        description="Plain bytes per stored byte of a shard, judged from 256 MB of plain bytes on. Text makes 3 to 10, gzip cannot pass 1032, a zstd bomb makes 30,000.",
    )
    max_shard_bytes: int = Field(
        1 << 36,
        ge=1 << 20,
        description="Plain bytes of a shard. Published ones have up to 50 GB; 64 GiB are read in minutes, what a bomb of 100 MB holds is not.",
    )


def _rule(name: str, fields: dict[str, object]) -> RuleSettings:
    try:
        return RULES[name].model_validate(fields)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise ValueError(f"set: {name}.{field}: {first['msg']} (got {first['input']!r})") from error


class TokenizerSettings(Section):
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
        le=2**31 - 1,
        description="Upper bound of the text it is trained on, in UTF-8 bytes; bounds time and memory. The trainer counts pairs in 32 bits.",
    )
    seed: int = Field(42, ge=0, description="Chooses the sample.")
    digits: Literal["together", "singly"] = Field(
        "together",
        description="singly: each digit is a token of its own, so that all numbers of one length have as many tokens; together: frequent numbers and ends of numbers are tokens.",
    )


class SplitSettings(Section):
    """Which kept documents are held out for validation, by a keyed hash of their content."""

    validation: float = Field(
        0.001,
        ge=0.0,
        lt=1.0,
        description="Share of kept documents, at least one document; 0 for none [S1, 5.7].",
    )
    seed: int = Field(42, ge=0, description="Chooses the documents [S1, 5.7].")


class PackSettings(Section):
    """How documents become token sequences."""

    strategy: Literal["concat", "best_fit", "pad"] = Field(
        "concat",
        description="concat: one stream of tokens, document after document. best_fit: rows of sequence_length tokens, each document whole in one row where it fits. pad: rows of one document each, filled up.",
    )
    sequence_length: int = Field(
        2048,
        ge=1,
        le=1 << 24,
        description="Tokens of a row; for concat only the reports use it: windows of the release.",
    )
    eos_token: str | None = Field(
        SPECIAL_TOKENS[0],
        min_length=1,
        description="Ends each document, exactly once [S0]; null for none. It must be a special token of the tokenizer.",
    )
    bos_token: str | None = Field(
        None, min_length=1, description="Begins each document; null for none."
    )
    pad_token: str = Field(
        SPECIAL_TOKENS[3],
        min_length=1,
        description="Fills rows up; no other token, so that no end token is counted twice.",
    )
    max_document_tokens: int | None = Field(
        None,
        ge=1,
        description="A longer document is cut to so many tokens, control tokens counted in, and the rest is counted as cut [S2]; null for no limit.",
    )

    @property
    def padding_token(self) -> str | None:
        """The token that fills rows up; None where there are no rows."""
        return None if self.strategy == "concat" else self.pad_token

    @pydantic.model_validator(mode="after")
    def _possible(self) -> "PackSettings":
        for name in ("eos_token", "bos_token", "pad_token"):
            token = getattr(self, name)
            if token is not None and token not in SPECIAL_TOKENS:
                raise ValueError(
                    f"{name}: {token!r} is no special token; there are {', '.join(SPECIAL_TOKENS)}"
                )
        if self.strategy != "concat" and self.pad_token in (self.eos_token, self.bos_token):
            raise ValueError(
                f"pad_token: {self.pad_token!r} ends or begins documents; padding needs a token of its own"
            )
        controls = (self.eos_token is not None) + (self.bos_token is not None)
        if self.max_document_tokens is not None and self.max_document_tokens <= controls:
            raise ValueError(
                f"max_document_tokens: {self.max_document_tokens} leaves no token of text beside"
                f" {controls} control tokens"
            )
        return self


class ShuffleSettings(Section):
    """The global order of a release."""

    seed: int = Field(42, ge=0, description="Gives the order.")
    unit: Literal["documents", "chunks", "windows"] = Field(
        "documents",
        description="What moves as one: a document; a block of documents that lie side by side in a shard, up to chunk_tokens; or a window of window_tokens, cut wherever it falls. Rows of best_fit and pad move as rows.",
    )
    chunk_tokens: int = Field(
        1 << 20, ge=1, description="A longer document is a block by itself; none is lost."
    )
    window_tokens: int = Field(
        2049,
        ge=1,
        le=1 << 24,
        description="A context and the token that follows it [S0]; the last of a shard is filled up with pack.pad_token.",
    )
    max_tokens_per_file: int = Field(
        100_000_000_000,
        ge=1,
        description="A file ends before the document that would pass it [S0].",
    )

    @property
    def unit_tokens(self) -> int:
        """How many tokens a block or a window has; 0 where documents move by themselves."""
        return {"chunks": self.chunk_tokens, "windows": self.window_tokens}.get(self.unit, 0)


class ReleaseSettings(Section):
    """When a release is made, and how many are kept."""

    when: Literal["nightly", "weekly", "manual"] = Field(
        "nightly",
        description="nightly: whatever refreshes the corpus publishes when anything changed; weekly: the daemon does so once in a calendar week, `corpus run` always; manual: only the job `publish_release` does.",
    )
    keep: int = Field(
        2,
        ge=1,
        description="Newest releases that `corpus gc` spares, whether they are in force or not.",
    )


DROP_SHARES = {
    "too_short": 0.5,
    "dup_lines": 0.3,
    "char_repeat": 0.1,
    "low_alnum": 0.1,
    "low_lang_confidence": 0.5,
}


# Of each strategy; best_fit has 0.9 from some dozens of documents on.
MIN_UTILISATION = {"concat": 0.9, "best_fit": 0.9, "pad": 0.1}


class ChecksSettings(Section):
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
        0.01,
        description="Share of a shard's records that cannot be read, and of ranges without loss that are none.",
    )
    max_drop_share: dict[str, Share] = Field(
        default_factory=DROP_SHARES.copy,
        description="Per rule, the share of a shard's documents that it may drop; a rule not named keeps its default. 1.6 to 12.5 times the most that `web` drops of 15 real shards (decision 0005).",
    )
    min_kept_share: Share = Field(
        0.25,
        description="Share of a shard's documents that must stay; the least of 15 real shards kept 0.353 (decision 0005).",
    )
    allow_missing: Names = Field(
        (),
        description="Patterns of shards that may be missing: without a whole copy of its own, a shard that is not named here stops the corpus.",
    )
    min_language_documents: int = Field(
        20, ge=1, description="A language with at least so many documents is looked at by itself."
    )
    min_language_kept_share: Share = Field(
        0.1, description="Share of such a language's documents that must stay."
    )
    max_cluster_share: Share = Field(
        0.01,
        description="Documents of the largest cluster of near-copies, exact copies counted once, as a share of all: above, a template or a wrong edge has swallowed unrelated pages.",
    )
    min_source_documents: int = Field(
        100, ge=1, description="A source with at least so many documents is looked at by itself."
    )
    min_source_kept_share: Share = Field(
        0.2,
        description="Share of a source's documents that must outlast the near-copies of the same source and crawl; the source is the field `source` of a record, else its crawl.",
    )

    max_release_shrink: Share = Field(
        0.01,
        description="Share of the documents of the release in force that a new one may lack and still become current; those of shards left out or retired are not counted. A setting that drops more on purpose needs a waiver of the gate shrunk.",
    )
    min_utilisation: dict[str, Share] = Field(
        default_factory=MIN_UTILISATION.copy,
        description="Per strategy, the share of the positions of all rows that must hold tokens of documents; a strategy not named keeps its default. Web text has 1.0 with concat and best_fit, 0.4 with pad [S3].",
    )

    @pydantic.field_validator("min_utilisation")
    @classmethod
    def _known_strategies(cls, value: dict[str, float]) -> dict[str, float]:
        for name in value:
            if name not in MIN_UTILISATION:
                raise ValueError(
                    f"no strategy {name!r}; strategies are {', '.join(MIN_UTILISATION)}"
                )
        return {**MIN_UTILISATION, **value}

    @pydantic.field_validator("max_drop_share")
    @classmethod
    def _known_rules(cls, value: dict[str, float]) -> dict[str, float]:
        for name in value:
            if name not in RULES:
                raise ValueError(f"no rule {name!r}; rules are {', '.join(RULES)}")
        return {**DROP_SHARES, **value}


class Waiver(Section):
    """A named exception to one gate for one partition."""

    gate: GateName = Field(
        description="Name of the gate, or asset/gate where several assets have one of that name."
    )
    partition: str | None = Field(
        None, description="The shard; left out for a gate over the whole corpus."
    )
    reason: str = Field(min_length=3, description="Why; shown wherever the gate is.")
    expires: Date = Field(description="Last day on which it holds.")


class RunSettings(Section):
    """What a command may take of this machine; no product depends on it."""

    workers: int = Field(
        0, ge=0, description="Processes side by side, threads of a shuffle; 0 means one per core."
    )
    scratch: Folder | None = Field(
        None,
        description="Folder for what lies between the steps of a shuffle: as large as the tokens of the release; null: in the storage folder. A fast local disk.",
    )
    bucket_bytes: int = Field(
        1 << 27,
        ge=1 << 10,
        description="Bytes of tokens that a worker of a shuffle has before it at a time.",
    )
    encoder: Literal["auto", "tokenizers", "fastokens"] = Field(
        "auto",
        description="What turns text into tokens: auto takes fastokens where it is installed and was found to give the same ids as tokenizers, which is the reference; by name, fastokens or an error.",
    )


class Settings(Section):
    """Everything in `corpus.yaml`. `base` is the folder of the file."""

    storage: Folder = Field(
        "data", description="Folder of all artifacts and releases, relative to the settings file."
    )
    sources: Annotated[
        tuple[SourceSettings, ...], BeforeValidator(from_list), AfterValidator(_not_empty)
    ]
    clean: CleanSettings = CleanSettings()
    read: ReadSettings = ReadSettings()
    dedup: DedupSettings = DedupSettings()
    tokenizer: TokenizerSettings = TokenizerSettings()
    split: SplitSettings = SplitSettings()
    pack: PackSettings = PackSettings()
    shuffle: ShuffleSettings = ShuffleSettings()
    release: ReleaseSettings = ReleaseSettings()
    checks: ChecksSettings = ChecksSettings()
    waivers: Annotated[tuple[Waiver, ...], BeforeValidator(from_list)] = ()
    schedule: ScheduleSettings = ScheduleSettings()
    alerts: AlertsSettings = AlertsSettings()
    owners: Owners = Field(
        ("team:corpus",),
        description="Who answers for the assets, in the web UI: team:NAME, or an address of electronic mail.",
    )
    run: RunSettings = RunSettings()
    download: DownloadSettings = DownloadSettings()
    s3: S3Settings = S3Settings()
    base: Path = Field(Path(), exclude=True)

    @pydantic.model_validator(mode="after")
    def _rows_move_as_rows(self) -> "Settings":
        if self.pack.strategy != "concat" and self.shuffle.unit != "documents":
            raise ValueError(
                f"shuffle.unit: {self.shuffle.unit!r} cuts streams; rows of pack.strategy"
                f" {self.pack.strategy!r} move as rows: leave it out"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _windows_end_in_padding(self) -> "Settings":
        pack = self.pack
        if self.shuffle.unit == "windows" and pack.pad_token in (pack.eos_token, pack.bos_token):
            raise ValueError(
                f"pack.pad_token: {pack.pad_token!r} ends or begins documents, and fills up the last"
                " window of a shard; padding needs a token of its own"
            )
        return self

    @property
    def storage_path(self) -> Path:
        """The local artifact folder, absolute."""
        return (self.base / self.storage).absolute()

    @property
    def scratch_path(self) -> Path:
        """The local folder of what a stage writes on its way, absolute."""
        scratch = self.run.scratch
        return (
            self.storage_path / "scratch" if scratch is None else (self.base / scratch).absolute()
        )

    @property
    def cache_path(self) -> Path | None:
        """The local folder that keeps downloads, absolute; None where none does."""
        cache = self.download.cache_dir
        return None if cache is None else (self.base / cache).absolute()
