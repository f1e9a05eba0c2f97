"""A directory and a bucket give the same answers."""

import pytest

from lvp.files.places import place_of


@pytest.mark.parametrize("kind", ["directory", "bucket"])
def test_only_the_first_of_two_creations_counts(tmp_path, request, kind):
    files = place_of(tmp_path if kind == "directory" else request.getfixturevalue("address"))
    assert files.create("folder/name", b"first") is True
    assert files.create("folder/name", b"second") is False
    assert files.read("folder/name") == b"first" and files.read("folder/other") is None
    assert files.names("folder") == ["name"]
    files.delete("folder")
    assert files.names("folder") == []
