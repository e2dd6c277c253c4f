"""What excludes itself, found before anything is loaded, and the choices that only follow from the recipe."""

from __future__ import annotations

from galley.base import GalleyError
from galley.data.dataset import DataStatistics
from galley.models.spec import ModelSpec
from galley.plan.case import Case, device_kind
from galley.plan.ledger import Ledger
from galley.recipe.schema import Recipe

TRAINABLE = ("cpu", "cuda", "mps")
"""Kinds of devices that Galley's engine runs on."""
PLANNED = (*TRAINABLE, "hpu", "npu", "xla")
"""Kinds that can be planned for: also Gaudi, Ascend and TPU."""


def choose_method(recipe: Recipe, spec: ModelSpec, statistics: DataStatistics, ledger: Ledger) -> str:
    """The method asked for, or the task's own.

    Raises:
        GalleyError: `model-unsupported`, `plan-contradiction`, `name-unknown`.
    """
    from galley import methods

    name = ledger.choose(
        "method", recipe.method.name, methods.default_for(recipe.task), because=f"the method for task {recipe.task}"
    )
    method = methods.registry.get(name)
    if spec.kind not in method.model_kinds:
        raise GalleyError(
            "model-unsupported",
            f"method {name} cannot train {recipe.model}, which is a model of kind {spec.kind}",
            hint=f"it takes: {', '.join(method.model_kinds)}",
        )
    if statistics.rows == 0:
        raise GalleyError("data-empty", "there are no rows to train on", hint="look at `galley data` for what was read")
    if statistics.example_kind not in method.example_kinds:
        raise GalleyError(
            "plan-contradiction",
            f"method {name} learns {' or '.join(method.example_kinds)} rows, and task {recipe.task} reads this data as "
            f"{statistics.example_kind} rows",
            hint=_suitable_methods(recipe.task, statistics.example_kind),
        )
    return name


def _suitable_methods(task: str, example_kind: str) -> str:
    from galley import methods

    suitable = [name for name in methods.registry.names() if example_kind in methods.registry.get(name).example_kinds]
    return (
        f"methods for such rows: {', '.join(suitable) or 'none'}; without `method:` it is {methods.default_for(task)}"
    )


def choose_device(case: Case, ledger: Ledger) -> str:
    """The device asked for, or the best one of the hardware."""
    hardware, pin = case.hardware, case.recipe.override.device
    return ledger.choose("device", pin, hardware.device, because=f"{hardware.name} is what there is")


def refuse_untrainable(device: str) -> None:
    """Refuse to train where only plans can go.

    Raises:
        GalleyError: `plan-contradiction`.
    """
    kind = device_kind(device)
    if kind not in TRAINABLE:
        raise GalleyError(
            "plan-contradiction",
            f"this version does not train on {kind} devices; they can only be planned for",
            hint=f"train on {', '.join(TRAINABLE)}; `galley plan` shows what {kind} would take",
        )


def _num_devices(case: Case, kind: str) -> int:
    """Devices of the kind that have a number."""
    return case.hardware.num_devices if kind in PLANNED and kind not in ("cpu", "mps") else 0


def check(case: Case) -> None:
    """Refuse settings that exclude each other.

    Raises:
        GalleyError: `plan-contradiction`.
    """
    for problem, hint in _contradictions(case):
        raise GalleyError("plan-contradiction", problem, hint=hint)


def _contradictions(case: Case) -> list[tuple[str, str]]:
    recipe, spec, hardware = case.recipe, case.spec, case.hardware
    pins = recipe.override
    device = pins.device or hardware.device
    kind = device_kind(device)
    found: list[tuple[str, str]] = []
    if kind not in PLANNED:
        hint = "use cpu, cuda, cuda:N or mps; hpu, npu and xla can be planned for"
        found.append((f"override.device: {device} is no device", hint))
    if kind not in ("cpu", hardware.device):
        found.append((f"override.device: {device}, but the hardware is {hardware.name}", "leave it out, or use cpu"))
    elif (number := device.partition(":")[2]) and (not number.isdecimal() or int(number) >= _num_devices(case, kind)):
        known = f"{kind}:0 to {kind}:{hardware.num_devices - 1}" if _num_devices(case, kind) else f"just {kind}"
        found.append((f"override.device: there is no {device} in {hardware.name}", f"write {known}"))
    if pins.precision == "fp16" and kind == "cpu":
        found.append(("override.precision: fp16 on a cpu is hundreds of times slower than bf16", "leave it out"))
    if pins.tuning not in (None, "full") and case.from_scratch:
        found.append(
            (
                f"override.tuning: {pins.tuning}, but the weights of {recipe.model} start random",
                "use full, or leave it out",
            )
        )
    if pins.max_length is not None and 0 < spec.max_positions < pins.max_length:
        found.append(
            (
                f"override.max_length: {pins.max_length}, but {recipe.model} sees at most {spec.max_positions} tokens",
                f"use at most {spec.max_positions}",
            )
        )
    alone = "there is one device" if hardware.world == 1 else f"a model of kind {spec.kind} is trained on one device"
    if any(size > 1 for size in pins.parallel.values()) and (hardware.world == 1 or spec.kind != "decoder"):
        found.append((f"override.parallel: {pins.parallel}, but {alone}", "leave it out"))
    if recipe.evaluate.demand is not None and case.statistics.held_out_rows == 0:
        found.append(
            ("evaluate.demand needs held-out rows, and there are none", "set evaluate.held_out, or add more rows")
        )
    warmup, steps = recipe.optimizer.warmup, recipe.budget.steps
    if warmup is not None and steps is not None and warmup >= 1 and warmup >= steps:
        found.append((f"optimizer.warmup: {warmup:g} steps, but there are only {steps}", "use a share such as 0.05"))
    return found
