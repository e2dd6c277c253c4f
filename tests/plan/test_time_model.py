"""Time of a step: collectives and bubbles by hand, sums of parts, and what may never make it slower or faster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from galley.plan import collectives, hardware
from galley.plan.architecture import Architecture
from galley.plan.collectives import Group, group_of
from galley.plan.layer_time import EDGE, layer_time, product_seconds
from galley.plan.layout import Layout
from galley.plan.published import known
from galley.plan.software import MEGATRON, NANOTRON, Software
from galley.plan.time_model import TimeEstimate, estimate_time, launch_seconds
from galley.plan.types import Hardware
from galley.plan.workload import Workload

PLAIN = Software(name="plain", overlaps_data=0.0)
LLAMA = known("llama-3-8b")
MIXTURE = Architecture(
    layers=16, hidden=2048, heads=16, kv_heads=16, ffn=8192, vocab=50304, experts=64, active_experts=8, expert_ffn=1024
)
WORK = Workload(sequence=4096, micro_batch=1, global_batch=64)
NODE = hardware.parse("8x h100-80g")
NODES = hardware.parse("4 nodes x 8x h100-80g")


def seconds(layout: Layout, workload: Workload = WORK, where: Hardware = NODES, software: Software = PLAIN) -> float:
    return estimate_time(LLAMA, workload, layout, where, software).seconds


def test_ring_volumes_by_hand() -> None:
    group = Group(size=4, near=4, link=100e9, adapter=10e9, hop_seconds=1e-5)
    # (4-1)/4 of 1 GB over 100 GB/s is 7.5 ms, and three hops of 10 us
    assert group.gather(1e9) == pytest.approx(7.5e-3 + 3e-5)
    assert group.reduce(1e9) == pytest.approx(2 * group.gather(1e9))
    assert group.exchange(1e9) == pytest.approx(group.gather(1e9))
    assert Group(size=1, near=1, link=1.0, adapter=1.0, hop_seconds=1.0).gather(1e9) == 0


def test_ring_over_nodes_uses_the_adapters_of_its_devices() -> None:
    adapter = 50e9 * collectives.NETWORK_EFFICIENCY
    assert group_of(NODE, 8, 1).bytes_per_second == pytest.approx(450e9 * collectives.LINK_EFFICIENCY)
    # tensor parallelism of 8 leaves each copy one device, and one adapter, in a node
    # ... and four nodes, twice two, share switches
    adapter /= 1 + collectives.NETWORK_CONGESTION
    assert group_of(NODES, 4, 8).bytes_per_second == pytest.approx(adapter)
    assert group_of(NODES, 8, 4).bytes_per_second == pytest.approx(2 * adapter)


def test_all_to_all_over_nodes_waits_for_what_leaves_the_node() -> None:
    group = Group(size=16, near=8, link=400e9, adapter=25e9, hop_seconds=0.0)
    assert group.exchange(16e9) == pytest.approx(8e9 / 25e9)


def test_product_reaches_its_speed_only_when_large() -> None:
    ideal = 2 * 8192.0**3 / 1e15
    assert product_seconds(8192, 8192, 8192, 1e15) == pytest.approx(ideal * (1 + EDGE / 8192) ** 3)
    assert product_seconds(16, 8192, 8192, 1e15) > 2 * 2 * 16 * 8192**2 / 1e15


def test_tensor_parallelism_exchanges_eight_hidden_states_a_layer() -> None:
    workload = replace(WORK, recompute="full")
    layout = Layout(tensor=8)
    once = group_of(NODE, 8, 1).gather(2 * 4096 * 4096)
    plain = layer_time(LLAMA, WORK, layout, NODE, PLAIN, experts=False)
    assert plain.tensor == pytest.approx(8 * once)
    assert layer_time(LLAMA, workload, layout, NODE, PLAIN, experts=False).tensor == pytest.approx(12 * once)


def test_bubble_is_stages_less_one_over_micro_batches() -> None:
    # without a head to unbalance the stages, the bubble is (p-1)/m of the rest, and half of it with two pieces each
    headless = replace(LLAMA, vocab=1)
    one = replace(PLAIN, handoff_seconds=0.0, overlaps_handoff=1.0)
    work = replace(WORK, global_batch=16)
    plain = estimate_time(headless, work, Layout(pipeline=4), NODE, one).parts
    pieces = estimate_time(headless, work, Layout(pipeline=4, virtual=2), NODE, one).parts
    busy = sum(plain[part] for part in ("products", "attention", "other"))
    assert plain["pipeline"] == pytest.approx(busy * 3 / 16, rel=0.01)
    assert pieces["pipeline"] == pytest.approx(plain["pipeline"] / 2, rel=0.01)


def test_model_flops_are_six_a_weight_and_token_and_those_of_attention() -> None:
    estimate = estimate_time(LLAMA, WORK, Layout(data=8), NODE, PLAIN)
    tokens = 64 * 4096
    weights = LLAMA.num_parameters - LLAMA.embedding_parameters
    attention = 12 * 32 * 4096 * 4096 / 2
    assert estimate.model_flops == pytest.approx(tokens * (6 * weights + attention))
    assert estimate.peak_flops == pytest.approx(8 * 989e12)
    assert 0.2 < estimate.mfu < 0.7


def test_parts_add_up_and_none_is_negative() -> None:
    for layout in (Layout(data=32), Layout(tensor=4, pipeline=2, data=4, zero=1), Layout(data=32, zero=3)):
        for software in (PLAIN, NANOTRON, MEGATRON):
            estimate = estimate_time(LLAMA, WORK, layout, NODES, software)
            assert min(estimate.parts.values()) >= 0
            assert estimate.seconds == pytest.approx(sum(estimate.parts.values()))
            assert estimate.range[0] < estimate.seconds < estimate.range[2]


def test_energy_and_cost() -> None:
    estimate = TimeEstimate(1.0, 1.0, 1.0, devices=8, parts={"products": 3600.0}, watts=700.0)
    assert estimate.kilowatt_hours == pytest.approx(5.6)
    assert estimate.cost(price=2.0) == pytest.approx(16.0)


@pytest.mark.parametrize(
    "layout",
    [Layout(tensor=8, data=4), Layout(tensor=16, data=2, zero=1), Layout(pipeline=4, data=8), Layout(data=32, zero=3)],
    ids=str,
)
@pytest.mark.parametrize("figure", ["link_gbps", "network_gbps", "memory_gbps"])
def test_faster_hardware_is_never_slower(layout: Layout, figure: str) -> None:
    faster = NODES.model_copy(update={figure: 2 * getattr(NODES, figure)})
    assert seconds(layout, where=faster) <= seconds(layout)


@pytest.mark.parametrize("layout", [Layout(data=8), Layout(tensor=8), Layout(tensor=2, pipeline=2, data=2)], ids=str)
def test_more_work_is_never_faster(layout: Layout) -> None:
    least = seconds(layout, where=NODE)
    assert seconds(layout, replace(WORK, global_batch=128), NODE) > least
    assert seconds(layout, replace(WORK, sequence=8192), NODE) > 1.7 * least
    assert seconds(layout, replace(WORK, recompute="full"), NODE) > seconds(
        layout, replace(WORK, recompute="selective"), NODE
    )
    assert seconds(layout, replace(WORK, frozen_models=1.0), NODE) > least


def test_full_recomputation_costs_about_a_third() -> None:
    share = seconds(Layout(data=8), replace(WORK, recompute="full"), NODE) / seconds(Layout(data=8), WORK, NODE)
    assert 1.2 < share < 1.36


def test_adapters_need_no_gradients_of_frozen_weights() -> None:
    layout = Layout(data=8)
    full = estimate_time(LLAMA, WORK, layout, NODE, PLAIN).parts
    lora = estimate_time(LLAMA, replace(WORK, tuning="lora"), layout, NODE, PLAIN).parts
    qlora = estimate_time(LLAMA, replace(WORK, tuning="qlora"), layout, NODE, PLAIN).parts
    assert lora["products"] == pytest.approx(full["products"] * 2 / 3)
    assert lora["optimizer"] < full["optimizer"] / 20
    assert qlora["dequantise"] > 0 == lora["dequantise"]


def test_tensor_parallelism_over_nodes_collapses() -> None:
    assert seconds(Layout(tensor=16, data=2)) > 2 * seconds(Layout(tensor=8, data=4))


def test_small_layers_are_bound_by_starting_their_kernels() -> None:
    small = Architecture(layers=16, hidden=256, heads=4, ffn=1024, vocab=1000)
    estimate = estimate_time(small, replace(WORK, global_batch=8), Layout(data=8), NODE, NANOTRON)
    least = launch_seconds(small, WORK, Layout(data=8), NODE, NANOTRON)
    assert least == NANOTRON.launch_seconds
    parts = ("products", "attention", "other", "launch")
    assert sum(estimate.parts[part] for part in parts) == pytest.approx(16 * least)


def test_offload_takes_the_time_of_the_host_link() -> None:
    layout = Layout(data=8, zero=3)
    there = replace(WORK, offload_optimizer=True)
    parts = estimate_time(LLAMA, there, layout, NODE, PLAIN).parts
    # 2 bytes of gradient down and 2 of weight up, of an eighth of the weights, at 80 % of 63 GB/s
    assert parts["offload"] == pytest.approx(LLAMA.num_parameters / 8 * 4 / (63e9 * 0.8))
    assert seconds(layout, there, NODE) > seconds(layout, WORK, NODE)


def test_experts_pay_for_their_exchange_and_for_imbalance() -> None:
    layout = Layout(data=8, expert=8, zero=1)
    even = estimate_time(MIXTURE, replace(WORK, expert_imbalance=1.0), layout, NODE, PLAIN)
    uneven = estimate_time(MIXTURE, replace(WORK, expert_imbalance=1.5), layout, NODE, PLAIN)
    assert even.parts["expert"] > 0
    assert uneven.parts["products"] > even.parts["products"]
    assert uneven.parts["expert"] == pytest.approx(1.5 * even.parts["expert"], rel=0.1)


def test_data_exchange_once_a_step_unless_weights_are_shared() -> None:
    few, many = replace(WORK, global_batch=32), replace(WORK, global_batch=128)
    for zero, factor in ((1, 1.0), (3, 4.0)):
        layout = Layout(data=32, zero=zero)  # type: ignore[arg-type]
        parts = [estimate_time(LLAMA, work, layout, NODES, PLAIN).parts["data"] for work in (few, many)]
        assert parts[1] == pytest.approx(factor * parts[0])
