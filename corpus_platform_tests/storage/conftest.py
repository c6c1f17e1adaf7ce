"""The S3 server that the tests of storage share; those that use it are in the xdist group `s3`."""

import os
from collections.abc import Iterator
from unittest import mock

import pytest

from corpus_platform_tests.s3_server import S3Server, s3_server, set_keys


@pytest.fixture(scope="session")
def weed() -> Iterator[S3Server]:
    """A real S3 server; it takes 4 s to start."""
    with s3_server() as server:
        yield server


@pytest.fixture
def s3_keys() -> Iterator[None]:
    """The keys that the server knows, in the environment, and no others."""
    with mock.patch.dict(os.environ):
        set_keys(os.environ)
        yield
