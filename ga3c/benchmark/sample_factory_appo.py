"""Speed of Sample Factory's APPO on an Atari game, with GA3C's small network: a yardstick for ours.

Runs as a program in an environment of its own (pip install sample-factory==2.1.1 envpool==1.2.5), without
the rest of ga3c. Its one line on stdout is a JSON object. Further options are Sample Factory's and override
_OPTIONS.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from importlib.metadata import version
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
from sample_factory.algo.runners.runner import AlgoObserver, Runner
from sample_factory.algo.utils.context import global_model_factory
from sample_factory.algo.utils.misc import ExperimentStatus
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.model.encoder import Encoder
from sample_factory.train import make_runner
from torch import Tensor, nn

_WINDOWS = 6  # equal parts of the run; the first is warm-up
_OPTIONS = """
    --batched_sampling=True --games_per_pool=32 --num_envs_per_worker=1 --worker_num_splits=1
    --use_rnn=False --normalize_input=False --obs_subtract_mean=128 --obs_scale=128
    --normalize_returns=False --reward_clip=1 --exploration_loss_coeff=0.01 --log_to_file=False
"""  # the rest are Sample Factory's: asynchronous, rollouts of 32, batches of 1024, each used once


class Games(gym.Env):
    """One envpool of many games, as Sample Factory wants a batch: finished games start again at once."""

    def __init__(self, name: str, cfg: Any, place: Any, render_mode: str | None = None) -> None:
        import envpool  # writes to TMPDIR, which is ours only when the run has begun

        self.num_agents = cfg.games_per_pool
        settings = {"num_envs": self.num_agents, "num_threads": 1, "seed": place.env_id if place else 0}
        self._pool = envpool.make(f"{name}-v5", env_type="gymnasium", **settings)
        self.observation_space, self.action_space = self._pool.observation_space, self._pool.action_space

    def reset(self, **_: Any) -> tuple[np.ndarray, dict]:
        return self._pool.reset()[0], {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        observations, rewards, terminated, truncated, _ = self._pool.step(actions)
        finished = np.flatnonzero(terminated | truncated)
        if finished.size:
            observations[finished] = self._pool.reset(finished)[0]
        return observations, rewards, terminated, truncated, {}


class SmallNetwork(Encoder):
    """GA3C's small network without its heads."""

    def __init__(self, cfg: Any, _: gym.Space) -> None:
        super().__init__(cfg)
        convolutions = nn.Conv2d(4, 16, 8, 4), nn.ReLU(True), nn.Conv2d(16, 32, 4, 2), nn.ReLU(True)
        self.body = nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(32 * 9 * 9, 256), nn.ReLU(True))

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        return self.body(observations["obs"])

    def get_out_size(self) -> int:
        return 256


class Windows(AlgoObserver):
    """Rates of the actions trained on, one for each window; ends the run after the last."""

    def __init__(self, seconds: float) -> None:
        self.rates: list[float] = []
        self._window, self._start = seconds / _WINDOWS, (0.0, 0)

    def on_training_step(self, runner: Runner, iteration: int) -> None:
        now = time.monotonic()
        started, first = self._start = self._start if self._start[0] else (now, iteration)
        if now - started >= self._window:
            self.rates.append(round((iteration - first) * runner.cfg.batch_size / (now - started), 1))
            self._start = now, iteration
        if len(self.rates) == _WINDOWS:
            runner.total_train_seconds = runner.cfg.train_for_seconds + 1  # Sample Factory never sets it


def _measure(game: str, seconds: float, options: list[str]) -> list[float]:
    """Actions per second in every window of a run, of which neither processes nor files remain."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        os.environ["TMPDIR"] = tempfile.tempdir = directory
        register_env(game, Games)
        global_model_factory().register_encoder_factory(SmallNetwork)
        options = [f"--env={game}", f"--train_dir={directory}", *_OPTIONS.split(), *options]
        parser, _ = parse_sf_args(options)
        parser.add_argument("--games_per_pool", type=int)
        _, runner = make_runner(parse_full_cfg(parser, options))
        runner.register_observer(windows := Windows(seconds))
        try:
            if runner.init() != ExperimentStatus.SUCCESS or runner.run() != ExperimentStatus.SUCCESS:
                sys.exit("Sample Factory failed")
        finally:
            for child in psutil.Process().children():
                with contextlib.suppress(psutil.NoSuchProcess):
                    if "resource_tracker" not in " ".join(child.cmdline()):
                        child.kill()
                        child.wait(10)
        return windows.rates


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--game", default="Pong")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    args, overrides = parser.parse_known_args()
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    signal.alarm(int(args.seconds) + 120)  # Sample Factory waits for ever when a worker dies
    device = args.device.replace("cuda", "gpu")
    machine = [f"--device={device}", f"--num_workers={len(os.sched_getaffinity(0))}"]
    rates = _measure(args.game, args.seconds, machine + overrides)
    name = f"sample-factory {version('sample-factory')}"
    print(json.dumps({"name": name, "pps": statistics.median(rates[1:]), "windows": rates[1:]}), file=report)


if __name__ == "__main__":
    main()
elif __name__ == "__mp_main__":  # a worker, which must not outlive a killed parent
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
