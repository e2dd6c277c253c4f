"""Models known by name have the number of parameters that their source prints."""

from __future__ import annotations

import subprocess
import sys

import pytest

from galley.plan.published import Published, lookup, published

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("model", published(), ids=lambda model: model.name)
def test_parameters_are_the_printed_ones(model: Published) -> None:
    unit = 10.0**-model.digits
    more = model.architecture.num_parameters / 1e9 - model.parameters_b
    assert -0.5 * unit <= more < unit  # sources round or cut


@pytest.mark.parametrize("model", [model for model in published() if model.active_b], ids=lambda model: model.name)
def test_active_parameters_are_the_printed_ones(model: Published) -> None:
    """Sources count the input embedding or leave it out."""
    a = model.architecture
    printed = model.active_b or 0.0
    unit = 10.0 ** -len(str(printed).partition(".")[2]) if printed % 1 else 1.0
    assert any(
        -0.5 * unit <= n / 1e9 - printed < unit for n in (a.active_parameters, a.active_parameters - a.table_parameters)
    )


def test_sizes_from_a_tenth_of_a_billion_to_a_trillion_are_there() -> None:
    models = published()
    assert len(models) >= 30
    assert models[0].parameters_b < 0.125
    assert models[-1].parameters_b > 1000
    assert all(model.source for model in models)


@pytest.mark.parametrize(
    ("name", "hidden", "layers"),
    [
        ("Llama-3-70B", 8192, 80),
        ("meta-llama/Llama-2-7b-hf", 4096, 32),
        ("Llama 2 13 B", 5120, 40),
        ("Qwen3-30B-A3B", 2048, 48),
        ("Mixtral-8x7B-Instruct-v0.1", 4096, 32),
        ("gemma-2-9b-it", 3584, 42),
        ("Phi-3-mini-4k-instruct", 3072, 32),
        ("bigscience/T0_3B", 2048, 48),
        ("Kimi_K2", 7168, 61),
        ("StableLM Alpha 3 B", 4096, 16),
        ("DeepSeek-V3", 7168, 61),
    ],
)
def test_names_as_people_write_them(name: str, hidden: int, layers: int) -> None:
    found = lookup(name)
    assert found is not None
    assert (found.hidden, found.layers) == (hidden, layers)


@pytest.mark.parametrize("name", ["", "llama", "Llama-like 7B", "generic 70B", "gpt: gpt3_15b", "Llama-2-7B-mine"])
def test_other_names_are_not_guessed(name: str) -> None:
    assert lookup(name) is None


def test_no_two_models_share_a_name() -> None:
    names = [name for model in published() for name in (model.name, *model.aliases)]
    by_name = {name: lookup(name) for name in names}
    for model in published():
        assert all(by_name[name] == model.architecture for name in (model.name, *model.aliases))


def test_no_torch_is_imported() -> None:
    code = "import sys; from galley.plan.published import lookup; lookup('gpt2'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
