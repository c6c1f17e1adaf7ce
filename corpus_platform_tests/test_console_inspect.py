"""Tests of what `corpus inspect` prints: every line written out, and no terminal steered."""

import json
from collections import Counter

from corpus_platform.config import Fields
from corpus_platform.console_inspect import inspection_json, inspection_lines
from corpus_platform.stages.inspection import Column, File, Inspection


def _found() -> Inspection:
    return Inspection(
        files=[File("a.jsonl.gz", 1234, "gzip", "lines")],
        columns=[
            Column("id", ("string",), 3, 4),
            Column("body", ("null", "string"), 4, 4),
            Column("x\x1b[2J", ("number",), 1, 4),
        ],
        rows=6,
        records=6,
        rejected=Counter({"text_null": 1}),
        characters=[10, 10, 20, 30, 30],
        utf8_bytes=66,
        decompressed_bytes=5000,
        languages=Counter({"en": 2, "de": 1}),
        mojibake=1,
        html=0,
        beginnings=[("d1", "first line\nsecond \x1b[31mred")],
    )


def test_the_lines_say_all_that_was_seen() -> None:
    assert list(inspection_lines(_found(), Fields(text="body"), limit=10)) == [
        "file: a.jsonl.gz: 1.2 kB stored as gzip, holds lines",
        "column: id: string in 75%, taken as the id",
        "column: body: null or string, taken as the text",
        "column: x\\x1b[2J: number in 25%",
        "6 rows; 5 of 6 records read are documents; 5.0 kB of plain bytes read",
        "  not readable: text_null: 1",
        "characters of a text, at shares of the documents:"
        " 0% 10, 5% 10, 25% 10, 50% 20, 75% 30, 95% 30, 100% 30",
        "bytes of UTF-8 per document: 13",
        "languages of the first 3 documents, by their beginnings: en 67%, de 33%",
        "suspected mojibake: 1 documents (20.0%); suspected HTML: 0 documents (0.0%)",
        "document d1:",
        "  first line",
        "  second \\x1b[31mred",
    ]


def test_a_part_of_a_shard_is_said_to_be_one() -> None:
    found = _found()
    found.rows = None
    lines = list(inspection_lines(found, Fields(text="body"), limit=6))
    told = [line for line in lines if "records read" in line]
    assert told == [
        "rows are not counted; 5 of 6 records read of the first 6 (--all: of all) are documents;"
        " 5.0 kB of plain bytes read"
    ]


def test_a_wrong_text_field_and_a_fault_are_named() -> None:
    found = Inspection([File("a", 4, "parquet", "Parquet")], [Column("body", ("string",), 1, 1)])
    found.failure = "one column 'text' is wanted"
    assert list(inspection_lines(found, Fields(), limit=None)) == [
        "file: a: 4 bytes stored as parquet, holds Parquet",
        "column: body: string",
        "no column 'text': name the text's with `fields: {text: ...}` of its source",
        "rows are not counted; 0 of 0 records read are documents; 0 bytes of plain bytes read",
        "cannot be read on: one column 'text' is wanted",
    ]


def test_json_has_everything_and_no_list_of_lengths() -> None:
    whole = json.loads(json.dumps(inspection_json(_found())))
    assert whole == {
        "beginnings": [["d1", "first line\nsecond \x1b[31mred"]],
        "characters": {
            "0%": 10, "5%": 10, "25%": 10, "50%": 20, "75%": 30, "95%": 30, "100%": 30,
        },
        "columns": [
            {"name": "id", "records": 4, "seen": 3, "types": ["string"]},
            {"name": "body", "records": 4, "seen": 4, "types": ["null", "string"]},
            {"name": "x\x1b[2J", "records": 4, "seen": 1, "types": ["number"]},
        ],
        "decompressed_bytes": 5000,
        "documents": 5,
        "failure": None,
        "files": [{"bytes": 1234, "holds": "lines", "name": "a.jsonl.gz", "stored_as": "gzip"}],
        "html": 0,
        "languages": {"de": 1, "en": 2},
        "mojibake": 1,
        "records": 6,
        "rejected": {"text_null": 1},
        "rows": 6,
        "utf8_bytes": 66,
    }  # fmt: skip
