"""Sources of shards: turns the settings' globs into shards with their member files.

The key of a shard is `<crawl>/<name>`: the name is the file's path below the folder that the
crawl names (below the fixed part of the glob where no crawl is in it), so that no two files share
a key. Listings over HTTP and S3 are not among the kinds.
"""

import fnmatch
import logging
import os
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from corpus_platform.config import SourceSettings
from corpus_platform.errors import SettingsError, StorageError
from corpus_platform.storage.registry import Shard, key_order

__all__ = ["discover", "discover_some"]

CRAWL = "{crawl}"
_log = logging.getLogger(__name__)


def discover_some(
    sources: Sequence[SourceSettings], base: Path, *, registered: Collection[str]
) -> list[Shard]:
    """Return what `discover` does, for a corpus that has these shards already.

    Raises SettingsError when it has none and the sources list none: a glob is wrong.
    """
    found = discover(sources, base)
    if not found and not registered:
        globs = ", ".join(os.path.normpath(os.path.join(base, s.glob)) for s in sources)
        raise SettingsError(
            f"sources: there is no shard: no file matches {globs}; correct `glob` or `exclude`,"
            " or put files there"
        )
    return found


def discover(sources: Sequence[SourceSettings], base: Path) -> list[Shard]:
    """Return the shards that the sources list now, sorted by key; a warning names a glob without.

    Raises SettingsError when two files claim one key.
    """
    found: dict[str, Shard] = {}
    for source in sources:
        files = list(_files(source, base))
        if not files:
            _log.warning("sources: glob %r lists no file below %s", source.glob, base)
        for key, path in files:
            if key in found and found[key].members != (str(path),):
                raise SettingsError(
                    f"sources: {path} and {found[key].members[0]} are both shard {key!r};"
                    " exclude one of them or give them different crawls"
                )
            found[key] = Shard(key, (str(path),), source.fields)
    return [found[key] for key in sorted(found, key=key_order)]


def _files(source: SourceSettings, base: Path) -> Iterator[tuple[str, Path]]:
    pattern = os.path.normpath(os.path.join(base, source.glob))
    expression = _expression(pattern)
    for path in _walk(_fixed_part(pattern)):
        match = expression.fullmatch(str(path))
        if match and not _excluded(path, base, source.exclude):
            crawl = source.crawl or match["crawl"]
            yield _key(crawl, match["name"], path), path


def _key(crawl: str, name: str, path: Path) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", crawl):
        raise SettingsError(f"sources: {path}: {crawl!r} is no name of a crawl")
    # Dagster refuses control characters and `...` in partition keys; a byte of a name that is not
    # UTF-8 stands in it as a lone surrogate, which no file of ours can hold.
    safe = re.sub(
        r"[\x00-\x1f\x7f%\udc80-\udcff]|\.(?=\.\.)", lambda m: f"%{ord(m[0]) & 0xFF:02X}", name
    )
    return f"{crawl}/{safe}"


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


def _excluded(path: Path, base: Path, patterns: Sequence[str]) -> bool:
    """Tell whether a pattern matches the path, the path below the base, or any end of it."""
    ends = ["/".join(path.parts[i:]) for i in range(1, len(path.parts))]
    names = [str(path), os.path.relpath(path, base), *ends]
    return any(fnmatch.fnmatchcase(name, p) for p in patterns for name in names)


def _expression(pattern: str) -> re.Pattern[str]:
    """Compile a glob: `**/` any depth, `*` and `?` within a name, {a,b}, [..], {crawl}.

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
