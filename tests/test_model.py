"""The one model: whole updates, whole replicas, whole state."""

import threading

import pytest
import torch

from ga3c.config import ConfigError, load
from ga3c.environments import Spec
from ga3c.model import Model, choose_device, choose_precision

VECTOR = Spec((4,), "float32", 2, 1)
IMAGE = Spec((4, 84, 84), "uint8", 6, 4)


def make(**knobs):
    return Model(VECTOR, load(None, {key.replace("__", "."): value for key, value in knobs.items()}))


def gradients(model, value=1.0):
    return [torch.full_like(parameter, value) for parameter in model.parameters]


def test_update_counts_a_version_and_tells_the_norm():
    model = make(training__max_gradient_norm="0")
    size = sum(parameter.numel() for parameter in model.parameters)
    norm, version = model.apply(gradients(model, 2.0), learning_rate=0.1)
    assert norm == pytest.approx(2.0 * size**0.5, rel=1e-5)
    assert (version, model.version) == (0, 1)


class Recorder:
    """An optimiser that keeps what it is given."""

    def step(self, gradients, learning_rate):
        self.gradients, self.learning_rate = gradients, learning_rate


def test_gradients_are_scaled_down_to_the_maximum_norm_and_not_up():
    model = make(training__max_gradient_norm="0.5")
    model.optimizer = Recorder()
    large, small = gradients(model, 3.0), gradients(model, 1e-5)
    model.apply(large, learning_rate=0.0)
    assert torch.nn.utils.get_total_norm(model.optimizer.gradients).item() == pytest.approx(0.5, rel=1e-4)
    assert large[0].flatten()[0].item() == 3.0, "the caller's gradients stay"
    model.apply(small, learning_rate=0.0)
    assert model.optimizer.gradients[0].flatten()[0].item() == pytest.approx(1e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_gradient_that_is_not_finite_is_refused_and_the_model_stays(bad):
    model = make()
    before = [parameter.clone() for parameter in model.parameters]
    with pytest.raises(FloatingPointError, match="gradient"):
        model.apply(gradients(model, bad), learning_rate=0.1)
    assert model.version == 0
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters, strict=True))


def test_learning_rate_of_an_update_is_the_one_given():
    model = make()
    model.optimizer = Recorder()
    model.apply(gradients(model), learning_rate=0.25)
    assert model.optimizer.learning_rate == 0.25


def test_replicas_never_hold_half_an_update():
    """Every update adds the same to every parameter, so in a whole model all have moved alike."""
    model = make(training__max_gradient_norm="0", training__rmsprop_decay="1")
    with torch.no_grad():
        for parameter in model.parameters:
            parameter.zero_()
    replica = model.replica()
    ended = threading.Event()

    def update():
        while not ended.is_set():
            model.apply(gradients(model), learning_rate=1.0)

    threads = [threading.Thread(target=update) for _ in range(2)]
    for thread in threads:
        thread.start()
    seen = set()
    try:
        while len(seen) < 200:
            version = replica.refresh()
            moved = {value for parameter in replica.parameters for value in parameter.unique().tolist()}
            assert len(moved) == 1
            assert next(iter(moved)) == pytest.approx(-version, rel=1e-4)
            seen.add(version)
    finally:
        ended.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("optimizer", ["rmsprop", "adam"])
def test_restored_model_continues_exactly(optimizer):
    model, other = make(training__optimizer=optimizer), make(training__optimizer=optimizer, seed="9")
    for _ in range(3):
        model.apply(gradients(model), learning_rate=0.01)
    state = model.state()
    other.load_state(state)
    for each in (model, other):
        each.apply(gradients(each, 0.5), learning_rate=0.01)
    assert other.version == 4
    assert all(torch.equal(a, b) for a, b in zip(model.parameters, other.parameters, strict=True))
    assert state["version"] == 3, "a state does not change after it was taken"


def test_restored_optimiser_keeps_its_statistics_and_takes_the_new_knobs():
    model, other = make(), make(training__rmsprop_epsilon="0.1", training__rmsprop_decay="0.5")
    model.apply(gradients(model), learning_rate=0.01)
    state = model.state()
    other.load_state(state)
    other.apply(gradients(other, 2.0), learning_rate=0.01)
    before, after = (each[0]["square_average"] for each in (state["optimizer"], other.state()["optimizer"]))
    norm = torch.nn.utils.get_total_norm(gradients(other, 2.0))
    scaled = 2.0 * min(1.0, 0.5 / norm)
    assert torch.allclose(after, 0.5 * before + 0.5 * scaled**2)


def test_state_of_another_optimiser_is_refused():
    state = make(training__optimizer="adam").state()
    with pytest.raises(
        ConfigError, match=r"training\.optimizer = 'rmsprop': the run was trained with 'adam'"
    ):
        make().load_state(state)


def test_precision_is_bfloat16_only_for_images_on_a_cpu_that_has_it(monkeypatch):
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    assert choose_precision("auto", cpu, IMAGE) == torch.bfloat16
    assert choose_precision("auto", cpu, VECTOR) == torch.float32
    assert choose_precision("auto", cuda, IMAGE) == torch.float32
    assert choose_precision("float32", cpu, IMAGE) == torch.float32
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True}, raising=False)
    assert choose_precision("auto", cpu, IMAGE) == torch.float32
    assert choose_precision("bfloat16", cpu, IMAGE) == torch.bfloat16


def test_device_auto_takes_cuda_when_there_and_a_missing_one_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert choose_device("auto") == torch.device("cuda")
    assert choose_device("cuda:0") == torch.device("cuda:0")
    with pytest.raises(ConfigError, match="torch finds 1 CUDA devices"):
        choose_device("cuda:1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == torch.device("cpu")
