"""What differs between two releases: documents, tokens, splits, shards, settings and tokenizer.

Documents are counted from the tables of both releases, by crawl and language. Why one is missing is
told by what the release without it was made of; where that is gone, the reason is `unknown`.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import polars as pl

from corpus_platform.errors import StorageError
from corpus_platform.stages.absence import why_absent
from corpus_platform.stages.project import Project
from corpus_platform.stages.release_audit import DOCUMENTS
from corpus_platform.stages.release_makings import Makings
from corpus_platform.stages.release_names import NamedRelease, name_release
from corpus_platform.stages.release_report import SETTINGS_FILE
from corpus_platform.stages.release_rows import Matched, matched_parts
from corpus_platform.stages.tables import readable
from corpus_platform.stages.tokenizer import TOKENIZER_FILE
from corpus_platform.storage.registry import key_order

__all__ = ["Changes", "Reason", "ReleaseDiff", "Side", "diff_releases"]

UNKNOWN, UNNAMED = "unknown", "und"  # no pack is there any more; it names no language


@dataclass(frozen=True)
class Side:
    """One of the two releases."""

    id: str
    made_at: str | None
    shards: int
    documents: int
    tokens: int
    tokenizer: str  # sha256 of its tokenizer.json


@dataclass(frozen=True)
class Changes:
    """old = kept + removed, new = kept + added, in documents and, with the tokens that kept ones
    had and have, in tokens. Of the kept, `resized` have another number of tokens, of which `recut`
    are cut elsewhere; the last four went to another split."""

    added_documents: int = 0
    added_tokens: int = 0
    removed_documents: int = 0
    removed_tokens: int = 0
    kept_documents: int = 0
    kept_tokens_old: int = 0
    kept_tokens_new: int = 0
    resized_documents: int = 0
    recut_documents: int = 0
    to_validation_documents: int = 0
    to_validation_tokens: int = 0
    to_train_documents: int = 0
    to_train_tokens: int = 0


@dataclass(frozen=True)
class Reason:
    """How many documents have one reason, and their tokens; `detail` is a rule, a crawl, or words."""

    reason: str
    detail: str | None
    documents: int
    tokens: int


@dataclass(frozen=True)
class ReleaseDiff:
    """Everything that differs. `added` says why the old release has not what is new.

    `settings` are pairs of old and new value, None where there is none; `repacked` counts shards of
    both releases whose packs differ.
    """

    old: Side
    new: Side
    total: Changes
    crawls: Mapping[str, Changes]
    languages: Mapping[str, Changes]
    removed: Sequence[Reason]
    added: Sequence[Reason]
    settings: Mapping[str, tuple[object, object]]
    shards_added: Sequence[str]
    shards_removed: Sequence[str]
    left_out_old: Mapping[str, str]
    left_out_new: Mapping[str, str]
    repacked: int


def diff_releases(project: Project, old: str, new: str) -> ReleaseDiff:
    """Compare two releases by id, beginning of an id, `current` or `previous`.

    Raises UsageError for a release that is not there, StorageError for one that cannot be read.
    """
    sides = name_release(project, old), name_release(project, new)
    with readable(), project.unchanging(), tempfile.TemporaryDirectory() as scratch:
        return _Comparing(project, *sides).run(Path(scratch))


_KINDS = ("kept", "removed", "added")


class _Comparing:
    """One comparison; holds the counts of the parts that were compared so far."""

    def __init__(self, project: Project, old: NamedRelease, new: NamedRelease) -> None:
        self._project, self._old, self._new = project, old, new
        self._makings = Makings(project, old), Makings(project, new)
        self._shards = sorted({*old.shards, *new.shards}, key=key_order)
        self._counts, self._removed, self._added = (list[pl.DataFrame]() for _ in range(3))

    def run(self, scratch: Path) -> ReleaseDiff:
        old, new = self._old, self._new
        for part in matched_parts(old.path(DOCUMENTS), new.path(DOCUMENTS), self._shards, scratch):
            self._add(part)
        total = self._changes("all")["all"]
        kept = total.kept_documents
        return ReleaseDiff(
            old=_side(
                old, kept + total.removed_documents, total.kept_tokens_old + total.removed_tokens
            ),
            new=_side(
                new, kept + total.added_documents, total.kept_tokens_new + total.added_tokens
            ),
            total=total,
            crawls=self._changes("crawl"),
            languages=self._changes("language"),
            removed=_summed(self._removed),
            added=_summed(self._added),
            settings=dict(_differences(_settings(old), _settings(new))),
            shards_added=[s for s in new.shards if s not in set(old.shards)],
            shards_removed=[s for s in old.shards if s not in set(new.shards)],
            left_out_old=old.excluded,
            left_out_new=new.excluded,
            repacked=_repacked(old, new),
        )

    def _add(self, part: Matched) -> None:
        """Count one part of the documents."""
        whole = _whole(part)
        for number, documents in sorted(whole.partition_by("shard", as_dict=True).items()):
            shard = self._shards[number[0]]
            traits = self._with_traits(shard, documents)
            self._counts.append(_counted(traits, shard))
            self._removed.append(self._reasons(1, shard, traits, "removed", "old"))
            self._added.append(self._reasons(0, shard, traits, "added", "new"))

    def _with_traits(self, shard: str, documents: pl.DataFrame) -> pl.DataFrame:
        """Add the language of each document, and how much of it either release cuts off."""
        for side, makings in zip(("old", "new"), self._makings, strict=True):
            traits = makings.traits(shard)
            if traits is None:
                none = pl.lit(UNKNOWN).alias(f"lang_{side}"), pl.lit(None, pl.Int64).alias(f"cut_{side}")  # fmt: skip
                documents = documents.with_columns(none)
                continue
            named = traits.select(
                pl.col("row").alias(f"row_{side}"),
                pl.col("lang").fill_null(UNNAMED).alias(f"lang_{side}"),
                pl.col("cut").alias(f"cut_{side}"),
            )
            documents = documents.join(named, on=f"row_{side}", how="left")
        is_known = pl.col("lang_new").is_not_null() & (pl.col("lang_new") != UNKNOWN)
        is_new = (pl.col("kind") != "removed") & (is_known | pl.col("lang_old").is_null())
        language = pl.when(is_new).then("lang_new").otherwise("lang_old").fill_null(UNKNOWN)
        return documents.with_columns(language=language)

    def _reasons(
        self, of: int, shard: str, documents: pl.DataFrame, kind: str, side: str
    ) -> pl.DataFrame:
        chosen = documents.filter(pl.col("kind") == kind)
        chosen = chosen.select(pl.col(f"row_{side}").alias("row"), "id", pl.col(f"tokens_{side}").alias("tokens"))  # fmt: skip
        if not len(chosen):
            return pl.DataFrame(schema=_REASONS)
        judged = why_absent(self._project, self._makings[of], shard, chosen)
        assert len(judged) == len(chosen)
        return _by_reason(judged.with_columns(documents=pl.lit(1, pl.Int64)))

    def _changes(self, by: str) -> dict[str, Changes]:
        names = [f.name for f in fields(Changes)]
        counts = pl.concat([pl.DataFrame(schema=_COUNTS), *self._counts])
        counts = counts.with_columns(all=pl.lit("all"))
        summed = counts.group_by(by).agg(pl.col(names).sum()).sort(by)
        found = {row.pop(by): Changes(**row) for row in summed.iter_rows(named=True)}
        return found if by != "all" or found else {"all": Changes()}


_COUNTS = {"crawl": pl.String, "language": pl.String} | {f.name: pl.Int64 for f in fields(Changes)}
_REASONS = {"reason": pl.String, "detail": pl.String, "documents": pl.Int64, "tokens": pl.Int64}


def _whole(part: Matched) -> pl.DataFrame:
    """Return all documents of a part in one table, with nulls where a release has none."""
    sides = {
        "kept": part.kept.rename({n: f"{n}_old" for n in ("row", "tokens", "train")}),
        "removed": part.removed.rename({n: f"{n}_old" for n in ("row", "tokens", "train")}),
        "added": part.added.rename({n: f"{n}_new" for n in ("row", "tokens", "train")}),
    }
    named = [sides[kind].with_columns(kind=pl.lit(kind)) for kind in _KINDS]
    return pl.concat(named, how="diagonal")


def _counted(documents: pl.DataFrame, shard: str) -> pl.DataFrame:
    """Return the changes of a shard by language."""
    kept, added, removed = (pl.col("kind") == kind for kind in ("kept", "added", "removed"))
    tokens, before = pl.col("tokens_new"), pl.col("tokens_old")
    resized = kept & (tokens != before)
    to_validation = kept & pl.col("train_old") & ~pl.col("train_new")
    to_train = kept & ~pl.col("train_old") & pl.col("train_new")
    counts = {
        "added_documents": added.sum(),
        "added_tokens": tokens.filter(added).sum(),
        "removed_documents": removed.sum(),
        "removed_tokens": before.filter(removed).sum(),
        "kept_documents": kept.sum(),
        "kept_tokens_old": before.filter(kept).sum(),
        "kept_tokens_new": tokens.filter(kept).sum(),
        "resized_documents": resized.sum(),
        "recut_documents": (resized & (pl.col("cut_new") != pl.col("cut_old"))).sum(),
        "to_validation_documents": to_validation.sum(),
        "to_validation_tokens": tokens.filter(to_validation).sum(),
        "to_train_documents": to_train.sum(),
        "to_train_tokens": tokens.filter(to_train).sum(),
    }
    summed = documents.group_by("language").agg(**{n: e.cast(pl.Int64) for n, e in counts.items()})
    crawl = pl.lit(shard.split("/", 1)[0]).alias("crawl")
    return summed.with_columns(crawl).select(list(_COUNTS))


def _by_reason(counts: pl.DataFrame) -> pl.DataFrame:
    grouped = counts.group_by("reason", "detail").agg(pl.col("documents", "tokens").sum())
    return grouped.select(list(_REASONS))


def _summed(parts: Sequence[pl.DataFrame]) -> list[Reason]:
    """Return the reasons of all shards, that of most documents first."""
    summed = _by_reason(pl.concat([pl.DataFrame(schema=_REASONS), *parts]))
    order = summed.sort("documents", "reason", "detail", descending=[True, False, False])
    return [Reason(**row) for row in order.iter_rows(named=True)]


def _side(release: NamedRelease, documents: int, tokens: int) -> Side:
    """Return one of the releases; raise StorageError where its table is not as its ledger says."""
    manifest = release.manifest
    counted = sum(manifest.ledger.get(f"{split}_tokens", 0) for split in ("train", "validation"))
    if "train_tokens" in manifest.ledger and counted != tokens:
        raise StorageError(
            f"{release.artifact.path(DOCUMENTS)}: lists {tokens} tokens, the manifest counts"
            f" {counted}; `corpus verify` says which file is damaged"
        )
    return Side(
        id=release.id,
        made_at=manifest.measured.get("made_at"),
        shards=len(release.shards),
        documents=documents,
        tokens=tokens,
        tokenizer=next(o.sha256 for o in manifest.outputs if o.name == TOKENIZER_FILE),
    )


def _settings(release: NamedRelease) -> dict[str, object]:
    """Return the settings that a release was made with, those of dedup from its manifest."""
    path = release.path(SETTINGS_FILE)
    try:
        settings = json.loads(path.read_bytes())
    except ValueError as error:
        raise StorageError(f"{path}: is no JSON: {error}; `corpus verify` says more") from error
    measured = release.manifest.measured
    return {**settings, **{name: measured[name] for name in ("dedup", "split") if name in measured}}


def _differences(
    old: Mapping[str, object], new: Mapping[str, object], above: str = ""
) -> Iterator[tuple[str, tuple[object, object]]]:
    for name in sorted({*old, *new}):
        before, after = old.get(name), new.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _differences(before, after, f"{above}{name}.")
        elif before != after:
            yield f"{above}{name}", (before, after)


def _repacked(old: NamedRelease, new: NamedRelease) -> int:
    packs = [{n: c for n, c in r.manifest.inputs.items() if n.startswith("packed_bins[")} for r in (old, new)]  # fmt: skip
    return sum(packs[0][name] != packs[1][name] for name in packs[0].keys() & packs[1].keys())
