"""Globs to listed files: those of a local folder tree, or of the names that a store lists.

`**/` is any depth, `*` and `?` stay within a name, {a,b} are alternatives, [..] classes, {crawl}
names the crawl. The name of a file is its path below the folder that the crawl names (below the
fixed part of the glob where no crawl is in it), so that no two files share one.
"""

import fnmatch
import logging
import os
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from corpus_platform.config import SourceSettings
from corpus_platform.errors import StorageError
from corpus_platform.storage.listed import Listed
from corpus_platform.storage.registry import Member

__all__ = ["CRAWL", "SIDECAR", "excluded", "glob_expression", "glob_files", "with_sidecars"]

CRAWL = "{crawl}"
SIDECAR = ".sha256"  # a file beside another one, with the hash to expect
_log = logging.getLogger(__name__)


def glob_files(source: SourceSettings, base: Path) -> Iterator[Listed]:
    """Yield the files on this machine that a source's glob matches, sorted within each folder."""
    pattern = os.path.normpath(os.path.join(base, (source.glob or "").removeprefix("file://")))
    expression = glob_expression(pattern)
    files = {str(path): path for path in _walk(_fixed_part(pattern))}
    for name, sidecar in with_sidecars(files):
        match = expression.fullmatch(name)
        if match and not excluded(files[name], base, source.exclude):
            size = files[name].stat().st_size if source.bundle_bytes else None
            member = Member(name, bytes=size, sidecar=sidecar)
            yield Listed(source.crawl or match["crawl"], match["name"], member)


def with_sidecars(names: Collection[str]) -> Iterator[tuple[str, str | None]]:
    """Yield each file that is no sidecar of another one, and the sidecar that it has."""
    for name in names:
        if name.endswith(SIDECAR) and name.removesuffix(SIDECAR) in names:
            continue
        yield name, name + SIDECAR if name + SIDECAR in names else None


def _fixed_part(pattern: str) -> Path:
    """Return the folder above the first component with a pattern in it."""
    fixed: list[str] = []
    for part in Path(pattern).parts[:-1]:
        if re.search(r"[*?\[{]", part):
            break
        fixed.append(part)
    return Path(*fixed)


def _walk(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, those of linked folders too: a crawl may lie on another disk."""
    above: dict[str, frozenset[tuple[int, int]]] = {}
    for where, folders, files in os.walk(folder, onerror=_not_listed, followlinks=True):
        status = os.stat(where)
        here, outer = (status.st_dev, status.st_ino), above.pop(where, frozenset())
        if here in outer:  # a link back to a folder that it lies in
            folders.clear()
            continue
        folders.sort()
        above.update((os.path.join(where, name), outer | {here}) for name in folders)
        for name in sorted(files):
            path = Path(where, name)
            if path.is_file():  # no pipes
                yield path
            elif path.is_symlink() and not path.exists():
                _log.warning("sources: %s is a link to nothing, and is left out", path)


def _not_listed(error: OSError) -> None:
    """Refuse to take a folder that may not be read for an empty one; one that is gone is empty."""
    if not isinstance(error, FileNotFoundError):
        raise StorageError(
            f"sources: {error.filename}: cannot be listed: {error.strerror}"
        ) from error


def excluded(path: Path, base: Path, patterns: Sequence[str]) -> bool:
    """Tell whether a pattern matches the path, the path below the base, or any end of it."""
    if not patterns:
        return False
    ends = ["/".join(path.parts[i:]) for i in range(1, len(path.parts))]
    names = [str(path), os.path.relpath(path, base), *ends]
    return any(fnmatch.fnmatchcase(name, p) for p in patterns for name in names)


def glob_expression(pattern: str) -> re.Pattern[str]:
    """Compile a glob over absolute paths.

    The group `name` begins after the component of the crawl, or at the first pattern.
    """
    parts = Path(pattern).parts[1:]
    with_crawl = [i for i, part in enumerate(parts) if CRAWL in part]
    first = [i for i, part in enumerate(parts) if re.search(r"[*?\[{]", part)]
    begin = with_crawl[0] + 1 if with_crawl else (first or [len(parts) - 1])[0]
    begin = min(begin, len(parts) - 1)
    pieces = ["/"]
    for i, part in enumerate(parts):
        if i == begin:
            pieces.append("(?P<name>")
        if part == "**":
            pieces.append(r"(?:[^/]+/)*")
        else:
            pieces.append(_component(part) + ("/" if i < len(parts) - 1 else ""))
    return re.compile("".join(pieces) + ")", re.DOTALL)


def _component(part: str) -> str:
    # As in a shell, a pattern at the start does not match hidden files, such as unfinished ones.
    out, i = [r"(?!\.)" if part[:1] in "*?[" else ""], 0
    while i < len(part):
        if part.startswith(CRAWL, i):
            out.append(r"(?P<crawl>[^/]+?)")
            i += len(CRAWL)
        elif part[i] == "{" and "}" in part[i:]:
            end = part.index("}", i)
            out.append("(?:" + "|".join(_component(a) for a in part[i + 1 : end].split(",")) + ")")
            i = end + 1
        elif part[i] == "[" and "]" in part[i + 2 :]:
            end = part.index("]", i + 2)
            body = part[i + 1 : end].replace("\\", r"\\")
            out.append("[" + ("^" + body[1:] if body[0] == "!" else body) + "]")
            i = end + 1
        else:
            out.append({"*": "[^/]*", "?": "[^/]"}.get(part[i], re.escape(part[i])))
            i += 1
    return "".join(out)
