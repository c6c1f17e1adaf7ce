"""The settings of the cleaning rules, and the presets that name a choice of them.

The base of every section and the few types that sections share stand here too, below all of them.
Sources of numbers: [S1] is one of the documents the platform was specified in.
"""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

__all__ = [
    "PRESETS",
    "RULES",
    "CharRepeat",
    "DupLines",
    "LowAlnum",
    "LowLangConfidence",
    "Names",
    "RuleSettings",
    "Section",
    "Share",
    "TooShort",
    "from_list",
]


def from_list(value: object) -> object:
    """Return a YAML list as the tuple that a frozen section holds."""
    if isinstance(value, list | tuple):
        return tuple(value)
    raise ValueError("a list is wanted")


Share = Annotated[float, Field(ge=0.0, le=1.0)]
Names = Annotated[tuple[str, ...], BeforeValidator(from_list)]

# Files that are code whatever a language model thinks of their comments.
CODE_SUFFIXES = (
    *(
        ".c",
        ".cc",
        ".cpp",
        ".cs",
        ".css",
        ".cu",
        ".go",
        ".h",
        ".hpp",
        ".ipynb",
        ".java",
        ".jl",
        ".js",
    ),
    *(
        ".json",
        ".jsx",
        ".kt",
        ".lua",
        ".m",
        ".php",
        ".pl",
        ".ps1",
        ".py",
        ".pyi",
        ".r",
        ".rb",
        ".rs",
    ),
    *(".scala", ".sh", ".sql", ".swift", ".toml", ".ts", ".tsx", ".xml", ".yaml", ".yml", ".zig"),
)


class Section(BaseModel):
    # Strict: YAML has types, so "300", true or 16.5 where a whole number belongs is a mistake.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class TooShort(Section):
    """Drop texts of fewer than `min_chars` code points."""

    min_chars: int = Field(200, ge=0, description="Fewest code points that stay [S1, 2.2].")


class DupLines(Section):
    """Drop texts whose lines repeat: 1 - distinct lines / lines above `max_share`."""

    max_share: Share = Field(
        0.30, description="Largest share of repeated lines that stays [S1, 2.2]."
    )
    count_blank: bool = Field(
        False,
        description="Count blank lines, as the rule was written: then five paragraphs score 0.33 and are dropped.",
    )


class CharRepeat(Section):
    """Drop texts in which one character stands more than `max_run` times in a row."""

    max_run: int = Field(
        50, ge=1, description=r"Longest run of one character that stays [S1, 2.2: `(.)\1{50,}`]."
    )


class LowAlnum(Section):
    """Drop texts whose share of letters and numbers is below `min_share`."""

    min_share: Share = Field(
        0.50, description="Least share of letters and numbers that stays [S1, 2.2]."
    )
    count_marks: bool = Field(
        True,
        description="Count vowel signs too. As the rule was written they are junk: Hindi reaches 0.48, vowelled Arabic 0.42.",
    )


class LowLangConfidence(Section):
    """Drop texts whose language cannot be told with confidence `min_score`."""

    min_score: Share = Field(0.80, description="Least score of the language model [S1, 2.2].")
    max_bytes: int = Field(
        2000,
        ge=100,
        description="Bytes of text that the model looks at; same label as the whole text in 98.8 % of documents (measured).",
    )
    trust_given: bool = Field(
        True,
        description="Leave documents with a given `lang` alone: half of all technical English scores below 0.8 (measured).",
    )
    exempt_code: bool = Field(True, description="Leave program code alone.")
    code_suffixes: Names = Field(
        CODE_SUFFIXES, description="Ends of addresses that are program code."
    )


RuleSettings = TooShort | DupLines | CharRepeat | LowAlnum | LowLangConfidence

RULES: dict[str, type[RuleSettings]] = {
    "too_short": TooShort,
    "dup_lines": DupLines,
    "char_repeat": CharRepeat,
    "low_alnum": LowAlnum,
    "low_lang_confidence": LowLangConfidence,
}

# What a preset changes in the defaults above; the order of RULES is the order of judgement.
PRESETS: dict[str, dict[str, dict[str, object]]] = {
    "web": {name: {} for name in RULES},
    "source_document": {
        "too_short": {},
        "dup_lines": {"count_blank": True},
        "char_repeat": {},
        "low_alnum": {"count_marks": False},
        "low_lang_confidence": {"trust_given": False, "exempt_code": False},
    },
    "none": {},
}
