"""The settings of sources and of how files come from them; a part of `config`, which has them all.

Frozen models like the rest; the few types that other sections share with these stand here too.
"""

import re
from typing import Annotated

import pydantic
from pydantic import AfterValidator, Field, StringConstraints

from corpus_platform.rule_settings import Names, Section

__all__ = [
    "DownloadSettings",
    "Fields",
    "Folder",
    "HttpAddress",
    "Name",
    "S3Settings",
    "SourceSettings",
]


def _local(value: str) -> str:
    if not value or "://" in value:
        raise ValueError("the path of a local folder is wanted")
    return value


def _http_address(value: str) -> str:
    """Return an address that paths can be put behind."""
    if not re.fullmatch(r"https?://[^/\s?#@]+(/[^\s?#]*)?", value, re.ASCII):
        raise ValueError("an address such as https://host/path is wanted, without a password")
    return value.rstrip("/") + "/"


def _source_address(value: str) -> str:
    """Return where relative entries of a listing lie."""
    if not re.fullmatch(r"(https?|s3|file)://[^\s?#@]+", value, re.ASCII):
        raise ValueError(
            "an address such as https://host/path or s3://bucket/prefix is wanted, without a password"
        )
    return value.rstrip("/") + "/"


Folder = Annotated[str, AfterValidator(_local)]
HttpAddress = Annotated[str, AfterValidator(_http_address)]
SourceAddress = Annotated[str, AfterValidator(_source_address)]
DatasetName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$")
]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class Fields(Section):
    """Names of the source's fields; everything else of a record goes to `meta`."""

    id: str = Field(
        "id",
        description="Identifier; where it is missing or has more than 1,024 characters, `<shard>:<row>` counts.",
    )
    url: str = Field("url", description="Address; may be missing.")
    text: str = Field("text", description="The text; a record without one goes to the quarantine.")
    lang: str = Field("lang", description="Language code (`code` for programs); may be missing.")


class SourceSettings(Section):
    """Where shards come from: one of `glob`, `listing` and `huggingface` says of what kind it is."""

    glob: str | None = Field(
        None,
        description="Files, relative to the settings file, or s3://bucket/prefix; {crawl} names the crawl, * and {a,b} are patterns, ** is any depth.",
    )
    listing: str | None = Field(
        None,
        description="A list of URLs, as a file or at http(s):// or s3://: JSON with optional sha256 and bytes, or text of a URL a line, also gzipped.",
    )
    huggingface: DatasetName | None = Field(
        None, description="A dataset of the Hugging Face hub: OWNER/NAME."
    )
    revision: str = Field(
        "main",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$",
        description="Of `huggingface`: branch, tag or commit.",
    )
    files: str = Field(
        "**/*.parquet", min_length=1, description="Of `huggingface`: a pattern of its files."
    )
    base_url: SourceAddress | None = Field(
        None,
        description="Of `listing`: what stands before relative entries; without it the folder of the listing.",
    )
    sidecars: bool = Field(
        False,
        description="Of `listing`: beside each URL lies URL.sha256 with the hash to expect; among files of a glob such files are found without it.",
    )
    bundle_bytes: int = Field(
        0,
        ge=0,
        description="Files are joined to shards of about so many bytes, when they are registered; 0 keeps one shard per file.",
    )
    limit: int | None = Field(
        None,
        ge=1,
        description="Only the first so many files, in the order of crawls and names; what is registered already stays.",
    )
    crawl: Name | None = Field(
        None, description="The crawl, where neither {crawl} nor the listing names it."
    )
    exclude: Names = Field(
        (), description="Patterns of files to leave out: of names, or of any end of a path."
    )
    license: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="Under which licence its texts are, in free words such as CC-BY-4.0; releases show it, and it makes nothing due.",
    )
    fields: Fields = Fields()

    @pydantic.model_validator(mode="after")
    def _one_kind(self) -> "SourceSettings":
        kinds = [k for k in ("glob", "listing", "huggingface") if getattr(self, k) is not None]
        if len(kinds) != 1:
            found = " and ".join(kinds) or "none of them"
            raise ValueError(f"one of glob, listing and huggingface is wanted, found {found}")
        for key, kind in _KEYS_OF_KINDS.items():
            given = getattr(self, key) != type(self).model_fields[key].default
            if given and kind != kinds[0]:
                raise ValueError(f"{key} goes with {kind}, not with {kinds[0]}")
        return self

    @pydantic.model_validator(mode="after")
    def _one_crawl(self) -> "SourceSettings":
        if self.glob is not None:
            if self.glob.count("{crawl}") > 1:
                raise ValueError(f"glob names {{crawl}} more than once: {self.glob!r}")
            if ("{crawl}" in self.glob) == (self.crawl is not None):
                raise ValueError(
                    "name the crawl exactly once: {crawl} in `glob`, or the key `crawl`"
                )
            _no_scheme_but_s3(self.glob)
        if self.huggingface is not None and self.crawl is None:
            raise ValueError("name the crawl: the key `crawl`")
        if self.listing is not None and "{crawl}" in self.listing and self.crawl is None:
            raise ValueError("{crawl} in `listing` stands for the key `crawl`, which is not there")
        return self


_KEYS_OF_KINDS = {
    "revision": "huggingface",
    "files": "huggingface",
    "base_url": "listing",
    "sidecars": "listing",
}


def _no_scheme_but_s3(glob: str) -> None:
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", glob)
    if scheme and scheme[1].lower() in ("s3", "file") and not scheme[1].islower():
        raise ValueError(f"{scheme[1]}:// is written in small letters: {scheme[1].lower()}://")
    if scheme and scheme[1] not in ("s3", "file"):
        raise ValueError(f"{scheme[1]}:// has no folders to look into; name a `listing` of URLs")


class DownloadSettings(Section):
    """How files come over a network; no product depends on it."""

    jobs: int = Field(4, ge=1, le=64, description="Shards that `corpus fetch` gets side by side.")
    tries: int = Field(
        10,
        ge=1,
        le=100,
        description="Tries in a row that bring no further byte before a download counts as failed.",
    )
    first_wait_seconds: float = Field(
        0.5,
        gt=0.0,
        le=60.0,
        description="Longest wait before the second try; it doubles with each further one.",
    )
    max_wait_seconds: float = Field(
        120.0,
        gt=0.0,
        le=3600.0,
        description="Longest wait before a try, also where a server asks for a longer one.",
    )
    timeout_seconds: float = Field(
        60.0, gt=0.0, description="A connection that is silent for so long is given up."
    )
    connections: int = Field(
        4, ge=1, le=64, description="Parts of one S3 object that are fetched side by side."
    )
    part_bytes: int = Field(
        8 << 20,
        ge=1 << 10,
        description="Size of such a part. After a power cut up to two for each connection come again, after a kill 256 KiB.",
    )
    cache_dir: Folder | None = Field(
        None,
        description="Downloads are kept in this folder, whole ones too, and taken from there; `corpus fetch --cache-dir` wins.",
    )


class S3Settings(Section):
    """Where S3 is; keys come from AWS's environment variables and files alone."""

    endpoint_url: HttpAddress | None = Field(
        None, description="Another server than AWS, with buckets as the first part of its paths."
    )
    region: Name | None = Field(None, description="Region of the buckets.")
    anonymous: bool = Field(False, description="Sign nothing: for public buckets.")
