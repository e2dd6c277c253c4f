"""Find what fits: the best way to tune, and the largest micro-batch, within the memory there is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, cast

from galley.base import GalleyError, format_bytes, format_count, parse_bytes
from galley.plan.case import FAST_FAMILIES, Case, device_kind
from galley.plan.ledger import Ledger
from galley.plan.memory import Path, memory_parts
from galley.plan.rules import RANK, TINY
from galley.plan.types import Alternative
from galley.plan.workload import Workload
from galley.recipe.schema import Precision, Tuning

Checkpointing = Literal["none", "full"]

USABLE_SHARE = 0.9
"""Predictions are rarely more than a tenth too low."""
_GOOD_TOKENS = {"cpu": 4096, "cuda": 16384, "mps": 4096}
"""More tokens at once make the matrix products no faster. Here and below, other accelerators are taken as CUDA's."""
_LENGTH_CAP = {"cpu": 2048, "cuda": 4096, "mps": 2048}
_PRETRAIN_LENGTH_CAP = 512
_SHORTEST = 256
_SPREAD = 3.0
"""Standard deviations by which the largest of a training's steps exceeds the mean one, in tokens."""
CHEAPER: tuple[Tuning, ...] = ("lora", "qlora")
"""Than full tuning, in the order in which they are tried."""


@dataclass(frozen=True)
class Fit:
    """The chosen way to train, with the ones that lost."""

    tuning: Tuning
    checkpointing: Checkpointing
    max_length: int
    micro_batch_tokens: int
    parts: dict[str, int]
    work: Workload
    """A micro-batch."""
    path: Path
    alternatives: tuple[Alternative, ...]


@dataclass(frozen=True)
class _Way:
    tuning: Tuning
    checkpointing: Checkpointing

    def __str__(self) -> str:
        return self.tuning if self.checkpointing == "none" else f"{self.tuning} with recomputed activations"


def available_bytes(case: Case) -> int:
    """Memory that may be used: the device's, or less when the budget says so."""
    limit = case.recipe.budget.memory
    return case.hardware.memory_bytes if limit is None else min(parse_bytes(limit), case.hardware.memory_bytes)


def fit(case: Case, device: str, precision: Precision, global_batch: int, ledger: Ledger) -> Fit:
    """The first way, in order of preference, that fits.

    Raises:
        GalleyError: `plan-does-not-fit`, naming the cheapest change that would make it fit.
    """
    room = int(available_bytes(case) * USABLE_SHARE)
    kind = device_kind(device)
    lost: list[Alternative] = []
    for max_length in _lengths(case, kind):
        for way in _ways(case, kind):
            load = _Load(case, device, workload_of(case, way.tuning, way.checkpointing, precision))
            for tokens in _micro_batches(case, kind, max_length, global_batch):
                computed = _computed_at_once(case, max_length, global_batch, tokens)
                parts = load.parts(computed)
                if sum(parts.values()) <= room:
                    work = replace(load.work, sequence=computed)
                    found = Fit(way.tuning, way.checkpointing, max_length, tokens, parts, work, load.path, ())
                    _explain(case, kind, found, lost, ledger)
                    return replace(found, alternatives=(*lost, *_slower(found, load, computed)))
            need = load.least(max_length)
            lost.append(
                Alternative(
                    summary=f"{way} at {max_length:,} tokens",
                    lost_because=f"needs {format_bytes(need)} of {format_bytes(room)}",
                )
            )
    raise _does_not_fit(case, device, precision, room)


def _ways(case: Case, kind: str) -> Iterator[_Way]:
    """Ways to train, the best first. QLoRA comes last: it costs time (and is very slow on a CPU)."""
    pins = case.recipe.override
    tunings: tuple[Tuning, ...] = CHEAPER
    if pins.tuning is not None:
        tunings = (pins.tuning,)
    elif any(pin is not None for pin in (pins.rank, pins.alpha, pins.dropout, pins.targets)):
        tunings = CHEAPER if kind == "cuda" else ("lora",)
    elif case.from_scratch or case.spec.kind == "encoder":
        tunings = ("full",)
    elif case.spec.num_parameters <= TINY:
        tunings = ("full", "lora")
    checkpointings: tuple[Checkpointing, ...] = ("none", "full") if case.spec.kind == "decoder" else ("none",)
    if pins.checkpointing is not None:
        checkpointings = (pins.checkpointing,)
    return (_Way(tuning, checkpointing) for tuning in tunings for checkpointing in checkpointings)


