"""cleaned_documents: reads a raw shard and keeps the documents that pass the rules.

Writes the kept documents in source order, a tombstone for each dropped one and the records that
cannot be read. Every record of the shard ends in exactly one of the three files.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from corpus_platform.document import CLEANED, QUARANTINE, TOMBSTONES, Document, Rejected
from corpus_platform.errors import DamagedShard
from corpus_platform.filters.batch import Batch
from corpus_platform.filters.verdicts import Verdicts, cost_of_faults, judge
from corpus_platform.formats.shard import ShardRecords, read_shard
from corpus_platform.rule_settings import RULES, LowLangConfidence, RuleSettings
from corpus_platform.stages.members import member_names
from corpus_platform.stages.project import Making, Product, Progress, Project, Report, Stage, quiet
from corpus_platform.stages.tables import TableWriter
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.storage.files import file_sha256
from corpus_platform.storage.manifest import Json
from corpus_platform.text.langid import model_path

__all__ = [
    "DOCUMENTS",
    "QUARANTINE_FILE",
    "STAGE",
    "SURE_SCORE",
    "TOMBSTONE_FILE",
    "UNSURE",
    "clean_documents",
    "language_counts",
]

ASSET = "cleaned_documents"
SURE_SCORE = LowLangConfidence().min_score
UNSURE = "und"
DOCUMENTS, TOMBSTONE_FILE, QUARANTINE_FILE = (
    "documents.parquet",
    "tombstones.parquet",
    "quarantine.parquet",
)


def clean_documents(project: Project, shard: str, *, progress: Progress = quiet) -> Report:
    """Clean one shard; do nothing when that is done.

    Raises DamagedShard when the shard cannot be read to its end: that is recorded, and no document
    of it is published.
    """
    with project.making(ASSET, shard) as making:
        raw = project.require("raw_shards", shard)
        if (report := making.current()) is not None:
            _raise_if_unreadable(shard, report.artifact)
            return report
        try:
            return _clean(project, shard, raw, making, progress)
        except DamagedShard as damage:
            _record_damage(making, damage)
            raise


def _clean(
    project: Project, shard: str, raw: Artifact, making: Making, progress: Progress
) -> Report:
    rules = project.settings.clean.rules()
    records = _open(project, shard, raw)
    total = int(raw.numbers["bytes"])
    counts = _Counts(rules)
    with (
        making.draft() as draft,
        TableWriter(draft / DOCUMENTS, CLEANED, dictionary=["lang"]) as documents,
        TableWriter(draft / TOMBSTONE_FILE, TOMBSTONES) as tombstones,
        TableWriter(draft / QUARANTINE_FILE, QUARANTINE) as quarantine,
    ):
        for part in records:
            readable = [r for r in part if isinstance(r, Document)]
            rejected = [r for r in part if isinstance(r, Rejected)]
            batch = Batch.of(readable)
            verdicts = judge(batch, rules)
            documents.write(_kept_table(readable, verdicts))
            tombstones.write(_tombstone_table(readable, verdicts))
            quarantine.write(_quarantine_table(rejected))
            counts.add(rejected, batch, verdicts)
            progress(records.stored_bytes_read, total)
        products = [
            Product(DOCUMENTS, rows=documents.close()),
            Product(TOMBSTONE_FILE, rows=tombstones.close()),
            Product(QUARANTINE_FILE, rows=quarantine.close()),
        ]
        ledger = counts.ledger(records.records_read, records.decompressed_bytes, records.passed)
        return making.publish(draft, products, ledger=ledger)


def _open(project: Project, shard: str, raw: Artifact) -> ShardRecords:
    entry = project.shard(shard)
    return read_shard(
        [raw.path(name) for name in member_names(entry)],
        entry.fields,
        shard=shard,
        max_record_bytes=project.settings.clean.max_record_bytes,
        limits=project.settings.read,
    )


def _raise_if_unreadable(shard: str, artifact: Artifact) -> None:
    """Raise the DamagedShard that was recorded when the shard was read."""
    if not artifact.numbers["readable"]:
        ledger = artifact.manifest.ledger
        raise DamagedShard(shard, reason=ledger["failure"], offset=ledger["offset"])


def _record_damage(making: Making, damage: DamagedShard) -> None:
    """Publish that the shard cannot be read, so that it is blocked and not tried again."""
    ledger = {"readable": False, "failure": damage.reason, "offset": damage.offset}
    with making.draft() as draft:
        making.publish(draft, [], ledger=ledger, numbers={"readable": 0})


class _Counts:
    """The ledger of one shard while it is read."""

    def __init__(self, rules: dict[str, RuleSettings]) -> None:
        self._rules = rules
        self._quarantined: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter(dict.fromkeys(rules, 0))
        self._hits: Counter[str] = Counter(dict.fromkeys(rules, 0))
        self._faults: Counter[str] = Counter()
        self._languages: Counter[str] = Counter()
        self._kept = 0

    def add(self, rejected: Sequence[Rejected], batch: Batch, verdicts: Verdicts) -> None:
        self._quarantined.update(r.reason for r in rejected)
        self._dropped.update(verdicts.dropped)
        self._hits.update(verdicts.hits)
        self._languages.update(map(_counted_language, verdicts.lang, verdicts.lang_score))
        self._faults.update(cost_of_faults(batch, self._rules))
        self._kept += int(verdicts.kept.sum())

    def ledger(
        self, lines: int, decompressed_bytes: int, passed: Counter[str]
    ) -> dict[str, object]:
        documents = self._kept + self._dropped.total()
        ledger: dict[str, object] = {
            "lines": lines,  # as the reader counted them
            "quarantined": dict(self._quarantined),
            "documents": documents,
            "dropped": dict(self._dropped),
            "kept": self._kept,
            "hits": dict(self._hits),  # of each rule by itself, whoever owned the drop
            "languages": dict(self._languages),
            "decompressed_bytes": decompressed_bytes,
        }
        if passed:
            ledger["not_documents"] = dict(passed)  # records of WARC that are no texts, by type
        if self._faults:
            ledger["dropped_by_known_faults_only"] = dict(self._faults)
        return ledger


def _counted_language(lang: str, score: float | None) -> str:
    """Return the language a document counts under: none where the model is not sure of it."""
    return lang if score is None or score >= SURE_SCORE else UNSURE


def _kept_table(documents: Sequence[Document], verdicts: Verdicts) -> pa.Table:
    kept = [i for i, stays in enumerate(verdicts.kept.tolist()) if stays]
    columns = {
        "id": [documents[i].id for i in kept],
        "url": [documents[i].url for i in kept],
        "text": [documents[i].text for i in kept],
        "lang": [verdicts.lang[i] for i in kept],
        "lang_score": [verdicts.lang_score[i] for i in kept],
        "meta": [documents[i].meta for i in kept],
        "row": [documents[i].row for i in kept],
    }
    return pa.table(columns, schema=CLEANED)


def _tombstone_table(documents: Sequence[Document], verdicts: Verdicts) -> pa.Table:
    dropped = [i for i, stays in enumerate(verdicts.kept.tolist()) if not stays]
    columns = {
        "id": [documents[i].id for i in dropped],
        "row": [documents[i].row for i in dropped],
        "rule": [verdicts.names[verdicts.rule[i]] for i in dropped],
        "value": [float(verdicts.value[i]) for i in dropped],
        "threshold": [float(verdicts.threshold[i]) for i in dropped],
    }
    return pa.table(columns, schema=TOMBSTONES)


def _quarantine_table(rejected: Sequence[Rejected]) -> pa.Table:
    columns = {name: [getattr(r, name) for r in rejected] for name in QUARANTINE.names}
    return pa.table(columns, schema=QUARANTINE)


def _audit(project: Project, shard: str | None, folder: Path, ledger: Json) -> dict[str, float]:
    """Count the written files; `lines` and the documents of a language are the reader's count."""
    if ledger.get("readable") is False:
        return {"readable": 0}
    kept = pl.read_parquet(folder / DOCUMENTS, columns=["row", "lang", "lang_score"])
    dropped = pl.read_parquet(folder / TOMBSTONE_FILE, columns=["row", "rule"])
    quarantined = pq.read_metadata(folder / QUARANTINE_FILE).num_rows
    rows = pl.concat([kept["row"], dropped["row"]])
    lines, found = ledger["lines"], len(rows) + quarantined
    by_rule = dict(dropped["rule"].value_counts().iter_rows())
    unaccounted = (
        max(abs(lines - found), abs(sum(ledger["languages"].values()) - len(rows)))
        + len(rows)
        - rows.n_unique()
        + int(((rows < 0) | (rows >= lines)).sum())
        + sum(count for rule, count in by_rule.items() if rule not in RULES)
    )
    return {
        "readable": 1,
        "lines": lines,
        "documents": len(rows),
        "kept": len(kept),
        "quarantined": quarantined,
        "unaccounted": unaccounted,
        "decompressed_bytes": ledger["decompressed_bytes"],
        **{f"dropped/{rule}": by_rule.get(rule, 0) for rule in RULES},
        **{
            f"dropped_by_known_fault/{rule}": count
            for rule, count in ledger.get("dropped_by_known_faults_only", {}).items()
        },
        **dict(_languages(kept, ledger["languages"])),
    }


