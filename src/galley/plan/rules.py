"""Rules for what does not depend on memory: precision, learning rate, schedule, epochs, batch size."""

from __future__ import annotations

import math

from galley.base import format_count
from galley.plan.case import Case
from galley.plan.ledger import Ledger
from galley.plan.types import AdapterPlan, OptimizerPlan
from galley.recipe.schema import OptimizerName, Precision, ScheduleName, Tuning

_MILLION, _BILLION = 10**6, 10**9
TINY = 30 * _MILLION
"""Models up to this size are trained whole: adapters would save next to nothing."""
RANK = 16
"""Of an adapter."""
FEW_ROWS = 5_000
"""Below it the data are learned in three passes."""
BATCH_ROWS = ((2_000, 8), (20_000, 16), (10**15, 32))
"""Below so many training rows, so many rows a step."""
COMPILE_PAYS_SECONDS = 240.0
"""Measured: compiling a block costs 20 s and makes the general path a fifth faster. Twice that must be expected."""
TOKENS_PER_PARAMETER = 20
MOST_REPEATS = 4
_ADAFACTOR_RATE, _SGD_RATE, _MODULE_RATE = 1e-2, 0.1, 1e-3
# Peak learning rates by parameters: up to this size, this rate.
_RATES_ADAPTER = ((250 * _MILLION, 1e-3), (_BILLION, 5e-4), (30 * _BILLION, 2e-4), (10**15, 1e-4))
_RATES_FULL = ((TINY, 3e-4), (300 * _MILLION, 1e-4), (_BILLION, 5e-5), (10**15, 1e-5))
_RATES_SCRATCH = ((5 * _MILLION, 3e-3), (50 * _MILLION, 1e-3), (300 * _MILLION, 6e-4), (10**15, 3e-4))
_RATES_ENCODER = ((60 * _MILLION, 5e-5), (200 * _MILLION, 3e-5), (10**15, 2e-5))


def choose_precision(case: Case, device: str, ledger: Ledger) -> Precision:
    """bf16 where the hardware multiplies it fast, else fp32."""
    pin = case.recipe.override.precision
    features = case.hardware.features
    fast = any("bf16" in feature for feature in features)
    if case.spec.kind == "module":
        choice: tuple[Precision, str, str] = ("fp32", "the model is a module that takes float32 inputs", "")
    elif fast:
        unit = next(f for f in features if "bf16" in f).upper().replace("_", "-")
        why = "in hardware" if unit == "BF16" else f"with {unit}"
        choice = ("bf16", f"multiplied {why}, several times faster than fp32; masters and sums stay fp32", "")
    else:
        choice = ("fp32", f"this {device} has no fast bf16", "it had AMX, AVX512-BF16 or an Ampere GPU")
    if pin == "bf16" and device == "cpu" and not fast:
        ledger.warn("precision bf16 is slower than fp32 on this processor, which has no bf16 instructions")
    return ledger.choose("precision", pin, choice[0], because=choice[1], unless=choice[2])


def choose_adapter(case: Case, tuning: Tuning, ledger: Ledger) -> AdapterPlan | None:
    """Rank `RANK` and scale 2 on all linear layers, unless pinned."""
    if tuning == "full":
        return None
    pins = case.recipe.override
    rank = ledger.choose(
        "rank",
        pins.rank,
        RANK,
        because="enough for a task; on all layers it matches full tuning of small data (2305.14314)",
    )
    targets = pins.targets if isinstance(pins.targets, str | None) else tuple(pins.targets)
    return AdapterPlan(
        rank=rank,
        alpha=2.0 * rank if pins.alpha is None else pins.alpha,
        dropout=pins.dropout or 0.0,
        targets=targets or "all-linear",
    )


def choose_global_batch(case: Case, rows: int, ledger: Ledger) -> int:
    """8 to 64 rows a step: small data wants many updates, much data smooth ones."""
    pin = case.recipe.override.global_batch
    if case.spec.kind == "module":
        default, why = 64, "rows are small"
    elif case.recipe.task == "classify":
        default, why = 32, "usual for classifiers"
    else:
        default = next(batch for limit, batch in BATCH_ROWS if rows < limit)
        why = f"{rows:,} rows"
    default = max(1, min(default, rows))
    return ledger.choose(
        "global_batch",
        pin,
        default,
        because=f"{why}: {default} rows a step",
        unless="there were far more or fewer rows",
    )


