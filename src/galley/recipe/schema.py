"""The recipe: what a person asks for. Strict, frozen, and free of anything that decides or trains."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Tuning = Literal["full", "lora", "dora", "qlora"]
Precision = Literal["bf16", "fp32", "fp16"]
OptimizerName = Literal["adamw", "adamw-8bit", "adafactor", "muon", "sgd"]
ScheduleName = Literal["cosine", "linear", "wsd", "constant"]

MOST_STEPS = 10**12
MOST_ROWS = 10**12
MOST_BATCH_ROWS = 10**6
MOST_TOKENS = 10**15

SHORT_FORMS = {"data": "path", "method": "name", "optimizer": "name"}
"""Sections that may be written as a bare word, and the key that the word stands for."""


class Section(BaseModel):
    """One mapping of the recipe. Unknown keys are mistakes; a value never changes after reading.

    Numbers have upper bounds far above every honest use, so that no later sum overflows.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True, allow_inf_nan=False)


def _short(section: str) -> BeforeValidator:
    """Let a section be written as a bare string: `data: faq.csv` is `data: {path: faq.csv}`."""
    key = SHORT_FORMS[section]
    return BeforeValidator(lambda value: {key: value} if isinstance(value, str) else value)


class DataSection(Section):
    """Where the examples come from and how to read them."""

    path: str = Field(
        description="file, folder, glob, `hub:NAME`, `reasoning-gym:TASK`, `package:NAME`; control: `gym:ID`, "
        "`module:factory`, or stored episodes"
    )
    format: str | None = Field(default=None, description="data format; recognised by itself when left out")
    columns: dict[str, str] = Field(
        default={}, description="role to column name, e.g. {prompt: question, completion: answer}"
    )
    system: str | None = Field(default=None, description="system message put before every conversation")
    split: str | None = Field(default=None, description="split of a hub dataset, e.g. train")
    rows: int | None = Field(default=None, ge=1, le=MOST_ROWS, description="use at most this many rows, in order")
    options: dict[str, Any] = Field(
        default={}, description="settings of the format, e.g. {size: 4000, seed: 1} for generated tasks"
    )


class MethodSection(Section):
    """How to learn. The options are checked against the method's own configuration."""

    name: str | None = Field(
        default=None, description="sft, pretrain, classify, ...; chosen from the task when left out"
    )
    options: dict[str, Any] = Field(
        default={}, description="the method's own settings (written beside `name` in the file)"
    )


class BudgetSection(Section):
    """How long to train. At most one of epochs, steps and tokens; minutes stops earlier, cleanly."""

    epochs: float | None = Field(default=None, gt=0, le=1_000_000, description="passes over the training rows")
    steps: int | None = Field(default=None, ge=1, le=MOST_STEPS, description="optimiser steps")
    tokens: int | None = Field(default=None, ge=1, le=MOST_TOKENS, description="tokens to train on")
    minutes: float | None = Field(
        default=None, gt=0, le=10_000_000, description="wall-clock limit in minutes; stops cleanly with the best result"
    )
    memory: str | None = Field(default=None, description="memory that may be used, e.g. 8GiB")
    price_per_hour: float | None = Field(
        default=None, gt=0, le=1_000_000_000, description="of all the hardware, in any currency; plans show the cost"
    )
    until: dict[str, float] = Field(
        default={}, description="stop when an evaluation reaches this, e.g. {return: 475}, {accuracy: 0.9}, {loss: 1.2}"
    )


class EvaluateSection(Section):
    """What is held out, and how the result is judged."""

    held_out: float | str = Field(
        default=0.1, description="share of rows held out (0 to 0.5), or a path with held-out rows; 0 turns it off"
    )
    rows: int = Field(
        default=200, ge=1, le=MOST_ROWS, description="held-out rows that base and tuned model answer for the verdict"
    )
    every: int | None = Field(
        default=None,
        ge=1,
        le=MOST_STEPS,
        description="steps between evaluations (of the held-out loss, or of the return)",
    )
    episodes: int = Field(
        default=10,
        ge=1,
        le=MOST_ROWS,
        description="control: episodes of an evaluation; ten times as many for the verdict",
    )
    scorer: str | None = Field(
        default=None, description="exact, contains, loss, accuracy, or the task's own scorer when left out"
    )
    max_new_tokens: int = Field(default=64, ge=1, le=1_000_000, description="longest answer when judging, in tokens")
    verdict: bool = Field(default=True, description="compare base and tuned model after training")
    demand: Literal["better", "not-worse"] | None = Field(
        default=None, description="exit with code 4 when the verdict is below this"
    )


