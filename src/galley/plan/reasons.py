"""Why a layout is as it is: each of its settings against the nearest other one, in bytes and seconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from galley.base import format_bytes
from galley.plan.candidates import Pins, divisors, micro_batches, recomputes
from galley.plan.explain import step_time
from galley.plan.judge import Choice, Judge
from galley.plan.layout import Layout
from galley.plan.search import SearchResult
from galley.plan.types import Decision
from galley.plan.workload import Workload

_WAYS = ("tensor", "pipeline", "context", "expert", "data", "virtual")


def reasons(judge: Judge, found: SearchResult, pins: Pins) -> Iterator[Decision]:
    """The decisions of a layout: `layout`, `zero`, `micro_batch`, `checkpointing`, and `offload` where it is used.

    Args:
        judge: of the job.
        found: by the search.
        pins: that it kept.
    """
    yield _layout(found, pins)
    yield _zero(judge, found.best, pins)
    yield _micro_batch(judge, found.best, pins)
    yield _checkpointing(judge, found.best, pins)
    if found.best.workload.offload_optimizer or found.best.workload.offload_parameters:
        yield _offload(judge, found.best, pins)


def ways_of(layout: Layout) -> str:
    """The ways of splitting in words, without what the copies share."""
    words = str(replace(layout, zero=0))
    return f"{words}, {layout.virtual} pieces a stage" if layout.virtual > 1 else words


def zero_of(layout: Layout) -> str:
    """What the copies share, in words."""
    if not layout.zero:
        return "nothing shared"
    over = f" over {layout.shards}" if layout.shards else ""
    return f"ZeRO-{layout.zero}{over}" + (" (FSDP)" if layout.zero == 3 else "")


def offload_of(workload: Workload) -> str:
    """What the host keeps, in words."""
    kept = [*["optimizer"] * workload.offload_optimizer, *["weights"] * workload.offload_parameters]
    return " and ".join(kept) or "nothing"


def _layout(found: SearchResult, pins: Pins) -> Decision:
    best = found.best
    because = (
        f"the fastest of those that fit: {step_time(best.time.seconds)} a step of {best.workload.sequence:,} tokens a "
        f"row, at {best.time.mfu:.0%} of the devices' peak"
    )
    others = (loser for loser in found.runners_up if ways_of(loser.choice.layout) != ways_of(best.layout))
    other = next((f"{ways_of(loser.choice.layout)} lost: {loser.lost_because}" for loser in others), "")
    pinned = [name for name in _WAYS if getattr(pins, name) is not None]
    if pinned:
        because = f"the recipe asks for {', '.join(pinned)}; {because}"
    return Decision(
        key="layout",
        value=ways_of(best.layout),
        because=because,
        would_change_if=f"this were no longer so: {other}" if other else "",
        pinned=bool(pinned),
    )


def _zero(judge: Judge, best: Choice, pins: Pins) -> Decision:
    layout, copies = best.layout, best.layout.data * best.layout.context
    pinned, unless = pins.zero is not None or pins.shards is not None, ""
    if pinned:
        because = "the recipe asks for it"
    elif copies == 1:
        because = "there is one copy of each weight"
    elif layout.zero <= 1:
        because = (
            f"{copies:,} copies share optimiser states, which moves no more bytes than summing gradients (1910.02054)"
        )
        unless = "memory were short"
    else:
        because, unless = _against(judge, best, best.workload, replace(layout, zero=1, shards=0), "with ZeRO-1")
    return Decision(key="zero", value=zero_of(layout), because=because, would_change_if=unless, pinned=pinned)


def _micro_batch(judge: Judge, best: Choice, pins: Pins) -> Decision:
    work, copy = best.workload, best.workload.global_batch // best.layout.data
    value = f"{work.micro_batch} x {best.accumulation}"
    larger = next((rows for rows in divisors(copy) if rows > work.micro_batch), None)
    pinned, unless = pins.micro_batch is not None, ""
    if pinned:
        because = "the recipe asks for it"
    elif larger is None:
        because = "all rows of a copy at once"
    elif pins.micro_batch_tokens is not None and larger * work.sequence > pins.micro_batch_tokens:
        because = f"the recipe asks for at most {pins.micro_batch_tokens:,} tokens at once"
    elif best.layout.virtual > 1 and copy // larger % best.layout.pipeline:
        because = f"with {larger} the interleaved schedule would have no whole rounds of {best.layout.pipeline}"
    elif larger not in micro_batches(work, best.layout, pins):
        because = "more tokens at once make no matrix product faster"
    else:
        more = replace(work, micro_batch=larger)
        because, unless = _against(judge, best, more, best.layout, f"{larger} rows at once")
    return Decision(key="micro_batch", value=value, because=because, would_change_if=unless, pinned=pinned)


def _checkpointing(judge: Judge, best: Choice, pins: Pins) -> Decision:
    work, kinds = best.workload, recomputes(best.workload, pins)
    pinned, unless = pins.recompute is not None, ""
    if pinned:
        because = "the recipe asks for it"
    elif work.recompute == kinds[0]:
        again = judge.time(replace(work, recompute="full"), best.layout).seconds / best.time.seconds - 1
        because, unless = (
            f"activations fit; computing them again would take {_percent(again)} more time",
            ("rows were much longer"),
        )
    else:
        because, unless = _against(judge, best, replace(work, recompute=kinds[0]), best.layout, "without it")
    return Decision(key="checkpointing", value=work.recompute, because=because, would_change_if=unless, pinned=pinned)


def _offload(judge: Judge, best: Choice, pins: Pins) -> Decision:
    work = best.workload
    kept = replace(work, offload_optimizer=False, offload_parameters=False)
    because, unless = _against(judge, best, kept, best.layout, "with all of it on the device")
    pinned = pins.offload_optimizer is not None or pins.offload_parameters is not None
    return Decision(key="offload", value=offload_of(work), because=because, would_change_if=unless, pinned=pinned)


def _against(judge: Judge, best: Choice, workload: Workload, layout: Layout, words: str) -> tuple[str, str]:
    """Why another setting lost: it needs more than there is, or takes longer; and what would change that."""
    need = judge.memory(workload, layout).fullest.needed
    if need > judge.room:
        text = f"{words} a device needs {format_bytes(need)}, and {format_bytes(judge.room)} may be used"
        return text, f"a device had {format_bytes(need - judge.room)} more"
    change = judge.time(workload, layout).seconds / best.time.seconds - 1
    if change >= 0.01:
        return f"{words} a step takes {_percent(change)} longer", ""
    return f"{words} a step is no faster, by more than predictions can tell", ""


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"
