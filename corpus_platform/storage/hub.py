"""Datasets of the Hugging Face hub to listed files, over its HTTP API.

A branch or tag becomes a commit, and that commit's tree is listed with sizes; files in the hub's
large-file store come with their sha256. Locations are `hf://datasets/OWNER/NAME@COMMIT/PATH`, so
that HF_ENDPOINT may name another mirror later. Requests are the caller's; whatever comes back is
untrusted.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Protocol, TypeVar
from urllib.parse import quote, unquote, urljoin, urlsplit

import msgspec

from corpus_platform.config import SourceSettings
from corpus_platform.errors import SettingsError, SourceRefused, StorageError
from corpus_platform.storage.addresses import check_text
from corpus_platform.storage.globs import glob_expression
from corpus_platform.storage.listed import Listed
from corpus_platform.storage.registry import Member
from corpus_platform.storage.transfer import shown

__all__ = ["MAX_FILES", "Answer", "access_advice", "hub_endpoint", "hub_token", "list_dataset", "resolve_url"]  # fmt: skip

PUBLIC_ENDPOINT = "https://huggingface.co"
MAX_FILES = 1_000_000  # entries of a tree, folders too; the largest public datasets have 100,000s
_MAX_PAGES = 20_000  # the hub has 1,000 entries on a page, 50 where it is asked for more of each
_LOCATION = re.compile(r"hf://datasets/([^/@?#]+/[^/@?#]+)@([0-9a-f]{40})/([^?#]+)")
_NOT_A_HUB = "that is not how the hub's API answers: check HF_ENDPOINT"
_SAFE = "/=,+:@!~"  # in paths of locations: nothing that ends a path or begins an escape


_T = TypeVar("_T")


class Answer(Protocol):
    """An answer of the hub: its body, and its headers by name."""

    @property
    def data(self) -> bytes: ...
    @property
    def headers(self) -> Mapping[str, str]: ...


def hub_endpoint() -> str:
    """Return where the hub is: HF_ENDPOINT or the public one; raise SettingsError for no address."""
    value = os.environ.get("HF_ENDPOINT", "").strip().rstrip("/") or PUBLIC_ENDPOINT
    if not re.fullmatch(r"https?://[^/\s?#@\\]+(/[^\s?#\\]*)?", value, re.ASCII):
        raise SettingsError(
            "HF_ENDPOINT: an address such as https://hf-mirror.com is wanted, without a password;"
            " correct or unset the environment variable"
        )
    return value


def hub_token() -> str | None:
    """Return the token of HF_TOKEN, None without one; raise SettingsError for what is no token.

    The files where the hub's own library keeps tokens are left alone. It is for the endpoint alone.
    """
    value = os.environ.get("HF_TOKEN", "").strip()
    if not re.fullmatch(r"[!-~]*", value):
        raise SettingsError(
            "HF_TOKEN: a token has letters, digits and signs only; copy it anew, without blanks and"
            " line ends, or unset the environment variable"
        )
    return value or None


def resolve_url(location: str) -> str:
    """Return where the file of an `hf://` location is fetched; raise SettingsError for no such."""
    match = _LOCATION.fullmatch(location)
    if match is None or _bad_path(unquote(match[3])):
        raise SettingsError(
            f"sources: {shown(location)}: hf://datasets/OWNER/NAME@COMMIT/PATH is wanted"
        )
    repository, commit, path = match.groups()
    return f"{hub_endpoint()}/datasets/{repository}/resolve/{commit}/{path}"


def access_advice(dataset: str) -> str:
    """Return what can be done when the hub refuses a dataset, OWNER/NAME, or an `hf://` location."""
    match = _LOCATION.fullmatch(dataset)
    repository = match[1] if match else dataset
    page = f"{hub_endpoint()}/datasets/{repository}"
    if hub_token() is None:
        return (
            "check its name, `revision` and `files`; where the dataset is private or gated, accept"
            f" its terms at {page} and set HF_TOKEN to a token that may read it"
        )
    return (
        f"HF_TOKEN is set: check that its account has accepted the terms at {page} and that the"
        " token may read it; else check name, `revision` and `files`"
    )


def list_dataset(source: SourceSettings, *, get: Callable[[str], Answer]) -> list[Listed]:
    """Return the files of a dataset that the source's `files` matches, sorted by path.

    Raises SourceRefused where the hub does not give it, StorageError where its answers are not as
    its API has them.
    """
    repository, crawl = source.huggingface or "", source.crawl or ""
    try:
        commit = _commit(repository, source.revision, get)
        files = list(_files(repository, commit, source.files, get))
    except SourceRefused as error:
        raise SourceRefused(
            f"sources: {repository} ({source.revision}): {error}; {access_advice(repository)}"
        ) from error
    return [
        Listed(crawl, path, _member(repository, commit, path, entry))
        for path, entry in sorted(files, key=lambda file: file[0])
    ]


class _Lfs(msgspec.Struct):
    oid: str
    size: int


class _Entry(msgspec.Struct):
    """A row of a tree. `oid` is git's hash of the file, or of what stands in git for a large one."""

    type: str
    path: str
    oid: str
    size: int = 0
    lfs: _Lfs | None = None


