"""What every stage works in: settings, registry and store, and the rules of who may read what.

A `Project` knows for each asset and partition which generation is wanted now (`expected`), whether
it is there (`artifact`), and whether it may be read (`require`). A stage makes an artifact inside
`making`, which holds the lease, finds out that there is nothing to do, and publishes. What to
compute is the stages' own business.
"""

import contextlib
import datetime
import functools
import os
import platform
import time
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Any, TypeVar  # Any: what `once` keeps, of whatever type it was asked for

import polars as pl

from corpus_platform import gates
from corpus_platform.config import Settings
from corpus_platform.engines.local import cores
from corpus_platform.errors import CorpusError, StageFailed, StorageError, Uncleared, place
from corpus_platform.storage.artifacts import Artifact, ArtifactStore, file_stamps
from corpus_platform.storage.downloads import Downloads
from corpus_platform.storage.failures import Failures
from corpus_platform.storage.files import file_sha256
from corpus_platform.storage.hashes import HashMemo
from corpus_platform.storage.manifest import Json, Manifest, Output, generation_key
from corpus_platform.storage.registry import Registry, Shard
from corpus_platform.storage.remote import Connect, Remote

__all__ = ["Making", "Product", "Progress", "Project", "Report", "Stage", "quiet"]

# What reading a cut or altered file raises; errors of Arrow are among OSError and ValueError.
UNREADABLE = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    NotImplementedError,
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
)
T = TypeVar("T")
Progress = Callable[[int, int | None], None]  # units done so far, units in all where known
LIBRARIES = ("pyarrow", "polars", "numpy", "numba", "tokenizers", "datasketch", "msgspec")


def quiet(done: int, total: int | None) -> None:
    """Report progress to nobody."""


@dataclass(frozen=True)
class Stage:
    """How one asset is made: what goes in, and how its written files are measured again.

    `settings` and `inputs` say what goes into a partition; `audit` reads the files in a folder and
    returns the numbers that the asset's gates look at; `witness` looks at what no file of the
    artifact can tell, such as a source that has changed since; `ready` whether it could be made; `unsettled` says in
    words what is still to be done after an artifact is there, such as pointing to it; `recorded`
    returns the key of the wanted generation where another stage chose it; `today` measures what
    changes without the artifact, such as what it is held against, whenever it is judged.
    """

    asset: str
    version: int
    per_shard: bool
    settings: Callable[["Project", str | None], Json]
    inputs: Callable[["Project", str | None], Mapping[str, str]]
    audit: Callable[["Project", str | None, Path, Json], dict[str, float]]
    common: Callable[["Project"], Json] | None = None  # where `settings` needs a shard
    witness: Callable[["Project", str | None, Artifact], None] | None = None  # raises Uncleared
    ready: Callable[["Project", str | None], None] | None = None  # raises Uncleared
    unsettled: Callable[["Project", Artifact], str | None] | None = None
    recorded: Callable[["Project", str | None], str] | None = None  # raises Uncleared
    today: Callable[["Project", Artifact], Mapping[str, float]] | None = None

    def code_settings(self, project: "Project") -> Json:
        """Return the settings it takes that are the same for every shard."""
        return self.common(project) if self.common else self.settings(project, None)


@dataclass(frozen=True)
class Expected:
    """The generation that is wanted now; without settings and inputs where it is a recorded one."""

    key: str
    settings: Json
    inputs: Mapping[str, str]


@dataclass(frozen=True)
class Product:
    """A file a stage wrote into its draft, with its count of rows or tokens.

    A stage may say the `sha256` of what it wrote where its audit holds the file against it.
    """

    name: str
    rows: int | None = None
    tokens: int | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Report:
    """What a stage has to say: its artifact, whether it made it now, and what the gates find."""

    asset: str
    partition: str | None
    artifact: Artifact
    made: bool
    findings: tuple[gates.Finding, ...] = field(default=())


