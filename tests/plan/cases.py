"""Recipes, models, data and machines to plan for."""

from __future__ import annotations

from typing import Any

from galley.data.dataset import DataStatistics
from galley.data.samples import EncodeReport
from galley.models.spec import ModelSpec
from galley.plan import Hardware, Plan, decide, parse
from galley.plan.cluster import over_devices, without_limit
from galley.recipe.schema import Recipe

GIB = 2**30

SMOLLM = ModelSpec(
    reference="smollm2-135m-instruct",
    kind="decoder",
    family="llama",
    source="package",
    num_parameters=134_515_008,
    num_layers=30,
    hidden_size=576,
    intermediate_size=1536,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    vocab_size=49_152,
    max_positions=8192,
    tied_embeddings=True,
)
LLAMA_8B = ModelSpec(
    reference="meta-llama/Llama-3.1-8B-Instruct",
    kind="decoder",
    family="llama",
    source="hub",
    num_parameters=8_030_261_248,
    num_layers=32,
    hidden_size=4096,
    intermediate_size=14_336,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    vocab_size=128_256,
    max_positions=131_072,
)
TINY_CHAT = ModelSpec(
    reference="tiny-chat",
    kind="decoder",
    family="opt",
    num_parameters=20_000_000,
    num_layers=6,
    hidden_size=256,
    intermediate_size=1024,
    num_heads=4,
    num_kv_heads=4,
    head_dim=64,
    vocab_size=8192,
    max_positions=512,
    tied_embeddings=True,
)
RANDOM_15M = ModelSpec(
    reference="random:15M",
    kind="decoder",
    family="llama",
    source="random",
    num_parameters=15_000_000,
    num_layers=6,
    hidden_size=384,
    intermediate_size=1024,
    num_heads=6,
    num_kv_heads=6,
    head_dim=64,
    vocab_size=8192,
    max_positions=1024,
    tied_embeddings=True,
)
BERT = ModelSpec(
    reference="minilm",
    kind="encoder",
    family="bert",
    source="package",
    num_parameters=22_700_000,
    num_layers=6,
    hidden_size=384,
    intermediate_size=1536,
    num_heads=12,
    num_kv_heads=12,
    head_dim=32,
    vocab_size=30_522,
    max_positions=512,
)
NET = ModelSpec(reference="digits.py:Net", kind="module", family="Net", source="file")

LAPTOP = Hardware(
    name="Intel(R) Xeon(R) Processor",
    device="cpu",
    memory_bytes=20 * GIB,
    cores=2,
    features=("amx_bf16", "avx512_bf16", "avx512f", "avx2"),
)
OLD_LAPTOP = Hardware(name="old", device="cpu", memory_bytes=8 * GIB, cores=4, features=("avx2",))
H100 = parse("h100-80g")


def statistics(rows: int = 3600, held_out: int = 400, characters: int = 250, **facts: Any) -> DataStatistics:
    """Rows of so many characters each; the longest has three times as many."""
    total = {"characters": rows * characters, "longest_characters": 3 * characters, **facts}
    return DataStatistics(rows=rows, held_out_rows=held_out, **total)


def counted(rows: int = 3600, length: int = 70, **facts: Any) -> EncodeReport:
    """Rows of so many tokens each, of which five are learned."""
    report: dict[str, Any] = {
        "rows_in": rows,
        "rows_kept": rows,
        "rows_without_targets": 0,
        "rows_truncated": 0,
        "tokens_in": rows * length,
        "tokens_cut": 0,
        "tokens_dropped": 0,
        "supervised_tokens": rows * 5,
        "lengths": (length, length + 5, length + 20),
    }
    return EncodeReport(**(report | facts))


def recipe(task: str = "chat", **sections: Any) -> Recipe:
    """A recipe with these sections."""
    return Recipe.model_validate({"task": task, "model": "m", "data": "faq.csv", **sections})


def plan(
    asked: Recipe | None = None,
    spec: ModelSpec = SMOLLM,
    data: DataStatistics | None = None,
    hardware: Hardware = LAPTOP,
    **counts: Any,
) -> Plan:
    """A plan, of the usual chat job unless said otherwise."""
    asked = asked or recipe()
    kind = {"complete": "document", "classify": "labelled"}.get(asked.task, "conversation")
    return decide(asked, spec, data or statistics(example_kind=kind), hardware, **counts)


def laid_out(hardware: str, spec: ModelSpec = LLAMA_8B, **sections: Any) -> Plan:
    """A plan for several devices, with the sections of the recipe."""
    asked, place = recipe(**sections), parse(hardware)
    made = decide(asked, spec, statistics(), without_limit(place), counted=counted())
    return over_devices(made, asked, spec, place)


def decision(made: Plan, key: str) -> str:
    """The reason of one decision."""
    return next(d.because for d in made.decisions if d.key == key)