class _Revision(msgspec.Struct):
    sha: str


def _commit(repository: str, revision: str, get: Callable[[str], Answer]) -> str:
    url = f"{_api(repository)}/revision/{quote(revision, safe='')}?expand=sha"
    commit = _decoded(get(url).data, _Revision, url).sha
    if not re.fullmatch("[0-9a-f]{40}", commit):
        raise StorageError(f"{shown(url)}: no commit: {_short(commit)}; {_NOT_A_HUB}")
    return commit


def _files(
    repository: str, commit: str, pattern: str, get: Callable[[str], Answer]
) -> Iterator[tuple[str, _Entry]]:
    """Yield the files that match, by path; only the folder that the pattern begins with is asked for."""
    expression = glob_expression("/" + pattern.removeprefix("/"))
    folder = _fixed_folder(pattern.removeprefix("/"))
    url = f"{_api(repository)}/tree/{commit}" + (f"/{quote(folder, safe='')}" if folder else "")
    seen: set[str] = set()
    for entry in _entries(url, get):
        if entry.type != "file":
            continue
        if (fault := _fault(entry)) or entry.path in seen:
            fault = fault or "it is listed twice"
            raise StorageError(f"{shown(url)}: {_short(entry.path)}: {fault}; {_NOT_A_HUB}")
        seen.add(entry.path)
        if expression.fullmatch("/" + entry.path):
            yield entry.path, entry


def _entries(url: str, get: Callable[[str], Answer]) -> Iterator[_Entry]:
    """Yield the rows of all pages of a tree."""
    query, asked, count = "recursive=true", set[str](), 0
    while query:
        if query in asked or len(asked) >= _MAX_PAGES:
            raise StorageError(
                f"{shown(url)}: its pages have no end: {len(asked)} were read; {_NOT_A_HUB}"
            )
        asked.add(query)
        answer = get(f"{url}?{query}")
        page = _decoded(answer.data, list[_Entry], url)
        count += len(page)
        if count > MAX_FILES:
            raise StorageError(
                f"{shown(url)}: more than {MAX_FILES} entries; begin `files` with a folder"
            )
        yield from page
        query = _next_query(answer.headers, url)


def _next_query(headers: Mapping[str, str], url: str) -> str:
    """Return the query of the next page, empty after the last.

    Only the query is taken from the link: a mirror may link to the public hub, and no answer may
    lead requests, with their token, elsewhere.
    """
    link = next((v for k, v in headers.items() if k.lower() == "link"), "")
    match = re.search(r'<([^<>]*)>\s*;[^,<]*\brel="?next\b', link)
    if match is None:
        return ""
    try:
        target = urlsplit(urljoin(url, match[1]))
    except ValueError:
        target = urlsplit("")
    hosts = {urlsplit(url).netloc, urlsplit(PUBLIC_ENDPOINT).netloc}
    if target.netloc not in hosts or not re.fullmatch(r"[!-~]{1,4096}", target.query):
        raise StorageError(
            f"{shown(url)}: its next page is not on this host: {_short(target.netloc.rpartition('@')[2])};"
            " set HF_ENDPOINT to the hub itself"
        )
    return target.query


def _fault(entry: _Entry) -> str | None:
    """Return what is wrong with a row of a tree."""
    if fault := _bad_path(entry.path):
        return fault
    size = entry.lfs.size if entry.lfs else entry.size
    if not 0 <= size < 2**63:
        return f"its size is {size}"
    if not re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", entry.oid):
        return f"its oid is {_short(entry.oid)}"
    if entry.lfs and not re.fullmatch("[0-9a-f]{64}", entry.lfs.oid):
        return f"its sha256 is {_short(entry.lfs.oid)}"
    return None


def _bad_path(path: str) -> str | None:
    """Return what is wrong with a path in a repository."""
    if any(part in ("", ".", "..") for part in path.split("/")):
        return "its path has an empty part, . or .."
    try:
        check_text(path)
    except ValueError as error:
        return str(error)
    return None


def _member(repository: str, commit: str, path: str, entry: _Entry) -> Member:
    return Member(
        f"hf://datasets/{repository}@{commit}/{quote(path, safe=_SAFE)}",
        bytes=entry.lfs.size if entry.lfs else entry.size,
        sha256=entry.lfs.oid if entry.lfs else None,
        version=entry.oid,  # stays when the commit moves
    )


def _api(repository: str) -> str:
    return f"{hub_endpoint()}/api/datasets/{repository}"


def _fixed_folder(pattern: str) -> str:
    """Return the folder above the first part with a pattern in it."""
    parts = PurePosixPath(pattern).parts[:-1]
    first = next((i for i, part in enumerate(parts) if re.search(r"[*?\[{]", part)), len(parts))
    return "/".join(parts[:first])


def _decoded(data: bytes, kind: type[_T], url: str) -> _T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StorageError(f"{shown(url)}: {error}; {_NOT_A_HUB}") from error


def _short(text: str) -> str:
    return repr(text if len(text) <= 100 else text[:97] + "...")
