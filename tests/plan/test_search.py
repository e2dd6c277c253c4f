"""The search over layouts: what it keeps, what it finds, and what it says where nothing fits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from galley.base import GalleyError
from galley.plan import Hardware, parse
from galley.plan.architecture import Architecture
from galley.plan.candidates import Pins, divisors, layouts, micro_batches, recomputes, shardings, virtuals
from galley.plan.judge import Judge
from galley.plan.layout import Layout
from galley.plan.published import known
from galley.plan.search import SAFETY, SearchResult, search
from galley.plan.software import GALLEY
from galley.plan.workload import Workload

pytestmark = pytest.mark.unit

LLAMA_8B, LLAMA_70B, LLAMA_405B = known("llama-3-8b"), known("llama-3-70b"), known("llama-3.1-405b")
MIXTURE = known("mixtral-8x7b")
MODELS = {"8B": LLAMA_8B, "70B": LLAMA_70B, "8x7B": MIXTURE}


def find(
    model: Architecture = LLAMA_8B,
    hardware: str | Hardware = "8x h100-80g",
    sequence: int = 4096,
    global_batch: int = 64,
    pins: Pins | None = None,
) -> SearchResult:
    machine = parse(hardware) if isinstance(hardware, str) else hardware
    return search(model, machine, Workload(sequence=sequence, global_batch=global_batch), pins=pins)


def tighter(hardware: Hardware, gib: float) -> Hardware:
    return hardware.model_copy(update={"memory_bytes": int(gib * 2**30)})


def everything(model: Architecture, hardware: Hardware, wanted: Workload, pins: Pins) -> Iterator[float]:
    """Times of all that fits, without any short cut."""
    judge = Judge(model, hardware, GALLEY)
    for layout in layouts(model, hardware, wanted, pins):
        for shared, rows in product(shardings(layout, hardware, pins), micro_batches(wanted, layout, pins)):
            work = replace(wanted, micro_batch=rows)
            pieces = (1, *virtuals(model, layout, wanted.global_batch // (layout.data * rows), pins))
            for virtual, recompute in product(pieces, recomputes(wanted, pins)):
                plan = (replace(work, recompute=recompute), replace(shared, virtual=virtual))
                if judge.fits(*plan):
                    yield judge.time(*plan).seconds


@pytest.mark.parametrize(
    ("model", "hardware", "batch"),
    [
        (LLAMA_8B, "8x h100-80g", 64),
        (LLAMA_8B, "2 nodes x 8x a100-80g", 128),
        (LLAMA_70B, "4 nodes x 8x h200-141g", 64),
        (MIXTURE, "2 nodes x 8x h100-80g", 64),
    ],
)
def test_no_plan_that_fits_is_faster(model: Architecture, hardware: str, batch: int) -> None:
    pins = Pins(tuning="full", offload_optimizer=False, offload_parameters=False)
    best = find(model, hardware, global_batch=batch, pins=pins).best
    fastest = min(everything(model, parse(hardware), Workload(sequence=4096, global_batch=batch), pins))
    assert best.time.seconds <= 1.011 * fastest


@settings(max_examples=15, deadline=None)
@given(
    model=st.sampled_from(sorted(MODELS)),
    gpus=st.sampled_from([1, 2, 8, 16, 64]),
    rows=st.sampled_from([8, 24, 64, 96]),
    sequence=st.sampled_from([1024, 4096, 16_384]),
)
def test_the_ways_fill_the_world_and_the_global_batch_is_kept(model: str, gpus: int, rows: int, sequence: int) -> None:
    hardware = parse(f"{gpus}x h100-80g")
    try:
        found = find(MODELS[model], hardware, sequence, rows)
    except GalleyError as error:
        event(error.code)
        return
    for choice in (found.best, *(loser.choice for loser in found.runners_up)):
        work, layout = choice.workload, choice.layout
        assert layout.world == hardware.world
        assert work.global_batch == rows
        assert work.micro_batch * layout.data * choice.accumulation == rows
        assert work.sequence == sequence
        assert layout.tensor <= hardware.num_devices
    assert found.best.bytes <= SAFETY * hardware.memory_bytes


@settings(max_examples=10, deadline=None)
@example(model="8x7B", gpus=8, memory=[31, 33])
@given(
    model=st.sampled_from(["8B", "8x7B"]),
    gpus=st.sampled_from([2, 8, 16]),
    memory=st.lists(st.integers(12, 180), min_size=2, max_size=2, unique=True).map(sorted),
)
def test_tighter_memory_never_yields_a_plan_that_needs_more(model: str, gpus: int, memory: list[int]) -> None:
    hardware = parse(f"{gpus}x h100-80g")
    needs = []
    for gib in memory:
        try:
            needs.append(find(MODELS[model], tighter(hardware, gib)).best.bytes)
        except GalleyError:
            needs.append(0.0)
    assert needs[0] <= needs[1]


@pytest.mark.parametrize(
    "pins",
    [
        Pins(tensor=4, pipeline=2),
        Pins(pipeline=4, virtual=2, micro_batch=1),
        Pins(context=4, recompute="selective"),
        Pins(zero=3, micro_batch=2, recompute="full"),
        Pins(zero=3, shards=8, tensor=1, pipeline=1, context=1),
        Pins(tuning="qlora", tensor=1, precision="fp16"),
        Pins(offload_optimizer=True, data=16),
        Pins(tensor=16, tuning="full"),
    ],
)
def test_pins_are_kept(pins: Pins) -> None:
    found = find(hardware="2 nodes x 8x h100-80g", pins=pins)
    for choice in (found.best, *(loser.choice for loser in found.runners_up)):
        said = {**vars(choice.layout), **vars(choice.workload)}
        for name, value in vars(pins).items():
            assert value is None or said[name] == value, name


def test_experts_are_split_over_copies() -> None:
    found = find(MIXTURE, "4 nodes x 8x h100-80g", pins=Pins(expert=8, tuning="full"))
    layout = found.best.layout
    assert layout.expert == 8
    assert layout.data * layout.context % 8 == 0


def test_the_wanted_tuning_comes_before_a_faster_one() -> None:
    roomy = find(LLAMA_8B, "8x h200-141g")
    assert (roomy.best.workload.tuning, roomy.best.workload.offload_optimizer) == ("full", False)
    tight = find(LLAMA_8B, tighter(parse("h100-80g").model_copy(update={"host_memory_bytes": 2**34}), 30))
    assert tight.best.workload.tuning == "lora"
    full = next(loser for loser in tight.runners_up if loser.choice.workload.tuning == "full")
    assert full.lost_because.startswith("needs ")
    tighter_still = find(LLAMA_8B, tighter(parse("h100-80g").model_copy(update={"host_memory_bytes": 2**34}), 15))
    assert tighter_still.best.workload.tuning == "qlora"


def test_the_host_helps_only_where_it_has_room() -> None:
    pins = Pins(tuning="full")
    machine = parse("h100-80g")
    found = find(LLAMA_8B, machine, pins=pins)
    assert found.best.workload.offload_optimizer
    assert found.best.time.parts["offload"] > 0
    with pytest.raises(GalleyError, match="host's memory"):
        find(LLAMA_8B, machine.model_copy(update={"host_memory_bytes": 2**35}), pins=pins)


def test_without_bf16_units_the_products_are_fp32() -> None:
    assert find(LLAMA_8B, "8x h100-80g").best.workload.precision == "bf16"
    work = find(replace(LLAMA_8B, layers=2), "4x t4-16g", global_batch=8, sequence=512).best.workload
    assert (work.precision, work.master_bytes) == ("fp32", 0.0)


def test_runners_up_are_different_and_say_why_they_lost() -> None:
    found = find(LLAMA_70B, "8 nodes x 8x h100-80g", global_batch=256, pins=Pins(tuning="full"))
    assert len(found.runners_up) == 5
    plans = [(found.best.workload, found.best.layout)]
    plans += [(loser.choice.workload, loser.choice.layout) for loser in found.runners_up]
    assert len(set(plans)) == 6
    for loser in found.runners_up:
        fits = loser.choice.bytes <= found.room_bytes
        slower = loser.choice.time.seconds / found.best.time.seconds - 1
        if not fits:
            assert "more" in loser.lost_because
        elif slower >= 0.01:
            assert loser.lost_because.startswith(f"{slower:.0%} slower: ".replace("%", " %"))
        else:
            assert loser.lost_because.startswith("as fast")


def test_the_same_job_gets_the_same_plan() -> None:
    first, second = (find(MIXTURE, "2 nodes x 8x h100-80g") for _ in range(2))
    assert first.best == second.best
    assert first.runners_up == second.runners_up


def test_what_cannot_fit_says_which_changes_would_do_and_they_do() -> None:
    machine = parse("8x a100-40g").model_copy(update={"host_memory_bytes": 2**37})
    with pytest.raises(GalleyError) as refused:
        find(LLAMA_70B, machine, 8192, pins=Pins(tuning="full"))
    assert refused.value.code == "plan-does-not-fit"
    assert "GiB" in str(refused.value) or "host" in str(refused.value)
    hint = str(refused.value.hint)
    assert hint.startswith("fits with ")
    assert "more GPUs" in hint
    assert "LoRA" in hint
    assert find(LLAMA_70B, machine, 8192, pins=Pins(tuning="qlora" if "QLoRA" in hint else "lora")).best
    more = int(hint.removeprefix("fits with ").split(" more")[0].replace(",", ""))
    nodes = (8 + more) // 8
    larger = machine.model_copy(update={"num_nodes": nodes})
    assert find(LLAMA_70B, larger, 8192, pins=Pins(tuning="full")).best.layout.world == 8 + more


def test_a_shorter_sequence_is_offered_where_it_helps() -> None:
    machine = tighter(parse("h100-80g").model_copy(update={"host_memory_bytes": 0}), 40)
    pins = Pins(tuning="lora", recompute="none", micro_batch=1)
    with pytest.raises(GalleyError) as refused:
        find(LLAMA_8B, machine, 65_536, 1, pins)
    words = str(refused.value.hint)
    assert "sequence " in words
    length = int(words.partition("sequence ")[2].partition(",")[0])
    assert find(LLAMA_8B, machine, length, 1, pins).best
    with pytest.raises(GalleyError):
        find(LLAMA_8B, machine, 2 * length, 1, pins)


def test_a_batch_that_no_layout_divides_is_a_contradiction_with_a_way_out() -> None:
    with pytest.raises(GalleyError) as refused:
        find(LLAMA_8B, "8x h100-80g", global_batch=9, pins=Pins(tensor=1, pipeline=1, context=1))
    assert refused.value.code == "plan-contradiction"
    assert "a global batch of 8" in str(refused.value.hint)


@pytest.mark.parametrize("number", [1, 12, 97, 16_384])
def test_divisors_are_complete(number: int) -> None:
    assert divisors(number) == tuple(d for d in range(1, number + 1) if number % d == 0)


def test_a_very_large_job_takes_few_estimates() -> None:
    """What its time depends on: at most 3,000 of the 60,000 that fit are looked at."""
    hardware = parse("2048 nodes x 8x h100-80g")
    found = find(LLAMA_405B, hardware, 8192, 2048, Pins(tuning="full"))
    assert found.estimates < 3_000
    assert found.best.layout.tensor == 8
    assert found.best.layout.pipeline > 1
    assert isinstance(found.best.layout, Layout)


def test_no_torch_is_imported() -> None:
    program = "import sys, galley.plan.search; assert not {'torch', 'numpy', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
