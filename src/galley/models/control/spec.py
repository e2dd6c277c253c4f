"""What a policy's network is, in words: hidden layers, activation, memory. Read without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from galley.base import GalleyError

Activation = Literal["tanh", "relu", "elu", "silu", "leaky-relu"]
MOST_UNITS = 65_536
FORM = "mlp, mlp:64x64, mlp:256x256:relu, or my_network.py:Class"


@dataclass(frozen=True)
class NetworkSpec:
    """The network between observations and outputs.

    Args:
        hidden: units of each hidden layer; empty for a linear one.
        activation: after each hidden layer.
        source: `file.py:Class` of a user's own module from observations to features, in place of the usual encoder;
            empty for none.
    """

    hidden: tuple[int, ...] = (64, 64)
    activation: Activation = "tanh"
    source: str = ""


def network_spec(reference: str | None, default: NetworkSpec) -> NetworkSpec:
    """The network that a recipe's `model:` names.

    Args:
        reference: `mlp`, `mlp:64x64`, `mlp:64x64:tanh`, `file.py:Class`; None takes the method's default.
        default: of the method; what the reference leaves out is taken from it.

    Raises:
        GalleyError: `model-not-found` for other words.

    Example:
        >>> network_spec("mlp:32x16:relu", NetworkSpec()).hidden
        (32, 16)
    """
    if reference is None or reference == "mlp":
        return default
    kind, _, rest = reference.partition(":")
    if kind.endswith(".py") and rest:
        return NetworkSpec(default.hidden, default.activation, reference)
    sizes, _, activation = rest.partition(":")
    units = sizes.split("x") if sizes else []
    good = all(unit.isdigit() and 0 < int(unit) <= MOST_UNITS for unit in units)
    if kind != "mlp" or not good or (activation and activation not in get_args(Activation)):
        raise GalleyError(
            "model-not-found",
            f"{reference!r} is no network for task control",
            hint=f"expected {FORM}; activations are {', '.join(get_args(Activation))}",
        )
    hidden = tuple(int(unit) for unit in units) or default.hidden
    return NetworkSpec(hidden, activation or default.activation)  # type: ignore[arg-type]
