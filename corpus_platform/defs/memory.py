"""Small named JSON values of one corpus, kept in the storage of the Dagster instance.

What ticks must know of earlier ticks: it survives a killed daemon, which a sensor's cursor does
not. A value is replaced whole: of two writers the last one counts.
"""

import json
from typing import Any  # values of JSON, checked by whoever reads them

import dagster as dg

__all__ = ["Memory"]


class Memory:
    """Values by name. `corpus` keeps several corpora of one instance apart."""

    def __init__(self, instance: dg.DagsterInstance, corpus: str) -> None:
        self._storage, self._prefix = instance.run_storage, f"corpus/{corpus}/"

    def get(self, name: str) -> Any:
        """Return a value, None where none was ever set."""
        key = self._prefix + name
        found = self._storage.get_cursor_values({key}).get(key)
        return None if found is None else json.loads(found)

    def set(self, name: str, value: object) -> None:
        """Replace a value; durable when it returns."""
        self._storage.set_cursor_values({self._prefix + name: json.dumps(value, sort_keys=True)})
