"""A recipe's pins as the search over layouts takes them, and what in them cannot hold together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import cast

from galley.base import GalleyError
from galley.plan.architecture import Architecture
from galley.plan.candidates import Pins, Zero
from galley.plan.types import Hardware
from galley.plan.workload import Workload
from galley.recipe.schema import OverrideSection

_FILLING = ("tensor", "pipeline", "context", "data")
"""Ways whose product is the number of devices."""


def pins_of(override: OverrideSection, a: Architecture, hardware: Hardware, workload: Workload) -> Pins:
    """What the search must keep.

    Args:
        override: of the recipe; `parallel` holds ways of `galley.plan.layout.Layout`, and `fsdp`, which is ZeRO-3 over
            so many devices.
        a: the model.
        hardware: all of whose devices are used.
        workload: of which sequence and global batch are read.

    Raises:
        GalleyError: `plan-contradiction`, for the first pins that do not go with model, devices, batch or each other.
    """
    ways = override.parallel
    for problem, hint in _contradictions(override, a, hardware, workload):
        raise GalleyError("plan-contradiction", problem, hint=hint)
    return Pins(
        tuning=override.tuning,
        precision=override.precision,
        recompute=override.checkpointing,
        micro_batch=override.micro_batch,
        micro_batch_tokens=override.micro_batch_tokens,
        tensor=ways.get("tensor"),
        pipeline=ways.get("pipeline"),
        virtual=ways.get("virtual"),
        data=ways.get("data"),
        context=ways.get("context"),
        expert=ways.get("expert"),
        zero=3 if "fsdp" in ways else cast("Zero | None", ways.get("zero")),
        shards=ways.get("fsdp", ways.get("shards")),
    )


def _contradictions(
    override: OverrideSection, a: Architecture, hardware: Hardware, workload: Workload
) -> Iterator[tuple[str, str]]:
    """Each problem with a hint."""
    ways = override.parallel
    yield from _of_devices(ways, hardware)
    yield from _of_model(ways, a, workload)
    yield from _of_batch(override, workload)


def _of_devices(ways: dict[str, int], hardware: Hardware) -> Iterator[tuple[str, str]]:
    given = {name: ways[name] for name in _FILLING if name in ways}
    filled, world = math.prod(given.values()), hardware.world
    product = " x ".join(f"{name} {size:,}" for name, size in given.items())
    if world % filled:
        yield f"override.parallel: {product} is {filled:,}, which does not divide {world:,} devices", _divisors(world)
    elif len(given) == len(_FILLING) and filled != world:
        hint = f"leave data out; it would be {world // (filled // given['data']):,}"
        yield f"override.parallel: {product} is {filled:,} of {world:,} devices, and all are used", hint
    copies = world // math.prod(size for name, size in given.items() if name in ("tensor", "pipeline"))
    name = "fsdp" if "fsdp" in ways else "shards"
    if (shards := ways.get(name, 1)) > 1 and copies % shards:
        yield f"override.parallel: {name} {shards:,}, but {copies:,} devices hold copies of a weight", _divisors(copies)
    if (expert := ways.get("expert", 1)) > 1 and copies % expert:
        text = f"override.parallel: expert {expert:,}, but experts are split over {copies:,} devices that hold copies"
        yield text, _divisors(copies)


def _of_model(ways: dict[str, int], a: Architecture, workload: Workload) -> Iterator[tuple[str, str]]:
    tensor, pipeline, virtual = (ways.get(name, 1) for name in ("tensor", "pipeline", "virtual"))
    if a.heads % tensor:
        yield f"override.parallel: tensor {tensor:,} does not divide {a.heads:,} heads of attention", _divisors(a.heads)
    keys = a.heads if a.mla else a.kv_heads or a.heads
    if keys % tensor and tensor % keys:
        yield f"override.parallel: tensor {tensor:,} does not go with {keys:,} key and value heads", _divisors(keys)
    for width in {a.ffn, a.expert_ffn} - {0}:
        if width % tensor:
            hint = _divisors(math.gcd(width, a.heads))
            yield f"override.parallel: tensor {tensor:,} does not divide a feed-forward net of {width:,}", hint
    if pipeline * virtual > a.layers:
        pieces = f" x virtual {virtual:,}" if virtual > 1 else ""
        hint = f"at most {a.layers:,}"
        yield f"override.parallel: pipeline {pipeline:,}{pieces} is more pieces than {a.layers:,} layers", hint
    if (expert := ways.get("expert", 1)) > 1 and not a.experts:
        yield f"override.parallel: expert {expert:,}, but the model has no experts", "leave it out"
    elif a.experts and a.experts % expert:
        yield f"override.parallel: expert {expert:,} does not divide {a.experts:,} experts", _divisors(a.experts)
    if (context := ways.get("context", 1)) > workload.sequence:
        yield f"override.parallel: context {context:,} is more pieces than {workload.sequence:,} tokens", "leave it out"


def _of_batch(override: OverrideSection, workload: Workload) -> Iterator[tuple[str, str]]:
    rows, data = workload.global_batch, override.parallel.get("data", 1)
    if rows % data:
        hint = f"{_divisors(rows)}, or another override.global_batch"
        yield f"override.parallel: data {data:,} does not divide a global batch of {rows:,} rows", hint
    elif override.micro_batch is not None and (rows // data) % override.micro_batch:
        each = f"the {rows // data:,} rows of each copy" if data > 1 else f"a global batch of {rows:,} rows"
        yield f"override.micro_batch: {override.micro_batch:,} does not divide {each}", _divisors(rows // data)


def _divisors(number: int) -> str:
    """The sizes that divide, the smaller ones where there are many."""
    found = [size for size in range(1, min(number, 128) + 1) if number % size == 0]
    return f"use {', '.join(map(str, found[:-1]))} or {found[-1]}" if len(found) > 1 else "leave it out"
