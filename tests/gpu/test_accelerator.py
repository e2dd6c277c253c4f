"""The same jobs on a CUDA card or Apple's GPU: nothing but the device changes. Skipped without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import jobs
from galley.recipe import Tuning

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.accelerator.is_available(), reason="no accelerator on this machine"),
]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GALLEY_CACHE", str(tmp_path / "cache"))


def device() -> str:
    found = torch.accelerator.current_accelerator()
    assert found is not None
    return found.type


def losses(task: str, tmp_path: Path, where: str, **pins: Any) -> list[float]:
    asked = jobs.recipe(task, tmp_path, override={"device": where, "precision": "fp32", **pins})
    return [line["loss"] for line in jobs.run(asked, tmp_path / where).metrics() if "loss" in line]


@pytest.mark.parametrize("task", ["chat", "complete"])
def test_losses_equal_those_of_the_cpu(task: str, tmp_path: Path) -> None:
    assert losses(task, tmp_path, device()) == pytest.approx(losses(task, tmp_path, "cpu"), rel=1e-3)


@pytest.mark.parametrize("tuning", ["full", "lora", "dora", "qlora"])
def test_every_tuning_learns_on_the_pretrained_model(tuning: Tuning, tmp_path: Path) -> None:
    asked = jobs.recipe("chat", tmp_path, model="smollm2-135m-instruct", budget={"steps": 20})
    asked["override"] |= {"device": device(), "tuning": tuning}
    found = [line["loss"] for line in jobs.run(asked, tmp_path / "runs").metrics() if "loss" in line]
    assert found[-1] < 0.8 * found[0]


def test_an_interrupted_run_continues(tmp_path: Path) -> None:
    asked = jobs.recipe("classify", tmp_path, override={"device": device()})
    whole = jobs.run(asked, tmp_path / "whole")
    assert whole.status() == "done"
    assert max(line["memory_bytes"] for line in whole.metrics() if "memory_bytes" in line) > 0
