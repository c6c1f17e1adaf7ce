"""The documentation installed on this machine, as pages of plain text of several kinds.

Sources are parsed with `ast`: no module is imported to be read. A page's url names the kind and
the place inside its package or folder, never a path of the machine. Files of a kind come in the
order of their names' hashes, so that whoever stops early has taken a fair sample of them.
"""

import ast
import codecs
import gzip
import html
import importlib.metadata
import json
import pydoc_data.topics
import re
import struct
import sysconfig
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from corpus_platform.storage.files import text_sha256

__all__ = [
    "MAX_PAGE_BYTES",
    "Kind",
    "Page",
    "changelogs",
    "docstrings",
    "installed_documentation",
    "service_descriptions",
    "strip_tags",
    "system_documents",
    "translations",
]

MAX_PAGE_BYTES = 200_000  # of UTF-8 text: no single file may dominate
MAX_FILE_CHARS = 300_000  # of all pages out of one file: the model of EC2 alone holds 6 MB

_Model = dict[str, Any]  # botocore's JSON, each level of another form

_DOCUMENTATION = {".md", ".rst", ".txt"}
_LICENCE = re.compile(r"(licen[cs]e|copying|notice|authors|copyright)s?([._-][\w.-]*)?", re.I)
_CATALOGUE_ORDERS = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}
_LANGUAGES = ("de", "es", "fr", "ja", "ru", "zh_CN")
# Their text files are data, and their docstrings speak of the test.
_NOT_FOR_READERS = {"test", "tests", "testing", "data", "datasets", "_vendor"}
_NOT_OF_STDLIB = _NOT_FOR_READERS | {"site-packages", "dist-packages", "lib2to3", "turtledemo"}
_BLOCK_END = re.compile(r"</(p|li|ul|ol|dl|dt|dd|h\d|div|note|pre|tr)>|<br\s*/?>")
_TAG = re.compile(r"<[^<>]*>")
_BLANK_LINES = re.compile(r"\s*\n\s*")


class Page(NamedTuple):
    """One document; `text` is None where the file could not be read as text."""

    url: str
    text: str | None


class Kind(NamedTuple):
    """A kind of documentation, and the share of a sample that it may fill."""

    name: str
    share: float
    pages: Callable[[], Iterator[Page]]


class _Installed(NamedTuple):
    url: str  # package/path inside site-packages
    path: Path


def installed_documentation() -> list[Kind]:
    """Return the kinds in the order they are to be taken: those there is most of come last."""
    stdlib = Path(sysconfig.get_path("stdlib"))
    doc, locale = Path("/usr/share/doc"), Path("/usr/share/locale")
    files = _installed_files()
    return [
        Kind("help topics", 0.05, _topics),
        Kind("package descriptions", 0.05, _descriptions),
        Kind("package documents", 0.07, lambda: _texts("pkg", files, _is_document)),
        Kind("licences", 0.05, lambda: _texts("pkg", files, _is_licence)),
        Kind("translations", 0.08, lambda: translations(locale)),
        Kind("system documents", 0.10, lambda: system_documents(doc)),
        Kind("changelogs", 0.08, lambda: changelogs(doc)),
        Kind("standard library", 0.08, lambda: docstrings("stdlib", _stdlib_sources(stdlib))),
        Kind("package docstrings", 0.18, lambda: docstrings("pkg", _package_sources(files))),
        Kind("service descriptions", 0.26, lambda: service_descriptions(_service_files(files))),
    ]


def docstrings(kind: str, sources: Iterable[tuple[str, Path]]) -> Iterator[Page]:
    """Yield a page for every module that explains itself: its docstrings in the order of the file.

    `sources` are (place, file), the place being `module.name` or `package/module.name`.
    """
    for place, path in _by_hash(sources):
        data = _read(path)
        if data is None or b'"""' in data or b"'''" in data:
            yield Page(f"{kind}:{place}", None if data is None else _docstrings_of(data))


