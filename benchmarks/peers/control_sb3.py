"""Stable-Baselines3's side of control_vs_sb3.py: `learn` with a callback that stops the clock for evaluations."""

from __future__ import annotations

import time
from typing import Any

from control_common import Clock, arguments, evaluator

STARTED = time.perf_counter()


def linear(start: float) -> Any:
    """rl-zoo's `lin_`: falls to 0 over the training."""
    return lambda left: left * start


def main() -> None:
    args = arguments()
    import stable_baselines3
    import torch
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(args.threads)
    settings = dict(args.settings)
    copies: Any = make_vec_env(args.environment, settings.pop("n_envs", 1), seed=args.seed)
    normalise = settings.pop("normalize", False)
    if normalise:
        copies = VecNormalize(copies, gamma=settings["gamma"])
    for name in ("learning_rate", "clip_range"):
        if str(settings.get(name, "")).startswith("lin_"):
            settings[name] = linear(float(settings[name].removeprefix("lin_")))
    _, sizes, activation = args.network.split(":")
    layers = {"net_arch": [int(size) for size in sizes.split("x")]}
    layers["activation_fn"] = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU}[activation]
    layers |= settings.pop("policy_kwargs", {})
    kind = getattr(stable_baselines3, args.algorithm.upper())
    model = kind("MlpPolicy", copies, policy_kwargs=layers, seed=args.seed, device="cpu", **settings)

    class Greedy:
        """SB3's best actions; see `Player`."""

        def begin(self, num_envs: int) -> None:
            pass

        def act(self, observations: Any, masks: Any) -> Any:
            seen = copies.normalize_obs(observations) if normalise else observations
            return model.predict(seen, deterministic=True)[0]

        def ended(self, over: Any) -> None:
            pass

    clock = Clock(args, evaluator(args, Greedy()), STARTED)

    class Judge(BaseCallback):
        """Between updates, as on the other side."""

        def _on_rollout_start(self) -> None:
            if clock.due(self.num_timesteps):
                clock.judge()

        def _on_step(self) -> bool:
            return not clock.reached

    clock.start()
    model.learn(args.steps, callback=Judge())
    clock.stop()
    clock.steps = model.num_timesteps
    clock.report()


if __name__ == "__main__":
    main()
