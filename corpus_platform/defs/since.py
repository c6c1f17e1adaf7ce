"""Since when something has been so: the first time that each of a set of names was seen.

One small JSON file beside the artifacts. A name leaves with the first look that misses it; a file
that is missing or damaged is begun anew.
"""

import json
import math
import time
from collections.abc import Iterable
from pathlib import Path

from corpus_platform.storage import lease
from corpus_platform.storage.files import publish_bytes, read_if_there

__all__ = ["remember"]


def remember(path: Path, names: Iterable[str], *, now: float | None = None) -> dict[str, float]:
    """Return for each name the time it was first seen, and keep that for the next look.

    Two processes at once take turns.
    """
    now = time.time() if now is None else now
    wanted = sorted(set(names))
    if not wanted and not path.exists():
        return {}
    with lease.hold(path.with_suffix(".lease")):
        before = _read(path)
        since = {name: min(before.get(name, now), now) for name in wanted}
        if since != before:
            whole = {"format": 1, "since": since}
            publish_bytes(path, (json.dumps(whole, sort_keys=True, indent=1) + "\n").encode())
    return since


def _read(path: Path) -> dict[str, float]:
    try:
        whole = json.loads(read_if_there(path) or b"{}")
        found = {str(name): float(at) for name, at in whole.get("since", {}).items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}
    return {name: at for name, at in found.items() if math.isfinite(at) and at >= 0}