class Project:
    """Settings, registry and store of one corpus, and the chain of its stages."""

    def __init__(
        self,
        settings: Settings,
        chain: Mapping[str, Stage],
        *,
        shards: Mapping[str, Shard] | None = None,
        read_only: bool = False,
        waiting: Callable[[str], None] | None = None,
        connect: Connect | None = None,
    ) -> None:
        self.settings = settings
        self.chain = chain
        self.store = ArtifactStore(settings.storage_path, remember=not read_only)
        self.registry = Registry(settings.storage_path / "registry.json")
        self.hashes = HashMemo(
            settings.storage_path / "catalog" / "sources.jsonl", read_only=read_only
        )
        self.remote = Remote(settings.download, settings.s3, connect=connect)
        self.downloads = Downloads(
            settings.cache_path or settings.storage_path / "downloads",
            self.remote,
            keep=settings.cache_path is not None,
        )
        self.failures = Failures(settings.storage_path / "failures")
        self._shards = shards
        self._waiting = waiting
        self._memo: dict[tuple[str, str | None], Expected | Uncleared] | None = None
        self._cleared: dict[str, Uncleared | None] = {}
        self._known: dict[Hashable, Any] = {}

    @property
    def workers(self) -> int:
        """Processes or threads that a stage may use side by side."""
        return self.settings.run.workers or cores()

    def shards(self) -> Mapping[str, Shard]:
        """Return the shards of the corpus in key order: oldest crawl first."""
        return self._shards if self._shards is not None else self.registry.shards()

    def shard(self, key: str) -> Shard:
        """Return one shard; raise UsageError when there is none of this key."""
        known = self._shards if self._shards is not None else {}
        # Retired ones are none of the corpus, and found all the same: their files stay.
        return known.get(key) or self.once(("shard", key), lambda: self.registry.shard(key))

    def expected(self, asset: str, partition: str | None) -> Expected:
        """Return the generation wanted now; raise Uncleared when an input is not there."""
        if self._memo is None:
            return self._expect(asset, partition)
        if (asset, partition) not in self._memo:
            try:
                self._memo[asset, partition] = self._expect(asset, partition)
            except Uncleared as error:
                self._memo[asset, partition] = error
        found = self._memo[asset, partition]
        if isinstance(found, Uncleared):
            raise found
        return found

    @contextlib.contextmanager
    def unchanging(self) -> Generator[None]:
        """Remember what is wanted while the block runs: nothing may be made meanwhile."""
        self._memo, self._cleared, self._known = {}, {}, {}
        try:
            with self.store.unchanging():
                yield
        finally:
            self._memo = None

    def once(self, name: Hashable, find: Callable[[], T]) -> T:
        """Return what `find` does; found once under a name inside `unchanging`."""
        if self._memo is None:
            return find()
        if name not in self._known:
            self._known[name] = find()
        return self._known[name]

    def _expect(self, asset: str, partition: str | None) -> Expected:
        stage = self.chain[asset]
        if stage.recorded is not None:
            return Expected(stage.recorded(self, partition), {}, {})
        settings, inputs = stage.settings(self, partition), stage.inputs(self, partition)
        key = generation_key(asset, partition, stage.version, settings, inputs)
        return Expected(key, settings, inputs)

    def artifact(self, asset: str, partition: str | None) -> Artifact | None:
        """Return the artifact of the generation wanted now, None when it is not there."""
        try:
            expected = self.expected(asset, partition)
        except Uncleared:
            return None
        return self.store.find(asset, partition, expected.key)

    def content(self, asset: str, partition: str | None) -> str:
        """Return the content hash of an artifact; raise Uncleared when it is not there."""
        return self.present(asset, partition).content

    def present(self, asset: str, partition: str | None) -> Artifact:
        """Return the artifact wanted now; raise Uncleared (gate `current`) when it is not there."""
        artifact = self.store.find(asset, partition, self.expected(asset, partition).key)
        if artifact is None:
            raise Uncleared(
                asset,
                partition,
                gate="current",
                reason="it is missing or stale; materialize it first",
            )
        return artifact

    def require(self, asset: str, partition: str | None) -> Artifact:
        """Return an artifact that may be read.

        Raises Uncleared when it is missing or stale, when a file is not what its manifest says
        (gate `intact`), or when one of its gates fails without a waiver.
        """
        artifact = self.present(asset, partition)
        for damage in self.store.damage(artifact):
            raise Uncleared(
                asset,
                partition,
                gate="intact",
                reason=f"{artifact.path(damage.name)}: {damage.reason}",
            )
        self.clear(asset, partition, artifact)
        return artifact

    def refusal(self, assets: Sequence[str], shard: str) -> Uncleared | None:
        """Return why one of a shard's artifacts may not be read, None when all may."""
        if self._memo is not None and shard in self._cleared:
            return self._cleared[shard]
        found: Uncleared | None = None
        try:
            for asset in assets:
                self.require(asset, shard)
        except Uncleared as refusal:
            found = refusal
        self._cleared[shard] = found
        return found

    def clear(self, asset: str, partition: str | None, artifact: Artifact) -> None:
        """Raise Uncleared when a gate of an artifact fails without a waiver."""
        found = self.once(
            ("cleared", artifact.folder), lambda: self._refused(asset, partition, artifact)
        )
        if found is not None:
            raise found

    def _refused(self, asset: str, partition: str | None, artifact: Artifact) -> Uncleared | None:
        for finding in gates.blocking(self.findings_of(asset, partition, artifact)):
            return Uncleared(asset, partition, gate=finding.gate, reason=finding.reason)
        return self.witnessed(asset, partition, artifact)

    def witnessed(self, asset: str, partition: str | None, artifact: Artifact) -> Uncleared | None:
        """Return why the stage's witness refuses an artifact, None where it does not."""
        witness = self.chain[asset].witness
        if witness is None:
            return None
        key = ("witnessed", artifact.folder)
        return self.once(key, lambda: _caught(witness, self, partition, artifact))

    def findings_of(
        self, asset: str, partition: str | None, artifact: Artifact
    ) -> list[gates.Finding]:
        """Judge an artifact by the numbers in its manifest, the limits and waivers of today."""
        return self.once(
            ("findings", artifact.folder),
            lambda: self.findings(asset, partition, self._numbers(asset, artifact)),
        )

    def _numbers(self, asset: str, artifact: Artifact) -> Mapping[str, float]:
        today = self.chain[asset].today
        return artifact.numbers if today is None else {**artifact.numbers, **today(self, artifact)}

    def findings(
        self, asset: str, partition: str | None, numbers: Mapping[str, float]
    ) -> list[gates.Finding]:
        """Judge an artifact's numbers by the limits and waivers of today."""
        return gates.judge(
            asset,
            partition,
            numbers,
            checks=self.settings.checks,
            waivers=self.settings.waivers,
            today=datetime.datetime.now(tz=datetime.UTC).date(),
        )

    def last_generation(self, asset: str, partition: str | None) -> Artifact | None:
        """Return the artifact made last, wanted or not."""
        return self.store.last(asset, partition)

    def difference(self, asset: str, partition: str | None, last: Artifact) -> str:
        """Say in words why an artifact is not the one wanted now."""
        try:
            expected = self.expected(asset, partition)
            old = last.manifest
        except (Uncleared, StorageError) as error:
            return str(error)
        if old.version != self.chain[asset].version:
            return f"the stage changed from version {old.version} to {self.chain[asset].version}"
        changes = [
            *(f"setting {c}" for c in _differences(old.settings, expected.settings)),
            *(f"input {c}" for c in _differences(old.inputs, expected.inputs)),
        ]
        more = f" and {len(changes) - 3} more" if len(changes) > 3 else ""
        return ("; ".join(changes[:3]) + more) or "its manifest is missing or damaged"

    def audit(self, asset: str, partition: str | None) -> dict[str, float]:
        """Measure a published artifact again by reading its files."""
        artifact = self.present(asset, partition)
        return self.measure(asset, partition, artifact.folder, artifact.manifest.ledger)

    def measure(
        self, asset: str, partition: str | None, folder: Path, ledger: Json
    ) -> dict[str, float]:
        """Measure an artifact by reading the files in a folder.

        Raises StageFailed when they cannot be read, Uncleared when what they are held against is
        not there.
        """
        try:
            return self.chain[asset].audit(self, partition, folder, ledger)
        except (Uncleared, StageFailed):
            raise
        except (CorpusError, *UNREADABLE) as error:
            raise StageFailed(
                f"{place(asset, partition)}: the files in {folder} cannot be read again: {type(error).__name__}: {error}"
            ) from error

    @contextlib.contextmanager
    def making(self, asset: str, partition: str | None) -> Generator["Making"]:
        """Hold the lease of an artifact; the block asks `current` and else publishes."""
        with self.store.lease(asset, partition, self._waiting):
            yield Making(self, asset, partition, self.expected(asset, partition))


