"""The embedded images: scikit-learn's copy of the UCI test set of handwritten digits, available on every machine."""

import numpy as np

from lvp.files import storage

CLASSES = 10
_TEST_EVERY = 5


def source() -> str:
    """A key of the definition of `read`; the images never change."""
    return storage.digest(b"sklearn.datasets.load_digits", b"pixels doubled, 255/16 a level, third of every five")


def read() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(train images, train labels, test images, test labels): uint8 [1438, 16, 16, 1] and [359, 16, 16, 1], int32.

    The 1797 images of 8 × 8 levels from 0 to 16 become 16 × 16: every pixel becomes 2 × 2 pixels, and level v becomes
    the grey value 255 v / 16, rounded. The test set is the third of every five images of each class, in the order of
    the data set (which is ordered by writer): a stratified fifth, the same on every machine.
    """
    from sklearn.datasets import load_digits  # slow to import; only the first use of the images needs it

    digits = load_digits()
    grey = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    images = grey.repeat(2, axis=1).repeat(2, axis=2)[..., None]
    labels = digits.target.astype(np.int32)
    within_class = np.empty(labels.size, np.int64)
    for label in range(CLASSES):
        members = np.flatnonzero(labels == label)
        within_class[members] = np.arange(members.size)
    test = within_class % _TEST_EVERY == _TEST_EVERY // 2
    return images[~test], labels[~test], images[test], labels[test]
