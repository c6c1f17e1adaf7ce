"""The audit of dedup_clusters: measures the written tables against the documents they speak of.

All rows are held against cleaned documents, exact keys and verdicts; similarities of twins, edges
and leaks are computed from the texts for a sample.
"""

import contextlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from corpus_platform.dedup.hashes import distinct
from corpus_platform.dedup.signing import Signer
from corpus_platform.dedup.split import Split, assign_split, content_keys
from corpus_platform.dedup.verification import jaccard
from corpus_platform.errors import Uncleared
from corpus_platform.stages.cleaned_documents import DOCUMENTS
from corpus_platform.stages.clusters_files import CLUSTER_FILE, EDGE_FILE, LEAK_FILE
from corpus_platform.stages.comparing import read_texts
from corpus_platform.stages.dedup_verdicts import VERDICT_FILE, find_verdict
from corpus_platform.stages.document_traits import Traits, read_traits
from corpus_platform.stages.minhash_signatures import SIGNATURE_FILE, exact_rows
from corpus_platform.stages.numbering import Numbering, number_documents
from corpus_platform.stages.project import Project
from corpus_platform.stages.tables import name_codes
from corpus_platform.stages.uncleared import may_be_left_out
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.storage.manifest import Json
from corpus_platform.storage.registry import key_order

__all__ = ["measure_clusters", "telling"]

SAMPLED_PAIRS = 50  # twins, edges, leaks, whose similarity is computed from the texts
SAMPLED_BYTES = 1 << 26  # of these texts; their shingles take up to eight times as much
ROWS = 1 << 18  # read at a time
PLACE_BITS = 40  # a document as one number: shard << 40 | row
KINDS, SPLITS = ("exact", "near"), ("train", "validation")  # 1, 2; 0 none, 3 another
NONE, EXACT, NEAR, UNKNOWN = 0, 1, 2, 3
PAIR = ("shard_a", "row_a", "shard_b", "row_b", "similarity")
TWIN = ("shard", "row", "twin_shard", "twin_row", "similarity")
LEAK = ("shard", "row", "train_shard", "train_row", "similarity")
TOLERANCE = 1e-9
SOURCES = 40  # and languages, of most documents; each is two numbers in the log of events


class _Table(NamedTuple):
    """The cluster table; place and twin: shard << 40 | row, -1 where no included shard is named."""

    place: np.ndarray
    twin: np.ndarray
    kept: np.ndarray
    kind: np.ndarray
    split: np.ndarray
    similarity: np.ndarray  # nan for null
    cluster: np.ndarray
    size: np.ndarray


def measure_clusters(
    project: Project, _: str | None, folder: Path, ledger: Json
) -> dict[str, float]:
    """Return the numbers that the gates of the clusters look at, from the written tables."""
    # A manifest that is read again has the shards in another order: "a-b/x" before "a/x".
    included, registered = sorted(ledger["verdicts"], key=key_order), set(project.shards())
    differing = registered.symmetric_difference([*included, *ledger["excluded"]])
    lost = [shard for shard in differing if not may_be_left_out(project, shard)]
    table = _read(folder / CLUSTER_FILE, included)
    traits = read_traits(project, included)
    position = _positions(table.place, _places(traits))
    dropped, texts = ~table.kept, table.kind != EXACT
    of_cluster = np.unique(table.cluster[texts], return_counts=True)[1]
    return {
        "documents": len(table.place),
        "kept": int(table.kept.sum()),
        "exact_copies": int((table.kind == EXACT).sum()),
        "near_copies": int((table.kind == NEAR).sum()),
        "texts": int(texts.sum()),
        "train": int((table.split == Split.TRAIN).sum()),
        "validation": int((table.split == Split.VALIDATION).sum()),
        "unaccounted": _unaccounted(table, position, len(traits.row)) + len(lost),
        "bad_twins": _bad_twins(table, project),
        "policy_breaks": _policy_breaks(table, folder / EDGE_FILE, included, project),
        "wrong_similarities": _wrong_similarities(project, folder, ledger),
        **_against_texts(project, included, table, position),
        "bad_verdicts": _bad_verdicts(project, included, ledger["verdicts"], table),
        "canaries": ledger["canaries"],
        "canaries_found": ledger["canaries_found"],
        **_leaks(project, folder / LEAK_FILE, table, included),
        "shards": len(registered),
        "uncleared": len(registered.difference(included)),
        "candidates": ledger["candidates"],
        "capped_buckets": ledger["capped_buckets"],
        "edges": pq.read_metadata(folder / EDGE_FILE).num_rows,
        "largest_cluster": int(table.size.max(initial=0)),
        "largest_near_cluster": int(of_cluster.max(initial=0)),
        "least_similarity": float(np.nanmin(table.similarity[dropped], initial=1.0)),
        **dict(_languages(project, included, traits, position)),
        **dict(_survivors(traits, table, position)),
    }


