"""The other way to do it: synchronous A2C, one process, all emulators in one vector (Mnih et al., 2016).

With the network, precision, loss and optimiser of GA3C: all games step, then the policy is computed, and
after t_max actions the model is updated from all of them. Nobody works meanwhile.
"""

from ga3c.benchmark.worker import Play
from ga3c.config import Config, available_cores

ENVIRONMENTS = 64


def a2c(config: Config, number: int) -> Play:
    """Synchronous A2C on ``ENVIRONMENTS`` games with a thread for each core."""
    import numpy as np
    import torch

    from ga3c import environments
    from ga3c.loss import actor_critic_loss, n_step_returns
    from ga3c.memory import keep_freed_memory
    from ga3c.model import Model
    from ga3c.predictor import choose_actions

    keep_freed_memory()
    torch.set_num_threads(available_cores())
    settings, t_max = config.training, config.training.t_max
    model = Model(environments.describe(config), config)
    replica = model.replica()
    packing, device = model.network.packing, model.device
    generator = torch.Generator(device).manual_seed(config.seed)
    seed = np.random.SeedSequence(config.seed, spawn_key=(number,))
    games = environments.make(config, ENVIRONMENTS, seed, threads=available_cores())

    each = (t_max, ENVIRONMENTS)
    packed = torch.from_numpy(np.empty((t_max + 1, ENVIRONMENTS, *packing.shape), packing.dtype))
    actions, rewards = np.zeros(each, np.int64), np.zeros(each, np.float32)
    terminated, truncated = np.zeros(each, bool), np.zeros(each, bool)
    packing.write(games.reset(), packed[0].numpy())

    def choose(t: int) -> np.ndarray:
        return choose_actions(replica.network, packed[t].to(device), generator).cpu().numpy()

    def play() -> int:
        replica.refresh()
        for t in range(t_max):
            actions[t] = choose(t)[0]
            step = games.step(actions[t])
            rewards[t], terminated[t], truncated[t] = step.rewards, step.terminated, step.truncated
            packing.write(step.observations, packed[t + 1].numpy())
        values = choose(t_max)[2]
        if settings.reward_clip:
            np.clip(rewards, -settings.reward_clip, settings.reward_clip, out=rewards)
        ends = (terminated | truncated)[None]  # that a truncated game would go on makes no difference here
        returns = n_step_returns(
            rewards[None], ends, np.zeros_like(ends), rewards[None], values[None], settings.discount
        )
        logits, estimates = replica.network(packed[:t_max].flatten(0, 1).to(device))
        loss = actor_critic_loss(
            logits,
            estimates,
            torch.from_numpy(actions).flatten().to(device),
            torch.from_numpy(returns).flatten().to(device),
            settings.entropy_beta,
            settings.value_weight,
            settings.log_epsilon,
            settings.reduction,
        )
        model.apply(torch.autograd.grad(loss.total, replica.parameters), settings.learning_rate)
        packed[0].copy_(packed[t_max])
        return t_max * ENVIRONMENTS

    return play
