"""A sweep of three lanes on a mesh of devices, compared with the same lanes on one device."""

import numpy as np

from lvp.training import records

RUN = ("run", "width_vocab", "--preset", "smoke", "--quiet")
FEW = {"widths": "16", "seeds": "0"}  # three lanes of the finished sweep
TOLERANCE = 1e-5  # nats


def assert_same_training(out, finished) -> None:
    """Asserts that three lanes on a mesh have the losses of the same lanes on one device, and not of other lanes."""
    on_mesh, alone = ({r["hash"]: r for r in records.read(folder / "records")} for folder in (out, finished))
    assert len(on_mesh) == 3
    for lane, record in on_mesh.items():
        ours, theirs = (np.array(r["outcome"]["curve_losses"]) for r in (record, alone[lane]))
        np.testing.assert_allclose(ours, theirs, atol=TOLERANCE)
        others = (np.array(alone[other]["outcome"]["curve_losses"]) for other in alone if other != lane)
        assert min(np.abs(ours - other).max() for other in others if other.shape == ours.shape) > 100 * TOLERANCE
