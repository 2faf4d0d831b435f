"""On a machine with a CUDA device: pytest -m gpu. The same results as on the CPU, and learning."""

import numpy as np
import pytest
import torch

from ga3c.config import load
from ga3c.csvlog import read_csv
from ga3c.environments import Spec
from ga3c.loss import actor_critic_loss
from ga3c.model import Model
from tests.conftest import ROOT

pytestmark = pytest.mark.gpu
IMAGE = Spec((4, 84, 84), "uint8", 6, 4)


def gradients_on(device):
    model = Model(IMAGE, load(None, {"device": device, "precision": "float32"}))
    generator = torch.Generator().manual_seed(0)
    observations = torch.randint(-128, 128, (80, *model.network.packing.shape), generator=generator)
    actions = torch.randint(0, 6, (80,), generator=generator)
    returns = torch.randn(80, generator=generator)
    replica = model.replica()
    replica.refresh()
    logits, values = replica.network(observations.to(model.device, torch.int8))
    loss = actor_critic_loss(
        logits, values, actions.to(model.device), returns.to(model.device), 0.01, 0.5, 1e-6, "mean"
    )
    return [gradient.cpu().numpy() for gradient in torch.autograd.grad(loss.total, replica.parameters)]


def test_gradients_agree_with_those_of_the_cpu():
    for ours, theirs in zip(gradients_on("cuda"), gradients_on("cpu"), strict=True):
        assert np.linalg.norm(ours - theirs) <= 2e-3 * np.linalg.norm(theirs)


def test_checkpoint_written_on_cuda_continues_on_the_cpu():
    cuda = Model(IMAGE, load(None, {"device": "cuda"}))
    cuda.apply([torch.ones_like(parameter) for parameter in cuda.parameters], learning_rate=0.01)
    cpu = Model(IMAGE, load(None, {"device": "cpu"}))
    cpu.load_state(cuda.state())
    assert all(torch.equal(a.cpu(), b) for a, b in zip(cuda.parameters, cpu.parameters, strict=True))


def test_catch_is_learned_on_cuda(run_main, tmp_path):
    program = run_main(
        "--game=tests.games:Catch-v0", "--device=cuda", "--set=environment.frame_stack=1", "--run-dir=run",
        "--frames=600_000", "--set=run.target_score=0.9", PYTHONPATH=str(ROOT),
    )  # fmt: skip
    assert program.wait(240) == 0
    assert read_csv(tmp_path / "run" / "games.csv")["score"][-100:].mean() >= 0.9