def _read(path: Path, included: Sequence[str]) -> _Table:
    """Read what is compared; strings become numbers batch by batch."""
    columns = ["shard", "row", "twin_shard", "twin_row", "kept", "kind", "split", "similarity"]
    parts: list[list[np.ndarray]] = [[] for _ in _Table._fields]
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(ROWS, columns=[*columns, "cluster", "cluster_size"]):
            found = (
                _place(batch, "shard", "row", included),
                _place(batch, "twin_shard", "twin_row", included),
                batch["kept"].fill_null(False).to_numpy(zero_copy_only=False),
                _code(batch["kind"], KINDS),
                _code(batch["split"], SPLITS),
                batch["similarity"].to_numpy(zero_copy_only=False),
                batch["cluster"].to_numpy(zero_copy_only=False),
                batch["cluster_size"].to_numpy(zero_copy_only=False),
            )
            for part, column in zip(parts, found, strict=True):
                part.append(column)
    dtypes = (np.int64, np.int64, np.bool_, np.uint8, np.uint8, np.float64, np.int64, np.int64)
    return _Table(
        *(np.concatenate([np.empty(0, d), *p]) for d, p in zip(dtypes, parts, strict=True))
    )


def _place(batch: pa.RecordBatch, shard: str, row: str, included: Sequence[str]) -> np.ndarray:
    """Return shard << 40 | row of each document; -1 where it is in none of the shards."""
    shards = name_codes(batch[shard], {name: i for i, name in enumerate(included)})
    rows = batch[row].fill_null(-1).to_numpy(zero_copy_only=False)
    known = (shards >= 0) & (rows >= 0) & (rows < 1 << PLACE_BITS)
    return np.where(known, shards << PLACE_BITS | rows, -1)


def _code(column: pa.Array, names: Sequence[str]) -> np.ndarray:
    """Return 0 for null, 1 and 2 for the names, 3 for what is neither."""
    codes = name_codes(column, {name: i + 1 for i, name in enumerate(names)})
    null = column.is_null().to_numpy(zero_copy_only=False)
    return np.where(null, NONE, np.where(codes < 0, UNKNOWN, codes)).astype(np.uint8)


def _places(traits: Traits) -> np.ndarray:
    """Return the place of every cleaned document, ascending."""
    shards = np.repeat(np.arange(len(traits.ends)), np.diff(traits.ends, prepend=0))
    return shards << PLACE_BITS | traits.row


def _positions(places: np.ndarray, of_cleaned: np.ndarray) -> np.ndarray:
    """Return the position of each place among the cleaned documents, -1 where it is none."""
    found = np.searchsorted(of_cleaned, places)
    found[found == len(of_cleaned)] = -1
    known = found >= 0
    known[known] = of_cleaned[found[known]] == places[known]
    return np.where(known, found, -1)


def _unaccounted(table: _Table, position: np.ndarray, documents: int) -> int:
    """Count documents that are not one row of the table, and rows that say neither or both."""
    times = np.bincount(position[position >= 0], minlength=documents)
    missing, twice = np.count_nonzero(times == 0), int((times[times > 1] - 1).sum())
    unclear = np.count_nonzero(table.kept == (table.kind != NONE)) + np.count_nonzero(
        table.kind == UNKNOWN
    )
    return int(missing + twice + np.count_nonzero(position < 0) + unclear)


