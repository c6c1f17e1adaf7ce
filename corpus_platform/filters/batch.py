"""A batch of documents as columns: what rules and languages are told from.

A caller bounds memory by the size of its batches; what is measured here needs besides them one
copy of the longest document and a window of about 20 MB.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from corpus_platform.document import Document
from corpus_platform.filters.measures import Measures, measure

__all__ = ["Batch"]


@dataclass(frozen=True)
class Batch:
    """Texts with what their records say of language and address, None where they say nothing."""

    texts: Sequence[str]
    langs: Sequence[str | None]
    urls: Sequence[str | None]

    def __post_init__(self) -> None:
        if not len(self.texts) == len(self.langs) == len(self.urls):
            raise ValueError(
                f"columns of unequal length: {len(self.texts)} texts,"
                f" {len(self.langs)} langs, {len(self.urls)} urls"
            )

    def __len__(self) -> int:
        return len(self.texts)

    @classmethod
    def of(cls, documents: Iterable[Document]) -> "Batch":
        """Return the columns of some documents, in their order."""
        rows = list(documents)
        return cls([d.text for d in rows], [d.lang for d in rows], [d.url for d in rows])

    @cached_property
    def measures(self) -> Measures:
        """What the texts count, made at first use and kept for every rule."""
        return measure(self.texts)
