"""Documentation is read from files, never imported, and every page says where it stood."""

import gzip
import json
import struct
from pathlib import Path

from corpus_platform.stages.documentation import (
    Page,
    changelogs,
    docstrings,
    installed_documentation,
    service_descriptions,
    strip_tags,
    system_documents,
    translations,
)


def _put(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_docstrings_of_a_module_come_in_the_order_of_the_file(tmp_path: Path) -> None:
    source = (
        b'"""First."""\n\nclass A:\n    """Second."""\n\n    def b(self):\n        """Third\n\n'
        b'        goes on."""\n\ndef c():\n    pass\n\nasync def d():\n    """Fourth."""\n'
    )
    path = _put(tmp_path / "m.py", source)
    assert list(docstrings("pkg", [("p/m", path)])) == [
        Page("pkg:p/m", "First.\n\nSecond.\n\nThird\n\ngoes on.\n\nFourth.")
    ]


def test_a_module_is_read_without_running_it(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    source = f'"""Explained."""\nopen({str(marker)!r}, "w").close()\n'
    list(docstrings("pkg", [("p/m", _put(tmp_path / "m.py", source.encode()))]))
    assert not marker.exists()


def test_a_module_that_does_not_parse_is_reported_as_unreadable(tmp_path: Path) -> None:
    path = _put(tmp_path / "m.py", b'"""Explained."""\nprint "old"\n')
    assert list(docstrings("pkg", [("p/m", path)])) == [Page("pkg:p/m", None)]


def test_a_docstring_with_a_lone_surrogate_is_reported_as_unreadable(tmp_path: Path) -> None:
    path = _put(tmp_path / "m.py", b'"""A lone \\ud800 here."""\n')
    assert list(docstrings("pkg", [("p/m", path)])) == [Page("pkg:p/m", None)]


def test_tags_go_and_blocks_become_lines() -> None:
    fragment = "<p>Deletes the <code>bucket</code>.</p> <ul> <li>a &lt; b</li><li>c</li> </ul>"
    assert strip_tags(fragment) == "Deletes the bucket.\na < b\nc"


def test_an_operation_tells_of_its_members_and_of_theirs(tmp_path: Path) -> None:
    model = {
        "metadata": {"serviceFullName": "Small Service"},
        "documentation": "<p>Serves.</p>",
        "operations": {"Get": {"input": {"shape": "In"}, "documentation": "<p>Gets.</p>"}},
        "shapes": {
            "In": {
                "members": {
                    "b": {"shape": "Tags", "documentation": "The tags."},
                    "a": {"shape": "Name", "documentation": "The name."},
                }
            },
            "Name": {"documentation": "Not empty."},
            "Tags": {"member": {"shape": "Tag"}},
            "Tag": {"members": {"k": {"shape": "Name", "documentation": "The key."}}},
        },
    }
    data = gzip.compress(json.dumps(model).encode())
    path = _put(tmp_path / "service-2.json.gz", data)
    assert list(service_descriptions([("small/2020", path)])) == [
        Page("botocore:small/2020", "Small Service\n\nServes."),
        Page(
            "botocore:small/2020/Get",
            "Small Service: Get\n\nGets.\n\nThe name.\n\nThe tags.\n\nNot empty.\n\nThe key.",
        ),
    ]


def test_system_documents_are_copyrights_and_readmes_but_not_changelogs(tmp_path: Path) -> None:
    for name in ("copyright", "README.Debian", "guide.md", "changelog.gz", "other.bin"):
        _put(tmp_path / "pack" / name, b"text\n")
    assert sorted(page.url for page in system_documents(tmp_path)) == [
        "doc:pack/README.Debian",
        "doc:pack/copyright",
        "doc:pack/guide.md",
    ]


def test_a_long_changelog_is_cut_after_a_line_within_200_kb(tmp_path: Path) -> None:
    line = "gefügt: größer\n".encode()  # 18 bytes
    _put(tmp_path / "pack" / "changelog.gz", gzip.compress(line * 20_000, mtime=0))
    (page,) = changelogs(tmp_path)
    assert page.text == "gefügt: größer\n" * 11_111


def test_a_cut_or_undecodable_file_is_reported_as_unreadable(tmp_path: Path) -> None:
    whole = gzip.compress(b"entry of a change log\n" * 100, mtime=0)
    _put(tmp_path / "cut" / "changelog.gz", whole[:-12])
    _put(tmp_path / "latin" / "changelog.gz", gzip.compress(b"gr\xf6\xdfer\n", mtime=0))
    assert sorted(changelogs(tmp_path)) == [
        Page("doc:cut/changelog.gz", None),
        Page("doc:latin/changelog.gz", None),
    ]


def test_translations_are_the_messages_of_a_catalogue_without_its_header(tmp_path: Path) -> None:
    texts = [b"Content-Type: text/plain; charset=UTF-8\n", "Größe\0Größen".encode(), b"Ende"]
    start = 28
    at = start + 8 * len(texts)
    places, body = b"", b""
    for text in texts:
        places += struct.pack("<2I", len(text), at + len(body))
        body += text + b"\0"
    header = struct.pack("<7I", 0x950412DE, 0, len(texts), 0, start, 0, 0)
    _put(tmp_path / "de" / "LC_MESSAGES" / "tool.mo", header + places + body)
    assert list(translations(tmp_path)) == [Page("locale:de/tool.mo", "Größe\nGrößen\nEnde")]


def test_what_is_no_whole_catalogue_is_reported_as_unreadable(tmp_path: Path) -> None:
    header = struct.pack("<7I", 0x950412DE, 0, 2, 0, 28, 0, 0)
    _put(tmp_path / "de" / "LC_MESSAGES" / "cut.mo", header + b"\0" * 9)
    _put(tmp_path / "fr" / "LC_MESSAGES" / "none.mo", b"text")
    assert sorted(translations(tmp_path)) == [
        Page("locale:de/cut.mo", None),
        Page("locale:fr/none.mo", None),
    ]


def test_a_folder_that_is_not_there_gives_no_pages(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    assert [*system_documents(missing), *changelogs(missing), *translations(missing)] == []


def test_the_shares_of_the_kinds_are_a_whole() -> None:
    assert round(sum(kind.share for kind in installed_documentation()), 9) == 1
