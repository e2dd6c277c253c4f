"""Policies of Stable-Baselines3 and sb3-contrib as decision functions, without running what the file says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from galley.base import GalleyError
from galley.data.environments.layout import ActionLayout, ObservationLayout, action_layout, observation_layout
from galley.models.control.decision import Decision, DecisionSpec, Rule
from galley.models.control.pickled import Made, array
from galley.models.control.sb3_archive import as_floats, read_archive, read_normalisation
from galley.models.control.spec import Activation, NetworkSpec

if TYPE_CHECKING:
    from torch import Tensor

    Weights = dict[str, Tensor]


@dataclass(frozen=True)
class _Kind:
    """Where a family of algorithms keeps its policy.

    Args:
        rule: how its outputs become actions; None for choices or numbers, as the space says.
        hidden: prefix of the hidden layers.
        last: prefix of the last layer; empty where it is the last of `hidden`.
        features: prefix of the features' network.
        activation: by default.
        lstm: prefix of a recurrent layer.
        masked: whether it is told which choices are allowed.
    """

    rule: Rule | None
    hidden: str
    last: str
    features: str
    activation: Activation = "relu"
    lstm: str = ""
    masked: bool = False


_ACTOR_CRITIC = _Kind(None, "mlp_extractor.policy_net.", "action_net.", "pi_features_extractor.", "tanh")
_GAUSSIAN = _Kind("squashed", "actor.latent_pi.", "actor.mu.", "actor.features_extractor.")
_KINDS = {
    "stable_baselines3.common.policies": _ACTOR_CRITIC,
    "sb3_contrib.common.maskable.policies": replace(_ACTOR_CRITIC, masked=True),
    "sb3_contrib.common.recurrent.policies": replace(_ACTOR_CRITIC, lstm="lstm_actor."),
    "stable_baselines3.dqn.policies": _Kind("values", "q_net.q_net.", "", "q_net.features_extractor."),
    "sb3_contrib.qrdqn.policies": _Kind(
        "quantiles", "quantile_net.quantile_net.", "", "quantile_net.features_extractor."
    ),
    "stable_baselines3.sac.policies": _GAUSSIAN,
    "sb3_contrib.tqc.policies": _GAUSSIAN,
    "stable_baselines3.td3.policies": _Kind("squashed", "actor.mu.", "", "actor.features_extractor."),
}
"""By the module of the policy's class."""
ALGORITHMS = "PPO, A2C, DQN, QRDQN, SAC, TD3, DDPG, TQC, MaskablePPO, RecurrentPPO"
_ACTIVATIONS: dict[str, Activation] = {
    "Tanh": "tanh",
    "ReLU": "relu",
    "ELU": "elu",
    "SiLU": "silu",
    "LeakyReLU": "leaky-relu",
}
_EXTRACTORS = ("FlattenExtractor", "NatureCNN", "CombinedExtractor")
_HARMLESS = {
    *("net_arch", "activation_fn", "optimizer_class", "optimizer_kwargs", "ortho_init", "log_std_init", "n_critics"),
    *("n_quantiles", "share_features_extractor", "features_extractor_class", "features_extractor_kwargs", "full_std"),
    *("lstm_hidden_size", "shared_lstm", "enable_critic_lstm", "clip_mean", "use_expln"),
}
"""Settings whose effect the weights show, or that act in training alone."""
_NEUTRAL = {"use_sde": False, "squash_output": False, "normalize_images": True, "n_lstm_layers": 1, "lstm_kwargs": None}
"""Settings that are understood at this value alone."""


def import_sb3(
    path: Path, *, normalisation: Path | None = None, observations: ObservationLayout | None = None
) -> Decision:
    """The whole decision function of a saved Stable-Baselines3 model.

    Args:
        path: the .zip that `model.save` wrote.
        normalisation: what `VecNormalize.save` wrote; None takes vecnormalize.pkl beside the zip, where there is one.
        observations: layout of the environment, if known: it tells where images have their channels.

    Returns:
        A decision function that gives the same best actions.

    Raises:
        GalleyError: `model-not-found`, `model-invalid` for damaged files, `model-unsupported` for algorithms and
            settings that Galley's policies do not have, `environment-invalid` when the environment is another.
    """
    archive = read_archive(path)
    kind = _kind_of(archive.settings)
    activation = _check_settings(archive.settings, kind)
    seen, actions = observation_layout(archive.observations), action_layout(archive.actions)
    layout = seen if observations is None else _same_world(seen, observations)
    _check_images(layout, archive.weights, kind)
    weights = _renamed(archive.weights, kind, path)
    if actions.kind == "binary" and len(weights["last.bias"]) == actions.size:
        weights = _two_logits(weights)
    quantiles = 1
    if kind.rule == "quantiles":
        quantiles = len(weights["last.bias"]) // actions.num_choices
        weights = _choices_first(weights, actions, quantiles)
    beside = normalisation or path.with_name("vecnormalize.pkl")
    statistics = read_normalisation(beside) if normalisation is not None or beside.is_file() else None
    spec = DecisionSpec(
        layout,
        actions,
        NetworkSpec(_hidden_sizes(weights), activation),
        kind.rule or ("mean" if actions.kind == "box" else "logits"),
        quantiles=quantiles,
        lstm=weights["lstm.weight_hh_l0"].shape[1] if kind.lstm else 0,
        masked=kind.masked,
    )
    if statistics is not None:
        spec = _with_clip(spec, statistics, beside)
    decision = _filled(spec, weights, path)
    if statistics is not None and spec.normalise:
        _take_statistics(decision, statistics, beside)
    if spec.rule == "mean" and "log_std" in archive.weights:
        decision.take_log_std(archive.weights["log_std"].float())
    return decision.eval()


