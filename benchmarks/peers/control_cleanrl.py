"""CleanRL's side of control_vs_sb3.py: its script ppo.py as it stands (cleanrl 1.2.0), over Gymnasium.

The script is for gym 0.23; the three things that changed since then are given to it here. It reports to TensorBoard
once a round: there the clock is stopped for evaluations. Its settings are its own defaults.

The wheel needs Python before 3.10, so it is unpacked instead: pip download cleanrl==1.2.0 --no-deps
--python-version 3.9 --only-binary :all: && unzip cleanrl-1.2.0-py3-none-any.whl -d FOLDER, and CLEANRL=FOLDER/cleanrl.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
import time
import types
from pathlib import Path
from typing import Any

from control_common import Clock, arguments, evaluator

STARTED = time.perf_counter()


class TargetReachedError(Exception):
    """The target was reached."""


def old_gym() -> types.ModuleType:
    """Gymnasium under the name and in the manner of gym 0.23."""
    import gymnasium
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    class Seeded(gymnasium.Wrapper[Any, Any, Any, Any]):
        def seed(self, seed: int) -> None:
            self.env.reset(seed=seed)

    class Vector(SyncVectorEnv):
        def __init__(self, makers: Any) -> None:
            super().__init__(makers, autoreset_mode=AutoresetMode.SAME_STEP)

        def reset(self, **kwargs: Any) -> Any:
            return super().reset(**kwargs)[0]

        def step(self, actions: Any) -> Any:
            seen, rewards, terminated, truncated, _ = super().step(actions)
            return seen, rewards, terminated | truncated, []

    module = types.ModuleType("gym")
    module.make = lambda name: Seeded(gymnasium.make(name))  # type: ignore[attr-defined]
    module.spaces = gymnasium.spaces  # type: ignore[attr-defined]
    module.wrappers = types.SimpleNamespace(RecordEpisodeStatistics=lambda env: env)  # type: ignore[attr-defined]
    module.vector = types.SimpleNamespace(SyncVectorEnv=Vector)  # type: ignore[attr-defined]
    return module


class Greedy:
    """The best actions of the script's agent; see `Player`."""

    agent: Any = None

    def begin(self, num_envs: int) -> None:
        pass

    def act(self, observations: Any, masks: Any) -> Any:
        import torch

        with torch.no_grad():
            return self.agent.actor(torch.from_numpy(observations)).argmax(1).numpy()

    def ended(self, over: Any) -> None:
        pass


def main() -> None:
    args = arguments()
    import torch
    from torch.utils import tensorboard

    torch.set_num_threads(args.threads)
    player = Greedy()
    clock = Clock(args, evaluator(args, player), STARTED)

    class Writer:
        """In place of TensorBoard's."""

        def __init__(self, folder: str) -> None:
            clock.start()

        def add_text(self, *parts: Any) -> None:
            pass

        def close(self) -> None:
            pass

        def add_scalar(self, name: str, value: float, step: int) -> None:
            if name != "charts/SPS":
                return
            player.agent = sys._getframe(1).f_globals["agent"]
            if clock.due(step) and clock.judge():
                raise TargetReachedError

    tensorboard.SummaryWriter = Writer  # type: ignore[assignment, misc]
    sys.modules["gym"] = old_gym()
    script = Path(os.environ["CLEANRL"]) / "ppo.py"
    sys.argv = [str(script), "--env-id", args.environment, "--seed", str(args.seed), "--cuda", "False"]
    sys.argv += ["--total-timesteps", str(args.steps)]
    with contextlib.suppress(TargetReachedError):
        runpy.run_path(str(script), run_name="__main__")
    clock.stop()
    clock.report()


if __name__ == "__main__":
    main()
