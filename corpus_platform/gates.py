"""Gates: what must hold of an artifact before anything after it may read it.

Pure rules: numbers that were measured by reading the artifact's files, today's limits and waivers
in, findings out. The same rules are shown as asset checks and enforced by the stages. A limit on
a share fails from `checks.min_records` records on and only warns below.
"""

import datetime
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from corpus_platform.config import MIN_UTILISATION, ChecksSettings, Waiver
from corpus_platform.rule_settings import RULES

__all__ = ["GATES", "Finding", "Gate", "blocking", "holds_back", "judge", "repeats", "unmeasured"]

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


def judge(
    asset: str,
    partition: str | None,
    numbers: Numbers,
    *,
    checks: ChecksSettings,
    waivers: Iterable[Waiver],
    today: datetime.date,
) -> list[Finding]:
    """Return the finding of every gate of an asset, all of them, in the order of GATES.

    A number that a gate needs and does not find is a failure of that gate.
    """
    findings = []
    for gate in GATES[asset]:
        try:
            finding = gate.look(numbers, checks)
        except KeyError as missing:
            finding = Finding(
                gate.name, passed=False, reason=f"the number {missing} was not measured"
            )
        findings.append(_waive(asset, finding, partition, waivers, today))
    return findings


def unmeasured(asset: str, reason: str) -> list[Finding]:
    """Return a failure of every gate of an asset whose files cannot be measured; no waiver helps."""
    return [Finding(gate.name, passed=False, reason=reason) for gate in GATES[asset]]


def repeats(name: str) -> bool:
    """Tell whether a gate of that name only says what the gates of shards have said before."""
    return any(g.repeats for gates in GATES.values() for g in gates if g.name == name)


def holds_back(name: str) -> bool:
    """Tell whether a gate of that name only decides what is in force, and not what may be read."""
    return any(g.holds_back for gates in GATES.values() for g in gates if g.name == name)


