"""Image datasets equal their source, are cached and fingerprinted, and bad ones give a one-line error."""

import hashlib
import json
import tarfile

import numpy as np
import pytest

from lvp.errors import InputError
from lvp.experiments.large_updates import cifar10
from lvp.experiments.large_updates import digits as digits_source
from lvp.experiments.large_updates.images import Images, load_images
from tests.experiments.large_updates import cifar10_files

ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")


def arrays(images):
    return [np.load(getattr(images, name)) for name in ARRAYS]


def contents(cache):
    return {path.relative_to(cache): path.read_bytes() for path in cache.rglob("*") if path.is_file()}


@pytest.fixture(autouse=True)
def small_files(monkeypatch):
    monkeypatch.setattr(cifar10, "IMAGES_PER_FILE", cifar10_files.PER_FILE)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    return cache, load_images("digits", cache=cache)


def test_digits_are_scikit_learns_enlarged_and_split_by_class(digits):
    from sklearn.datasets import load_digits

    given, images = load_digits(), digits[1]
    train, train_labels, test, test_labels = arrays(images)
    assert (images.num_train, images.num_test, images.shape, images.classes) == (1438, 359, (16, 16, 1), 10)
    assert train.dtype == test.dtype == np.uint8 and train_labels.dtype == test_labels.dtype == np.int32
    both, labels = np.concatenate([train, test])[..., 0], np.concatenate([train_labels, test_labels])
    for i in range(2):
        for j in range(2):
            np.testing.assert_array_equal(both[:, i::2, j::2], both[:, ::2, ::2])
    levels = np.rint(both[:, ::2, ::2] / 255 * 16)
    assert np.abs(levels * 255 / 16 - both[:, ::2, ::2]).max() <= 0.5 and both.max() == 255

    def rows(pixels, labels):
        return sorted(map(tuple, np.concatenate([pixels.reshape(len(pixels), -1), labels[:, None]], 1).astype(int)))

    assert rows(levels, labels) == rows(given.images, given.target)  # every image occurs once, with its label
    share = np.bincount(test_labels) / np.bincount(labels)
    assert np.abs(share - 0.2).max() < 0.01