def language_counts(documents: pl.DataFrame) -> Counter[str]:
    """Return how many of some cleaned documents (`lang`, `lang_score`) each language has."""
    return Counter(map(_counted_language, documents["lang"], documents["lang_score"]))


def _languages(kept: pl.DataFrame, documents: dict[str, int]) -> Iterator[tuple[str, float]]:
    by_language = language_counts(kept)
    for language, count in sorted(documents.items()):
        if language == UNSURE:
            continue
        yield f"language/{language}/documents", count
        yield f"language/{language}/kept", by_language.get(language, 0)


def _settings(project: Project, shard: str | None) -> Json:
    common = project.once("cleaning settings", lambda: _common(project))
    return {**common, "fields": project.shard(shard or "").fields.model_dump()}


def _common(project: Project) -> Json:
    clean = project.settings.clean
    return {
        "rules": {name: rule.model_dump(mode="json") for name, rule in clean.rules().items()},
        "order": list(clean.rules()),
        "max_record_bytes": clean.max_record_bytes,
        "read": project.settings.read.model_dump(mode="json"),  # what is refused by one is recorded
        "_unicode": unicodedata.unidata_version,  # of the tables that letters are told by
        "_language_model": dict(_language_model()),
    }


@cache
def _language_model() -> tuple[tuple[str, str], ...]:
    """Return name and sha256 of the model: another one gives other labels and scores."""
    path = model_path()
    return ("name", path.name), ("sha256", file_sha256(path))


STAGE = Stage(
    asset=ASSET,
    version=1,
    per_shard=True,
    settings=_settings,
    inputs=lambda project, shard: {"raw_shards": project.content("raw_shards", shard)},
    audit=_audit,
    common=_common,
)