def _lengths(case: Case, kind: str) -> Iterator[int]:
    """Limits to try for the longest row: halved only when nothing else helps, never below a pin."""
    pin = case.recipe.override.max_length or case.max_length
    if pin is not None or not case.has_tokens:
        yield pin or 1
        return
    cap = _PRETRAIN_LENGTH_CAP if case.is_documents else _LENGTH_CAP.get(kind, _LENGTH_CAP["cuda"])
    length = min(cap, case.spec.max_positions or cap)
    while length >= min(_SHORTEST, case.spec.max_positions or _SHORTEST):
        yield length
        length //= 2


def _micro_batches(case: Case, kind: str, max_length: int, global_batch: int) -> Iterator[int]:
    """Tokens to compute at once, the most useful first; never less than the longest row."""
    pins = case.recipe.override
    longest = min(max_length, case.longest)
    if pins.micro_batch_tokens is not None:
        yield max(pins.micro_batch_tokens, longest)
        return
    rows = min(pins.micro_batch or global_batch, global_batch)
    tokens = max(longest, min(_GOOD_TOKENS.get(kind, _GOOD_TOKENS["cuda"]), rows * longest))
    while tokens > longest:
        yield tokens
        tokens //= 2
    yield longest


def _computed_at_once(case: Case, max_length: int, global_batch: int, micro_batch_tokens: int) -> int:
    """Tokens that a micro-batch really has, at most: a step of short rows never fills it."""
    rows = min(case.recipe.override.micro_batch or global_batch, global_batch)
    usual = int(rows * case.mean(max_length) + _SPREAD * math.sqrt(rows) * case.deviation(max_length))
    return min(micro_batch_tokens, max(usual, min(max_length, case.longest)))


def workload_of(case: Case, tuning: Tuning, checkpointing: Checkpointing, precision: Precision) -> Workload:
    """A micro-batch as the models of memory and time see it, of one token.

    A weight in half precision that learns has a float32 master, and a gradient in its own precision on the way to
    the sum in float32.
    """
    halved = tuning == "full" and precision != "fp32"
    return Workload(
        sequence=1,
        tuning=tuning,
        rank=case.recipe.override.rank or RANK,
        precision=precision,
        optimizer=case.recipe.optimizer.name or "adamw",
        recompute=checkpointing,
        master_bytes=4.0 if halved else 0.0,
        gradient_bytes=6.0 if halved else 4.0,
        fused_loss=True,
        supervised_share=case.supervised_share,
    )


@dataclass(frozen=True)
class _Load:
    """What the memory of a way depends on, but for the tokens computed at once."""

    case: Case
    device: str
    work: Workload

    @property
    def path(self) -> Path:
        """How its step would be computed."""
        if self.case.suits_fast_path(self.work.tuning) and self.work.recompute == "none":
            return "fast"
        fused = device_kind(self.device) == "cpu" and self.case.spec.family in FAST_FAMILIES
        return "fused" if fused else "general"

    def parts(self, tokens: int) -> dict[str, int]:
        """Bytes by part, with so many tokens computed at once."""
        work = replace(self.work, sequence=tokens)
        cores = self.case.recipe.override.threads or self.case.hardware.cores
        lanes = cores if device_kind(self.device) == "cpu" else 1
        return memory_parts(self.case.spec, work, self.device, self.path, lanes)

    def least(self, max_length: int) -> int:
        """Least memory: its longest row alone."""
        return sum(self.parts(min(max_length, self.case.longest)).values())

    def with_tuning(self, tuning: Tuning, checkpointing: Checkpointing | None = None) -> _Load:
        """The same with other weights learning."""
        kept: Checkpointing = "none" if self.work.recompute == "none" else "full"
        precision = cast(Precision, self.work.precision)
        return replace(self, work=workload_of(self.case, tuning, checkpointing or kept, precision))


