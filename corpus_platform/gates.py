"""Gates: what must hold of an artifact before anything after it may read it.

Pure: numbers that were measured by reading the artifact's files, today's limits and waivers in,
findings out. The same gates are shown as asset checks and enforced by the stages; how each judges
stands in `gate_rules`.
"""

import datetime
from collections.abc import Iterable
from dataclasses import replace

from corpus_platform.config import ChecksSettings, Waiver
from corpus_platform.gate_rules import (
    LARGE_CLUSTER,
    SMALL_CLUSTER,
    Finding,
    Gate,
    Numbers,
    at_most,
    canaries,
    drop_rate,
    estimates,
    kept_share,
    language_yield,
    largest_cluster,
    leaks,
    naming,
    not_empty,
    order,
    outlasting,
    readable,
    shrunk,
    utilisation,
    verified,
    vocabulary,
    windows,
    zero,
)
from corpus_platform.rule_settings import RULES

__all__ = ["GATES", "Finding", "Gate", "blocking", "holds_back", "judge", "repeats", "unmeasured"]


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


GATES: dict[str, tuple[Gate, ...]] = {
    "raw_shards": (
        zero(
            "sha256",
            "files_differing",
            "files differ from their recorded sha256",
            "Every stored file has the sha256 that was recorded for it.",
        ),
        zero(
            "size",
            "sizes_differing",
            "files differ from their recorded size",
            "Every stored file has the size that was recorded for it.",
        ),
        Gate(
            "verified",
            "Of every file the length or the sha256 was stated by its source; else it warns.",
            verified,
        ),
    ),
    "cleaned_documents": (
        Gate("readable", "The shard was read to its end.", readable),
        zero(
            "ledger",
            "unaccounted",
            "records are not accounted for",
            "Lines = kept + dropped + quarantined, counted in the written files.",
        ),
        Gate("not_empty", "Where documents came in, some came out.", not_empty),
        at_most(
            "quarantined",
            ("quarantined", "lines"),
            lambda c: c.max_quarantined_share,
            "The share of records that cannot be read is at most its limit.",
        ),
        *(drop_rate(rule) for rule in RULES),
        Gate("kept_share", "The share of documents kept is at least its limit.", kept_share),
        Gate("language_yield", "Of every language a share is kept.", language_yield),
    ),
    "minhash_signatures": (
        zero(
            "coverage",
            "uncovered",
            "cleaned documents without their own signature",
            "Every cleaned document has one signature, and nothing else has.",
        ),
        zero(
            "exact_keys",
            "wrong_digests",
            "documents of the sample with another text hash",
            "The exact keys of a sample equal those of the cleaned texts.",
        ),
        zero(
            "signatures",
            "wrong_signatures",
            "signatures are not of their width or, in the sample, not of their text",
            "Every signature has its k values; those of a sample are computed from the texts again.",
        ),
        zero(
            "bands",
            "wrong_bands",
            "documents whose band hashes are not those of their signature",
            "The band hashes of every document are those of its signature.",
        ),
        Gate(
            "estimates",
            "Jaccard estimates of signatures err as much as theory says, and no more often up than down.",
            estimates,
        ),
    ),
    "dedup_clusters": (
        Gate("not_empty", "There is something to train on.", not_empty),
        Gate("language_yield", "Of every language of the corpus a share is kept.", language_yield),
        outlasting(
            "source_yield",
            "source",
            "source",
            "Of every source a share outlasts the near-copies of the same source and crawl.",
        ),
        outlasting(
            "language_survival",
            "surviving_language",
            "language",
            "Of every language a share outlasts the near-copies of the same source and crawl.",
        ),
        zero(
            "ledger",
            "unaccounted",
            "documents are not accounted for",
            "Documents = kept + exact copies + near copies = the cleaned documents.",
        ),
        zero(
            "twins",
            "bad_twins",
            "dropped documents without a kept twin at the threshold",
            "Every dropped document names a kept twin at or above the threshold.",
        ),
        zero(
            "exact_copies",
            "wrong_copies",
            "documents whose text came earlier and are no exact copy, or the other way round",
            "Exact copies are the documents whose text an earlier one has, and no others.",
        ),
        zero(
            "similarity",
            "wrong_similarities",
            "similarities differ from the texts' or join a pair below the threshold",
            "Similarities of twins and edges equal the exact Jaccard of the texts, on a sample;"
            " every edge is at or above the threshold.",
        ),
        zero(
            "policy",
            "policy_breaks",
            "breaks of the keep policy",
            "first_seen: no two kept documents share an edge; one_per_cluster: exactly one of a cluster is kept.",
        ),
        Gate("canaries", "All copies planted into the comparison are found.", canaries),
        Gate(
            "largest_cluster",
            f"A cluster of near-copies is at most a share of all texts; with {SMALL_CLUSTER} texts or more it"
            f" warns, from {LARGE_CLUSTER} on it blocks.",
            largest_cluster,
        ),
        zero(
            "split",
            "bad_splits",
            "documents in a wrong split",
            "Kept documents, and only they, are in train or validation.",
        ),
        Gate("leaks", "No validation document has a near-copy in train.", leaks),
        zero(
            "verdicts",
            "bad_verdicts",
            "verdicts differ from the cluster table",
            "The verdict file of each shard says what the table says.",
        ),
        at_most(
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
        zero(
            "round_trip",
            "round_trip_failures",
            "texts do not survive encoding and decoding",
            "decode(encode(text)) is the text, on hostile strings and real documents.",
        ),
        zero(
            "special_tokens",
            "special_tokens_missing",
            "special tokens are missing",
            "Every special token has an id.",
        ),
        zero(
            "byte_alphabet",
            "bytes_missing",
            "of 256 bytes have no token",
            "All 256 bytes have a token, so that no text is unknown.",
        ),
        zero(
            "dense_ids",
            "bad_ids",
            "ids are used twice or not at all",
            "Ids are 0 .. vocabulary - 1, each once.",
        ),
        zero(
            "text_stays_text",
            "literals_encoded",
            "texts that spell a special token become one",
            "Text that spells a special token is encoded as text.",
        ),
        Gate(
            "vocabulary",
            "It has as many tokens as were asked for; with fewer it warns.",
            vocabulary,
        ),
    ),
    "packed_bins": (
        zero(
            "documents",
            "documents_differing",
            "documents more or fewer than kept",
            "The bins hold the kept documents of the shard, each once, under its id and language.",
        ),
        zero(
            "ledger",
            "tokens_unaccounted",
            "tokens are not accounted for",
            "Tokens encoded = tokens placed + cut, and nothing is cut but what passes the limit; positions of the files = tokens placed + padding; the ledger says so.",
        ),
        zero(
            "index",
            "index_faults",
            "entries of the index do not fit the tokens or the table of documents",
            "The index rises to the end of the file; each entry is the document or piece that is listed; rows are those of pack.strategy and pack.sequence_length.",
        ),
        zero(
            "ids",
            "ids_out_of_range",
            "ids are not below the vocabulary size",
            "Every id is below the vocabulary size.",
        ),
        zero(
            "eos",
            "bad_ends",
            "control tokens are missing or stand inside a document",
            "Each document begins and ends as the policy says, and has no other control token.",
        ),
        zero(
            "mask",
            "mask_faults",
            "tokens or files with a wrong loss mask",
            "A loss mask has one byte per token, none for padding, and is that of the texts, on a sample.",
        ),
        naming(
            at_most(
                "no_loss_ranges",
                ("bad_no_loss_ranges", "documents"),
                lambda c: c.max_quarantined_share,
                "Few no_loss_ranges of records are none: no pairs of offsets in their text.",
            ),
            "bad_no_loss_ranges",
        ),
        zero(
            "decodes",
            "undecodable",
            "sampled documents do not decode to their text",
            "A sample of documents decodes to the cleaned text.",
        ),
        zero(
            "sha256",
            "files_differing",
            "files differ from their recorded sha256",
            "Every file has the sha256 that its header records.",
        ),
        Gate(
            "utilisation",
            "The share of all positions that hold tokens of documents is at least its limit.",
            utilisation,
        ),
    ),
    "shuffled_bins": (
        zero(
            "documents",
            "documents_differing",
            "documents are missing, foreign or changed",
            "The release holds exactly the packed documents, token by token.",
        ),
        zero(
            "validation",
            "leaked",
            "validation documents are in train too",
            "No validation document is in train.",
        ),
        zero(
            "sha256",
            "files_differing",
            "files differ from their recorded sha256",
            "Every file has the sha256 that its header records.",
        ),
        zero(
            "tokens",
            "tokens_unaccounted",
            "tokens are not accounted for",
            "Tokens of the release = tokens of the packed bins.",
        ),
        Gate(
            "order",
            "The order has nothing to do with the one before: rank correlation, and neighbours of one shard.",
            order,
        ),
        zero(
            "decodes",
            "undecodable",
            "documents at ten random positions do not decode to their text",
            "What stands at ten random positions decodes to the text of the document that is named.",
        ),
        Gate(
            "windows",
            "Every train file holds a sequence of pack.sequence_length and its labels; else it warns.",
            windows,
        ),
        zero(
            "whole",
            "shards_left_out",
            "shards are left out; it does not become current",
            "No shard is left out; a release without some becomes current only by a waiver.",
            repeats=True,
        ),
        Gate(
            "shrunk",
            "It has about as many documents as the release in force, those of shards left out or retired not counted; a smaller one becomes current only by a waiver.",
            shrunk,
            holds_back=True,
        ),
    ),
}
