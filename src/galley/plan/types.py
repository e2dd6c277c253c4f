"""The plan: every decision with its reason, what it will cost, and what lost. Pure data, stored as plan.json."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from galley.recipe.schema import OptimizerName, Precision, ScheduleName, Tuning


class PlanPart(BaseModel):
    """A frozen piece of the plan."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Decision(PlanPart):
    """One decision, in words a user understands.

    Example: key `tuning`, value `lora`, because `full tuning needs 2.1 GiB of 1.4 GiB`,
    would_change_if `there were 2.1 GiB of memory`.
    """

    key: str
    value: str
    because: str
    would_change_if: str = ""
    pinned: bool = False
    """The recipe asked for it."""


class Measured(PlanPart):
    """What `galley calibrate` found on this machine."""

    device: str
    """cpu, cuda or mps."""
    on: str
    """Day, as in 2026-01-31."""
    tflops: dict[str, float]
    """Of products of many rows, by precision."""
    half_speed_rows: dict[str, float]
    """Rows of a product at which it runs at half that speed."""
    memory_gbps: float
    """Of copying: bytes read and bytes written, GB/s."""

    def flops(self, precision: str, rows: float) -> float:
        """Operations a second of a product of so many rows (tokens); rows / (rows + half) of the highest speed."""
        return self.tflops[precision] * 1e12 * rows / (rows + self.half_speed_rows[precision])


class Hardware(PlanPart):
    """Where the job runs: detected, or named in the recipe."""

    name: str
    device: str
    """cpu, cuda (also for AMD) or mps; hpu, npu and xla can be planned for."""
    num_devices: int = 1
    """Of one node."""
    num_nodes: int = 1
    memory_bytes: int
    """Memory of one device that may be used (host memory for cpu)."""
    cores: int = 1
    features: tuple[str, ...] = ()
    """Instruction sets or capabilities that matter, e.g. amx_bf16, avx512_bf16."""
    memory_gbps: float = 0.0
    """Peak of the device's memory, GB/s. Here and below, 0 is unknown."""
    tflops: dict[str, float] = {}
    """Dense peak by precision (fp32, tf32, bf16, fp16, fp8, fp4, int8), TFLOP/s."""
    link: str = ""
    """The fastest way to another device of the node, e.g. NVLink 4."""
    link_gbps: float = 0.0
    """Of that way: GB/s per direction and device."""
    link_devices: int = 1
    """Devices that it joins; more than a node has where it leaves the node."""
    network_gbps: float = 0.0
    """Between nodes: Gbit/s (not GB/s) per direction and device."""
    host_gbps: float = 0.0
    """Between device and host memory: GB/s per direction."""
    host_memory_bytes: int = 0
    """Memory of a node that may be used."""
    nvme_gbps: float = 0.0
    """Reading local disks: GB/s per node."""
    watts: float = 0.0
    """Most that one device draws."""
    measured: Measured | None = None
    """Takes the place of data sheets and rules, on this machine."""

    @property
    def world(self) -> int:
        """Devices of all nodes."""
        return self.num_nodes * self.num_devices


class AdapterPlan(PlanPart):
    """A low-rank adapter."""

    rank: int
    alpha: float
    dropout: float = 0.0
    targets: str | tuple[str, ...] = "all-linear"


class OptimizerPlan(PlanPart):
    """Optimiser and schedule, all decided."""

    name: OptimizerName
    learning_rate: float
    weight_decay: float
    betas: tuple[float, float]
    epsilon: float = 1e-8
    clip: float
    """Largest gradient norm; 0 is off."""
    schedule: ScheduleName
    warmup_steps: int
    decay_steps: int
    """Last steps over which a wsd schedule decays."""


class BatchPlan(PlanPart):
    """How a step is made up. `global_*` define the update; `micro_*` only how it is computed."""

    global_batch_rows: int
    micro_batch_rows: int
    micro_batch_tokens: int
    max_length_tokens: int
    packing: bool = True
    shared_prefix: bool = True