class Making:
    """One artifact being made under its lease."""

    def __init__(
        self, project: Project, asset: str, partition: str | None, expected: Expected
    ) -> None:
        self._project, self._asset, self._partition = project, asset, partition
        self._expected, self._started = expected, time.monotonic()

    @property
    def key(self) -> str:
        """The generation that is being made."""
        return self._expected.key

    def current(self) -> Report | None:
        """Return the report of the artifact when it is there and whole."""
        store = self._project.store
        artifact = store.find(self._asset, self._partition, self._expected.key)
        if artifact is None or store.damage(artifact):
            return None
        return self._report(artifact, made=False)

    @contextlib.contextmanager
    def draft(self) -> Generator[Path]:
        """Give a folder to write the files in."""
        with self._project.store.draft(self._asset, self._partition) as folder:
            yield folder

    def publish(
        self,
        draft: Path,
        products: Sequence[Product],
        *,
        ledger: Json,
        measured: Json | None = None,
        numbers: dict[str, float] | None = None,
        telling: Callable[[Mapping[str, float]], Sequence[Product]] | None = None,
    ) -> Report:
        """Measure the written files, and publish them with their manifest.

        `numbers` are given only where there is nothing to read: an artifact without files.
        `telling` writes files that depend on what was measured.
        """
        self._check_unchanged()
        stage = self._project.chain[self._asset]
        seen = file_stamps(draft, [p.name for p in products])  # what is measured is published
        if numbers is None:
            numbers = self._project.measure(self._asset, self._partition, draft, ledger)
        if telling is not None:
            told = telling(numbers)
            seen |= file_stamps(draft, [p.name for p in told])
            products = [*products, *told]
        manifest = Manifest(
            asset=self._asset,
            partition=self._partition,
            version=stage.version,
            settings=self._expected.settings,
            inputs=self._expected.inputs,
            outputs=tuple(_output(draft, product) for product in products),
            ledger=ledger,
            numbers=numbers,
            measured={**_circumstances(self._started), **(measured or {})},
        )
        return self._report(self._project.store.publish(draft, manifest, seen=seen), made=True)

    def _check_unchanged(self) -> None:
        """Raise StageFailed when what goes in is not what went in when the work began."""
        now = self._project.expected(self._asset, self._partition)
        if now.key != self._expected.key:
            where = place(self._asset, self._partition)
            raise StageFailed(f"{where}: its inputs changed while it was made; run again")

    def _report(self, artifact: Artifact, *, made: bool) -> Report:
        findings = self._project.findings_of(self._asset, self._partition, artifact)
        return Report(self._asset, self._partition, artifact, made, tuple(findings))