def algorithm_of(settings: dict[str, Any]) -> str:
    """The family of a saved model, in words for readers."""
    module = str((settings.get("policy_class") or {}).get("__module__", ""))
    words = module.removesuffix(".policies").rpartition(".")[2]
    return "actor-critic" if words == "common" else words


def _kind_of(settings: dict[str, Any]) -> _Kind:
    stored = settings.get("policy_class")
    module = str(stored.get("__module__", "")) if isinstance(stored, dict) else ""
    if module not in _KINDS:
        raise GalleyError(
            "model-unsupported",
            f"policies of {module or 'an unknown class'} cannot be imported",
            hint=f"policies that can be: {ALGORITHMS}",
        )
    return _KINDS[module]


def _check_settings(settings: dict[str, Any], kind: _Kind) -> Activation:
    """Refuse what would be misunderstood, by its name; give the activation."""
    stored = settings.get("policy_kwargs") or {}
    if settings.get("use_sde"):
        stored = {**stored, "use_sde": True}
    for name, value in stored.items():
        if name.startswith(":") or name in _HARMLESS or (name in _NEUTRAL and _NEUTRAL[name] == value):
            continue
        raise _unsupported(f"policy_kwargs: {name}={value!r}")
    extractor = str(stored.get("features_extractor_class", ""))
    own = extractor and not any(f"stable_baselines3.common.torch_layers.{one}'" in extractor for one in _EXTRACTORS)
    if own:
        raise _unsupported(f"features_extractor_class {extractor}")
    if "activation_fn" not in stored:
        return kind.activation
    words = str(stored["activation_fn"]).removesuffix("'>").rpartition(".")[2]
    if words not in _ACTIVATIONS or "torch.nn.modules.activation" not in str(stored["activation_fn"]):
        raise _unsupported(f"activation_fn {stored['activation_fn']}")
    return _ACTIVATIONS[words]


def _same_world(seen: ObservationLayout, given: ObservationLayout) -> ObservationLayout:
    """The given layout, if what was seen differs from it at most in where images have their channels."""
    moved = tuple(
        replace(leaf, shape=(leaf.shape[2], *leaf.shape[:2]))
        if leaf.kind == "image" and mine.kind == "image" and leaf.shape != mine.shape
        else leaf
        for leaf, mine in zip(given.leaves, seen.leaves, strict=False)
    )
    if len(given.leaves) != len(seen.leaves) or moved != seen.leaves:
        raise GalleyError(
            "environment-invalid",
            "the policy was trained on other observations than this environment gives",
            hint="name the environment that it was trained in, with the same wrappers",
        )
    return given


def _check_images(layout: ObservationLayout, weights: Weights, kind: _Kind) -> None:
    images = [leaf for leaf in layout.leaves if leaf.kind == "image"]
    if images and len(layout.leaves) > 1:
        raise _unsupported("MultiInputPolicy with images, whose features have another size")
    if images and f"{kind.features}cnn.0.weight" not in weights:
        raise _unsupported("MlpPolicy on images")
    if not images and any(".cnn." in name for name in weights):
        raise _unsupported("CnnPolicy on what is no image of pixels from 0 to 255")


def _renamed(weights: Weights, kind: _Kind, path: Path) -> Weights:
    """Layers as 0.weight, 0.bias, ..., last.weight, last.bias, images.NAME, lstm.NAME."""
    found: Weights = {}
    numbers = sorted({int(n[len(kind.hidden) :].split(".")[0]) for n in weights if _is_layer(n, kind.hidden)})
    names = [f"{kind.hidden}{number}." for number in numbers] + ([kind.last] if kind.last else [])
    if not names:
        raise GalleyError("model-invalid", f"{path} holds no layers {kind.hidden}*", hint="save or copy it again")
    for number, name in enumerate(names):
        own = "last" if number == len(names) - 1 else str(number)
        for part in ("weight", "bias"):
            if f"{name}{part}" not in weights:
                raise GalleyError("model-invalid", f"{path} holds no {name}{part}", hint="save or copy it again")
            found[f"{own}.{part}"] = weights[f"{name}{part}"]
    for name, tensor in weights.items():
        if name.startswith(kind.features):
            found[f"images.{name.removeprefix(kind.features)}"] = tensor
        if kind.lstm and name.startswith(kind.lstm):
            found[f"lstm.{name.removeprefix(kind.lstm)}"] = tensor
    return found


