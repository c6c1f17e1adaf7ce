"""Turns what packing counted into the sections that a person reads, in Markdown.

The numbers are those of the manifest of a pack or a release; the lengths of documents come as a
histogram, (tokens, documents) rising by tokens, since a release has more documents than memory.
Languages and names of shards are text of a crawl: they are shown and nothing else.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from corpus_platform.reports.charts import bar_chart, image
from corpus_platform.reports.markdown import cell, table

__all__ = [
    "Lengths",
    "Numbers",
    "ShardTokens",
    "plotted_numbers",
    "release_sections",
    "sections",
    "utilisation_table",
]

Numbers = Mapping[str, float]
Lengths = Sequence[tuple[int, int]]  # tokens of a document, documents that have so many
ShardTokens = Iterable[tuple[str, int, int]]  # shard, documents, tokens

STRATEGIES = ("concat", "best_fit", "pad")
QUANTILES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
MAX_LANGUAGES, MAX_SHARDS = 24, 50  # lines of a table, the rest in one
NAME_CHARS = 60
MAX_BARS = 24  # as many as a chart shows


def sections(numbers: Numbers, lengths: Lengths) -> dict[str, str]:
    """Return the sections about a pack by name, in the order in which they are read."""
    return {
        "tokens": _tokens(numbers),
        "utilisation": _utilisation(numbers),
        "token_ledger": _ledger(numbers),
        "document_lengths": _document_lengths(lengths, int(numbers.get("sequence_length", 0))),
        "eos_density": _eos_density(numbers),
    }


def release_sections(numbers: Numbers, lengths: Lengths, shards: ShardTokens) -> dict[str, str]:
    """Return the sections about a release by name, in the order in which they are read."""
    return {
        "tokens": _tokens(numbers),
        "tokens_per_shard": _shards(shards),
        "document_lengths": _document_lengths(lengths, 0),
        "eos_density": _eos_density(numbers),
    }


def plotted_numbers(numbers: Numbers, lengths: Lengths) -> dict[str, float]:
    """Return the numbers that a person watches over time, under stable names."""
    tokens, padding = _placed(numbers), numbers.get("padding_tokens", 0.0)
    plotted = {"padding_share": _share(padding, tokens + padding)}
    if lengths:
        plotted["median_document_tokens"] = _quantile(lengths, 0.5)
    if (strategy := _in_force(numbers)) is not None:
        plotted["utilisation"] = numbers[f"utilisation/{strategy}"]
    elif padding:
        plotted["utilisation"] = tokens / (tokens + padding)
    if "eos_count" in numbers and tokens:
        plotted["eos_density"] = numbers["eos_count"] / tokens
    return plotted


def utilisation_table(numbers: Numbers) -> list[list[str]]:
    """Return what each strategy makes of the same documents as plain text, a heading first."""
    rows = [["strategy", "rows", "used", "padding", "cut", "cut needlessly"]]
    for strategy in (s for s in STRATEGIES if f"rows/{s}" in numbers):
        mark = " (in force)" if strategy == _in_force(numbers) else ""
        cut = (numbers[f"{what}/{strategy}"] for what in ("cut_documents", "needless_cuts"))
        rows.append(
            [
                strategy + mark,
                f"{numbers[f'rows/{strategy}']:,.0f}",
                f"{numbers[f'utilisation/{strategy}']:.3%}",
                f"{numbers[f'padding/{strategy}']:,.0f}",
                *(f"{n:,.0f} ({_share(n, _documents(numbers)):.1%})" for n in cut),
            ]
        )
    return rows


def _utilisation(numbers: Numbers) -> str:
    heading, *rows = utilisation_table(numbers)
    return "\n\n".join(
        (
            table(heading, [[cell(text) for text in row] for row in rows]),
            f"Rows of {numbers['sequence_length']:,.0f} tokens, both splits together: rows x length ="
            " tokens + padding. A document is cut where it lies in more than one row, needlessly if it"
            " is no longer than one.",
        )
    )


def _tokens(numbers: Numbers) -> str:
    documents, tokens = _documents(numbers), _placed(numbers)
    splits = [
        (split, *_counts(numbers[f"{split}_documents"], numbers[f"{split}_tokens"], tokens))
        for split in ("train", "validation")
    ]
    heading = ("split", "documents", "tokens", "of all", "tokens a document")
    parts = [table(heading, [*splits, ("both", *_counts(documents, tokens, tokens))])]
    languages = {
        name.removeprefix("tokens/lang/"): value
        for name, value in numbers.items()
        if name.startswith("tokens/lang/")
    }
    if languages:
        others = numbers.get("tokens/other_languages", 0.0)
        parts.append(table(("language", "tokens", "of all"), [*_languages(languages, others)]))
    return "\n\n".join(parts)


def _counts(documents: float, tokens: float, whole: float) -> tuple[str, str, str, str]:
    mean = f"{tokens / documents:,.1f}" if documents else "-"
    return f"{documents:,.0f}", f"{tokens:,.0f}", f"{_share(tokens, whole):.1%}", mean


def _languages(tokens: Mapping[str, float], others: float) -> Iterator[tuple[str, str, str]]:
    """Yield lines of the largest languages, and one of all others, the uncounted ones among them."""
    whole = sum(tokens.values()) + others
    ranked = sorted(tokens.items(), key=lambda pair: (-pair[1], pair[0]))
    for name, count in ranked[:MAX_LANGUAGES]:
        shown = cell(name, limit=NAME_CHARS) or "no language"
        yield shown, f"{count:,.0f}", f"{_share(count, whole):.1%}"
    rest = ranked[MAX_LANGUAGES:]
    if count := sum(n for _, n in rest) + others:
        said = "all others" if others else f"{len(rest):,} more"
        yield said, f"{count:,.0f}", f"{_share(count, whole):.1%}"


def _shards(shards: ShardTokens) -> str:
    """Return a table of the largest shards, and all others in one line."""
    ranked = sorted(shards, key=lambda s: (-s[2], s[0]))
    whole = sum(tokens for _, _, tokens in ranked)
    rows = [
        (cell(name, limit=NAME_CHARS), *_counts(documents, tokens, whole))
        for name, documents, tokens in ranked[:MAX_SHARDS]
    ]
    if rest := ranked[MAX_SHARDS:]:
        documents, tokens = (sum(s[i] for s in rest) for i in (1, 2))
        rows.append((f"{len(rest):,} more shards", *_counts(documents, tokens, whole)))
    return table(("shard", "documents", "tokens", "of all", "tokens a document"), rows)


def _ledger(numbers: Numbers) -> str:
    """Return where all tokens that were encoded went, and what the positions of the files hold."""
    placed, cut, padding, masked = (
        _placed(numbers),
        *(numbers.get(n, 0.0) for n in ("tokens_cut", "padding_tokens", "loss_masked_tokens")),
    )
    truncated = numbers.get("truncated_documents", 0.0)
    rows = [
        ("tokens in", placed + cut, placed + cut),
        ("= placed", placed, placed + cut),
        (f"+ cut off {truncated:,.0f} long documents", cut, placed + cut),
        ("positions of the files", placed + padding, placed + padding),
        ("= tokens", placed, placed + padding),
        ("+ padding", padding, placed + padding),
        ("tokens whose loss does not count", masked, placed),
    ]
    shown = [(name, f"{n:,.0f}", f"{_share(n, whole):.2%}") for name, n, whole in rows]
    return table(("", "tokens", "share"), shown) + _cut_when_read(cut, placed)


def _cut_when_read(cut: float, placed: float) -> str:
    """Return what it would cost to cut documents where they are read instead of written."""
    if not cut:
        return ""
    return (
        f"\n\nCut when they are read, the files would hold {cut:,.0f} tokens more"
        f" ({_share(cut, placed):.1%}), to be kept, moved, hashed, and skipped in every epoch."
    )


def _document_lengths(lengths: Lengths, row_tokens: int) -> str:
    """Return the distribution of the lengths, control tokens counted in: a chart and quantiles."""
    if not lengths:
        return "no documents"
    documents = sum(n for _, n in lengths)
    title = "documents by tokens, %"
    bars = [(label, 100 * n / documents) for label, n in _powers(lengths)]
    quantiles = [(f"{q:.0%}", f"{_quantile(lengths, q):,}") for q in QUANTILES]
    quantiles = [("least", f"{lengths[0][0]:,}"), *quantiles, ("most", f"{lengths[-1][0]:,}")]
    mean = sum(length * n for length, n in lengths) / documents
    parts = [
        image(bar_chart(bars, title), title),
        table([name for name, _ in quantiles], [[value for _, value in quantiles]]),
        f"{documents:,} documents of {mean:,.1f} tokens on average. A bar begins at its label and ends"
        " before the next.",
    ]
    if row_tokens:
        longer = sum(n for length, n in lengths if length > row_tokens)
        parts.append(
            f"{longer:,} ({longer / documents:.1%}) are longer than a row of {row_tokens:,} tokens."
        )
    return "\n\n".join(parts)


def _powers(lengths: Lengths) -> list[tuple[str, int]]:
    """Return label and documents of each power of two from the shortest document to the longest.

    More of them than a chart has bars are summed in the last.
    """
    first = lengths[0][0].bit_length()
    bars = min(lengths[-1][0].bit_length() - first + 1, MAX_BARS)
    counts = [0] * bars
    for length, documents in lengths:
        counts[min(length.bit_length() - first, bars - 1)] += documents
    return [(_label(first + i), n) for i, n in enumerate(counts)]


def _label(bits: int) -> str:
    """Return the least number of so many bits, short enough to stand below a bar."""
    if not bits:
        return "0"
    thousands, rest = divmod(bits - 1, 10)
    return f"{1 << rest}{('', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi', 'Ei')[thousands]}"


def _quantile(lengths: Lengths, share: float) -> int:
    """Return the least length that this share of the documents does not exceed."""
    wanted = math.ceil(share * sum(n for _, n in lengths))
    for length, documents in lengths:
        wanted -= documents
        if wanted <= 0:
            return length
    raise ValueError(f"a share of {share}: it is at most 1")


def _eos_density(numbers: Numbers) -> str:
    """Return end tokens in a thousand tokens beside documents: equal where each ends in one."""
    documents, tokens = _documents(numbers), _placed(numbers)
    if not tokens:
        return "no tokens"
    rows = [
        ("documents (1 / mean length)", f"{documents:,.0f}", f"{1000 * documents / tokens:.4f}")
    ]
    said = "End tokens were not counted."
    if "eos_count" in numbers:
        eos = numbers["eos_count"]
        rows.insert(0, ("end tokens", f"{eos:,.0f}", f"{1000 * eos / tokens:.4f}"))
        said = _compared(eos, documents)
    return f"{table(('', 'number', 'in 1,000 tokens'), rows)}\n\n{said}"


def _compared(eos: float, documents: float) -> str:
    if eos == documents:
        return "Each document ends in one end token."
    if not eos:
        return "Documents carry no end token."
    more, off = ("more" if eos > documents else "fewer"), abs(eos - documents)
    return f"There are {off:,.0f} {more} end tokens than documents."


def _in_force(numbers: Numbers) -> str | None:
    """Return the strategy that the files were made with."""
    return next((s for s in STRATEGIES if numbers.get(f"strategy/{s}")), None)


def _documents(numbers: Numbers) -> float:
    return numbers["train_documents"] + numbers["validation_documents"]


def _placed(numbers: Numbers) -> float:
    return numbers["train_tokens"] + numbers["validation_tokens"]


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
