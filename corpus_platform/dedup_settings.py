"""The settings of `dedup:`, and the curve by which bands and rows are chosen."""

from typing import Annotated, Literal

import pydantic
from pydantic import Field

from corpus_platform.rule_settings import Names, Section

__all__ = ["AUTO_RECALL", "DedupSettings", "fewest_bands", "found_share"]

AUTO_RECALL = 0.9  # of pairs at the threshold; one row a band finds the most that can be found


class DedupSettings(Section):
    """How near-copies are found and judged."""

    exact: Literal["folded", "raw"] = Field(
        "folded",
        description="What exact copies have in common: the folded text (case and white space do not count), or the raw bytes, as for code.",
    )
    shingle: Literal["auto", "char", "word"] = Field(
        "auto", description="auto: words in spaced scripts, characters in unspaced ones."
    )
    width: int = Field(5, ge=1, le=64, description="Units in a shingle [S1, 3.4; S4].")
    scheme: Literal["fast", "datasketch"] = Field(
        "fast",
        description="How signatures are made: fast similarity sketching (arXiv:1704.04370), or values that datasketch's MinHash objects understand.",
    )
    permutations: int = Field(128, ge=8, le=1024, description="Values in a signature, k [S1, 3.4].")
    bands: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        16,
        description="b; finds 0.947 of pairs at 0.8 with r = 8 [S1, 3.5]; 32 x 4 finds more [S4], 8 x 16 less. auto: the fewest that find 0.9 at the threshold, without `rows`.",
    )
    rows: int = Field(8, ge=1, description="r; b * r = k.")
    threshold: float = Field(0.8, gt=0.0, le=1.0, description="Exact Jaccard of a near-copy [S1].")
    verify: Literal["exact", "signature", "none"] = Field(
        "exact",
        description="What makes a candidate pair a near-copy: the exact Jaccard of its texts, the estimate of its signatures, or that it was found. Only `exact` can be defended.",
    )
    bucket_cap: int = Field(
        64,
        ge=1,
        le=4096,
        description="Documents before it in a bucket that a document is compared with: giant buckets cost near-linear time.",
    )
    keep: Literal["first_seen", "one_per_cluster"] = Field(
        "first_seen",
        description="first_seen: a document goes only if an earlier kept one is that similar; one_per_cluster: chains of copies keep one document [S1, 3.6].",
    )
    priority: Names = Field(
        (),
        description="Patterns of shards whose documents count as earlier than those of later patterns, and of all others: copies are dropped from the others.",
    )
    prefer: Literal["oldest", "longest"] = Field(
        "oldest",
        description="Which of two copies of one priority counts as earlier: that of the older crawl, or the longer text.",
    )

    @pydantic.model_validator(mode="after")
    def _bands_fit(self) -> "DedupSettings":
        if self.bands == "auto":
            if "rows" in self.model_fields_set:
                raise ValueError("bands: auto chooses rows itself; leave rows out")
        elif self.bands * self.rows != self.permutations:
            bands, rows = fewest_bands(self.permutations, self.threshold, AUTO_RECALL)
            raise ValueError(
                f"bands * rows = {self.bands} * {self.rows} = {self.bands * self.rows},"
                f" but permutations = {self.permutations}; take bands: {bands} and rows: {rows},"
                " or bands: auto without rows"
            )
        if self.recall < 0.1:
            bands, rows = self.banding
            raise ValueError(
                f"bands = {bands}, rows = {rows} finds only {self.recall:.5f} of the pairs"
                f" at threshold {self.threshold}; take more bands of fewer rows, or bands: auto"
                " without rows"
            )
        return self

    @property
    def banding(self) -> tuple[int, int]:
        """Bands and rows in force: b * r = k."""
        if self.bands != "auto":
            return self.bands, self.rows
        return fewest_bands(self.permutations, self.threshold, AUTO_RECALL)

    @property
    def recall(self) -> float:
        """Chance that a pair exactly at the threshold meets in a band."""
        return found_share(self.threshold, *self.banding)


def found_share(similarity: float, bands: int, rows: int) -> float:
    """Return the chance that a pair of this Jaccard similarity meets in a band: 1 - (1 - s^r)^b."""
    return 1.0 - (1.0 - similarity**rows) ** bands


def fewest_bands(permutations: int, threshold: float, recall: float) -> tuple[int, int]:
    """Return the fewest bands b, with rows r, of b * r = k that find a share of pairs at a threshold.

    Where none does, as many bands as values.
    """
    shapes = ((b, permutations // b) for b in range(1, permutations + 1) if permutations % b == 0)
    found = (s for s in shapes if found_share(threshold, *s) >= recall)
    return next(found, (permutations, 1))