def default_epochs(case: Case, rows: int, global_batch: int) -> tuple[float, str]:
    """Passes over the data when there is no budget, and why."""
    if case.spec.kind == "module":
        epochs = min(50, max(3, round(1_500 * global_batch / rows)))
        return float(epochs), "a small network from random weights: about 1,500 steps"
    if case.from_scratch:
        wanted = TOKENS_PER_PARAMETER * case.spec.num_parameters / max(1, case.tokens)
        epochs = min(MOST_REPEATS, max(1, round(wanted)))
        return float(epochs), "about 20 tokens a parameter, and at most 4 passes (2203.15556, 2305.16264)"
    if rows < FEW_ROWS:
        return 3.0, f"fewer than {FEW_ROWS:,} rows: three passes learn them without memorising"
    return 1.0, f"{rows:,} rows are enough in one pass"


def choose_optimizer(case: Case, tuning: Tuning, steps: int, ledger: Ledger) -> OptimizerPlan:
    """AdamW with warm-up and a cosine, at the rate that suits what is trained."""
    pins = case.recipe.optimizer
    name: OptimizerName = ledger.choose(
        "optimizer",
        pins.name,
        "adamw",
        because="the safe choice; its memory fits",
        unless="memory were short: adamw-8bit",
    )
    rate, why = _learning_rate(case, tuning, name)
    schedule: ScheduleName = ledger.choose(
        "schedule",
        pins.schedule,
        "cosine",
        because="ends low, whatever the length",
        unless="runs are extended often: wsd",
    )
    share = 0.03 if steps > 1_000 else 0.05
    warmup = pins.warmup if pins.warmup is not None else share
    decay = 0.2 if pins.decay is None else pins.decay
    scratch_betas = (0.9, 0.95) if case.from_scratch and case.spec.kind == "decoder" else (0.9, 0.999)
    return OptimizerPlan(
        name=name,
        learning_rate=ledger.choose("learning_rate", pins.learning_rate, rate, because=why),
        weight_decay=_weight_decay(case, tuning) if pins.weight_decay is None else pins.weight_decay,
        betas=pins.betas or scratch_betas,
        clip=1.0 if pins.clip is None else pins.clip,
        schedule=schedule,
        warmup_steps=min(steps, int(warmup) if warmup >= 1 else math.ceil(warmup * steps)),
        decay_steps=max(1, round(decay * steps)) if schedule == "wsd" else 0,
    )


def _learning_rate(case: Case, tuning: Tuning, name: OptimizerName) -> tuple[float, str]:
    """Peak learning rate, and why."""
    size = f"{format_count(case.spec.num_parameters)} parameters"
    by_optimizer: dict[str, tuple[float, str]] = {
        "adafactor": (_ADAFACTOR_RATE, "adafactor scales it by each tensor's size"),
        "sgd": (_SGD_RATE, "usual for sgd with momentum"),
    }
    if name in by_optimizer:
        return by_optimizer[name]
    if case.spec.kind == "module":
        return _MODULE_RATE, "usual for small networks"
    if tuning != "full":
        return _rate(_RATES_ADAPTER, case), f"adapters on {size}: smaller models take larger steps"
    if case.from_scratch:
        return _rate(_RATES_SCRATCH, case), f"random weights, {size} (2005.14165, table 2.1)"
    if case.spec.kind == "encoder":
        return _rate(_RATES_ENCODER, case), f"a pretrained encoder of {size} (1810.04805, appendix A.3)"
    return _rate(_RATES_FULL, case), f"all weights of a pretrained model, {size}"


def _rate(table: tuple[tuple[int, float], ...], case: Case) -> float:
    return next(rate for size, rate in table if case.spec.num_parameters <= size)


def _weight_decay(case: Case, tuning: Tuning) -> float:
    if tuning != "full":
        return 0.0
    return 0.1 if case.from_scratch and case.spec.kind == "decoder" else 0.01
