"""Turns what the clusters' stage counted into the sections that a person reads, in Markdown.

The counts are those of `report.json` beside the cluster table. First lines, ids, names of sources
and languages are whatever a crawl held: they are shown as text and nothing else. A section that
would pass its size says how many rows it leaves out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypedDict

from corpus_platform.reports.charts import bar_chart, image, line_chart
from corpus_platform.reports.markdown import cell, table

__all__ = [
    "Counts",
    "Curve",
    "DedupReport",
    "Member",
    "Pair",
    "Shape",
    "plotted_numbers",
    "sections",
]

SECTION_BYTES = 6_000  # each event is a row of the event log
PAIRS_BYTES = 24_000
LINE_CHARS = 80
NAME_CHARS = 60
MAX_LANGUAGES = 12  # with a table of pairs, those of the most pairs
MAX_PLOTTED_CRAWLS = 24  # the newest
# Upper ends of the bars of the histogram; the last one holds all larger clusters.
SIZE_ENDS = (1, 2, 3, 4, 9, 19, 49, 99, 999)


class Shape(TypedDict):
    """Bands of rows, and the similarity from which a pair is a near-copy."""

    bands: int
    rows: int
    threshold: float


class Totals(TypedDict):
    """Documents of the corpus and what became of them."""

    before: int
    after: int
    exact_copies: int
    near_copies: int


class Size(TypedDict):
    """Bytes of text."""

    before: int
    after: int


class Counts(TypedDict):
    """What became of the documents of one crawl or source; `outlast`: no near-copy of its own."""

    documents: int
    exact_copies: int
    near_copies: int
    kept: int
    outlast: int


class Member(TypedDict):
    """A document, by where it lies and how it begins."""

    shard: str
    row: int
    id: str
    first_line: str


class Cluster(Member):
    """A cluster: documents, distinct texts, those kept, and its first document."""

    size: int
    texts: int
    kept: int


class Pair(TypedDict):
    """A verified near-copy and the document that it was dropped for."""

    similarity: float
    kept: Member
    dropped: Member


class DedupReport(TypedDict):
    """What `report.json` holds."""

    banding: Shape
    documents: Totals
    bytes: Size
    cluster_sizes: Sequence[Sequence[int]]  # [size, clusters] of each size
    crawls: Mapping[str, Counts]
    sources: Mapping[str, Counts]
    largest: Sequence[Cluster]
    pairs: Mapping[str, Sequence[Pair]]  # by language
    compared: int
    edges: int
    capped_buckets: int


class Curve(NamedTuple):
    """The S-curve of a banding, and what else could have been chosen: (bands, rows) each."""

    points: Sequence[tuple[float, float]]  # similarity, share of pairs found
    line: Sequence[tuple[float, float]]  # the same from 0 to 1, for the chart
    half: float  # similarity of which half is found
    rise: float
    auto: tuple[int, int]
    datasketch: tuple[int, int]


def sections(report: DedupReport, curve: Curve) -> dict[str, str]:
    """Return the sections by name, in the order in which they are read; none passes a few kB."""
    return {
        "before_and_after": _before_and_after(report),
        "copies_per_crawl": _copies("crawl", sorted(report["crawls"].items())),
        "copies_per_source": _copies("source", _most_copied(report["sources"])),
        "cluster_sizes": _cluster_sizes(report["cluster_sizes"]),
        "largest_clusters": _largest(report["largest"]),
        "s_curve": _s_curve(report["banding"], curve),
        "pairs": _pairs(report["pairs"]),
    }


def plotted_numbers(report: DedupReport) -> dict[str, float]:
    """Return the numbers that a person watches over time, under stable names."""
    before, after = report["bytes"]["before"], report["bytes"]["after"]
    crawls = sorted(report["crawls"].items())[-MAX_PLOTTED_CRAWLS:]
    return {
        "text_bytes_before": before,
        "text_bytes_after": after,
        "text_bytes_kept_share": _share(after, before),
        **{
            f"copy_share/{name}": _share(c["exact_copies"] + c["near_copies"], c["documents"])
            for name, c in crawls
        },
    }


def _before_and_after(report: DedupReport) -> str:
    documents, size = report["documents"], report["bytes"]
    rows = [
        ("documents", *_change(documents["before"], documents["after"])),
        ("bytes of text", *_change(size["before"], size["after"])),
    ]
    return "\n\n".join(
        (
            table(("", "before", "after", "left"), rows),
            f"{documents['exact_copies']:,} exact copies and {documents['near_copies']:,} near-copies"
            f" were dropped. {report['compared']:,} pairs were compared, {report['edges']:,} of them"
            f" are near-copies; {report['capped_buckets']:,} buckets were larger than the cap.",
        )
    )


def _change(before: int, after: int) -> tuple[str, str, str]:
    return f"{before:,}", f"{after:,}", f"{_share(after, before):.1%}"


def _copies(what: str, counts: Iterable[tuple[str, Counts]]) -> str:
    heading = (what, "documents", "exact copies", "near-copies", "kept", "outlast their own")
    rows = (
        (
            cell(name, limit=NAME_CHARS),
            *(f"{c[key]:,}" for key in ("documents", "exact_copies", "near_copies")),
            f"{c['kept']:,} ({_share(c['kept'], c['documents']):.1%})",
            f"{_share(c['outlast'], c['documents']):.1%}",
        )
        for name, c in counts
    )
    return _fitting(heading, rows, SECTION_BYTES)


def _most_copied(counts: Mapping[str, Counts]) -> list[tuple[str, Counts]]:
    """Return groups by the number of their copies, most first."""
    return sorted(counts.items(), key=lambda c: (c[1]["kept"] - c[1]["documents"], c[0]))


def _cluster_sizes(sizes: Sequence[Sequence[int]]) -> str:
    rows = list(_size_rows(sizes))
    bars = [(label, float(clusters)) for label, clusters, _ in rows if label != "1"]
    chart = image(bar_chart(bars, "clusters of copies by size"), "clusters of copies by size")
    lines = [(label, f"{clusters:,}", f"{members:,}") for label, clusters, members in rows]
    return f"{chart}\n\n{table(('documents in a cluster', 'clusters', 'documents'), lines)}"


def _size_rows(sizes: Sequence[Sequence[int]]) -> Iterator[tuple[str, int, int]]:
    """Yield label, clusters and documents of each range of sizes, empty ranges too."""
    low = 1
    for high in (*SIZE_ENDS, None):
        label = f"{low}+" if high is None else str(low) if low == high else f"{low}-{high}"
        found = [(s, n) for s, n in sizes if low <= s and (high is None or s <= high)]
        yield label, sum(n for _, n in found), sum(s * n for s, n in found)
        low = (high or 0) + 1


def _largest(clusters: Sequence[Cluster]) -> str:
    heading = ("documents", "distinct texts", "kept", "first", "begins")
    rows = (
        (f"{c['size']:,}", f"{c['texts']:,}", f"{c['kept']:,}", _place(c), _begin(c))
        for c in clusters[:10]
    )
    return _fitting(heading, rows, SECTION_BYTES)


def _s_curve(shape: Shape, curve: Curve) -> str:
    bands, rows, threshold = shape["bands"], shape["rows"], shape["threshold"]
    title = f"pairs found by {bands} bands of {rows} rows"
    chart = image(line_chart(curve.line, [(threshold, f"{threshold:g}")], title), title)
    lines = [(f"{s:.2f}", f"{found:.3f}") for s, found in curve.points]
    return "\n\n".join(
        (
            chart,
            table(("similarity", "found"), lines),
            f"Half of the pairs are found at {curve.half:.3f}; the curve rises at {curve.rise:.3f}."
            f" At the threshold {threshold:g}, `auto` takes {_shape(curve.auto)}, datasketch's own"
            f" optimum is {_shape(curve.datasketch)}.",
        )
    )


def _shape(shape: tuple[int, int]) -> str:
    return f"{shape[0]} x {shape[1]}"


def _pairs(pairs: Mapping[str, Sequence[Pair]]) -> str:
    """Return a table for each language; the languages share the space."""
    languages = [(name, found) for name, found in pairs.items() if found]
    shown = sorted(languages, key=lambda p: (-len(p[1]), p[0]))[:MAX_LANGUAGES]
    if not shown:
        return "no near-copies"
    heading = ("similarity", "dropped", "begins", "kept", "begins")
    parts = []
    for language, found in shown:
        rows = (
            (
                f"{p['similarity']:.4f}",
                *(_place(p["dropped"]), _begin(p["dropped"])),
                *(_place(p["kept"]), _begin(p["kept"])),
            )
            for p in sorted(found, key=lambda p: p["similarity"])
        )
        name = cell(language, limit=NAME_CHARS) or "no language"
        parts.append(f"**{name}**\n\n{_fitting(heading, rows, PAIRS_BYTES // len(shown))}")
    if len(languages) > len(shown):
        parts.append(f"{len(languages) - len(shown):,} more languages")
    return "\n\n".join(parts)


def _place(member: Member) -> str:
    return cell(f"{member['shard']}:{member['row']}", limit=NAME_CHARS)


def _begin(member: Member) -> str:
    return cell(member["first_line"], limit=LINE_CHARS)


def _fitting(heading: Sequence[str], rows: Iterable[Sequence[str]], limit: int) -> str:
    """Return a table of the first rows that stay within a number of bytes, and count the others."""
    shown: list[Sequence[str]] = []
    size, left = len(table(heading, ())), 0
    for row in rows:
        size += len(table((), (row,)).encode())
        if left or size > limit:
            left += 1
        else:
            shown.append(row)
    if not shown and not left:
        return "none"
    rest = f"\n\n{left:,} more are not shown" if left else ""
    return table(heading, shown) + rest


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0
