"""The manifest beside every artifact: what went in, what came out, and the numbers gates look at.

`content` is the hash of all that makes the product what it is (stage, version, settings, inputs,
outputs, ledger); it alone is chained into what comes after, and is Dagster's data version. `key`
is the hash of what goes in: known before the work, it names the generation. What is merely
measured (numbers for gates, seconds, versions, host) stands outside both; `sha256` covers it too,
since numbers decide what the gates say.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corpus_platform.errors import StorageError
from corpus_platform.storage.files import canonical_json, text_sha256

__all__ = [
    "FORMAT",
    "MANIFEST_NAME",
    "Json",
    "Manifest",
    "Output",
    "generation_key",
    "read_manifest",
]

FORMAT = 1
MANIFEST_NAME = "manifest.json"
Json = Mapping[str, Any]  # values of a JSON object: any depth, checked when read


@dataclass(frozen=True)
class Output:
    """One file of an artifact; `rows` or `tokens` where the file has such a count."""

    name: str
    bytes: int
    sha256: str
    rows: int | None = None
    tokens: int | None = None

    def to_json(self) -> dict[str, object]:
        """Return the fields that are set."""
        full = {
            "name": self.name,
            "bytes": self.bytes,
            "sha256": self.sha256,
            "rows": self.rows,
            "tokens": self.tokens,
        }
        return {k: v for k, v in full.items() if v is not None}


def generation_key(
    asset: str, partition: str | None, version: int, settings: Json, inputs: Mapping[str, str]
) -> str:
    """Return the hash of what goes into an artifact, 64 hex digits."""
    goes_in = {
        "asset": asset,
        "partition": partition,
        "version": version,
        "settings": settings,
        "inputs": dict(inputs),
    }
    return text_sha256(canonical_json(goes_in))


@dataclass(frozen=True)
class Manifest:
    """What is known of one artifact. `numbers` were measured by reading its files again."""

    asset: str
    partition: str | None
    version: int
    settings: Json
    inputs: Mapping[str, str]
    outputs: tuple[Output, ...]
    ledger: Json
    numbers: Mapping[str, float]
    measured: Json = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The generation: hash of what went in."""
        return generation_key(self.asset, self.partition, self.version, self.settings, self.inputs)

    @property
    def content(self) -> str:
        """The hash of what went in, came out and was counted.

        A setting whose name begins with `_` names a generation and is no part of it, nor is such an
        entry of the ledger, which says how the bytes came.
        """
        whole = {
            "asset": self.asset,
            "partition": self.partition,
            "version": self.version,
            "settings": _without_underscore(self.settings),
            "inputs": dict(self.inputs),
            "outputs": [o.to_json() for o in self.outputs],
            "ledger": _without_underscore(self.ledger),
        }
        return text_sha256(canonical_json(whole))

    def to_bytes(self) -> bytes:
        """Return the file's bytes: JSON with sorted keys."""
        whole = {
            "format": FORMAT,
            "asset": self.asset,
            "partition": self.partition,
            "version": self.version,
            "settings": self.settings,
            "inputs": dict(self.inputs),
            "outputs": [o.to_json() for o in self.outputs],
            "ledger": self.ledger,
            "numbers": dict(self.numbers),
            "measured": self.measured,
            "key": self.key,
            "content": self.content,
        }
        whole["sha256"] = _whole_sha256(whole)
        return (json.dumps(whole, sort_keys=True, indent=1, ensure_ascii=False) + "\n").encode()


def _without_underscore(values: Json) -> Json:
    return {name: value for name, value in values.items() if not name.startswith("_")}


def _whole_sha256(whole: Json) -> str:
    """Return the hash of all fields of a manifest's file but `sha256`, as JSON gives them back."""
    read = json.loads(json.dumps({k: v for k, v in whole.items() if k != "sha256"}))
    return text_sha256(canonical_json(read))


def read_manifest(path: Path) -> Manifest:
    """Read a manifest and check it against its own hashes.

    Raises FileNotFoundError, or StorageError when the file is no manifest of this format or a hash
    in it is not that of what stands in it.
    """
    try:
        raw = json.loads(path.read_bytes())
        manifest = Manifest(
            asset=raw["asset"],
            partition=raw["partition"],
            version=raw["version"],
            settings=raw["settings"],
            inputs=raw["inputs"],
            outputs=tuple(Output(**o) for o in raw["outputs"]),
            ledger=raw["ledger"],
            numbers=raw["numbers"],
            measured=raw["measured"],
        )
        recorded = (raw["format"], raw["key"], raw["content"], raw["sha256"])
        found = (FORMAT, manifest.key, manifest.content, _whole_sha256(raw))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StorageError(f"{path}: not a manifest: {error!r}; delete it and run again") from error
    if recorded != found:
        raise StorageError(f"{path}: its content hash does not fit; delete it and run again")
    return manifest
