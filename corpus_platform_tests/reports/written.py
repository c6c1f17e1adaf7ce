"""A report of near-copies as the clusters' stage writes it, with counts that a reader can check."""

from corpus_platform.reports.dedup import Counts, Curve, DedupReport, Member

__all__ = ["CURVE", "HOSTILE", "counts", "member", "report"]

# What first lines of a crawl hold, and what must not become of it.
HOSTILE = (
    "a | b || c",
    "`code` and ```fence",
    "<script>alert(1)</script><img src=x onerror=y>",
    "one\ntwo\r\n\n## three",
    "x" * 100_000,
    "|`<" * 40_000,
    "\u202egnp.exe\u2066",
    "[text](javascript:alert(1)) ![i](http://e/x.png)",
    "\x00\x1b[31mred",
    "",
)
CURVE = Curve(
    points=((0.5, 0.061), (0.8, 0.947)),
    line=((0.0, 0.0), (0.8, 0.947), (1.0, 1.0)),
    half=0.674,
    rise=0.707,
    auto=(16, 8),
    datasketch=(9, 13),
)


def counts(documents: int, exact: int, near: int, outlast: int) -> Counts:
    return {
        "documents": documents,
        "exact_copies": exact,
        "near_copies": near,
        "kept": documents - exact - near,
        "outlast": outlast,
    }


def member(row: int, first_line: str = "In the beginning") -> Member:
    return {"shard": "2026-40/a.jsonl", "row": row, "id": f"d{row}", "first_line": first_line}


def report() -> DedupReport:
    """Return 1,200 documents of two crawls, of which 200 are copies."""
    return {
        "banding": {"bands": 16, "rows": 8, "threshold": 0.8},
        "documents": {"before": 1200, "after": 1000, "exact_copies": 150, "near_copies": 50},
        "bytes": {"before": 5_000_000, "after": 4_000_000},
        "cluster_sizes": [[1, 900], [2, 60], [3, 10], [25, 2], [100, 1]],
        "crawls": {"2026-44": counts(400, 130, 40, 390), "2026-40": counts(800, 20, 10, 790)},
        "sources": {"forum/de": counts(300, 100, 10, 295), "news": counts(900, 50, 40, 885)},
        "largest": [{**member(3), "size": 100, "texts": 12, "kept": 1}],
        "pairs": {
            "en": [
                {"similarity": 0.95, "kept": member(1), "dropped": member(7)},
                {"similarity": 0.8125, "kept": member(2), "dropped": member(9, "Then came")},
            ],
            "ru": [{"similarity": 0.9, "kept": member(4), "dropped": member(5)}],
            "hi": [],
        },
        "compared": 4321,
        "edges": 77,
        "capped_buckets": 5,
    }