def service_descriptions(sources: Iterable[tuple[str, Path]]) -> Iterator[Page]:
    """Yield a page for every service of botocore's models and for every operation of it."""
    for place, path in _by_hash(sources):
        data = _read(path)
        if data is None:
            yield Page(f"botocore:{place}", None)
        else:
            yield from _first(_service_pages(f"botocore:{place}", json.loads(data)))


def system_documents(folder: Path) -> Iterator[Page]:
    """Yield the copyright statements and read-me files of the system's packages."""
    paths = {p for pattern in ("copyright", "*.md", "README*") for p in folder.glob(f"*/{pattern}")}
    yield from _files("doc", folder, paths)


def changelogs(folder: Path) -> Iterator[Page]:
    """Yield the newest entries of the change logs of the system's packages."""
    yield from _files("doc", folder, set(folder.glob("*/changelog*gz")))


def translations(folder: Path) -> Iterator[Page]:
    """Yield the messages of programs in some languages, one page for a program and language."""
    paths = {p for code in _LANGUAGES for p in folder.glob(f"{code}/LC_MESSAGES/*.mo")}
    for place, path in _by_hash((p.relative_to(folder).as_posix(), p) for p in paths):
        yield Page(f"locale:{place.replace('/LC_MESSAGES', '')}", _messages(path))


def strip_tags(text: str) -> str:
    """Return the words of a fragment of HTML, one block a line."""
    bare = html.unescape(_TAG.sub("", _BLOCK_END.sub("\n", text)))
    return _BLANK_LINES.sub("\n", bare).strip()


def _topics() -> Iterator[Page]:
    for name, text in sorted(pydoc_data.topics.topics.items()):
        yield Page(f"pydoc:topics/{name}", _decode(text.encode()))


def _descriptions() -> Iterator[Page]:
    for name, distribution in _distributions().items():
        body = distribution.metadata.json.get("description")
        if isinstance(body, str):
            yield Page(f"pkg:{name}/description", _decode(body.encode("utf-8", "surrogatepass")))


def _texts(kind: str, files: Iterable[_Installed], wanted: Callable[[str], bool]) -> Iterator[Page]:
    for url, path in _by_hash(file for file in files if wanted(file.url)):
        data = _read(path)
        yield Page(f"{kind}:{url}", None if data is None else _decode(data))


def _files(kind: str, folder: Path, paths: Iterable[Path]) -> Iterator[Page]:
    for place, path in _by_hash((p.relative_to(folder).as_posix(), p) for p in paths):
        if path.is_file():  # not a link to a package that was removed
            data = _read(path)
            yield Page(f"{kind}:{place}", None if data is None else _decode(data))


def _distributions() -> dict[str, importlib.metadata.Distribution]:
    found: dict[str, importlib.metadata.Distribution] = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        # This package's own words would change the sample with every change of the code.
        if name and name.replace("_", "-").lower() != "corpus-platform":
            found.setdefault(name, distribution)  # the first on the path is the one in use
    return dict(sorted(found.items()))


def _installed_files() -> list[_Installed]:
    return [
        _Installed(f"{name}/{file.as_posix()}", Path(str(file.locate())))
        for name, distribution in _distributions().items()
        for file in distribution.files or ()
        if not file.is_absolute() and ".." not in file.parts
    ]


def _is_licence(url: str) -> bool:
    name = PurePosixPath(url)
    return name.suffix not in {".py", ".pyc"} and _LICENCE.fullmatch(name.name) is not None


def _is_document(url: str) -> bool:
    name = PurePosixPath(url)
    if name.suffix.lower() not in _DOCUMENTATION or _is_licence(url):
        return False
    of_metadata = any(part.endswith((".dist-info", ".egg-info")) for part in name.parts)
    return not of_metadata and _NOT_FOR_READERS.isdisjoint(name.parts)


def _package_sources(files: Iterable[_Installed]) -> Iterator[tuple[str, Path]]:
    for url, path in files:
        package, _, inside = url.partition("/")
        if inside.endswith(".py") and _NOT_FOR_READERS.isdisjoint(inside.split("/")):
            yield f"{package}/{_dotted(inside)}", path


