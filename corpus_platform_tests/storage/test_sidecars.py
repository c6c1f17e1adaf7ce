"""A sidecar says one hash of the file it is asked for, in whatever form, or why it does not."""

import pytest

from corpus_platform.errors import SourceRefused
from corpus_platform.storage.sidecars import Checksum, checksum_line, parse_sidecar

# From the standard that defines SHA-256 (FIPS 180-2, appendix B): of "abc", and of nothing.
ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
NONE = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
HERE = "https://host/c/a.parquet.sha256?signature=secret"


def _parse(text: str, file_name: str = "a.parquet") -> str:
    return parse_sidecar(text.encode(), location=HERE, file_name=file_name)


@pytest.mark.parametrize(
    "text",
    [
        ABC,
        f"{ABC}\n",
        f"{ABC.upper()}\r\n",
        f"\ufeff{ABC}\r\n",
        f"  {ABC}  \n\n",
        f"# made by hand\n{ABC}\n",
        f"{ABC}  a.parquet\n",
        f"{ABC} *a.parquet\n",
        f"{ABC} a.parquet\n",
        f"{ABC}\ta.parquet\n",
        f"{ABC}  ./a.parquet\n",
        f"{ABC}  /build/out/a.parquet\n",
        f"SHA256 (a.parquet) = {ABC}\n",
        f"SHA256 (out/a.parquet) = {ABC}\n",
        f"SHA256(a.parquet)= {ABC}\n",
        f"SHA2-256(a.parquet)= {ABC}\n",
    ],
)
def test_every_common_form_says_the_same_hash(text: str) -> None:
    assert _parse(text) == ABC


def test_a_list_of_many_files_is_asked_for_the_one() -> None:
    assert _parse(f"{NONE}  b.parquet\n{ABC}  a.parquet\n{NONE}  xa.parquet\n") == ABC
    assert _parse(f"MD5 (a.parquet) = 00ff\nSHA256 (a.parquet) = {ABC}\n") == ABC


def test_of_two_files_of_one_name_the_nearer_path_counts() -> None:
    text = f"{NONE}  x/a.parquet\n{ABC}  y/a.parquet\n"
    assert _parse(text, "c/y/a.parquet") == ABC
    with pytest.raises(SourceRefused, match=r"2 different hashes for 'a.parquet'"):
        _parse(text)


def test_a_file_of_a_url_is_found_by_its_name_without_escapes() -> None:
    assert _parse(f"{NONE}  a.gz\n{ABC}  a b.gz\n", "a%20b.gz") == ABC
    assert _parse(f"{ABC}  a%20b.gz\n", "a%20b.gz") == ABC


def test_the_same_hash_twice_is_one() -> None:
    assert _parse(f"{ABC}  a.parquet\nSHA256 (a.parquet) = {ABC}\n") == ABC


def test_escaped_names_are_read_as_sha256sum_escapes_them() -> None:
    assert _parse(f"\\{ABC}  a\\nb\\\\c.gz\n", "a\nb\\c.gz") == ABC
    assert _parse(f"{ABC}  a\\nb.gz\n", "a\\nb.gz") == ABC
    assert _parse(f"\\SHA256 (a\\nb) = {ABC}\n", "a\nb") == ABC


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "an empty list of hashes"),
        ("\n\n# nothing\n", "an empty list of hashes"),
        (f"{ABC[:-1]}\n", "no sha256 (64 hexadecimal digits) in 'ba78"),
        (f"{ABC}0\n", "no sha256 (64 hexadecimal digits) in 'ba78"),
        ("<html>" + "z" * 500, "no sha256 (64 hexadecimal digits) in '<html>zz"),
        (f"{ABC}  b.parquet\n", "no hash for 'a.parquet'; the first one is of 'b.parquet'"),
        (f"{ABC}  \x1b[2Ja\n", "the first one is of '\\x1b[2Ja'"),
        (f"{ABC}\n{NONE}\n", "2 hashes without a name, where one is wanted"),
        (f"{ABC}  a.parquet\n{NONE}  a.parquet\n", "2 different hashes for 'a.parquet'"),
    ],
)
def test_what_says_no_hash_is_refused_without_its_signature(text: str, fault: str) -> None:
    with pytest.raises(SourceRefused) as refused:
        _parse(text)
    message = str(refused.value)
    assert message.startswith("https://host/c/a.parquet.sha256: ")
    assert fault in message
    assert "secret" not in message
    assert len(message) < 400


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(SourceRefused, match="not UTF-8 text"):
        parse_sidecar(b"PAR1\xff\xfe", location="s3://b/a.sha256", file_name="a")


def test_one_line_of_a_list_is_its_hash_and_name() -> None:
    assert checksum_line(f"{ABC.upper()}  a b.gz") == Checksum(ABC, "a b.gz")
    assert checksum_line(ABC) == Checksum(ABC, None)
    assert checksum_line("https://host/a") is None