def blocking(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that refuse the artifact."""
    return [f for f in findings if f.blocks]


def _waive(
    asset: str,
    finding: Finding,
    partition: str | None,
    waivers: Iterable[Waiver],
    today: datetime.date,
) -> Finding:
    if not finding.blocks:
        return finding
    for waiver in waivers:
        if (
            waiver.gate in (finding.gate, f"{asset}/{finding.gate}")
            and waiver.partition == partition
            and waiver.expires >= today
        ):
            words = f"waived until {waiver.expires}: {waiver.reason}"
            return replace(finding, warns=True, waived=words, reason=f"{finding.reason} ({words})")
    return finding


def _zero(name: str, number: str, what: str, description: str, *, repeats: bool = False) -> Gate:
    """Build a gate that fails when a count of faults is not 0."""

    def look(numbers: Numbers, _: ChecksSettings) -> Finding:
        count = numbers[number]
        return Finding(name, count == 0, f"{count:,.0f} {what}", value=count, limit=0.0)

    return Gate(name, description, look, repeats)


def _at_most(
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


def _naming(gate: Gate, number: str) -> Gate:
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


def _kept_share(numbers: Numbers, checks: ChecksSettings) -> Finding:
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


def _language_yield(numbers: Numbers, checks: ChecksSettings) -> Finding:
    """Find the language of enough documents of which the smallest share was kept."""
    total, limit = numbers["documents"], checks.min_language_kept_share
    language, value, documents = _worst(numbers, "language", "kept", checks.min_language_documents)
    reason = (
        f"kept {value:.4f} of {documents:,.0f} documents in {language!r}, limit {limit}"
        if documents
        else f"no language of {checks.min_language_documents} among {total:,.0f} documents lost any"
    )
    return Finding("language_yield", value >= limit, reason, value=value, limit=limit)


def _outlasting(name: str, kind: str, what: str, description: str) -> Gate:
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


def _estimates(numbers: Numbers, _: ChecksSettings) -> Finding:
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


def _canaries(numbers: Numbers, _: ChecksSettings) -> Finding:
    planted, found = numbers["canaries"], numbers["canaries_found"]
    none = planted == 0 and numbers["documents"] > 0
    reason = (
        "no canary was planted: nothing shows that copies are found"
        if none
        else f"{found:,.0f} of {planted:,.0f} planted copies were found"
    )
    missed = planted - found
    return Finding("canaries", missed == 0 and not none, reason, value=missed, limit=0.0)


def _largest_cluster(numbers: Numbers, checks: ChecksSettings) -> Finding:
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


def _leaks(numbers: Numbers, _: ChecksSettings) -> Finding:
    leaks, listed = numbers["leaks"], numbers["leak_pairs"]
    reason = (
        f"{leaks:,.0f} pairs of a validation and a train document are at or above the threshold;"
        f" {listed:,.0f} are listed from 0.5 on"
    )
    return Finding("leaks", leaks == 0, reason, value=leaks, limit=0.0)


def _utilisation(numbers: Numbers, checks: ChecksSettings) -> Finding:
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


def _order(numbers: Numbers, _: ChecksSettings) -> Finding:
    """Hold two statistics of an order against those of random ones."""
    value, units = numbers["order_sigmas"], numbers["order_units"]
    reason = (
        f"the order of {units:,.0f} units is {value:.2f} standard errors off a random one, limit"
        f" {SIGMAS:g}: rank correlation {numbers['rank_correlation']:+.4f},"
        f" {numbers['same_shard_neighbours']:,.0f} neighbours of one shard,"
        f" {numbers['same_shard_neighbours_expected']:,.0f} expected"
    )
    return Finding("order", value <= SIGMAS, reason, value=value, limit=SIGMAS)


def _shrunk(numbers: Numbers, checks: ChecksSettings) -> Finding:
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


def _windows(numbers: Numbers, _: ChecksSettings) -> Finding:
    """Warn: a training run cannot take one sequence out of such a file."""
    count, files, length = (
        numbers[name] for name in ("files_without_window", "train_files", "sequence_length")
    )
    reason = (
        f"{count:,.0f} of {files:,.0f} train files have no sequence of {length:,.0f} tokens and the"
        f" one that follows; {numbers['train_windows']:,.0f} sequences in all"
    )
    return Finding("windows", count == 0, reason, value=count, limit=0.0, warns=count > 0)


def _vocabulary(numbers: Numbers, _: ChecksSettings) -> Finding:
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


def _not_empty(numbers: Numbers, checks: ChecksSettings) -> Finding:
    documents, kept = numbers["documents"], numbers["kept"]
    reason = f"{kept:,.0f} documents out of {documents:,.0f}"
    lost = documents > 0 and kept == 0
    few = documents < checks.min_records
    return Finding("not_empty", not lost, reason, value=kept, warns=lost and few)


def _readable(numbers: Numbers, _: ChecksSettings) -> Finding:
    readable = numbers["readable"]
    reason = "the shard was read to its end" if readable else "the shard cannot be read to its end"
    return Finding("readable", bool(readable), reason, value=readable, limit=1.0)


def _verified(numbers: Numbers, _: ChecksSettings) -> Finding:
    """Warn: a body that ends early looks whole where nothing says how long it is."""
    # Copies that were made before this was counted were local ones.
    count = numbers.get("verified/nothing", 0)
    reason = f"{count:,.0f} of {numbers['files']:,.0f} files came without a stated length or hash"
    return Finding("verified", count == 0, reason, value=count, limit=0.0, warns=count > 0)


def _drop_rate(rule: str) -> Gate:
    return _at_most(
        f"drop_rate_{rule}",
        (f"dropped/{rule}", "documents"),
        lambda checks: checks.max_drop_share[rule],
        f"The share of documents that the rule {rule} drops is at most its limit.",
    )


GATES: dict[str, tuple[Gate, ...]] = {
    "raw_shards": (
        _zero(
            "sha256",
            "files_differing",
            "files differ from their recorded sha256",
            "Every stored file has the sha256 that was recorded for it.",
        ),
        _zero(
            "size",
            "sizes_differing",
            "files differ from their recorded size",
            "Every stored file has the size that was recorded for it.",
        ),
        Gate(
            "verified",
            "Of every file the length or the sha256 was stated by its source; else it warns.",
            _verified,
        ),
    ),
    "cleaned_documents": (
        Gate("readable", "The shard was read to its end.", _readable),
        _zero(
            "ledger",
            "unaccounted",
            "records are not accounted for",
            "Lines = kept + dropped + quarantined, counted in the written files.",
        ),
        Gate("not_empty", "Where documents came in, some came out.", _not_empty),
        _at_most(
            "quarantined",
            ("quarantined", "lines"),
            lambda c: c.max_quarantined_share,
            "The share of records that cannot be read is at most its limit.",
        ),
        *(_drop_rate(rule) for rule in RULES),
        Gate("kept_share", "The share of documents kept is at least its limit.", _kept_share),
        Gate("language_yield", "Of every language a share is kept.", _language_yield),
    ),
    "minhash_signatures": (
        _zero(
            "coverage",
            "uncovered",
            "cleaned documents without their own signature",
            "Every cleaned document has one signature, and nothing else has.",
        ),
        _zero(
            "exact_keys",
            "wrong_digests",
            "documents of the sample with another text hash",
            "The exact keys of a sample equal those of the cleaned texts.",
        ),
        _zero(
            "signatures",
            "wrong_signatures",
            "signatures are not of their width or, in the sample, not of their text",
            "Every signature has its k values; those of a sample are computed from the texts again.",
        ),
        _zero(
            "bands",
            "wrong_bands",
            "documents whose band hashes are not those of their signature",
            "The band hashes of every document are those of its signature.",
        ),
        Gate(
            "estimates",
            "Jaccard estimates of signatures err as much as theory says, and no more often up than down.",
            _estimates,
        ),
    ),
    "dedup_clusters": (
        Gate("not_empty", "There is something to train on.", _not_empty),
        Gate("language_yield", "Of every language of the corpus a share is kept.", _language_yield),
        _outlasting(
            "source_yield",
            "source",
            "source",
            "Of every source a share outlasts the near-copies of the same source and crawl.",
        ),
        _outlasting(
            "language_survival",
            "surviving_language",
            "language",
            "Of every language a share outlasts the near-copies of the same source and crawl.",
        ),
        _zero(
            "ledger",
            "unaccounted",
            "documents are not accounted for",
            "Documents = kept + exact copies + near copies = the cleaned documents.",
        ),
        _zero(
            "twins",
            "bad_twins",
            "dropped documents without a kept twin at the threshold",
            "Every dropped document names a kept twin at or above the threshold.",
        ),
        _zero(
            "exact_copies",
            "wrong_copies",
            "documents whose text came earlier and are no exact copy, or the other way round",
            "Exact copies are the documents whose text an earlier one has, and no others.",
        ),
        _zero(
            "similarity",
            "wrong_similarities",
            "similarities differ from the texts' or join a pair below the threshold",
            "Similarities of twins and edges equal the exact Jaccard of the texts, on a sample;"
            " every edge is at or above the threshold.",
        ),
        _zero(
            "policy",
            "policy_breaks",
            "breaks of the keep policy",
            "first_seen: no two kept documents share an edge; one_per_cluster: exactly one of a cluster is kept.",
        ),
        Gate("canaries", "All copies planted into the comparison are found.", _canaries),
        Gate(
            "largest_cluster",
            f"A cluster of near-copies is at most a share of all texts; with {SMALL_CLUSTER} texts or more it"
            f" warns, from {LARGE_CLUSTER} on it blocks.",
            _largest_cluster,
        ),
        _zero(
            "split",
            "bad_splits",
            "documents in a wrong split",
            "Kept documents, and only they, are in train or validation.",
        ),
        Gate("leaks", "No validation document has a near-copy in train.", _leaks),
        _zero(
            "verdicts",
            "bad_verdicts",
            "verdicts differ from the cluster table",
            "The verdict file of each shard says what the table says.",
        ),
        _at_most(
            "uncleared",
            ("uncleared", "shards"),
            lambda c: 0.0 if c.uncleared == "refuse" else c.max_uncleared_share,
            "The share of shards left out is at most its limit.",
            always=True,
            repeats=True,
        ),
    ),
    "dedup_verdicts": (),  # judged with the table that they are cut from
    "tokenizer": (
        _zero(
            "round_trip",
            "round_trip_failures",
            "texts do not survive encoding and decoding",
            "decode(encode(text)) is the text, on hostile strings and real documents.",
        ),
        _zero(
            "special_tokens",
            "special_tokens_missing",
            "special tokens are missing",
            "Every special token has an id.",
        ),
        _zero(
            "byte_alphabet",
            "bytes_missing",
            "of 256 bytes have no token",
            "All 256 bytes have a token, so that no text is unknown.",
        ),
        _zero(
            "dense_ids",
            "bad_ids",
            "ids are used twice or not at all",
            "Ids are 0 .. vocabulary - 1, each once.",
        ),
        _zero(
            "text_stays_text",
            "literals_encoded",
            "texts that spell a special token become one",
            "Text that spells a special token is encoded as text.",
        ),
        Gate(
            "vocabulary",
            "It has as many tokens as were asked for; with fewer it warns.",
            _vocabulary,
        ),
    ),
    "packed_bins": (
        _zero(
            "documents",
            "documents_differing",
            "documents more or fewer than kept",
            "The bins hold the kept documents of the shard, each once, under its id and language.",
        ),
        _zero(
            "ledger",
            "tokens_unaccounted",
            "tokens are not accounted for",
            "Tokens encoded = tokens placed + cut, and nothing is cut but what passes the limit; positions of the files = tokens placed + padding; the ledger says so.",
        ),
        _zero(
            "index",
            "index_faults",
            "entries of the index do not fit the tokens or the table of documents",
            "The index rises to the end of the file; each entry is the document or piece that is listed; rows are those of pack.strategy and pack.sequence_length.",
        ),
        _zero(
            "ids",
            "ids_out_of_range",
            "ids are not below the vocabulary size",
            "Every id is below the vocabulary size.",
        ),
        _zero(
            "eos",
            "bad_ends",
            "control tokens are missing or stand inside a document",
            "Each document begins and ends as the policy says, and has no other control token.",
        ),
        _zero(
            "mask",
            "mask_faults",
            "tokens or files with a wrong loss mask",
            "A loss mask has one byte per token, none for padding, and is that of the texts, on a sample.",
        ),
        _naming(
            _at_most(
                "no_loss_ranges",
                ("bad_no_loss_ranges", "documents"),
                lambda c: c.max_quarantined_share,
                "Few no_loss_ranges of records are none: no pairs of offsets in their text.",
            ),
            "bad_no_loss_ranges",
        ),
        _zero(
            "decodes",
            "undecodable",
            "sampled documents do not decode to their text",
            "A sample of documents decodes to the cleaned text.",
        ),
        _zero(
            "sha256",
            "files_differing",
            "files differ from their recorded sha256",
            "Every file has the sha256 that its header records.",
        ),
        Gate(
            "utilisation",
            "The share of all positions that hold tokens of documents is at least its limit.",
            _utilisation,
        ),
    ),
    "shuffled_bins": (
        _zero(
            "documents",
            "documents_differing",
            "documents are missing, foreign or changed",
            "The release holds exactly the packed documents, token by token.",
        ),
        _zero(
            "validation",
            "leaked",
            "validation documents are in train too",
            "No validation document is in train.",
        ),
        _zero(
            "sha256",
            "files_differing",
            "files differ from their recorded sha256",
            "Every file has the sha256 that its header records.",
        ),
        _zero(
            "tokens",
            "tokens_unaccounted",
            "tokens are not accounted for",
            "Tokens of the release = tokens of the packed bins.",
        ),
        Gate(
            "order",
            "The order has nothing to do with the one before: rank correlation, and neighbours of one shard.",
            _order,
        ),
        _zero(
            "decodes",
            "undecodable",
            "documents at ten random positions do not decode to their text",
            "What stands at ten random positions decodes to the text of the document that is named.",
        ),
        Gate(
            "windows",
            "Every train file holds a sequence of pack.sequence_length and its labels; else it warns.",
            _windows,
        ),
        _zero(
            "whole",
            "shards_left_out",
            "shards are left out; it does not become current",
            "No shard is left out; a release without some becomes current only by a waiver.",
            repeats=True,
        ),
        Gate(
            "shrunk",
            "It has about as many documents as the release in force, those of shards left out or retired not counted; a smaller one becomes current only by a waiver.",
            _shrunk,
            holds_back=True,
        ),
    ),
}
