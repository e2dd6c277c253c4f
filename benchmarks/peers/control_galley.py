"""Galley's side of control_vs_sb3.py: the agent of a method, round by round."""

from __future__ import annotations

import time

from control_common import Clock, arguments, evaluator

STARTED = time.perf_counter()


def main() -> None:
    args = arguments()
    import torch

    from galley.data.environments import EnvironmentSettings, open_environments
    from galley.methods.control import registry
    from galley.methods.control.base import World, WorldFacts
    from galley.methods.control.playing import DecisionPlayer
    from galley.models.control.spec import network_spec

    torch.set_num_threads(args.threads)
    kind = registry.get(args.algorithm)
    method = kind(kind.Config.model_validate(args.settings))
    copies = open_environments(EnvironmentSettings(f"gym:{args.environment}", num_envs=method.num_envs))
    network = network_spec(args.network or None, kind.network)
    facts = WorldFacts(copies.observations, copies.actions, network, args.steps)
    agent = method.agent(World(facts, copies, None, args.seed, "cpu", lambda kind, message: None))
    clock = Clock(args, evaluator(args, DecisionPlayer(agent.decision)), STARTED)
    clock.start()
    done = 0
    while done < args.steps:
        done += agent.step(done).steps
        if clock.due(done) and clock.judge():
            break
    clock.stop()
    clock.report()


if __name__ == "__main__":
    main()
