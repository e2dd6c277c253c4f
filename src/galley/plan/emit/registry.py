"""The tools that a plan can be written for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from galley.base import GalleyError
from galley.plan.architecture import Architecture
from galley.plan.cluster import layout_of, workload_of
from galley.plan.emit.settings import Settings, settings
from galley.plan.layout import Layout
from galley.plan.types import Plan
from galley.plan.workload import Workload

TOOLS = ("deepspeed", "accelerate", "torchtitan", "megatron", "llamafactory", "axolotl", "trl")
"""Each is a module of this package with `METHODS` that the tool trains and `files(settings)`."""


def emit(
    plan: Plan,
    tool: str,
    *,
    layout: Layout | None = None,
    workload: Workload | None = None,
    architecture: Architecture | None = None,
    data: str = "DATA",
) -> dict[str, str]:
    """Write a plan as a tool's own configuration.

    Args:
        plan: what was decided.
        tool: one of `TOOLS`.
        layout: over devices; else that of the plan, or one device.
        workload: with tuning, micro-batch, recomputation and offload decided; else that of the plan.
        architecture: the model's numbers; Megatron's flags name them.
        data: what to write where the tool wants a name of the data.

    Returns:
        The text of each file by its name. Settings that the tool cannot express are comments on top of the first file,
        or a file of their own where the format has no comments.

    Raises:
        GalleyError: `plan-contradiction` for an unknown tool, or one that cannot train by the plan's method.
    """
    if tool not in TOOLS:
        raise GalleyError(
            "plan-contradiction", f"there is no tool {tool!r} to write for", hint=f"one of {', '.join(TOOLS)}"
        )
    module = import_module(f"galley.plan.emit.{tool}")
    methods: tuple[str, ...] = module.METHODS
    if methods and plan.method not in methods:
        able = ", ".join(other for other in TOOLS if _trains(other, plan.method))
        hint = f"these can: {able}" if able else ""
        raise GalleyError("plan-contradiction", f"{tool} cannot train by the method {plan.method!r}", hint=hint)
    if plan.cluster is not None:
        layout = layout or layout_of(plan.cluster)
        workload = workload or workload_of(plan, plan.cluster)
    files: Callable[[Settings], dict[str, str]] = module.files
    return files(settings(plan, layout, workload, architecture, data))


def _trains(tool: str, method: str) -> bool:
    methods: tuple[str, ...] = import_module(f"galley.plan.emit.{tool}").METHODS
    return not methods or method in methods
