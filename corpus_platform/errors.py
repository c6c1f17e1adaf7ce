"""The one exception tree of the platform; everything raised on purpose is in it.

    CorpusError
    ├── SettingsError      corpus.yaml or a setting cannot be used          exit 2
    ├── UsageError         a command was called with what it cannot do      exit 2
    ├── MissingExtra       an optional package is needed and not installed  exit 2
    ├── Uncleared          an input may not be used: missing, stale, gate   exit 1
    │   └── DamagedShard   the bytes of a shard cannot be read as they are  exit 1
    ├── Busy               another process makes the same thing             exit 3
    └── StageFailed        a stage or its machine failed                    exit 3
        ├── EngineFailed   a fast engine cannot read a tokenizer or a text  exit 3
        │   └── EnginesDiffer   a fast engine made other ids than the reference
        └── StorageError   a store could not be read or written             exit 3
            └── SourceRefused   a source answered that it will not give a file

A message names the thing, the value, the limit and the way out:

    try:
        clean_documents(project, shard)
    except Uncleared as refusal:
        print(refusal, refusal.gate)
"""

__all__ = [
    "Busy",
    "CorpusError",
    "DamagedShard",
    "EngineFailed",
    "EnginesDiffer",
    "MissingExtra",
    "SettingsError",
    "SourceRefused",
    "StageFailed",
    "StorageError",
    "Uncleared",
    "UsageError",
    "place",
    "split_place",
]


def place(asset: str, partition: str | None) -> str:
    """Return how messages name an artifact: `asset[partition]`, or the asset alone."""
    return asset if partition is None else f"{asset}[{partition}]"


def split_place(name: str) -> tuple[str, str | None]:
    """Return asset and partition that `place` made a name of; a partition may hold brackets too."""
    asset, bracket, partition = name.partition("[")
    return asset, partition.removesuffix("]") if bracket else None


class CorpusError(Exception):
    """Base of all errors that the platform raises on purpose."""

    exit_code = 3


class SettingsError(CorpusError):
    """A settings file or one of its keys cannot be used."""

    exit_code = 2


class UsageError(CorpusError):
    """A command or function was asked for something impossible."""

    exit_code = 2


class MissingExtra(CorpusError):
    """An optional package is missing; the message says the pip line to type."""

    exit_code = 2


class Uncleared(CorpusError):
    """An artifact may not be used by what comes after it.

    `asset`, `partition` (None for an all-shard asset) and `gate` say which rule refused it.
    """

    exit_code = 1

    def __init__(self, asset: str, partition: str | None, *, gate: str, reason: str) -> None:
        self.asset, self.partition, self.gate, self.reason = asset, partition, gate, reason
        super().__init__(f"{place(asset, partition)}: {gate}: {reason}")

    def __reduce__(self) -> tuple:
        where = (self.asset, self.partition, self.gate, self.reason)
        return _rebuild_uncleared, (type(self), *where), vars(self)


def _rebuild_uncleared(
    kind: type[Uncleared], asset: str, partition: str | None, gate: str, reason: str
) -> Uncleared:
    error = kind.__new__(kind)
    Uncleared.__init__(error, asset, partition, gate=gate, reason=reason)
    return error


class DamagedShard(Uncleared):
    """The bytes of a shard are cut, corrupt or of a wrong kind.

    `offset` is a position in the file as stored, None where none can be told.
    """

    def __init__(self, shard: str, *, reason: str, offset: int | None = None) -> None:
        self.offset = offset
        super().__init__("cleaned_documents", shard, gate="readable", reason=reason)


class Busy(CorpusError):
    """Another process holds the lease of the same artifact."""


class StageFailed(CorpusError):
    """A stage could not finish for a reason that lies in code or machine."""


class EngineFailed(StageFailed):
    """An engine that is not the reference cannot read a tokenizer, or gave up on a text.

    Who has the reference goes on with it.
    """


class EnginesDiffer(EngineFailed):
    """An engine made other ids than the reference, of `count` documents of a sample."""

    def __init__(self, reason: str, count: int) -> None:
        self.count = count
        super().__init__(reason)

    def __reduce__(self) -> tuple:
        return type(self), (str(self), self.count)


class StorageError(StageFailed):
    """A store could not be read or written."""


class SourceRefused(StorageError):
    """A source answered that it does not have a file, or does not give it: asking again is no help.

    What is blocked by that is one shard; the stage that fetches says so with a gate.
    """