def _caught(
    witness: Callable[[Project, str | None, Artifact], None],
    project: Project,
    partition: str | None,
    artifact: Artifact,
) -> Uncleared | None:
    try:
        witness(project, partition, artifact)
    except Uncleared as refusal:
        return refusal
    return None


def _differences(old: Json, new: Json, *, above: str = "") -> Iterator[str]:
    for name in sorted({*old, *new}):
        before, after = old.get(name), new.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _differences(before, after, above=f"{above}{name}.")
        elif name not in old:
            yield f"{above}{name} is new"
        elif name not in new:
            yield f"{above}{name} is gone"
        elif before != after:
            was, now = _short(str(before), str(after))
            yield f"{above}{name.strip('_')} changed from {was} to {now}"


def _short(before: str, after: str) -> tuple[str, str]:
    """Return two texts, long ones cut to their beginning or, where that is the same, what differs."""
    if _begin(before) != _begin(after) or before == after:
        return _begin(before), _begin(after)
    pairs = enumerate(zip(before, after, strict=False))
    same = next((i for i, (a, b) in pairs if a != b), min(len(before), len(after)))
    return f"…{_begin(before[same:])}", f"…{_begin(after[same:])}"


def _begin(text: str) -> str:
    return text if len(text) <= 40 else text[:12] + "…"


def _output(draft: Path, product: Product) -> Output:
    path = draft / product.name
    sha256 = product.sha256 or file_sha256(path)
    return Output(product.name, path.stat().st_size, sha256, product.rows, product.tokens)


def _circumstances(started: float) -> dict[str, object]:
    return {
        "seconds": round(time.monotonic() - started, 3),
        "made_at": datetime.datetime.now(tz=datetime.UTC).isoformat(timespec="seconds"),
        "host": platform.node(),
        "pid": os.getpid(),
        "versions": dict(_versions()),
    }


@functools.cache
def _versions() -> dict[str, str]:
    """Return the versions of the libraries at work; finding them out parses a file for each."""
    return {name: package_version(name) for name in LIBRARIES}
