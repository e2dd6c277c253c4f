"""Policies of Stable-Baselines3 act the same after the import, and hostile files do nothing."""

from __future__ import annotations

import copy
import io
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import sb3_contrib as contrib
import stable_baselines3 as sb3
import torch
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from galley.base import GalleyError
from galley.models.control.pickled import read_pickle
from galley.models.control.policy import Policy
from galley.models.control.results import load_policy, save_policy
from galley.models.control.sb3 import import_sb3

pytestmark = [pytest.mark.tiny, pytest.mark.filterwarnings("ignore")]

VECTOR = spaces.Box(np.array([-1, -np.inf, -3], np.float32), np.array([1, np.inf, 5], np.float32))
ARM = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 0.7], np.float32))
PIXELS = spaces.Box(0, 255, (36, 36, 1), np.uint8)
KEYS = spaces.Dict({"b": spaces.Discrete(3), "a": spaces.Box(-1, 1, (2, 2), np.float32), "c": spaces.MultiBinary(3)})
CHOICE = spaces.Discrete(3)


class World(gymnasium.Env[Any, Any]):
    """Random observations of any space."""

    def __init__(self, observed: spaces.Space[Any], acted: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space, self._left = observed, acted, 5

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._left = 5
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        self._left -= 1
        return self.observation_space.sample(), float(np.sum(action)), False, self._left == 0, {}

    def action_masks(self) -> Any:
        return np.ones(3, bool)


OFF = {"buffer_size": 100, "learning_starts": 5, "batch_size": 4}
ON = {"n_steps": 8, "batch_size": 8, "n_epochs": 1}
ARCH = {"net_arch": [16, 8]}
CASES: dict[str, tuple[Any, str, spaces.Space[Any], spaces.Space[Any], dict[str, Any]]] = {
    "ppo": (sb3.PPO, "MlpPolicy", VECTOR, CHOICE, ON),
    "ppo-box": (
        sb3.PPO,
        "MlpPolicy",
        VECTOR,
        ARM,
        {**ON, "policy_kwargs": {"activation_fn": torch.nn.ELU, "log_std_init": 1.0}},
    ),
    "ppo-multi": (sb3.PPO, "MlpPolicy", VECTOR, spaces.MultiDiscrete([2, 3]), {**ON, "seed": 1}),
    "ppo-switches": (sb3.PPO, "MlpPolicy", VECTOR, spaces.MultiBinary(4), {**ON, "policy_kwargs": {"net_arch": []}}),
    "ppo-places": (sb3.PPO, "MlpPolicy", spaces.MultiDiscrete([3, 4]), CHOICE, ON),
    "ppo-keys": (
        sb3.PPO,
        "MultiInputPolicy",
        KEYS,
        ARM,
        {**ON, "policy_kwargs": {"net_arch": {"pi": [8], "vf": [4, 4]}}},
    ),
    "a2c": (sb3.A2C, "MlpPolicy", VECTOR, CHOICE, {"policy_kwargs": {"share_features_extractor": False}}),
    "ppo-pixels": (sb3.PPO, "CnnPolicy", PIXELS, CHOICE, ON),
    "dqn": (sb3.DQN, "MlpPolicy", VECTOR, CHOICE, {**OFF, "policy_kwargs": ARCH}),
    "qrdqn": (contrib.QRDQN, "MlpPolicy", VECTOR, CHOICE, {**OFF, "policy_kwargs": {**ARCH, "n_quantiles": 7}}),
    "sac": (sb3.SAC, "MlpPolicy", VECTOR, ARM, {**OFF, "policy_kwargs": ARCH}),
    "td3": (sb3.TD3, "MlpPolicy", VECTOR, ARM, {**OFF, "policy_kwargs": {**ARCH, "activation_fn": torch.nn.SiLU}}),
    "ddpg": (sb3.DDPG, "MlpPolicy", VECTOR, ARM, {**OFF, "policy_kwargs": ARCH}),
    "tqc": (contrib.TQC, "MlpPolicy", VECTOR, ARM, {**OFF, "policy_kwargs": ARCH}),
    "maskable-ppo": (contrib.MaskablePPO, "MlpPolicy", VECTOR, CHOICE, ON),
    "recurrent-ppo": (
        contrib.RecurrentPPO,
        "MlpLstmPolicy",
        VECTOR,
        ARM,
        {**ON, "policy_kwargs": {"lstm_hidden_size": 8}},
    ),
}


def trained(name: str) -> Any:
    kind, policy, observed, acted, options = CASES[name]
    model = kind(policy, World(observed, acted), **{"seed": 0, **copy.deepcopy(options)})
    model.learn(24)
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():  # so little training leaves policies that always choose the same
        for parameter in model.policy.parameters():
            spread = 0.3 if parameter.numel() < 10_000 else 0.02
            parameter.add_(spread * torch.randn(parameter.shape, generator=random))
    return model


def saved(name: str, folder: Path) -> tuple[Any, Path]:
    model, path = trained(name), folder / "policy.zip"
    model.save(path)
    return model, path


def equal(ours: Any, theirs: Any) -> None:
    if np.issubdtype(np.asarray(theirs).dtype, np.floating):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)
    else:
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", [name for name in CASES if name != "recurrent-ppo"])
def test_the_import_acts_the_same(name: str, tmp_path: Path) -> None:
    model, path = saved(name, tmp_path)
    policy = Policy(import_sb3(path))
    save_policy(tmp_path, policy.decision, method="sb3")
    again = Policy(load_policy(tmp_path))
    space = model.observation_space  # images have their channels first there
    space.seed(1)
    rows = [space.sample() for _ in range(200)]
    stacked = (
        {key: np.stack([row[key] for row in rows]) for key in rows[0]}
        if isinstance(space, spaces.Dict)
        else np.stack(rows)
    )
    expected, _ = model.predict(stacked, deterministic=True)
    equal(policy.act(stacked), expected)
    assert np.array_equal(again.act(stacked), policy.act(stacked))
    assert len(np.unique(expected.reshape(200, -1), axis=0)) > 1