def test_moments_are_of_the_training_images(digits):
    train = arrays(digits[1])[0] / 255
    np.testing.assert_allclose(digits[1].mean, train.mean((0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(digits[1].std, train.std((0, 1, 2)), rtol=1e-12)


def test_a_second_call_reads_the_same_files(digits, monkeypatch):
    cache, images = digits
    before = contents(cache)
    monkeypatch.setattr(digits_source, "read", None)  # would raise
    assert load_images("digits", cache=cache) == images == Images.from_dict(json.loads(json.dumps(images.to_dict())))
    assert contents(cache) == before


@pytest.mark.parametrize("folder", ["", "cifar-10-batches-bin"])
def test_cifar_10_is_read_in_file_order(tmp_path, folder):
    cifar10_files.write(tmp_path / "in" / folder)
    images = load_images(f"cifar10:{tmp_path / 'in'}", cache=tmp_path / "cache")
    assert (images.num_train, images.num_test, images.shape, images.classes) == (100, 20, (32, 32, 3), 10)
    assert images.mean == (0.4914, 0.4822, 0.4465) and images.std == (0.2023, 0.1994, 0.2010)
    given = cifar10_files.batches()
    train, train_labels, test, test_labels = arrays(images)
    for i, (pixels, labels) in enumerate(given.values()):
        read, read_labels = (test, test_labels) if i == 5 else (train[20 * i :], train_labels[20 * i :])
        for channel in range(3):  # planes of red, green and blue, each in row order
            plane = pixels[:, 1024 * channel : 1024 * (channel + 1)].reshape(20, 32, 32)
            np.testing.assert_array_equal(read[:20, :, :, channel], plane)
        np.testing.assert_array_equal(read_labels[:20], labels)
    other = cifar10_files.write(tmp_path / "other")
    again = load_images(f"cifar10:{other}", cache=tmp_path / "cache")
    assert again.fingerprint == images.fingerprint and again.spec != images.spec


@pytest.mark.parametrize("folder", ["", "cifar-10-batches-py"])
def test_another_python_version_names_the_archive(tmp_path, folder):
    (tmp_path / "in" / folder).mkdir(parents=True)
    (tmp_path / "in" / folder / "data_batch_1").write_bytes(b"a pickle")
    refused(
        f"cifar10:{tmp_path / 'in'}",
        "Python version, which lvp does not read; unpack .*binary.tar.gz instead",
        tmp_path,
    )


def test_a_changed_file_is_detected(tmp_path):
    first, second = (
        load_images(f"cifar10:{cifar10_files.write(tmp_path / 'in', seed)}", cache=tmp_path / "cache")
        for seed in (0, 1)
    )
    assert first.spec == second.spec and first.fingerprint != second.fingerprint


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """Returns a local archive that takes the place of CIFAR-10's download."""
    files = cifar10_files.write(tmp_path / "archive" / "cifar-10-batches-bin")
    (files / "readme.html").write_text("not an image")
    path = tmp_path / "cifar-10-binary.tar.gz"
    with tarfile.open(path, "w:gz") as members:
        members.add(files, "cifar-10-batches-bin")
    monkeypatch.setattr(cifar10, "ARCHIVE_URL", path.as_uri())
    monkeypatch.setattr(cifar10, "ARCHIVE_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    return path


def test_the_release_is_downloaded_once(archive, tmp_path, capfd):
    images = load_images("cifar10", cache=tmp_path / "cache")
    assert capfd.readouterr() == ("", "")
    assert images.spec == "cifar10"
    by_hand = load_images(f"cifar10:{tmp_path / 'archive'}", cache=tmp_path / "cache")
    assert by_hand.fingerprint == images.fingerprint
    archive.unlink()
    assert load_images("cifar10", cache=tmp_path / "cache") == images


def test_a_bad_download_is_refused_with_the_alternative(archive, tmp_path):
    archive.write_bytes(b"a captive portal's page")
    with pytest.raises(InputError, match="has sha256 .* not the release; pass cifar10:DIR"):
        load_images("cifar10", cache=tmp_path / "cache")
    archive.unlink()
    with pytest.raises(InputError, match="cannot download CIFAR-10 from .*; pass cifar10:DIR") as caught:
        load_images("cifar10", cache=tmp_path / "cache")
    assert "\n" not in str(caught.value)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.suffix != ".lock"]


def replace(path: str, content: bytes | None):
    """Returns a change to a directory: a file with other content, or no file for None."""

    def change(directory):
        (directory / path).unlink(missing_ok=True)
        if content is not None:
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_bytes(content)

    return change


PIXELS, LABELS = cifar10_files.batches()["test_batch"]
BINARY = cifar10_files.binary(PIXELS, LABELS)


@pytest.mark.parametrize(
    "change, message",
    [
        (replace("data_batch_3.bin", None), r"incomplete: no file .*data_batch_3\.bin"),
        (
            replace("test_batch.bin", BINARY[:-1]),
            r"test_batch\.bin has 61459 bytes, but 20 images have 61460: .*truncated",
        ),
        (replace("test_batch.bin", BINARY[:-3073]), r"test_batch\.bin has 58387 bytes"),
        (replace("test_batch.bin", b""), r"test_batch\.bin has 0 bytes"),
        (replace("data_batch_1.bin", b"\x0a" + BINARY[1:]), r"data_batch_1\.bin .* labels must be below 10, got 10"),
    ],
)
def test_bad_cifar_10_files_give_a_one_line_error(tmp_path, change, message):
    directory = cifar10_files.write(tmp_path / "in")
    change(directory)
    refused(f"cifar10:{directory}", message, tmp_path)


def refused(spec, message, tmp_path):
    with pytest.raises(InputError, match=message) as caught:
        load_images(spec, cache=tmp_path / "cache")
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "cache").rglob("*.npy"))


@pytest.mark.parametrize(
    "spec, message",
    [
        ("digit", r"unknown images 'digit'; did you mean digits\?"),
        ("", "the images are digits, cifar10"),
        ("digits:8", "take no argument"),
        ("cifar10:", "need a directory; write cifar10:DIR"),
        ("cifar10:{dir}/missing", "no CIFAR-10 at .*missing: no such directory; pass cifar10:DIR"),
        ("cifar10:{dir}", "no CIFAR-10 in .*; pass cifar10:DIR"),
    ],
)
def test_bad_specifications_are_one_line(tmp_path, spec, message):
    refused(spec.format(dir=tmp_path), message, tmp_path)
    assert not (tmp_path / "cache").exists()
