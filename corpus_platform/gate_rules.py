"""The rules behind the gates: how numbers that were measured of an artifact are held against limits.

A rule is a function of numbers and of the settings `checks`, and says a finding: passed or not, value,
limit and words. A limit on a share fails from `checks.min_records` records on and only warns below.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from corpus_platform.config import MIN_UTILISATION, ChecksSettings

__all__ = [
    "LARGE_CLUSTER",
    "SMALL_CLUSTER",
    "Finding",
    "Gate",
    "Numbers",
    "at_most",
    "canaries",
    "drop_rate",
    "estimates",
    "kept_share",
    "language_yield",
    "largest_cluster",
    "leaks",
    "naming",
    "not_empty",
    "order",
    "outlasting",
    "readable",
    "shrunk",
    "utilisation",
    "verified",
    "vocabulary",
    "windows",
    "zero",
]

Numbers = Mapping[str, float]

# Standard errors by which estimates may be off: by chance once in 500 million times; of fewer than
# five pairs, whose errors have longer tails than normal ones, twice in a million.
SIGMAS = 6.0
# Distinct texts of a cluster that may be as large a share as they like: in a corpus of a thousand
# pages a small family of near-copies is already some per cent.
SMALL_CLUSTER = 20
# Below this it only warns: a licence that 53 packages carry is no runaway among 6,000 pages.
LARGE_CLUSTER = 100


@dataclass(frozen=True)
class Finding:
    """What one gate says of one artifact: `value` against `limit`, in words in `reason`."""

    gate: str
    passed: bool
    reason: str
    value: float | None = None
    limit: float | None = None
    warns: bool = False  # failed, but too little evidence or waived
    waived: str | None = None

    @property
    def blocks(self) -> bool:
        """Whether nothing after the artifact may read it."""
        return not self.passed and not self.warns


@dataclass(frozen=True)
class Gate:
    """One named rule; `look` gets numbers and limits and says value, limit, passed, reason."""

    name: str
    description: str
    look: Callable[[Numbers, ChecksSettings], Finding]
    repeats: bool = False  # only says again that shards are left out, whose own gates failed
    holds_back: bool = (
        False  # only keeps an artifact from coming into force; by name it may be read
    )


def zero(name: str, number: str, what: str, description: str, *, repeats: bool = False) -> Gate:
    """Build a gate that fails when a count of faults is not 0."""

    def look(numbers: Numbers, _: ChecksSettings) -> Finding:
        count = numbers[number]
        return Finding(name, count == 0, f"{count:,.0f} {what}", value=count, limit=0.0)

    return Gate(name, description, look, repeats)


def at_most(
    name: str,
    share: tuple[str, str],
    limit_of: Callable[[ChecksSettings], float],
    description: str,
    *,
    always: bool = False,
    repeats: bool = False,
) -> Gate:
    """Build a gate over a share of two counts that must not exceed a limit.

    `always`: the limit holds however few there are.
    """
    part, whole = share

    def look(numbers: Numbers, checks: ChecksSettings) -> Finding:
        total = numbers[whole]
        value, limit = _share(numbers[part], total), limit_of(checks)
        reason = f"{part} {value:.4f} of {total:,.0f} {whole}, limit {limit}"
        few = not always and total < checks.min_records
        return Finding(
            name, value <= limit, reason, value=value, limit=limit, warns=few and value > limit
        )

    return Gate(name, description, look, repeats)


def naming(gate: Gate, number: str) -> Gate:
    """Build a gate that also names records: those of the numbers `<number>/<shard>:<row>`."""

    def look(numbers: Numbers, checks: ChecksSettings) -> Finding:
        finding = gate.look(numbers, checks)
        named = {n.partition("/")[2]: numbers[n] for n in numbers if n.startswith(f"{number}/")}
        if not named:
            return finding
        few = sorted(named.items(), key=lambda one: int(one[0].rpartition(":")[2]))
        records = ", ".join(f"{record} ({count:,.0f})" for record, count in few)
        others = " and others" if sum(named.values()) < numbers[number] else ""
        return replace(finding, reason=f"{finding.reason}; in records {records}{others}")

    return replace(gate, look=look)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def kept_share(numbers: Numbers, checks: ChecksSettings) -> Finding:
    """Hold the share of documents that cleaning kept."""
    total = numbers["documents"]
    value, limit = (numbers["kept"] / total if total else 1.0), checks.min_kept_share
    reason = f"kept {value:.4f} of {total:,.0f} documents, limit {limit}"
    few = total < checks.min_records
    return Finding(
        "kept_share", value >= limit, reason, value=value, limit=limit, warns=few and value < limit
    )


class _Worst(NamedTuple):
    """The group of enough documents of which the smallest share is left; none of 0 lost any.

    A name may be empty: it is what a crawl holds.
    """

    name: str
    share: float
    documents: float


def _worst(numbers: Numbers, kind: str, left: str, least: int) -> _Worst:
    """Find it among the numbers `<kind>/<name>/documents` and `<kind>/<name>/<left>`."""
    worst = _Worst("", 1.0, 0.0)
    for number in numbers:
        of, _, rest = number.partition("/")
        name, _, what = rest.rpartition("/")
        if of != kind or what != "documents" or numbers[number] < least:
            continue
        documents = numbers[number]
        share = _share(numbers[f"{kind}/{name}/{left}"], documents)
        if share < worst.share:
            worst = _Worst(name, share, documents)
    return worst


def language_yield(numbers: Numbers, checks: ChecksSettings) -> Finding:
    """Find the language of enough documents of which the smallest share was kept."""
    total, limit = numbers["documents"], checks.min_language_kept_share
    language, value, documents = _worst(numbers, "language", "kept", checks.min_language_documents)
    reason = (
        f"kept {value:.4f} of {documents:,.0f} documents in {language!r}, limit {limit}"
        if documents
        else f"no language of {checks.min_language_documents} among {total:,.0f} documents lost any"
    )
    return Finding("language_yield", value >= limit, reason, value=value, limit=limit)


def outlasting(name: str, kind: str, what: str, description: str) -> Gate:
    """Build a gate over what loses the most documents to near-copies of its own."""

    def look(numbers: Numbers, checks: ChecksSettings) -> Finding:
        total, limit = numbers["documents"], checks.min_source_kept_share
        worst, value, documents = _worst(numbers, kind, "outlast", checks.min_source_documents)
        reason = (
            f"{value:.4f} of {documents:,.0f} documents of {worst!r} outlast their own near-copies,"
            f" limit {limit}"
            if documents
            else f"no {what} of {checks.min_source_documents} among {total:,.0f} documents lost any"
        )
        return Finding(name, value >= limit, reason, value=value, limit=limit)

    return Gate(name, description, look)


def estimates(numbers: Numbers, _: ChecksSettings) -> Finding:
    """Hold the errors of Jaccard estimates against those that chance explains."""
    pairs, ratio = numbers["estimate_pairs"], numbers["estimate_ratio"]
    bias, witness = numbers["estimate_bias"], numbers["witness_ratio"]
    if pairs == 0:
        return Finding("estimates", True, "no text of the sample is long enough", value=0.0)
    limit = 1.0 + SIGMAS / math.sqrt(2.0 * pairs)  # a deviation of n values is off by 1/sqrt(2n)
    reason = (
        f"errors of {pairs:,.0f} estimates are {ratio:.3f} of theory, limit {limit:.3f}"
        f" (datasketch: {witness:.3f}); their mean is {bias:+.2f} standard errors, limit {SIGMAS:g}"
    )
    passed = ratio <= limit and abs(bias) <= SIGMAS  # a NaN is no pass
    value = max(abs(bias), (ratio - 1.0) * math.sqrt(2.0 * pairs))  # in standard errors
    return Finding("estimates", passed, reason, value=value, limit=SIGMAS)


def canaries(numbers: Numbers, _: ChecksSettings) -> Finding:
    """Hold the planted copies against those that were found."""
    planted, found = numbers["canaries"], numbers["canaries_found"]
    none = planted == 0 and numbers["documents"] > 0
    reason = (
        "no canary was planted: nothing shows that copies are found"
        if none
        else f"{found:,.0f} of {planted:,.0f} planted copies were found"
    )
    missed = planted - found
    return Finding("canaries", missed == 0 and not none, reason, value=missed, limit=0.0)


def largest_cluster(numbers: Numbers, checks: ChecksSettings) -> Finding:
    """Hold the largest cluster of near-copies against its share of all texts."""
    largest, texts, limit = (
        numbers["largest_near_cluster"],
        numbers["texts"],
        checks.max_cluster_share,
    )
    value = _share(largest, texts)
    passed = largest < SMALL_CLUSTER or value <= limit
    reason = (
        f"the largest cluster has {largest:,.0f} of {texts:,.0f} distinct texts ({value:.4f}),"
        f" limit checks.max_cluster_share {limit}; it blocks from {LARGE_CLUSTER} texts on"
    )
    few = texts < checks.min_records or largest < LARGE_CLUSTER
    return Finding(
        "largest_cluster", passed, reason, value=value, limit=limit, warns=few and not passed
    )


def leaks(numbers: Numbers, _: ChecksSettings) -> Finding:
    """Hold that no validation document resembles one of train."""
    leaks, listed = numbers["leaks"], numbers["leak_pairs"]
    reason = (
        f"{leaks:,.0f} pairs of a validation and a train document are at or above the threshold;"
        f" {listed:,.0f} are listed from 0.5 on"
    )
    return Finding("leaks", leaks == 0, reason, value=leaks, limit=0.0)


def utilisation(numbers: Numbers, checks: ChecksSettings) -> Finding:
    """Hold how full the rows are against the limit of the strategy in force."""
    name = next(name for name in MIN_UTILISATION if numbers[f"strategy/{name}"])
    value, limit = numbers[f"utilisation/{name}"], checks.min_utilisation[name]
    rows, length = numbers[f"rows/{name}"], numbers["sequence_length"]
    others = ", ".join(
        f"{other} {numbers[f'utilisation/{other}']:.4f}"
        for other in MIN_UTILISATION
        if other != name
    )
    reason = (
        f"{value:.4f} of the positions in {rows:,.0f} rows of {length:,.0f} hold tokens ({name}),"
        f" limit checks.min_utilisation {limit}; {others}"
    )
    passed = value >= limit or not rows
    few = rows < checks.min_records
    return Finding(
        "utilisation", passed, reason, value=value, limit=limit, warns=few and not passed
    )


def order(numbers: Numbers, _: ChecksSettings) -> Finding:
    """Hold two statistics of an order against those of random ones."""
    value, units = numbers["order_sigmas"], numbers["order_units"]
    reason = (
        f"the order of {units:,.0f} units is {value:.2f} standard errors off a random one, limit"
        f" {SIGMAS:g}: rank correlation {numbers['rank_correlation']:+.4f},"
        f" {numbers['same_shard_neighbours']:,.0f} neighbours of one shard,"
        f" {numbers['same_shard_neighbours_expected']:,.0f} expected"
    )
    return Finding("order", value <= SIGMAS, reason, value=value, limit=SIGMAS)


def shrunk(numbers: Numbers, checks: ChecksSettings) -> Finding:
    """Hold the documents of a release against those of the one that it would replace."""
    documents, before = numbers["documents"], numbers["documents_in_force"]
    value, limit = max(0.0, _share(before - documents, before)), checks.max_release_shrink
    reason = (
        f"{documents:,.0f} documents, {before:,.0f} to match of the release in force: {value:.4f}"
        f" fewer, limit checks.max_release_shrink {limit}; it does not become current"
        if value > limit
        else f"{documents:,.0f} documents, {before:,.0f} to match of the release in force"
    )
    few = before < checks.min_records
    return Finding(
        "shrunk", value <= limit, reason, value=value, limit=limit, warns=few and value > limit
    )


def windows(numbers: Numbers, _: ChecksSettings) -> Finding:
    """Warn: a training run cannot take one sequence out of such a file."""
    count, files, length = (
        numbers[name] for name in ("files_without_window", "train_files", "sequence_length")
    )
    reason = (
        f"{count:,.0f} of {files:,.0f} train files have no sequence of {length:,.0f} tokens and the"
        f" one that follows; {numbers['train_windows']:,.0f} sequences in all"
    )
    return Finding("windows", count == 0, reason, value=count, limit=0.0, warns=count > 0)


def vocabulary(numbers: Numbers, _: ChecksSettings) -> Finding:
    """Warn: what was planned with the vocabulary asked for, such as embeddings, has another size."""
    size, asked = numbers["vocab_size"], numbers["vocab_size_asked"]
    words = [f"{size:,.0f} tokens of {asked:,.0f} asked for"]
    if "sample_bytes" in numbers:  # not measured of tokenizers that are older than this gate
        words[0] += (
            f", trained on {numbers['sample_bytes']:,.0f} bytes in"
            f" {numbers['sample_documents']:,.0f} documents"
            f" (tokenizer.sample_bytes: {numbers['sample_bytes_asked']:,.0f})"
        )
    if size < asked:
        words.append(
            "for more raise tokenizer.sample_bytes where the corpus has more text for training, or"
            " add documents; else ask for fewer (tokenizer.vocab_size)"
        )
    few, missing = size < asked, max(0.0, asked - size)
    return Finding("vocabulary", not few, "; ".join(words), value=missing, limit=0.0, warns=few)


def not_empty(numbers: Numbers, checks: ChecksSettings) -> Finding:
    """Hold that something is left where documents came in; of few ones it warns."""
    documents, kept = numbers["documents"], numbers["kept"]
    reason = f"{kept:,.0f} documents out of {documents:,.0f}"
    lost = documents > 0 and kept == 0
    few = documents < checks.min_records
    return Finding("not_empty", not lost, reason, value=kept, warns=lost and few)


def readable(numbers: Numbers, _: ChecksSettings) -> Finding:
    """Hold that the shard was read to its end."""
    readable = numbers["readable"]
    reason = "the shard was read to its end" if readable else "the shard cannot be read to its end"
    return Finding("readable", bool(readable), reason, value=readable, limit=1.0)


def verified(numbers: Numbers, _: ChecksSettings) -> Finding:
    """Warn: a body that ends early looks whole where nothing says how long it is."""
    # Copies that were made before this was counted were local ones.
    count = numbers.get("verified/nothing", 0)
    reason = f"{count:,.0f} of {numbers['files']:,.0f} files came without a stated length or hash"
    return Finding("verified", count == 0, reason, value=count, limit=0.0, warns=count > 0)


def drop_rate(rule: str) -> Gate:
    """Build the gate over the share of documents that a rule drops."""
    return at_most(
        f"drop_rate_{rule}",
        (f"dropped/{rule}", "documents"),
        lambda checks: checks.max_drop_share[rule],
        f"The share of documents that the rule {rule} drops is at most its limit.",
    )
