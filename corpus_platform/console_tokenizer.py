"""What `corpus tokenizer` prints: the tokenizer in force, and what a new one makes due."""

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from corpus_platform.config import SPECIAL_TOKENS
from corpus_platform.console import printable
from corpus_platform.stages.retraining import InForce
from corpus_platform.stages.tokenizer import TOKENIZER_FILE
from corpus_platform.storage.artifacts import Artifact

__all__ = [
    "due_lines",
    "languages_table",
    "retrained_lines",
    "tokenizer_json",
    "tokenizer_lines",
]

NEVER = "new documents never train it again, so that old packs and new ones have the same ids"


def tokenizer_lines(found: InForce) -> Iterator[str]:
    """Say where it is, how large, what it was trained on, and what frozen means."""
    artifact, ledger = found.artifact, found.artifact.manifest.ledger
    yield f"tokenizer {artifact.path(TOKENIZER_FILE)}"
    yield f"sha256 {artifact.hashes()[TOKENIZER_FILE]}"
    yield (
        f"{ledger['vocab_size']:,} tokens ({ledger['vocab_size_asked']:,} asked for),"
        f" {len(SPECIAL_TOKENS)} of them special"
    )
    yield (
        f"trained on {ledger['sample_bytes']:,} bytes in {ledger['sample_documents']:,} kept"
        f" documents, {_when(artifact)}; {_since(found)}"
    )
    yield f"frozen: {NEVER}; another one comes of other `tokenizer:` settings, or of"
    yield f"`corpus tokenizer retrain`. A lost one comes back from {found.copy}"
    for finding in found.findings:
        yield f"{finding.gate}: {finding.reason}"


def _when(artifact: Artifact) -> str:
    return str(artifact.manifest.measured.get("made_at", ""))[:10]


def _since(found: InForce) -> str:
    same = "dedup has decided nothing anew since" if found.is_of_now else "the corpus changed since"
    again = f"; training number {found.training + 1} of these settings" if found.training else ""
    return same + again


def languages_table(found: InForce) -> Table:
    """Return a row for each language, the one with the most documents first."""
    table = Table(box=None, pad_edge=False)
    table.add_column("language")
    for head in ("documents", "chars/token", "bytes/token"):
        table.add_column(head, justify="right")
    for name, one in sorted(found.languages.items(), key=lambda item: (-item[1].documents, item)):
        ratios = f"{one.chars_per_token:.2f}", f"{one.bytes_per_token:.2f}"
        table.add_row(Text(printable(name)), f"{one.documents:,}", *ratios)
    return table


def tokenizer_json(found: InForce) -> dict[str, object]:
    """Return the same as JSON values."""
    artifact, ledger = found.artifact, found.artifact.manifest.ledger
    return {
        "path": str(artifact.path(TOKENIZER_FILE)),
        "sha256": artifact.hashes()[TOKENIZER_FILE],
        "vocab_size": ledger["vocab_size"],
        "vocab_size_asked": ledger["vocab_size_asked"],
        "special_tokens": list(SPECIAL_TOKENS),
        "sample_documents": ledger["sample_documents"],
        "sample_bytes": ledger["sample_bytes"],
        "trained_on": found.trained_on,
        "corpus_changed": not found.is_of_now,
        "training": found.training,
        "languages": {name: vars(one) for name, one in found.languages.items()},
    }


def due_lines(found: InForce, packs: int) -> Iterator[str]:
    """Say what a new tokenizer makes due."""
    yield f"in force: {found.artifact.path(TOKENIZER_FILE)}, trained {_when(found.artifact)}"
    yield (
        f"with a new one the packs of all shards become due ({packs:,} are current now), and a"
        " release of them; models that learned the ids of the old one cannot go on with the new"
    )
    yield "releases that are there stay, each with its own tokenizer"


def retrained_lines(made: Artifact | None) -> Iterator[str]:
    """Say what came of it."""
    if made is None:
        yield "the same tokenizer came out; nothing becomes due"
        return
    ledger = made.manifest.ledger
    yield (
        f"in force: {made.path(TOKENIZER_FILE)}: {ledger['vocab_size']:,} tokens, trained on"
        f" {ledger['sample_bytes']:,} bytes in {ledger['sample_documents']:,} documents"
    )
    yield "`corpus run` packs all shards anew, and makes a release of them"