class OptimizerSection(Section):
    """The optimiser and its schedule; what is left out is decided by the planner."""

    name: OptimizerName | None = Field(default=None, description="adamw, adamw-8bit, adafactor, muon, sgd")
    learning_rate: float | None = Field(default=None, gt=0, le=1_000, description="peak learning rate")
    weight_decay: float | None = Field(default=None, ge=0, le=1_000, description="decoupled weight decay")
    betas: tuple[float, float] | None = Field(
        default=None, strict=False, description="decay of the first and second moment"
    )
    clip: float | None = Field(
        default=None, ge=0, le=1_000_000_000, description="largest gradient norm; 0 turns clipping off"
    )
    schedule: ScheduleName | None = Field(default=None, description="shape of the learning rate over the steps")
    warmup: float | None = Field(
        default=None, ge=0, le=MOST_STEPS, description="warm-up: a share of the steps below 1, a number of steps from 1"
    )
    decay: float | None = Field(
        default=None, ge=0, le=1, description="share of the steps that a wsd schedule decays over"
    )


class OverrideSection(Section):
    """Pins on the plan: the planner keeps these and decides the rest around them."""

    tuning: Tuning | None = Field(default=None, description="what is trained: full, lora, dora, qlora")
    rank: int | None = Field(default=None, ge=1, le=65_536, description="rank of the adapter")
    alpha: float | None = Field(default=None, gt=0, le=1_000_000, description="adapter scale is alpha / rank")
    dropout: float | None = Field(default=None, ge=0, lt=1, description="dropout before the adapter")
    targets: str | list[str] | None = Field(default=None, description="`all-linear` or module names that get adapters")
    precision: Precision | None = Field(default=None, description="numbers that the model computes with")
    device: str | None = Field(default=None, description="cpu, cuda, cuda:1, mps")
    engine: str | None = Field(default=None, description="single, ...")
    global_batch: int | None = Field(
        default=None, ge=1, le=MOST_BATCH_ROWS, description="rows per optimiser step, over everything"
    )
    micro_batch: int | None = Field(
        default=None, ge=1, le=MOST_BATCH_ROWS, description="rows computed at once, at most; never changes the result"
    )
    micro_batch_tokens: int | None = Field(
        default=None, ge=16, le=1_000_000_000, description="tokens computed at once, at most; never changes the result"
    )
    max_length: int | None = Field(
        default=None, ge=8, le=100_000_000, description="longest row in tokens; longer ones are cut and counted"
    )
    packing: bool | None = Field(default=None, description="put documents end to end, each blind to the others")
    fast_path: bool | None = Field(
        default=None, description="hand-written step for Llama-shaped decoders; off uses the general one"
    )
    shared_prefix: bool | None = Field(
        default=None, description="compute tokens common to all rows of a micro-batch once"
    )
    compile: Literal["none", "block"] | None = Field(default=None, description="compile each decoder block")
    checkpointing: Literal["none", "full"] | None = Field(
        default=None, description="recompute activations in the backward pass"
    )
    threads: int | None = Field(default=None, ge=1, le=4_096, description="processor threads")
    parallel: dict[str, int] = Field(
        default={}, description="sizes of parallel axes of a plan for several devices, e.g. {tensor: 2, fsdp: 8}"
    )


class CheckpointSection(Section):
    """When to save, how many to keep, where else to write metrics."""

    every: int | None = Field(
        default=None,
        ge=1,
        le=MOST_STEPS,
        description="steps between checkpoints; decided from the step time when left out",
    )
    keep: int = Field(default=2, ge=1, le=1_000_000, description="recent checkpoints that are kept beside the best one")
    sinks: list[str] = Field(default=[], description="more places for metrics: tensorboard, trackio")


class Recipe(Section):
    """What to train, on what, and optionally how and for how long. Three lines are enough.

    Sections default to an empty mapping that is validated, since making each one here would cost 30 ms at every start.
    """

    task: Literal["chat", "complete", "classify", "control"] = Field(description="what the finished model will do")
    model: str = Field(
        default="",
        description="hub id, folder, .gguf, name in an installed package, my_model.py:Net, or random:15M; "
        "control: mlp:64x64, or left out",
    )
    data: Annotated[DataSection, _short("data")] = Field(
        description="path, glob or package; control: gym:CartPole-v1; or a mapping"
    )
    method: Annotated[MethodSection, _short("method")] = Field(
        default={}, validate_default=True, description="how to learn"
    )
    budget: BudgetSection = Field(default={}, validate_default=True, description="how long to train")
    evaluate: EvaluateSection = Field(default={}, validate_default=True, description="held-out share and verdict")
    optimizer: Annotated[OptimizerSection, _short("optimizer")] = Field(
        default={}, validate_default=True, description="optimiser and schedule"
    )
    hardware: str = Field(default="auto", description="auto, or a description such as `8x h100-80g`")
    override: OverrideSection = Field(
        default={}, validate_default=True, description="pins that the planner works around"
    )
    checkpoint: CheckpointSection = Field(default={}, validate_default=True, description="saving and metrics sinks")
    seed: int = Field(default=0, ge=0, le=2**63 - 1, description="seed of everything random")
    seeds: int | None = Field(
        default=None, ge=1, le=1000, description="train this many times, from `seed` on, and show all together"
    )
    name: str | None = Field(
        default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", description="name of the run folder"
    )
