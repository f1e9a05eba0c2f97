"""Image datasets equal their source, are cached and fingerprinted, and bad ones give a one-line error."""

import hashlib
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lvp import data
from lvp.data.images import cifar10
from lvp.errors import InputError
from tests.lvp.data.images import cifar10_files

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
    return cache, data.load_images("digits", cache=cache)


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


def test_a_second_call_changes_no_byte_and_imports_no_heavy_package(digits):
    cache, images = digits
    before = contents(cache)
    program = (
        "import json, sys; from lvp import data\n"
        "print(json.dumps(data.load_images('digits', cache=sys.argv[1]).to_dict()))\n"
        "print({'jax', 'sklearn', 'scipy', 'PIL', 'tensorflow_datasets'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", program, cache], capture_output=True, check=True, text=True)
    described, imported = run.stdout.splitlines()
    assert data.Images.from_dict(json.loads(described)) == images and imported == "set()"
    assert contents(cache) == before


def test_a_damaged_cache_is_rebuilt(digits, tmp_path):
    first = data.load_images("digits", cache=tmp_path)
    assert first.fingerprint == digits[1].fingerprint
    good = first.test_labels.read_bytes()
    first.test_labels.write_bytes(good[:-1] + b"\7")
    assert data.load_images("digits", cache=tmp_path) == first and first.test_labels.read_bytes() == good


def test_images_as_json_must_be_complete(digits):
    values = digits[1].to_dict()
    with pytest.raises(KeyError):
        data.Images.from_dict({name: x for name, x in values.items() if name != "mean"})
    with pytest.raises(TypeError):
        data.Images.from_dict(values | {"more": 1})


@pytest.mark.parametrize("folder", ["", "cifar-10-batches-bin"])
def test_cifar_10_is_read_in_file_order(tmp_path, folder):
    cifar10_files.write(tmp_path / "in" / folder)
    images = data.load_images(f"cifar10:{tmp_path / 'in'}", cache=tmp_path / "cache")
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
    again = data.load_images(f"cifar10:{other}", cache=tmp_path / "cache")
    assert again.fingerprint == images.fingerprint and again.spec != images.spec


@pytest.mark.parametrize("folder", ["", "cifar-10-batches-py"])
def test_the_python_version_is_refused_and_the_right_archive_named(tmp_path, folder):
    (tmp_path / "in" / folder).mkdir(parents=True)
    (tmp_path / "in" / folder / "data_batch_1").write_bytes(b"a pickle")
    refused(
        f"cifar10:{tmp_path / 'in'}",
        "Python version, which lvp does not read; unpack .*binary.tar.gz instead",
        tmp_path,
    )


def test_a_changed_file_is_detected(tmp_path):
    first, second = (
        data.load_images(f"cifar10:{cifar10_files.write(tmp_path / 'in', seed)}", cache=tmp_path / "cache")
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


def test_the_release_is_downloaded_once_and_prepared_by_tfds(archive, tmp_path, monkeypatch, capfd):
    images = data.load_images("cifar10", cache=tmp_path / "cache")
    assert capfd.readouterr() == ("", "")
    assert images.spec == "cifar10" and list((tmp_path / "cache" / "tfds").rglob("*-train.array_record-*"))
    assert "tensorflow" not in sys.modules
    by_hand = data.load_images(f"cifar10:{tmp_path / 'archive'}", cache=tmp_path / "cache")
    assert by_hand.fingerprint == images.fingerprint
    archive.unlink()
    assert data.load_images("cifar10", cache=tmp_path / "cache") == images


def test_a_failed_or_different_download_is_refused_with_the_alternative(archive, tmp_path):
    archive.write_bytes(b"a captive portal's page")
    with pytest.raises(InputError, match="has sha256 .* not the release; pass cifar10:DIR"):
        data.load_images("cifar10", cache=tmp_path / "cache")
    archive.unlink()
    with pytest.raises(InputError, match="cannot download CIFAR-10 from .*; pass cifar10:DIR") as caught:
        data.load_images("cifar10", cache=tmp_path / "cache")
    assert "\n" not in str(caught.value)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.suffix != ".lock"]