def _bad_twins(table: _Table, project: Project) -> int:
    """Count dropped documents whose twin is not a kept document or not similar enough.

    Under `one_per_cluster` a dropped document need only be in the cluster of its twin; where
    candidates are not verified any similarity will do.
    """
    dedup, dropped = project.settings.dedup, ~table.kept
    order = np.argsort(table.place[table.kept], kind="stable")
    kept, clusters = table.place[table.kept][order], table.cluster[table.kept][order]
    twin = _positions(table.twin[dropped], kept)
    least = dedup.threshold if dedup.verify != "none" else 0.0
    similarity = table.similarity[dropped]
    good = (twin >= 0) & (table.twin[dropped] >= 0) & (similarity <= 1.0)  # and no nan
    if dedup.keep == "one_per_cluster":
        good[good] = clusters[twin[good]] == table.cluster[dropped][good]
    else:
        good &= similarity >= least
    return int(np.count_nonzero(~good))


def _policy_breaks(table: _Table, edges: Path, included: Sequence[str], project: Project) -> int:
    """Count what breaks the keep policy: edges whose two ends are kept, and that of other edges.

    Under `one_per_cluster` also clusters that do not keep one document.
    """
    kept = np.sort(table.place[table.kept])
    breaks = 0
    with pq.ParquetFile(edges) as file:
        for batch in file.iter_batches(ROWS, columns=list(PAIR[:4])):
            a = _positions(_place(batch, "shard_a", "row_a", included), kept)
            b = _positions(_place(batch, "shard_b", "row_b", included), kept)
            breaks += int(np.count_nonzero((a >= 0) & (b >= 0)))
    if project.settings.dedup.keep == "one_per_cluster":
        _, inverse = np.unique(table.cluster, return_inverse=True)
        breaks += int(np.count_nonzero(np.bincount(inverse, weights=table.kept) != 1))
    return breaks


def _against_texts(
    project: Project, included: Sequence[str], table: _Table, position: np.ndarray
) -> dict[str, float]:
    """Count exact copies and splits that are not those of the documents' exact keys.

    Exact copies are the documents whose text counts earlier, and no others: there are as many as
    documents less distinct texts.
    """
    numbering = number_documents(project, included)
    known = (position >= 0) & (position < len(numbering))
    number = numbering.number[position[known]]
    digests = _digests(project, numbering)
    again = ~_first_distinct(digests)
    wrong = np.count_nonzero(again[number] != (table.kind[known] == EXACT))
    return {
        "wrong_copies": int(wrong),
        "bad_splits": _bad_splits(project, numbering, digests, number, table, known),
    }


def _digests(project: Project, numbering: Numbering) -> np.ndarray:
    """Return the exact key of each document, by number: uint8 [documents, 32]."""
    digests = np.empty((len(numbering), 32), np.uint8)
    for shard, signed in enumerate(numbering.signed):
        start, _ = numbering.bounds(shard)
        keys, documents = exact_rows(signed.folder, project.settings.dedup).read(0)
        digests[numbering.number[start + documents.astype(np.int64)]] = keys
    return digests


def _first_distinct(digests: np.ndarray) -> np.ndarray:
    """Return which rows have no equal one before them."""
    words = np.ascontiguousarray(digests).view("<u8")
    order = np.lexsort(words.T)  # stable: equal ones stay in their order
    ordered = words[order]
    first = np.ones(len(digests), np.bool_)
    first[order[1:]] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return first


def _bad_splits(
    project: Project,
    numbering: Numbering,
    digests: np.ndarray,
    number: np.ndarray,
    table: _Table,
    known: np.ndarray,
) -> int:
    """Count documents in another split than their content gives, and that none is held out."""
    split, size = project.settings.split, len(numbering)
    kept, written = np.zeros(size, np.bool_), np.zeros(size, np.uint8)
    kept[number], written[number] = table.kept[known], table.split[known]
    crawls = [shard.split("/", 1)[0] for shard in numbering.shards]
    sizes = np.diff(numbering.ends, prepend=0)
    oldest = min((c for c, n in zip(crawls, sizes, strict=True) if n), default="")
    old = np.repeat(np.array([c == oldest for c in crawls], np.bool_), sizes)
    wanted = assign_split(
        content_keys(digests, split.seed), kept, old[numbering.position], share=split.validation
    )
    none = split.validation > 0 and not (written == Split.VALIDATION).any() and kept.any()
    return int(np.count_nonzero(wanted != written)) + int(none)