def _stdlib_sources(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in folder.rglob("*.py"):
        inside = path.relative_to(folder).as_posix()
        if _NOT_OF_STDLIB.isdisjoint(inside.split("/")):
            yield _dotted(inside), path


def _dotted(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _service_files(files: Iterable[_Installed]) -> Iterator[tuple[str, Path]]:
    for url, path in files:
        if url.startswith("botocore/") and path.name == "service-2.json.gz":
            yield "/".join(PurePosixPath(url).parts[-3:-1]), path  # service/version


def _by_hash(files: Iterable[tuple[str, Path]]) -> list[tuple[str, Path]]:
    return sorted(files, key=lambda file: (text_sha256(file[0]), file[0]))


def _first(pages: Iterator[Page]) -> Iterator[Page]:
    total = 0
    for page in pages:
        total += len(page.text or "")
        if total > MAX_FILE_CHARS:
            return
        if page.text != "":
            yield page


def _read(path: Path) -> bytes | None:
    """Return a file's bytes, decompressed; of a file that is a text itself only the beginning."""
    whole = path.suffix in {".py", ".mo"} or path.name.endswith(".json.gz")
    limit = -1 if whole else MAX_PAGE_BYTES + 1
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return file.read(limit)
    except (OSError, EOFError):
        return None


def _decode(data: bytes) -> str | None:
    """Return UTF-8 bytes as text, cut after the last line within the limit; None if not UTF-8."""
    cut = len(data) > MAX_PAGE_BYTES
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data[:MAX_PAGE_BYTES], not cut)
    except UnicodeDecodeError:
        return None
    return text[: text.rfind("\n") + 1] or text if cut else text


def _docstrings_of(source: bytes) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other people's escapes
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None
    return _page(_explained(tree))


def _explained(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef,
) -> Iterator[str | None]:
    yield ast.get_docstring(node)
    for inner in node.body:
        if isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _explained(inner)


def _page(sections: Iterable[str | None]) -> str | None:
    text = "\n\n".join(section for section in sections if section)
    return _decode(text.encode("utf-8", "surrogatepass"))


def _service_pages(url: str, model: _Model) -> Iterator[Page]:
    name = model["metadata"]["serviceFullName"]
    yield Page(url, _page([name, _prose(model)]))
    for key in sorted(model["operations"], key=text_sha256):
        operation = model["operations"][key]
        sides = [operation[side]["shape"] for side in ("input", "output") if side in operation]
        members = (text for shape in sides for text in _members(model["shapes"], shape))
        yield Page(f"{url}/{key}", _page([f"{name}: {key}", _prose(operation), *members]))


def _members(shapes: dict[str, _Model], shape: str) -> Iterator[str]:
    """Yield what is said of the members of a structure, and of the members of these.

    Without their names: a third of such pages would be no language to a classifier.
    """
    inside = [member for _, member in sorted(shapes[shape].get("members", {}).items())]
    yield from map(_prose, inside)
    for name in dict.fromkeys(_element(shapes, member["shape"]) for member in inside):
        yield _prose(shapes[name])
        yield from (_prose(m) for _, m in sorted(shapes[name].get("members", {}).items()))


def _element(shapes: dict[str, _Model], name: str) -> str:
    """Return the name of the shape that a list or a map, however nested, is made of."""
    while element := shapes[name].get("member") or shapes[name].get("value"):
        name = element["shape"]
    return name


def _prose(model: _Model) -> str:
    return strip_tags(model.get("documentation", ""))


def _messages(path: Path) -> str | None:
    """Return the translated messages of a GNU catalogue (.mo), one a line; None if it is none.

    Header of 7 words: magic, revision, messages, offset of originals, offset of translations, ...
    """
    data = _read(path) or b""
    order = _CATALOGUE_ORDERS.get(data[:4])
    if order is None:
        return None
    try:
        count, _, start = struct.unpack_from(f"{order}3I", data, 8)
        places = list(struct.iter_unpack(f"{order}2I", data[start : start + 8 * count]))
    except struct.error:  # cut
        return None
    # The translation of the empty message is the catalogue's header; plurals are split by NUL.
    texts = [data[offset : offset + length].replace(b"\0", b"\n") for length, offset in places]
    return _decode(b"\n".join(texts[1:]))