def draw(path: Path, shape=(9, 9, 3), seed=0, **options):
    """Writes random pixels to a file and returns them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    Image.fromarray(pixels).save(path, **options)
    return pixels


def folders(directory: Path, shape=(9, 9, 3)) -> Path:
    """Writes three training images and two test images of the classes cat and dog."""
    for i, name in enumerate(
        ("train/cat/b.png", "train/cat/a.PNG", "train/dog/x.png", "test/dog/y.png", "test/cat/z.png")
    ):
        draw(directory / name, shape, seed=i)
    (directory / "train/.DS_Store").write_bytes(b"hidden")
    (directory / "train/cat/.thumbnail").write_bytes(b"hidden")
    return directory


@pytest.mark.parametrize("shape", [(9, 9, 3), (12, 12)])
def test_folders_are_classes_in_alphabetical_order(tmp_path, shape):
    images = data.load_images(f"images:{folders(tmp_path / 'in', shape)}", cache=tmp_path / "cache")
    assert (images.num_train, images.num_test, images.classes) == (3, 2, 2)
    assert images.shape == (*shape, 1)[:3] and images.spec == f"images:{tmp_path / 'in'}"
    train, train_labels, test, test_labels = arrays(images)
    drawn = [np.random.default_rng(i).integers(0, 256, shape, dtype=np.uint8).reshape(images.shape) for i in range(5)]
    np.testing.assert_array_equal(train, np.stack([drawn[1], drawn[0], drawn[2]]))
    np.testing.assert_array_equal(test, np.stack([drawn[4], drawn[3]]))
    np.testing.assert_array_equal(train_labels, [0, 0, 1])
    np.testing.assert_array_equal(test_labels, [0, 1])
    np.testing.assert_allclose(images.std, (train / 255).std((0, 1, 2)), rtol=1e-12)
    assert len(images.mean) == images.shape[2]


def test_jpeg_files_are_read_and_a_changed_file_is_detected(tmp_path):
    directory = folders(tmp_path / "in")
    first = data.load_images(f"images:{directory}", cache=tmp_path / "cache")
    (directory / "train/cat/b.png").unlink()
    draw(directory / "train/cat/b.jpg", quality=95)
    second = data.load_images(f"images:{directory}", cache=tmp_path / "cache")
    assert second.num_train == 3 and second.fingerprint != first.fingerprint
    with Image.open(directory / "train/cat/b.jpg") as image:
        np.testing.assert_array_equal(np.load(second.train_images)[1], np.asarray(image))


def test_a_constant_channel_has_the_deviation_one(tmp_path):
    directory = folders(tmp_path / "in", (9, 9))
    for path in directory.rglob("*.[pP][nN][gG]"):
        Image.fromarray(np.full((9, 9), 51, np.uint8)).save(path)
    images = data.load_images(f"images:{directory}", cache=tmp_path / "cache")
    assert images.std == (1.0,) and images.mean == pytest.approx([0.2])


def test_concurrent_processes_all_succeed(tmp_path):
    directory = folders(tmp_path / "in")
    program = "import sys; from lvp import data; print(data.load_images(sys.argv[1], cache=sys.argv[2]).fingerprint)"
    command = [sys.executable, "-c", program, f"images:{directory}", tmp_path / "cache"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    outputs = {process.communicate(timeout=60)[0] for process in processes}
    assert [process.returncode for process in processes] == [0, 0] and len(outputs) == 1 and outputs != {b""}


def test_a_relative_path_is_made_absolute(tmp_path, monkeypatch):
    folders(tmp_path / "in")
    monkeypatch.chdir(tmp_path)
    assert data.load_images("images:in", cache=tmp_path / "cache").spec == f"images:{tmp_path / 'in'}"


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
        data.load_images(spec, cache=tmp_path / "cache")
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "cache").rglob("*.npy"))


def drawn(path, shape=(9, 9, 3), mode=None):
    """Returns a change to a directory: an image of another shape or mode."""

    def change(directory):
        draw(directory / path, shape)
        if mode is not None:
            with Image.open(directory / path) as image:
                image.convert(mode).save(directory / path)

    return change


@pytest.mark.parametrize(
    "change, message",
    [
        (replace("train/cat/b.png", b"no image"), r"cat/b\.png cannot be read as an image"),
        (lambda d: (d / "test/dog/y.png").write_bytes((d / "test/dog/y.png").read_bytes()[:90]), r"y\.png .*truncated"),
        (drawn("test/dog/w.png", (9, 8, 3)), r"w\.png is not square: it is 8 × 9 with 3 channels"),
        (drawn("test/dog/w.png", (8, 8, 3)), r"w\.png is 8 × 8 with 3 channels, but .*cat/a\.PNG is 9 × 9"),
        (drawn("test/dog/w.png", (9, 9)), r"w\.png is 9 × 9 with 1 channel, but"),
        (drawn("test/dog/w.png", mode="RGBA"), r"w\.png has the mode RGBA; convert"),
        (drawn("test/bird/w.png"), "train has no class 'bird', which .*test has"),
        (drawn("train/bird/w.png"), "test has no class 'bird', which .*train has"),
        (replace("train/cat/notes.txt", b"x"), r"notes\.txt is not an image file"),
        (drawn("train/stray.png"), r"cannot read .*train/stray\.png: Not a directory"),
        (lambda d: (d / "test/bird").mkdir(), "test/bird holds no image"),
        (lambda d: (d / "test").rename(d / "valid"), r"cannot read .*/test: No such file"),
    ],
)
def test_bad_folders_give_a_one_line_error(tmp_path, change, message):
    directory = folders(tmp_path / "in")
    change(directory)
    refused(f"images:{directory}", message, tmp_path)


@pytest.mark.parametrize(
    "spec, message",
    [
        ("digit", r"unknown images 'digit'; did you mean digits\?"),
        ("", "the images are digits, cifar10"),
        ("digits:8", "take no argument"),
        ("images", "need a directory; write images:DIR"),
        ("cifar10:", "need a directory; write cifar10:DIR"),
        ("cifar10:{dir}/missing", "no CIFAR-10 at .*missing: no such directory; pass cifar10:DIR"),
        ("cifar10:{dir}", "no CIFAR-10 in .*; pass cifar10:DIR"),
        ("images:{dir}/missing", "cannot read .*missing/train: No such file"),
    ],
)
def test_bad_specifications_give_a_one_line_error_and_write_nothing(tmp_path, spec, message):
    refused(spec.format(dir=tmp_path), message, tmp_path)
    assert not (tmp_path / "cache").exists()


def test_one_class_is_too_few(tmp_path):
    draw(tmp_path / "in/train/cat/a.png")
    draw(tmp_path / "in/test/cat/a.png")
    refused(f"images:{tmp_path / 'in'}", "train must hold a folder for each of at least two classes", tmp_path)


def test_an_unwritable_cache_is_named(digits, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError, match="cannot write .*file.*; choose another cache directory"):
        data.load_images("digits", cache=tmp_path / "file" / "cache")