def _wrong_similarities(project: Project, folder: Path, ledger: Json) -> int:
    """Count edges and twins of a sample whose stored similarity is not that of the two texts, and
    edges below the threshold."""
    dedup = project.settings.dedup
    wrong = 0
    if dedup.verify != "none":
        similarity = pq.read_table(folder / EDGE_FILE, columns=["similarity"])["similarity"]
        values = similarity.to_numpy(zero_copy_only=False)
        wrong += int(np.count_nonzero(~((values >= dedup.threshold) & (values <= 1.0))))
    if dedup.verify == "exact":
        clusters, edges = (
            pl.scan_parquet(folder / CLUSTER_FILE),
            pl.scan_parquet(folder / EDGE_FILE),
        )
        wrong += _count_wrong(project, _sample(clusters.filter(~pl.col("kept")), TWIN))
        wrong += _count_wrong(project, _sample(edges, PAIR))
        wrong += _count_wrong(project, _sample(pl.scan_parquet(folder / LEAK_FILE), LEAK))
    return wrong


def _sample(table: pl.LazyFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Return some rows of a table, evenly spread."""
    table = table.select(columns)
    step = max(1, table.select(pl.len()).collect().item() // SAMPLED_PAIRS)
    return table.gather_every(step).head(SAMPLED_PAIRS).collect()


def _count_wrong(project: Project, sample: pl.DataFrame) -> int:
    """Count pairs (shard, row, shard, row, similarity) that are not as similar as that."""
    rows = _affordable(project, list(sample.iter_rows()))
    shingles = dict(_shingles_of(project, [p for a, b, c, d, _ in rows for p in ((a, b), (c, d))]))
    wrong = 0
    for shard_a, row_a, shard_b, row_b, similarity in rows:
        a, b = shingles.get((shard_a, row_a)), shingles.get((shard_b, row_b))
        known = a is not None and b is not None and similarity is not None
        wrong += not (known and abs(jaccard(a, b) - similarity) <= TOLERANCE)
    return wrong


def _affordable(project: Project, rows: Sequence[tuple]) -> list[tuple]:
    """Return the pairs whose texts have SAMPLED_BYTES together, the first one in any case."""
    wanted = {p for a, b, c, d, _ in rows for p in ((a, b), (c, d)) if None not in p}
    sizes = dict(_sizes(project, wanted))
    chosen, seen, held = list[tuple](), set[tuple[str, int]](), 0
    for row in rows:
        new = {row[:2], row[2:4]} - seen
        more = sum(sizes.get(document, 0) for document in new)
        if chosen and held + more > SAMPLED_BYTES:
            continue
        chosen.append(row)
        seen |= new
        held += more
    return chosen


def _sizes(
    project: Project, wanted: Collection[tuple[str, int]]
) -> Iterator[tuple[tuple[str, int], int]]:
    """Yield the bytes of the texts of those documents that are there."""
    for shard in sorted({s for s, _ in wanted}):
        with contextlib.suppress(Uncleared):
            path = project.present("minhash_signatures", shard).path(SIGNATURE_FILE)
            rows = pl.col("row").is_in([r for s, r in wanted if s == shard])
            found = pl.scan_parquet(path).filter(rows).select("row", "bytes").collect()
            yield from (((shard, row), size) for row, size in found.iter_rows())


def _shingles_of(
    project: Project, wanted: Sequence[tuple[str, int]]
) -> Iterator[tuple[tuple[str, int], np.ndarray]]:
    signer = Signer(project.settings.dedup)
    for shard in sorted({s for s, _ in wanted if s is not None}):
        try:
            path = project.present("cleaned_documents", shard).path(DOCUMENTS)
        except Uncleared:
            continue  # counted as wrong: the twin is in no shard we know
        rows = np.unique([r for s, r in wanted if s == shard and r is not None])
        for row, text in read_texts(path, rows, columns=("row", "text")):
            yield (shard, int(row)), signer.shingle_sets([text])[0]


def _leaks(
    project: Project, path: Path, table: _Table, included: Sequence[str]
) -> dict[str, float]:
    """Count the pairs across the split that are too similar, and rows that are no such pair."""
    leaks = pq.read_table(path, columns=list(LEAK)).combine_chunks()
    batch = leaks.to_batches()[0] if len(leaks) else pa.RecordBatch.from_pylist([], leaks.schema)
    held_out = np.sort(table.place[table.split == Split.VALIDATION])
    train = np.sort(table.place[table.split == Split.TRAIN])
    a = _positions(_place(batch, "shard", "row", included), held_out)
    b = _positions(_place(batch, "train_shard", "train_row", included), train)
    similar = batch["similarity"].to_numpy(zero_copy_only=False) >= project.settings.dedup.threshold
    foreign = (a < 0) | (b < 0)
    return {"leaks": int(np.count_nonzero(similar | foreign)), "leak_pairs": len(leaks)}


def _languages(
    project: Project, shards: Sequence[str], traits: Traits, position: np.ndarray
) -> Iterator[tuple[str, float]]:
    """Yield the documents of each language that came into cleaning, and that are in the table."""
    documents: Counter[str] = Counter()
    for shard in shards:
        numbers = project.present("cleaned_documents", shard).numbers
        documents.update({n: int(v) for n, v in numbers.items() if n.startswith("language/")})
    in_table = traits.language.counts(distinct(position[position >= 0]))
    for name, count in sorted(documents.items()):
        if name.endswith("/documents"):
            yield name, count
            language = name.removeprefix("language/").removesuffix("/documents")
            yield f"language/{language}/kept", in_table.get(language, 0)


def _survivors(traits: Traits, table: _Table, position: np.ndarray) -> Iterator[tuple[str, float]]:
    """Yield of each source and language its documents, and those that are no near-copy of the same
    source in the same crawl."""
    twin = _positions(table.twin, _places(traits))
    near = (table.kind == NEAR) & (position >= 0) & (twin >= 0)
    own, other = position[near], twin[near]
    same = np.ones(len(own), np.bool_)
    for labels in (traits.crawl, traits.source):
        same &= labels.codes[own] == labels.codes[other]
    for kind, labels in (("source", traits.source), ("surviving_language", traits.language)):
        documents, lost = labels.counts(), labels.counts(own[same])
        for name in telling(documents, lost):
            yield f"{kind}/{name}/documents", documents[name]
            yield f"{kind}/{name}/outlast", documents[name] - lost[name]


def telling(documents: Mapping[str, int], lost: Mapping[str, int]) -> Iterator[str]:
    """Yield the SOURCES names of most documents, and each that lost a larger share than all larger.

    So whatever number of documents a gate asks for, the one that lost the most is among them.
    """
    share = {name: lost[name] / count for name, count in documents.items() if count}
    worst = -1.0
    for i, name in enumerate(sorted(share, key=lambda n: (-documents[n], -share[n], n))):
        if i < SOURCES or share[name] > worst:
            yield name
        worst = max(worst, share[name])


def _bad_verdicts(
    project: Project, included: Sequence[str], verdicts: Mapping[str, str], table: _Table
) -> int:
    """Count shards whose verdict file is missing, damaged or says other than the table.

    Rows are told apart once for all shards: there may be ten thousand.
    """
    shard = table.place >> PLACE_BITS  # -1 for none
    order = np.argsort(shard, kind="stable")
    cuts = np.searchsorted(shard[order], np.arange(len(included) + 1))
    return sum(
        _is_bad(find_verdict(project, name, verdicts[name]), table, order[cuts[i] : cuts[i + 1]])
        for i, name in enumerate(included)
    )


def _is_bad(verdict: Artifact | None, table: _Table, rows: np.ndarray) -> bool:
    if verdict is None:
        return True
    said = pq.read_table(verdict.path(VERDICT_FILE))
    written = (table.place[rows] & ((1 << PLACE_BITS) - 1), table.kept[rows], table.split[rows])
    columns = (
        said["row"].to_numpy(),
        said["kept"].to_numpy(),
        _code(said["split"].combine_chunks(), SPLITS),
    )
    return not all(map(np.array_equal, columns, written))
