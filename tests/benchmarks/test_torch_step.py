"""lvp's side and PyTorch's side of the benchmark compute the same losses."""

import numpy as np
import pytest

from lvp.models.decoder import decoder
from tests.benchmarks.programs import RATES


@pytest.fixture
def torch_step():
    pytest.importorskip("torch.nn", reason="PyTorch is not installed: pip install 'lvp[bench]'")
    from tests.benchmarks import torch_step

    return torch_step


def test_losses_agree_before_and_after_five_steps(torch_step):
    torch_step.check_sides_agree(RATES)
    with pytest.raises(AssertionError):  # control: the rates of the two parameter groups are exchanged
        torch_step.check_sides_agree(RATES, RATES[::-1])


def test_logits_agree(torch_step, monkeypatch):
    """Logits are compared token by token, because a mean over tokens hides errors of opposite sign."""
    import torch

    params, windows, _ = torch_step.our_losses(RATES, 5)
    inputs, model = windows[0, :, :-1], decoder(torch_step.CHECKED)
    ours = np.asarray(model.apply(params, inputs) @ model.head(params)).reshape(-1, torch_step.CHECKED.vocab)
    trainer = torch_step.TorchTrainer(torch_step.CHECKED, windows.ravel(), len(inputs), RATES)
    trainer.load(params)

    def error():
        with torch.no_grad():
            return np.abs(trainer.model(torch.from_numpy(inputs)).numpy() - ours).max() / ours.std()

    assert error() < 2e-5
    gelu = torch_step.F.gelu
    monkeypatch.setattr(torch_step.F, "gelu", lambda x, approximate: gelu(x))  # control: the exact GELU
    assert error() > 1e-4
