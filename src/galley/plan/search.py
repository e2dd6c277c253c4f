"""Search: the fastest plan that fits, those that come next and why they lost, or what would make it fit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from galley.plan.architecture import Architecture
from galley.plan.candidates import Pins, layouts, least_state_bytes, micro_batches, recomputes, virtuals
from galley.plan.judge import SAFETY, Choice, Judge, preferences, shared_layouts
from galley.plan.layout import Layout
from galley.plan.lost import Loser, refusal, slower, too_large, wanted_before
from galley.plan.software import GALLEY, Software
from galley.plan.types import Hardware
from galley.plan.workload import Workload

__all__ = ["SAFETY", "Choice", "Loser", "Pins", "SearchResult", "search"]

_SAME_SPEED = math.log(1.01)
"""Steps of 1 % of time count as equal, so that the simpler layout wins; predictions are no finer."""
_RUNNERS_UP = 5
_VISIBLE_BUBBLE = 0.02  # of a step; below it, interleaving gains nothing
_MOST_WAYS = 400  # looked into, the most promising first; the bound ends nearly all searches far earlier


@dataclass(frozen=True)
class SearchResult:
    """The outcome.

    Args:
        best: the fastest of those that fit; of equally fast ones the simplest.
        runners_up: at most five, with the reason why each lost.
        room_bytes: of a device, that the likely need may fill.
        estimates: of memory and time that were made.
    """

    best: Choice
    runners_up: tuple[Loser, ...]
    room_bytes: float
    estimates: int


def search(
    architecture: Architecture,
    hardware: Hardware,
    workload: Workload,
    *,
    pins: Pins | None = None,
    software: Software = GALLEY,
) -> SearchResult:
    """Find the plan with the least time of a step among those that fit.

    The workload's tuning is what is wanted: cheaper ones are taken only where it does not fit, even with the
    optimiser's states on the host. All devices are used, and the global batch is never changed.

    Args:
        architecture: the model.
        hardware: all of whose devices are used.
        workload: sequence, global batch, optimiser and habits are kept; the rest is decided around the pins.
        pins: what must be kept.
        software: the engine's habits.

    Raises:
        GalleyError: `plan-does-not-fit`, with the cheapest change that would help.
    """
    pins = pins or Pins()
    judge = Judge(architecture, hardware, software)
    classes = list(preferences(hardware, workload, pins))
    for place, wanted in enumerate(classes):
        found = _fastest(judge, wanted, pins)
        if found:
            return _result(judge, found, classes[:place], pins)
    raise refusal(judge, workload, pins)


def _fastest(judge: Judge, wanted: Workload, pins: Pins) -> list[Choice]:
    """All that fit and were worth a look, the best first.

    Ways of splitting are looked into in the order of a lower bound of their time: all but the bubble at the largest
    micro-batch, and the bubble at the smallest. The search ends when that bound is above what five other ways reach.
    """
    bounded = sorted(_bounds(judge, wanted, pins), key=lambda pair: (pair[0], *_simple_layout(pair[1])))
    found: list[Choice] = []
    firsts: list[float] = []
    looked = 0
    for bound, layout in bounded:
        enough = len(firsts) > _RUNNERS_UP
        if (enough and _steps(bound) > _steps(firsts[_RUNNERS_UP])) or looked >= _MOST_WAYS:
            break
        here = list(_refined(judge, wanted, layout, pins))
        looked += bool(here)
        found += here
        firsts = sorted([*firsts, *([min(choice.time.seconds for choice in here)] if here else [])])
    return sorted(found, key=_order)


def _bounds(judge: Judge, wanted: Workload, pins: Pins) -> Iterator[tuple[float, Layout]]:
    """Each way of splitting with a time that it cannot beat."""
    for layout in layouts(judge.architecture, judge.hardware, wanted, pins):
        batches = micro_batches(wanted, layout, pins)
        most_shared = list(shared_layouts(layout, judge.hardware, pins))
        if not batches or not most_shared:
            continue
        if least_state_bytes(judge.architecture, wanted, most_shared[-1]) > judge.room:
            continue
        fewest = replace(wanted, micro_batch=batches[-1], recompute=recomputes(wanted, pins)[0])
        parts = judge.time(fewest, most_shared[0]).parts
        steady = sum(seconds for part, seconds in parts.items() if part not in ("pipeline", "offload"))
        yield steady + _least_bubble(judge, wanted, layout, batches[0], pins) * steady, layout


def _least_bubble(judge: Judge, wanted: Workload, layout: Layout, rows: int, pins: Pins) -> float:
    """Of the other time: (p - 1) / (m v) with the most micro-batches and pieces (Narayanan et al., 2104.04473)."""
    most = wanted.global_batch // (layout.data * rows)
    pieces = max(virtuals(judge.architecture, layout, most, pins), default=pins.virtual or 1)
    return (layout.pipeline - 1) / (most * pieces)


def _refined(judge: Judge, wanted: Workload, layout: Layout, pins: Pins) -> Iterator[Choice]:
    """What fits of one way of splitting, with the least recomputation and sharing that each micro-batch needs."""
    settled: set[int] = set()
    for shared in shared_layouts(layout, judge.hardware, pins):
        for rows in micro_batches(wanted, layout, pins):
            if rows in settled:
                continue
            choice = _lightest(judge, replace(wanted, micro_batch=rows), shared, pins)
            if choice is None:
                break
            yield choice
            if choice.workload.recompute == recomputes(wanted, pins)[0] and not wanted.offload_optimizer:
                settled.add(rows)  # where the host keeps moments, sharing more also means moving less
            if choice.time.parts.get("pipeline", 0.0) > _VISIBLE_BUBBLE * choice.time.seconds:
                for virtual in virtuals(judge.architecture, shared, choice.accumulation, pins):
                    woven = _lightest(judge, choice.workload, replace(shared, virtual=virtual), pins)
                    if woven is not None:
                        yield woven


def _lightest(judge: Judge, workload: Workload, layout: Layout, pins: Pins) -> Choice | None:
    """With the least recomputation that fits."""
    for recompute in recomputes(workload, pins):
        computed = replace(workload, recompute=recompute)
        if judge.fits(computed, layout):
            return Choice(computed, layout, judge.memory(computed, layout), judge.time(computed, layout))
    return None


def _steps(seconds: float) -> int:
    """Time in steps of 1 %: a total order that does not depend on what else fits."""
    return math.floor(math.log(max(seconds, 1e-9)) / _SAME_SPEED)


def _simple_layout(layout: Layout) -> tuple[int, ...]:
    """Fewer kinds of splitting first, then less of each."""
    ways = (layout.pipeline, layout.context, layout.expert, layout.tensor)
    return (sum(way > 1 for way in ways), layout.virtual, layout.zero, *ways, layout.shards)


def _order(choice: Choice) -> tuple[float, ...]:
    """Time, then simplicity, then memory."""
    w = choice.workload
    kinds = ("none", "selective", "full")
    return (
        _steps(choice.time.seconds),
        *_simple_layout(choice.layout),
        kinds.index(w.recompute),
        choice.bytes,
        choice.time.seconds,
        w.micro_batch,
    )


def _result(judge: Judge, found: list[Choice], lost: list[Workload], pins: Pins) -> SearchResult:
    best = found[0]
    losers = [*wanted_before(judge, lost, best, pins), *too_large(judge, best, pins)]
    seen = {_way(best)}
    others = []
    for choice in found[1:]:
        if _way(choice) not in seen:
            others.append(choice)
            seen.add(_way(choice))
    if len(losers) + len(others) < _RUNNERS_UP:
        others += [choice for choice in found[1:] if choice not in others]
    losers += [slower(choice, best) for choice in others[: _RUNNERS_UP - len(losers)]]
    return SearchResult(best, tuple(losers[:_RUNNERS_UP]), judge.room, judge.estimates)


def _way(choice: Choice) -> tuple[int, ...]:
    layout = choice.layout
    return (layout.tensor, layout.pipeline, layout.context, layout.expert, layout.zero, layout.shards)
