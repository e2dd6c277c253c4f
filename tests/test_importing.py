"""`galley import` makes a finished run, and `galley export` takes it on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import stable_baselines3 as sb3

from galley import methods, recipe
from galley.base import GalleyError
from galley.cli.main import main
from galley.importing import import_policy
from galley.models.control.policy import Policy
from galley.runs import RunFolder

pytestmark = [pytest.mark.tiny, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sb3") / "cartpole.zip"
    sb3.PPO("MlpPolicy", "CartPole-v1", seed=0).save(path)
    return path


def test_an_imported_policy_is_a_finished_run(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    words = ["import", str(trained), "--name", "old", "--environment", "gym:CartPole-v1", "--runs", str(runs), "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out) == {"name": "old", "folder": str(runs / "old")}
    run = RunFolder.open(runs / "old")
    assert run.status() == "done"
    assert run.manifest()["lineage"]["imported_from"] == "cartpole.zip"
    assert recipe.load(run.path / "recipe.yaml", methods=methods).data.path == "gym:CartPole-v1"
    rows = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)
    expected, _ = sb3.PPO.load(trained).predict(rows, deterministic=True)
    np.testing.assert_array_equal(Policy.open(run.path).act(rows), expected)

    assert main(["runs", "--runs", str(runs)]) == 0
    assert "old" in capsys.readouterr().out
    assert main(["export", "old", "--to", "torch-export", "--runs", str(runs), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parity"]["agreement"] == 1.0
    assert (run.result / "policy.pt2").is_file()


def test_refusals(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(GalleyError) as caught:
        import_policy(trained, "old", runs_root=tmp_path, environment="gym:Pendulum-v1")
    assert caught.value.code == "environment-invalid"
    assert not (tmp_path / "old").exists()
    import_policy(trained, "old", runs_root=tmp_path)
    with pytest.raises(GalleyError) as caught:
        import_policy(trained, "old", runs_root=tmp_path)
    assert caught.value.code == "run-exists"