class Correction(PlanPart):
    """What earlier trainings on this machine say about predictions: factors low, likely and high."""

    trainings: int = 0
    """It was learned from; without any, the range is the usual one."""
    speed: tuple[float, float, float] = (0.6, 1.0, 1.5)
    memory: tuple[float, float, float] = (0.85, 1.0, 1.2)


class Predicted(PlanPart):
    """What the plan expects, as ranges (low, likely, high)."""

    memory_parts: dict[str, int] = {}
    """Bytes by part: weights, gradients, optimizer, activations, logits, runtime."""
    memory_bytes: tuple[int, int, int] = (0, 0, 0)
    memory_phases: dict[str, int] = {}
    """Likely bytes at the peak of each phase that is known: load, step, update, evaluation, generation, save."""
    tokens_per_second: tuple[float, float, float] = (0.0, 0.0, 0.0)
    seconds: tuple[float, float, float] = (0.0, 0.0, 0.0)
    cost: tuple[float, float, float] | None = None
    """Of the training, in the currency of the price; None without a price."""
    disk_bytes: int = 0
    correction: Correction = Correction()
    """That speed and memory contain."""


class Alternative(PlanPart):
    """A plan that lost, and why."""

    summary: str
    lost_because: str


class ClusterPlan(PlanPart):
    """How a step is laid out over several devices; the ways are those of `galley.plan.layout.Layout`."""

    tensor: int
    pipeline: int
    context: int
    expert: int
    data: int
    virtual: int
    zero: Literal[0, 1, 2, 3]
    shards: int
    micro_batch_rows: int
    accumulation: int
    """Micro-batches of each copy in a step."""
    recompute: Literal["none", "selective", "full"]
    offload_optimizer: bool
    offload_parameters: bool
    sequence_tokens: int = 0
    """Of the longest row, for which memory is predicted."""
    usual_tokens: int = 0
    """Of the mean row, for which time is predicted."""
    parameters: int = 0
    """Of the model."""
    step_flops: float = 0.0
    """Of a step by the model alone, without recomputation."""
    peak_flops: float = 0.0
    """Of all devices, a second."""
    step_seconds: tuple[float, float, float]
    time_parts: dict[str, float]
    """Seconds of a step by part, as exposed."""
    mfu: float
    """Model FLOPs utilisation, 0 to 1: step_flops over step_seconds x peak_flops."""
    kilowatt_hours: float
    """Of the whole training, all devices at their most; without hosts, network and cooling."""


class Plan(PlanPart):
    """Everything that the engine and the loop need to know; nothing is decided after it."""

    task: str
    method: str
    method_options: dict[str, Any] = {}
    model: str
    engine: str = "single"
    hardware: Hardware
    device: str
    threads: int
    tuning: Tuning
    adapter: AdapterPlan | None
    precision: Precision
    fast_path: bool = True
    """Use the hand-written step when the loaded model passes its check."""
    compile: Literal["none", "block"] = "none"
    checkpointing: Literal["none", "full"] = "none"
    batch: BatchPlan
    optimizer: OptimizerPlan
    rows: int
    """Training rows."""
    epochs: float
    steps: int
    """Optimiser steps of the whole training = scheduler steps."""
    minutes: float | None = None
    price_per_hour: float | None = None
    """Of all the hardware, in any currency."""
    until: dict[str, float] = {}
    """Measures of an evaluation that end the training when all are reached."""
    evaluate_every: int
    evaluate_rows: int = 64
    """Held-out rows, at most, of each evaluation during training; the last one takes all up to `evaluate.rows`."""
    checkpoint_every: int
    """Steps; 0 leaves it to time (about every two minutes)."""
    seed: int
    exact: bool
    """Whether rows and tokens were counted by the tokenizer (else estimated from characters)."""
    tokens: int
    """Tokens of one epoch, counted or estimated."""
    decisions: tuple[Decision, ...]
    predicted: Predicted
    cluster: ClusterPlan | None = None
    """For several devices."""
    alternatives: tuple[Alternative, ...] = ()
    warnings: tuple[str, ...] = ()
