"""The seam between a method and everything else: examples to samples, samples to a batch, a batch to a loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from torch import Tensor

    from galley.data.batch import Batch
    from galley.data.examples import Example, ExampleKind
    from galley.data.samples import Samples
    from galley.models.base import ModelSettings
    from galley.models.spec import ModelKind, ModelSpec

Note: TypeAlias = "Callable[[str, str], None]"
ModelRole = Literal["reference", "value", "rollout"]
"""Models that a method may need beside the policy."""


class MethodConfig(BaseModel):
    """Base of every method's own settings: under 20 fields, frozen, unknown keys and infinite numbers refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True, allow_inf_nan=False)


@dataclass(frozen=True)
class Loss:
    """A sum and what it is summed over. Engines divide once, over the whole optimiser step; nobody else rescales.

    Args:
        total: scalar tensor, the sum over `denominator` units (for example of -log p over supervised tokens).
        denominator: number of units in this micro-batch, the method's `unit`; may be 0.
        metrics: name to (sum, count), combined over micro-batches by adding both.
    """

    total: Tensor
    denominator: int
    metrics: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def _say_nothing(kind: str, message: str) -> None:
    """For callers without a listener."""


@dataclass(frozen=True)
class Encoding:
    """What `encode` needs beside the examples."""

    tokenizer: Any
    max_length: int
    labels: tuple[str, ...] = ()
    note: Note = _say_nothing
    """Called as note(kind, message) with facts a user should know, such as rows that needed special care."""


class Method(Protocol):
    """One way to learn. Declarations are class attributes and are read without importing torch.

    A method file defines `METHOD = TheClass`; `TheClass(config)` is one job's method.
    """

    name: ClassVar[str]
    tasks: ClassVar[tuple[str, ...]]
    """Recipe tasks that this method is the default for."""
    example_kinds: ClassVar[tuple[ExampleKind, ...]]
    """Rows that it learns from, so that others are refused before anything is loaded."""
    model_kinds: ClassVar[tuple[ModelKind, ...]]
    unit: ClassVar[str]
    """What the denominator counts, e.g. `supervised tokens`."""
    paper: ClassVar[str]
    Config: ClassVar[type[MethodConfig]]

    def __init__(self, config: Any) -> None: ...

    def needs(self) -> frozenset[ModelRole]:
        """Other models that the engine must place."""

    def build(self, spec: ModelSpec, settings: ModelSettings, note: Note) -> Any:
        """The model that `loss` takes, ready to train: loaded, with its adapter, checked.

        Args:
            spec: which model.
            settings: how to load it.
            note: called as note(kind, message) with facts a user should know, such as fall-backs.
        """

    def encode(self, examples: Sequence[Example], encoding: Encoding) -> Samples:
        """Rows that can be learned, as samples with lengths; what is cut or dropped is counted in it."""

    def batch(self, samples: Samples, rows: Sequence[int]) -> Batch:
        """The tensors of these rows as one micro-batch."""

    def loss(self, model: Any, batch: Any) -> Loss:
        """Sum of the loss over the micro-batch, with its denominator."""
