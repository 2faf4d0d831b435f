"""What this machine could do, and what GA3C reaches of it.

Emulation, inference and training are each measured alone, which gives a bound that no arrangement of
them can exceed, and then all of them together. A round measures everything once, so that a machine that
is slower for a while is so for all; every ratio is taken within its round.
"""

import platform
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from ga3c import environments
from ga3c.benchmark.a2c import ENVIRONMENTS, a2c
from ga3c.benchmark.compute import Compute
from ga3c.benchmark.emulation import emulate
from ga3c.benchmark.peers import run_sample_factory
from ga3c.benchmark.report import Benchmark, Round
from ga3c.benchmark.whole import Whole
from ga3c.benchmark.worker import Workers
from ga3c.config import Config, ConfigError, available_cores
from ga3c.model import Model
from ga3c.network import name_for

_INFERENCE_BATCHES = (8, 16, 32, 64, 128, 256)
_ROLLOUTS = (1, 2, 4, 8)
_PART_SECONDS = 0.3  # for each batch size
_WINDOW_SECONDS = 3.0


def run(
    config: Config, rounds: int, compare: bool, sample_factory: Path | None, say: Callable[[str], None]
) -> Benchmark:
    """Measure everything ``rounds`` times. With ``compare``, synchronous A2C too, and Sample Factory with
    the Python interpreter that has it. Raises RuntimeError when a part cannot be measured."""
    spec = environments.describe(config)
    game, network = environments.canonical_name(config.game), name_for(spec, config.network)
    if sample_factory is not None and not (environments.is_atari(config) and network == "small"):
        raise ConfigError(
            [f"--sample-factory: plays Atari with the small network, not {game} with {network}"]
        )
    cores = available_cores()
    with ExitStack() as stack:
        say(f"starting {cores} processes that only play")
        emulation = stack.enter_context(Workers(emulate, [(config, 1_000 + core) for core in range(cores)]))
        peers = {}
        if compare:
            peers[f"synchronous A2C, {ENVIRONMENTS} environments"] = stack.enter_context(
                Workers(a2c, [(config, 2_000)])
            )
            say("started synchronous A2C")
        compute = Compute(config, spec)
        model = Model(spec, config)
        say(f"starting {config.agent_count} agents")
        whole = stack.enter_context(Whole(config, spec, model, say))
        rollout = compute.batch(0).experiences
        configured = compute.batch(config.training.min_batch_size).experiences
        trainings = sorted({*(count * rollout for count in _ROLLOUTS), configured})
        measured = []
        for number in range(1, rounds + 1):
            say(f"round {number} of {rounds}")
            played = emulation.measure(_WINDOW_SECONDS)
            inference = {size: compute.inference(size, _PART_SECONDS) for size in _INFERENCE_BATCHES}
            training = {size: compute.training(size, _PART_SECONDS) for size in trainings}
            rates = {name: peer.measure(_WINDOW_SECONDS) for name, peer in peers.items()}
            if sample_factory is not None:
                name, rate = run_sample_factory(sample_factory, game, model.device.type)
                rates[name] = rate
            window = whole.measure(_WINDOW_SECONDS)
            row = window.row
            times = row._asdict()
            measured.append(
                Round(
                    emulation=played,
                    inference=inference,
                    training=training,
                    pps=row.pps,
                    tps=row.tps,
                    fps=row.fps,
                    prediction_batch=row.prediction_batch,
                    policy_lag=row.lag_mean,
                    cores_of_agents=window.agents,
                    cores_of_predictors=window.predictors,
                    cores_of_trainers=window.trainers,
                    predictor_times=_of("predictor_", times),
                    trainer_times=_of("trainer_", times),
                    peers=rates,
                )
            )
    return Benchmark(
        game=game,
        network=network,
        device=str(model.device),
        precision=str(model.precision).removeprefix("torch."),
        machine=f"{platform.system()} {platform.machine()}",
        cores=cores,
        on_gpu=model.device.type == "cuda",
        environments=config.agents.environments,
        counts=config.counts,
        training_batch=configured,
        rounds=measured,
    )


def _of(prefix: str, times: dict[str, float]) -> dict[str, float]:
    return {name.removeprefix(prefix): part for name, part in times.items() if name.startswith(prefix)}
