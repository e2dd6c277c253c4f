"""Why plans lose: they need more memory or take longer; and what would make an impossible job possible."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from galley.base import GalleyError, format_bytes, format_count
from galley.plan.candidates import Pins, micro_batches, recomputes, tunings
from galley.plan.judge import Choice, Judge, Least, least_need, least_of_all
from galley.plan.layout import Layout
from galley.plan.types import Hardware
from galley.plan.workload import Workload

_PARTS = {
    "products": "more arithmetic, or in less efficient pieces",
    "attention": "attention in less efficient pieces",
    "other": "more work between the products",
    "dequantise": "more unpacking of quantised weights",
    "head": "more of the output layer on each device",
    "models": "more passes of the other models",
    "tensor": "exchange between devices that share a product",
    "pipeline": "pipeline bubble",
    "context": "exchange between devices that share a sequence",
    "expert": "exchange between experts",
    "data": "exchange between copies",
    "optimizer": "more optimiser states on each device",
    "offload": "traffic to the host",
    "launch": "more and smaller kernels",
}
_AS_FAST = 0.01
_SHORTEST = 128
_LARGEST = 64  # times as many nodes


@dataclass(frozen=True)
class Loser:
    """A plan that lost.

    Args:
        choice: the plan.
        lost_because: in words, e.g. `7 % slower: pipeline bubble`.
    """

    choice: Choice
    lost_because: str

    def __str__(self) -> str:
        return f"{self.choice}: {self.lost_because}"


def slower(choice: Choice, best: Choice) -> Loser:
    """One that fits and is not faster."""
    share = choice.time.seconds / best.time.seconds - 1
    if share < _AS_FAST:
        because = "as fast, but less simple or fuller"
        if choice.layout == best.layout and choice.bytes > best.bytes:
            because = f"as fast, and needs {format_bytes(choice.bytes - best.bytes)} more"
        return Loser(choice, because)
    parts = choice.time.parts
    more = {part: parts[part] - best.time.parts.get(part, 0.0) for part in parts}
    part = max(more, key=lambda name: more[name])
    reason = _PARTS.get(part, part)
    if part == "products" and choice.workload.recompute != best.workload.recompute:
        reason = f"{choice.workload.recompute} recomputation"
    return Loser(choice, f"{share:.0%} slower: {reason}".replace("%", " %"))


def too_large(judge: Judge, best: Choice, pins: Pins) -> list[Loser]:
    """Neighbours of the best that would be faster and do not fit, the fastest first."""
    found = []
    for workload, layout in _lighter(best, pins):
        if judge.fits(workload, layout):
            continue
        choice = Choice(workload, layout, judge.memory(workload, layout), judge.time(workload, layout))
        gain = 1 - choice.time.seconds / best.time.seconds
        missing = choice.bytes - judge.room
        if gain > _AS_FAST and missing > 0:
            because = f"needs {format_bytes(missing)} more; it would be {gain * 100:.0f} % faster"
            found.append(Loser(choice, because))
    return sorted(found, key=lambda loser: loser.choice.time.seconds)[:2]


def wanted_before(judge: Judge, lost: list[Workload], best: Choice, pins: Pins) -> list[Loser]:
    """What was preferred to the best, and does not fit: each tuning once."""
    found: dict[str, Loser] = {}
    for wanted in lost:
        least = least_need(judge, wanted, pins)
        if wanted.tuning == best.workload.tuning and wanted.offload_optimizer == best.workload.offload_optimizer:
            continue
        if least.workload is None or least.layout is None or wanted.tuning in found:
            continue
        choice = Choice(
            least.workload,
            least.layout,
            judge.memory(least.workload, least.layout),
            judge.time(least.workload, least.layout),
        )
        missing = least.bytes - judge.room
        short = f"needs {format_bytes(missing)} more" if missing > 0 else "needs more memory of the host"
        found[wanted.tuning] = Loser(choice, short)
    return list(found.values())


def refusal(judge: Judge, workload: Workload, pins: Pins) -> GalleyError:
    """Why nothing fits, and the cheapest changes that would help; each was searched and fits."""
    least = least_of_all(judge, workload, pins)
    hardware = judge.hardware
    job = f"a model of {format_count(judge.architecture.num_parameters)} parameters"
    changes = ", or ".join(_changes(judge, workload, pins))
    if math.isinf(least.bytes):
        message = (
            f"no layout over {hardware.world:,} devices divides {job} and {workload.global_batch:,} rows of "
            f"{workload.sequence:,} tokens a step within the pins"
        )
        return GalleyError("plan-contradiction", message, hint=f"possible with {changes}" if changes else "")
    message = (
        f"{job} does not fit {_words(hardware)}: {_least_words(least)} needs {format_bytes(least.bytes)} a device, and "
        f"{format_bytes(judge.room)} of {format_bytes(hardware.memory_bytes)} may be used"
    )
    if least.bytes <= judge.room:
        message = f"{job} fits {_words(hardware)} only with more than the host's memory"
    return GalleyError("plan-does-not-fit", message, hint=f"fits with {changes}" if changes else "a smaller model")


def _changes(judge: Judge, workload: Workload, pins: Pins) -> Iterator[str]:
    """Single changes that were searched and fit, in words: devices, tuning, optimiser, sequence, batch, pins."""

    def fits(hardware: Hardware = judge.hardware, workload: Workload = workload, pins: Pins = pins) -> bool:
        return least_of_all(Judge(judge.architecture, hardware, judge.software), workload, pins).fits

    for hardware in _larger(judge.hardware):
        if fits(hardware=hardware):
            yield f"{hardware.world - judge.hardware.world:,} more {_device_word(hardware)}"
            break
    for tuning in tunings(replace(workload, tuning=pins.tuning or workload.tuning), replace(pins, tuning=None)):
        if tuning not in tunings(workload, pins) and fits(pins=replace(pins, tuning=tuning)):
            yield {"lora": "LoRA", "qlora": "QLoRA"}.get(tuning, tuning)
            break
    if workload.optimizer == "adamw" and fits(workload=replace(workload, optimizer="adamw-8bit", moment_bytes=None)):
        yield "the optimizer adamw-8bit"
    sequence = workload.sequence // 2
    while sequence >= _SHORTEST:
        if fits(workload=replace(workload, sequence=sequence)):
            yield f"sequence {sequence}"
            break
        sequence //= 2
    for rows in _batches(judge, workload):
        if fits(workload=replace(workload, global_batch=rows)):
            yield f"a global batch of {rows:,}"
            break
    for pin in fields(Pins):
        pinned = getattr(pins, pin.name) is not None and pin.name not in ("tuning", "precision")
        if pinned and fits(pins=replace(pins, **{pin.name: None})):
            yield f"no pin on {pin.name}"


def _lighter(best: Choice, pins: Pins) -> Iterator[tuple[Workload, Layout]]:
    """Neighbours that keep more in memory."""
    w, layout = best.workload, best.layout
    kinds = recomputes(w, pins)
    for recompute in kinds[: kinds.index(w.recompute)]:
        yield replace(w, recompute=recompute), layout
    larger = [rows for rows in micro_batches(w, layout, pins) if rows > w.micro_batch]
    for rows in larger[:2]:
        yield replace(w, micro_batch=rows), layout
    if pins.zero is None and layout.zero > 1:
        yield w, replace(layout, zero=1, shards=0)
    if w.offload_optimizer and pins.offload_optimizer is None:
        yield replace(w, offload_optimizer=False, offload_parameters=False), layout


def _larger(hardware: Hardware) -> Iterator[Hardware]:
    """With more devices, the fewest more first: of one node up to eight, then more nodes."""
    if hardware.num_nodes == 1:
        for devices in range(hardware.num_devices + 1, 9):
            yield hardware.model_copy(update={"num_devices": devices, "link_devices": devices})
    whole = hardware.num_devices if hardware.num_nodes > 1 else max(8, hardware.num_devices)
    nodes = hardware.num_nodes
    step = 1
    while nodes < _LARGEST * hardware.num_nodes:
        nodes += step
        step = max(1, 2 ** int(math.log2(nodes)) // 2)
        more = {"num_nodes": nodes, "num_devices": whole, "link_devices": max(whole, hardware.link_devices)}
        yield hardware.model_copy(update=more)


def _batches(judge: Judge, workload: Workload) -> Iterator[int]:
    """Global batches near the wanted one that all devices could share, where its own cannot be shared."""
    world = judge.hardware.world
    if workload.global_batch % world:
        below = workload.global_batch // world * world
        yield from sorted({below, below + world} - {0}, key=lambda rows: (abs(rows - workload.global_batch), rows))


def _least_words(least: Least) -> str:
    assert least.workload is not None
    assert least.layout is not None
    w = least.workload
    words = [f"{w.tuning} tuning", str(least.layout)]
    words += [f"{w.recompute} recomputation"] if w.recompute != "none" else []
    words += ["states on the host"] if w.offload_optimizer or w.offload_parameters else []
    return ", ".join(words)


def _words(hardware: Hardware) -> str:
    each = f"{hardware.num_devices}x {hardware.name}" if hardware.num_devices > 1 else hardware.name
    return f"{hardware.num_nodes:,} nodes x {each}" if hardware.num_nodes > 1 else each


def _device_word(hardware: Hardware) -> str:
    return "processors" if hardware.device == "cpu" else "GPUs" if hardware.device in ("cuda", "mps") else "devices"