def _is_layer(name: str, prefix: str) -> bool:
    return name.startswith(prefix) and name.removeprefix(prefix).partition(".")[0].isdigit()


def _hidden_sizes(weights: Weights) -> tuple[int, ...]:
    return tuple(len(weights[f"{n}.bias"]) for n in range(len(weights)) if f"{n}.bias" in weights)


def _two_logits(weights: Weights) -> Weights:
    """A switch by one logit, on above 0, as a choice between 0 and that logit."""
    changed = dict(weights)
    for part in ("last.weight", "last.bias"):
        ons = weights[part]
        changed[part] = torch.stack([torch.zeros_like(ons), ons], dim=1).flatten(0, 1)
    return changed


def _choices_first(weights: Weights, actions: ActionLayout, quantiles: int) -> Weights:
    """Outputs by choice and quantile, which sb3-contrib has by quantile and choice."""
    changed = dict(weights)
    for part in ("last.weight", "last.bias"):
        changed[part] = (
            weights[part].reshape(quantiles, actions.num_choices, -1).transpose(0, 1).reshape(weights[part].shape)
        )
    return changed


def _filled(spec: DecisionSpec, weights: Weights, path: Path) -> Decision:
    """A decision function with these weights, strictly."""
    with torch.random.fork_rng(devices=[]):
        decision = Decision(spec)
    count = len(spec.network.hidden)
    names = {f"{n}.{p}": f"body.{2 * n}.{p}" for n in range(count) for p in ("weight", "bias")}
    names |= {f"last.{p}": f"body.{2 * count}.{p}" for p in ("weight", "bias")}
    state = {}
    for name, tensor in weights.items():
        area, _, rest = name.partition(".")
        if area == "images":
            rest = rest.replace("cnn.", "convolutions.").replace("linear.0.", "linear.")
            state[f"encoder.images.0.{rest}"] = tensor
        else:
            state[f"memory.{rest}" if area == "lstm" else names[name]] = tensor
    expected = {n: t.shape for n, t in decision.named_parameters()}
    found = {n: t.shape for n, t in state.items()}
    if expected != found:
        first = min(n for n in {*expected, *found} if expected.get(n) != found.get(n))
        shapes = [list(s) if s is not None else "not there" for s in (found.get(first), expected.get(first))]
        raise GalleyError(
            "model-invalid",
            f"{path}: the weights do not fit the spaces: {first} is {shapes[0]}, should be {shapes[1]}",
            hint="save or copy it again",
        )
    with torch.no_grad():
        for name, parameter in decision.named_parameters():
            parameter.copy_(state[name])
    return decision


def _with_clip(spec: DecisionSpec, statistics: Made, path: Path) -> DecisionSpec:
    fields = statistics.fields
    if not fields.get("norm_obs", True):
        return spec
    if any(leaf.kind == "image" for leaf in spec.observations.leaves):
        raise _unsupported(f"normalised images ({path.name})")
    return replace(spec, normalise=True, clip=float(array(fields["clip_obs"])))


def _take_statistics(decision: Decision, statistics: Made, path: Path) -> None:
    fields, layout = statistics.fields, decision.spec.observations
    epsilon = float(array(fields.get("epsilon", 1e-8)))
    parts = fields["obs_rms"]
    for leaf in layout.leaves:
        stored = parts.get(leaf.name) if isinstance(parts, dict) else parts
        if not isinstance(stored, Made) or leaf.kind == "discrete":
            raise _unsupported(f"normalisation of some keys only ({path.name})")
        mean, variance = as_floats(stored.fields["mean"]), as_floats(stored.fields["var"])
        if len(mean) != leaf.stop - leaf.start or len(variance) != len(mean):
            raise GalleyError(
                "model-invalid",
                f"{path} is of observations of {len(mean)} numbers, the policy takes {leaf.stop - leaf.start}",
                hint="name the statistics that were saved with this policy",
            )
        columns = slice(leaf.start, leaf.stop)
        decision.get_buffer("shift")[columns] = torch.from_numpy(mean).float()
        decision.get_buffer("scale")[columns] = torch.from_numpy((variance + epsilon) ** 0.5).float()


def _unsupported(what: str) -> GalleyError:
    return GalleyError("model-unsupported", f"a policy with {what} cannot be imported", hint="see docs/import.md")