def _explain(case: Case, kind: str, found: Fit, lost: list[Alternative], ledger: Ledger) -> None:
    pins = case.recipe.override
    size = format_count(case.spec.num_parameters)
    first = lost[0] if lost else None
    if case.from_scratch:
        because, unless = "the weights start random, so all of them must learn", ""
    elif found.tuning == "full" and case.spec.kind == "encoder":
        because, unless = f"an encoder of {size} parameters is cheap to train whole", "pinned otherwise"
    elif found.tuning == "full":
        because, unless = f"{size} parameters are cheap to train whole", f"it had more than {format_count(TINY)}"
    elif found.tuning == "qlora":
        because, unless = f"{first.summary} {first.lost_because}" if first else "", "there were more memory"
    elif any(pin is not None for pin in (pins.rank, pins.alpha, pins.dropout, pins.targets)):
        because, unless = "the recipe sets up an adapter", ""
    else:
        because = "learns a task as well as full tuning, in a fraction of the memory, and keeps the base intact"
        unless = "pinned to full, e.g. for a new language"
    ledger.choose("tuning", pins.tuning, found.tuning, because=because, unless=unless)
    if case.spec.kind == "decoder":
        full = found.checkpointing == "full"
        ledger.choose(
            "checkpointing",
            pins.checkpointing,
            found.checkpointing,
            because="activations do not fit otherwise; costs a third more time" if full else "activations fit",
            unless="there were more memory" if full else "rows were much longer",
        )
    if case.has_tokens:
        ledger.choose("max_length", pins.max_length, found.max_length, because=_why_length(case, kind, found))
    if found.tuning == "qlora" and kind == "cpu":
        ledger.warn("qlora is about ten times slower than lora on a cpu")


def _why_length(case: Case, kind: str, found: Fit) -> str:
    if found.max_length == case.spec.max_positions:
        return "as far as the model can see"
    cap = _PRETRAIN_LENGTH_CAP if case.is_documents else _LENGTH_CAP.get(kind, _LENGTH_CAP["cuda"])
    if found.max_length < cap and case.max_length is None:
        return "longer rows do not fit the memory"
    if case.is_documents:
        return "long documents are cut into pieces of this size, and no token is lost"
    return (
        f"nothing is cut: the longest row has about {case.longest:,} tokens"
        if case.longest <= found.max_length
        else "longer rows are cut"
    )


def _slower(found: Fit, load: _Load, tokens: int) -> Iterator[Alternative]:
    """What would also have fitted, or not, beyond the chosen way."""
    case = load.case
    if case.from_scratch or case.spec.kind != "decoder":
        return
    beside: dict[Tuning, tuple[Tuning, ...]] = {"lora": ("full", "qlora"), "full": ("lora",)}
    room = int(available_bytes(case) * USABLE_SHARE)
    for tuning in beside.get(found.tuning, ()):
        need = sum(load.with_tuning(tuning).parts(tokens).values())
        if need > room:
            yield Alternative(summary=tuning, lost_because=f"needs {format_bytes(need)} of {format_bytes(room)}")
        else:
            why = {"full": "more to compute and to store", "qlora": "slower", "lora": "learns less"}[tuning]
            yield Alternative(summary=tuning, lost_because=f"fits in {format_bytes(need)}, but {why}")


def _does_not_fit(case: Case, device: str, precision: Precision, room: int) -> GalleyError:
    kind = device_kind(device)
    ways = list(_ways(case, kind))
    lengths = list(_lengths(case, kind))
    loads = [_Load(case, device, workload_of(case, way.tuning, way.checkpointing, precision)) for way in ways]
    need, way = min(
        ((load.least(lengths[-1]), way) for load, way in zip(loads, ways, strict=True)), key=lambda pair: pair[0]
    )
    message = (
        f"{case.spec.reference} does not fit: {way} needs {format_bytes(need)}, and {format_bytes(room)} of "
        f"{format_bytes(available_bytes(case))} may be used"
    )
    return GalleyError("plan-does-not-fit", message, hint=_cheapest_change(loads[-1], room, need))


def _cheapest_change(load: _Load, room: int, need: int) -> str:
    """The smallest change of the recipe that makes it fit."""
    case, changes = load.case, []
    if case.spec.kind == "decoder" and not case.from_scratch:
        for tuning in CHEAPER:
            cheaper = load.with_tuning(tuning, "full")
            if tuning != load.work.tuning and cheaper.least(case.longest) <= room:
                changes.append(f"override.tuning: {tuning}")
                break
    length = case.longest // 2
    while length >= 64 and case.has_tokens:
        if load.least(length) <= room:
            changes.append(f"override.max_length: {length}")
            break
        length //= 2
    limit = case.recipe.budget.memory
    if limit is not None and need <= case.hardware.memory_bytes * USABLE_SHARE:
        changes.append(f"a larger budget.memory than {limit}")
    per_parameter = need / max(1, case.spec.num_parameters)
    smaller = int(room / per_parameter * 0.9)
    changes.append(
        f"a model of at most about {format_count(smaller)} parameters, or {format_bytes(need / USABLE_SHARE)}"
    )
    return "try " + "; or ".join(changes)
