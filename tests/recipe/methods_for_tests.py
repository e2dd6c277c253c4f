"""Two made-up methods, so that reading recipes is tested without the real ones."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class SftConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    train_on: Literal["assistant", "all"] = Field(default="assistant", description="turns that are learned")
    smoothing: float = Field(default=0.0, ge=0, lt=1, description="label smoothing")


class PairsConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    beta: float = Field(default=0.1, gt=0, description="strength of the reference")


class MadeUpMethods:
    """A MethodLookup."""

    def names(self, task: str | None = None) -> tuple[str, ...]:
        return ("pairs", "sft")

    def config(self, name: str) -> type[BaseModel]:
        return SftConfig if name == "sft" else PairsConfig

    def default_for(self, task: str) -> str:
        return "sft"
