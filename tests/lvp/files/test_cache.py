"""The cache directory, by LVP_CACHE."""

from pathlib import Path

import pytest

from lvp.files import cache_dir


@pytest.fixture
def place(monkeypatch):
    """place(value) is the cache directory for a value of LVP_CACHE."""

    def place(value: str) -> Path:
        monkeypatch.setenv("LVP_CACHE", value)
        return cache_dir()

    return place


def test_each_address_has_a_directory_of_its_own(place):
    assert place("s3://bucket/a-b") != place("s3://bucket/a/b")
    assert place("s3://bucket/a/") == place("s3://bucket/a")


def test_an_empty_value_is_the_default(place):
    assert place("") == Path.home() / ".cache" / "lvp" != place("/elsewhere")
