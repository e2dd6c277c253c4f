"""Exported policies act as the policy does, for every form, space and rule."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from galley.base import GalleyError
from galley.export import registry
from galley.export.exporting import export
from galley.models.control.policy import Policy
from galley.models.control.results import save_policy
from galley.runs import RunFolder
from models.control.policies import decision, observations

pytestmark = [pytest.mark.tiny, pytest.mark.filterwarnings("ignore")]
PAIRS = [("vector", "squashed"), ("matrix", "mean"), ("dict", "logits-multi"), ("multi-discrete", "logits-switches")]
PAIRS += [("vector", "quantiles-dueling"), ("image-last", "logits-from-3")]


@pytest.mark.parametrize("form", registry.names())
@pytest.mark.parametrize(("observed", "acted"), PAIRS)
def test_the_exported_policy_acts_the_same(form: str, observed: str, acted: str, tmp_path: Path) -> None:
    made = decision(observed, acted)
    result = export(made, form, tmp_path / f"p{registry.get(form).suffix}")
    assert result.parity.agreement == 1.0
    assert result.parity.max_difference < 1e-4
    _, stacked = observations(observed, 40)
    inputs = stacked if isinstance(stacked, dict) else {"observation": stacked}
    inputs = {leaf.name or "observation": inputs[leaf.name or "observation"] for leaf in made.spec.observations.leaves}
    acted_out = registry.get(form).open(result.path)(inputs)
    np.testing.assert_allclose(acted_out, Policy(made).act(stacked), rtol=1e-4, atol=1e-5)
    assert [file.name for file in tmp_path.iterdir()] == [result.path.name]


def test_parity_is_noted_beside_other_forms(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "agent", recipe="task: control", plan={}, manifest={})
    with pytest.raises(GalleyError) as caught:
        export(run, "torch-export")
    assert caught.value.code == "run-unfinished"
    save_policy(run.result, decision("vector", "logits"), method="ppo")
    run.write_result("parity.json", {"reloaded": {"max_difference": 0.0, "agreement": 1.0}})
    result = export(run, "torch-export")
    assert result.path == run.result / "policy.pt2"
    noted = json.loads((run.result / "parity.json").read_text())
    assert noted["torch-export"] == result.parity.to_json()
    assert noted["reloaded"]["agreement"] == 1.0
    with pytest.raises(GalleyError) as caught:
        export(run, "torch-export")
    assert caught.value.code == "file-exists"


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    with pytest.raises(GalleyError, match="memory") as caught:
        export(decision("vector", "logits", lstm=4), "onnx", tmp_path / "p.onnx")
    assert caught.value.code == "model-unsupported"
    run = RunFolder.create(tmp_path, "chat", recipe="task: chat", plan={}, manifest={})
    run.set_status("done")
    with pytest.raises(GalleyError, match="no agent") as caught:
        export(run, "onnx")
    assert caught.value.code == "model-unsupported"
    with pytest.raises(GalleyError) as caught:
        export(run, "onx")
    assert caught.value.code == "name-unknown"