def test_a_recurrent_policy_remembers_the_same(tmp_path: Path) -> None:
    model, path = saved("recurrent-ppo", tmp_path)
    policy, state = Policy(import_sb3(path)), None
    random = np.random.default_rng(0)
    for step in range(10):
        rows = random.standard_normal((20, 3)).astype(np.float32)
        expected, state = model.predict(rows, state=state, episode_start=np.full(20, step == 0), deterministic=True)
        equal(policy.act(rows), expected)


def test_images_of_the_environment_may_have_their_channels_last(tmp_path: Path) -> None:
    from galley.data.environments.layout import observation_layout

    kind, policy_name, _, acted, options = CASES["ppo-pixels"]
    world = World(spaces.Box(0, 255, (36, 40, 3), np.uint8), acted)
    model = kind(policy_name, world, **options)
    model.save(tmp_path / "p.zip")
    policy = Policy(import_sb3(tmp_path / "p.zip", observations=observation_layout(world.observation_space)))
    rows = np.random.default_rng(0).integers(0, 256, (50, 36, 40, 3), np.uint8)
    equal(policy.act(rows), model.predict(rows, deterministic=True)[0])
    with pytest.raises(GalleyError, match="other observations"):
        import_sb3(tmp_path / "p.zip", observations=observation_layout(VECTOR))


@pytest.mark.parametrize("name", ["sac", "ppo-keys"])
def test_running_statistics_come_along(name: str, tmp_path: Path) -> None:
    kind, policy_name, observed, acted, options = CASES[name]
    keys = {"norm_obs_keys": ["a"]} if name == "ppo-keys" else {}
    normalised = VecNormalize(DummyVecEnv([lambda: World(observed, acted)]), clip_obs=2.0, **keys)
    model = kind(policy_name, normalised, **copy.deepcopy(options))
    model.learn(24)
    model.save(tmp_path / "policy.zip")
    normalised.save(str(tmp_path / "vecnormalize.pkl"))
    if name == "ppo-keys":
        with pytest.raises(GalleyError, match="some keys only"):
            import_sb3(tmp_path / "policy.zip")
        return
    policy = Policy(import_sb3(tmp_path / "policy.zip"))
    rows = np.random.default_rng(0).standard_normal((200, 3)).astype(np.float32) * 3
    expected, _ = model.predict(normalised.normalize_obs(rows), deterministic=True)
    np.testing.assert_allclose(policy.act(rows), expected, rtol=0, atol=2e-6)
    assert np.abs(policy.act(rows) - model.predict(rows, deterministic=True)[0]).max() > 1e-3


