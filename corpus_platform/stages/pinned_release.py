"""A release as a training run pins it: found by its id, whole, cleared by its gates, and opened.

It goes by the release's own manifest and not by what is wanted now: an old release is as good as
the one in force. What it was made of is found by the contents that the manifest names.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from corpus_platform import gates
from corpus_platform.errors import Uncleared
from corpus_platform.formats.token_bin import Header, TokenBin, open_token_bin
from corpus_platform.formats.token_bin_writer import Policy
from corpus_platform.stages.bins_writing import BIN_NAMES, bin_file
from corpus_platform.stages.project import Project
from corpus_platform.stages.release_audit import DOCUMENTS
from corpus_platform.stages.release_names import name_release
from corpus_platform.stages.tokenizer import TOKENIZER_FILE
from corpus_platform.storage.artifacts import Artifact
from corpus_platform.storage.manifest import Manifest

__all__ = ["Counts", "PinnedRelease", "find_release", "pinned"]

ASSET = "shuffled_bins"
BLOCK = 1 << 22  # tokens or entries that are looked at together


class Counts(NamedTuple):
    """What token files hold; `tokens` are those of documents, so without `padding`."""

    documents: int
    tokens: int
    padding: int
    rows: int  # 0 where it is documents back to back


@dataclass(frozen=True)
class PinnedRelease:
    """A release that may be read; `headers` are those of its token files by base name, in order."""

    artifact: Artifact
    manifest: Manifest
    headers: dict[str, Header]

    @property
    def id(self) -> str:
        """The name of its folder."""
        return self.artifact.folder.name

    @property
    def content(self) -> str:
        """The hash of what is in it."""
        return self.manifest.content

    @property
    def shards(self) -> list[str]:
        """The source shards that are in it, in key order."""
        return list(self.manifest.ledger["shards"])

    @property
    def excluded(self) -> list[str]:
        """The source shards that were left out."""
        return list(self.manifest.ledger["excluded"])

    @property
    def tokenizer(self) -> Path:
        """Where the tokenizer lies."""
        return self.artifact.path(TOKENIZER_FILE)

    @property
    def documents(self) -> Path:
        """The table that says whose each document is."""
        return self.artifact.path(DOCUMENTS)

    @cached_property
    def policy(self) -> Policy:
        """Vocabulary and control tokens, which all its files share."""
        return Policy.of(next(iter(self.headers.values())))

    @property
    def row_tokens(self) -> int | None:
        """The length of its rows; None where it is documents back to back."""
        return next(iter(self.headers.values())).row_tokens

    @property
    def padding(self) -> int:
        """The tokens that are none."""
        return sum(header.padding for header in self.headers.values())

    def counts(self, split: str) -> Counts:
        """Return what is in a split, whatever a format counts as documents."""
        headers = [self.headers[base] for base in self._bases(split)]
        padding = sum(header.padding for header in headers)
        return Counts(
            sum(header.documents for header in headers),
            sum(header.tokens for header in headers) - padding,
            padding,
            sum(header.rows for header in headers),
        )

    def _bases(self, split: str) -> list[str]:
        return [base for base in self.headers if base.rsplit("-", 1)[0] == BIN_NAMES[split]]

    def bins(self, split: str) -> Iterator[tuple[str, TokenBin]]:
        """Yield base name and token file of a split, in the order of the release."""
        for base in self._bases(split):
            yield base, open_token_bin(self.artifact.folder, base)

    @cached_property
    def has_mask(self) -> bool:
        """Whether a token that is no padding counts for nothing."""
        silent = sum(_silent(b) for split in BIN_NAMES for _, b in self.bins(split))
        return silent > self.padding

    @cached_property
    def empty_documents(self) -> int:
        """The documents without any token."""
        if self.policy.controls or self.row_tokens:
            return 0
        bins = (bin_ for split in BIN_NAMES for _, bin_ in self.bins(split))
        return sum(int(np.count_nonzero(np.diff(b.ends, prepend=np.uint64(0)) == 0)) for b in bins)

    def document_name(self, base: str, number: int) -> str:
        """Say in words whose the `number`-th entry of a token file is."""
        of_file = pl.scan_parquet(self.documents).filter(pl.col("file") == bin_file(base))
        found = of_file.sort("start", maintain_order=True).slice(number, 1).collect()
        where = f"document {number} of {base}"
        for shard, row, identity in found.select("shard", "row", "id").iter_rows():
            return f"{where} (record {row} of {shard}, id {identity!r})"
        return where


def _silent(bin_: TokenBin) -> int:
    """Count the tokens without loss."""
    if bin_.loss is None:
        return 0
    blocks = (bin_.loss[at : at + BLOCK] for at in range(0, len(bin_.loss), BLOCK))
    return len(bin_.loss) - sum(int(np.count_nonzero(block)) for block in blocks)


def find_release(project: Project, name: str) -> PinnedRelease:
    """Return a release by its id, the beginning of it, `current` or `previous`.

    Raises UsageError where there is none of that name, Uncleared where it is not as its manifest
    says or one of its gates fails. That shards are left out of it, or that it has fewer documents
    than the one in force, is no reason to refuse it.
    """
    artifact = _known(project, ASSET, None, name_release(project, name).artifact)
    for damage in project.store.damage(artifact):
        way_out = "`corpus run` makes it again where it is the release that is wanted now"
        reason = f"{artifact.path(damage.name)}: {damage.reason}; {way_out}"
        raise Uncleared(ASSET, None, gate="intact", reason=reason)
    for finding in gates.blocking(project.findings_of(ASSET, None, artifact)):
        if not gates.repeats(finding.gate) and not gates.holds_back(finding.gate):
            raise Uncleared(ASSET, None, gate=finding.gate, reason=finding.reason)
    manifest = artifact.manifest
    bases = [o.name.removesuffix(".bin") for o in manifest.outputs if o.name.endswith(".bin")]
    return PinnedRelease(artifact, manifest, {b: _header(artifact, b) for b in bases})


def _header(artifact: Artifact, base: str) -> Header:
    return Header.read(artifact.path(f"{base}.json"))


def _known(project: Project, asset: str, partition: str | None, found: Artifact) -> Artifact:
    """Return an artifact with what the catalog knows, so that no file is hashed again."""
    return project.store.find(asset, partition, found.manifest.key) or found


def pinned(
    project: Project, asset: str, partitions: Sequence[str], inputs: dict[str, str], *, of: str
) -> dict[str, Artifact]:
    """Return the generation of each partition whose content is the one that `inputs` names.

    Raises Uncleared where it is not there any more or not whole; `of` says what needs it.
    """
    with project.unchanging():
        return {p: _generation(project, asset, p, inputs[p], of) for p in partitions}


def _generation(project: Project, asset: str, partition: str, content: str, of: str) -> Artifact:
    current = project.artifact(asset, partition)
    found = current if current is not None and current.content == content else None
    if found is None:
        every = project.store.generations(asset, partition)
        found = next((a for a in every if a.content == content), None)
        found = None if found is None else _known(project, asset, partition, found)
    if found is None:
        reason = (
            f"the generation {content[:16]}… that {of} was made of is not there any more;"
            " export a release that `corpus run` makes now"
        )
        raise Uncleared(asset, partition, gate="current", reason=reason)
    for damage in project.store.damage(found):
        reason = f"{found.path(damage.name)}: {damage.reason}"
        raise Uncleared(asset, partition, gate="intact", reason=reason)
    return found