def test_deviations_come_along(tmp_path: Path) -> None:
    _, path = saved("ppo-box", tmp_path)
    drawn = Policy(import_sb3(path)).act(np.zeros((4000, 3), np.float32), sampled=True)
    assert (drawn[:, 1] == 0).mean() > 0.2  # a deviation of e, clipped to 0 .. 0.7
    assert (drawn[:, 1] == np.float32(0.7)).mean() > 0.2


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (sb3.PPO, {"use_sde": True}, "use_sde=True"),
        (sb3.PPO, {"policy_kwargs": {"activation_fn": torch.nn.GELU}}, "GELU"),
        (contrib.CrossQ, {}, "sb3_contrib.crossq"),
        (contrib.ARS, {}, "sb3_contrib"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(kind: Any, options: Any, words: str, tmp_path: Path) -> None:
    kind("MlpPolicy", World(VECTOR, ARM), **options).save(tmp_path / "p.zip")
    with pytest.raises(GalleyError, match=words) as caught:
        import_sb3(tmp_path / "p.zip")
    assert caught.value.code == "model-unsupported"


class Evil:
    def __reduce__(self) -> Any:
        return print, ("HACKED",)


def rezip(path: Path, changes: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in {**members, **changes}.items():
            archive.writestr(name, content)


def evil_space(path: Path) -> None:
    import base64
    import json

    with zipfile.ZipFile(path) as archive:
        data = json.loads(archive.read("data"))
    data["observation_space"][":serialized:"] = base64.b64encode(pickle.dumps(Evil())).decode()
    rezip(path, {"data": json.dumps(data).encode()})


def evil_weights(path: Path) -> None:
    buffer = io.BytesIO()
    torch.save({"a": Evil()}, buffer)
    rezip(path, {"policy.pth": buffer.getvalue()})


def swollen_tensor(path: Path) -> None:
    buffer = io.BytesIO()
    torch.save({"action_net.weight": torch.zeros(1).expand(1 << 20, 1 << 20)}, buffer)
    rezip(path, {"policy.pth": buffer.getvalue()})


def compressed_inside(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        inner = io.BytesIO(archive.read("policy.pth"))
    buffer = io.BytesIO()
    with zipfile.ZipFile(inner) as old, zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as new:
        for info in old.infolist():
            new.writestr(info.filename, old.read(info))
    rezip(path, {"policy.pth": buffer.getvalue()})


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2000])


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (evil_space, "builtins.print"),
        (evil_weights, "more than tensors"),
        (swollen_tensor, "larger tensors than it holds"),
        (compressed_inside, "compressed inside"),
        (lambda path: rezip(path, {"data": b" " * (20 << 20)}, zipfile.ZIP_DEFLATED), "no policy needs"),
        (lambda path: rezip(path, {"../outside": b"x"}), "leads out"),
        (lambda path: rezip(path, {"data": b"{"}), "cannot be read"),
        (lambda path: rezip(path, {"policy.pth": b"x"}), "cannot be read"),
        (truncate, "p.zip"),
        (lambda path: path.write_bytes(b"no zip"), "cannot be read"),
    ],
)
def test_hostile_and_damaged_files(
    spoil: Callable[[Path], Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.zip"
    sb3.PPO("MlpPolicy", World(VECTOR, CHOICE), n_steps=8, batch_size=8).save(path)
    spoil(path)
    with pytest.raises(GalleyError, match=words) as caught:
        import_sb3(path)
    assert caught.value.code == "model-invalid"
    assert "HACKED" not in capsys.readouterr().out
    assert [file.name for file in tmp_path.iterdir()] == ["p.zip"]


def test_a_masked_policy_stays_masked(tmp_path: Path) -> None:
    model, path = saved("maskable-ppo", tmp_path)
    decision = import_sb3(path)
    random = np.random.default_rng(0)
    rows = random.standard_normal((100, 3)).astype(np.float32)
    masks = random.random((100, 3)) < 0.5
    masks[:, 1] = True
    expected, _ = model.predict(rows, action_masks=masks, deterministic=True)
    free, _ = model.predict(rows, deterministic=True)
    assert (expected != free).any()
    actions, _ = decision.act(torch.from_numpy(rows), None, None, torch.from_numpy(masks))
    np.testing.assert_array_equal(actions.numpy(), expected)


def test_hostile_statistics_do_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, path = saved("sac", tmp_path)
    (tmp_path / "vecnormalize.pkl").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(GalleyError, match="nothing was run"):
        import_sb3(path)
    assert "HACKED" not in capsys.readouterr().out


def test_the_reader_calls_nothing_that_it_may_name() -> None:
    stored = read_pickle(pickle.dumps([np.arange(6).reshape(2, 3), {"a": 1}]))
    assert type(stored[0]).__name__ == "Made"
    assert stored[1] == {"a": 1}
    with pytest.raises(GalleyError, match="damaged"):
        read_pickle(pickle.dumps([1, 2, 3])[:-4])
