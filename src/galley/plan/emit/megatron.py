"""Megatron-LM's flags for `pretrain_gpt.py` (core 0.16), as a file of a bash array to be sourced."""

from __future__ import annotations

import shlex

from galley.plan.architecture import Architecture
from galley.plan.emit import text
from galley.plan.emit.settings import FINAL_SHARE, Settings

METHODS = ("pretrain", "sft")


def files(s: Settings) -> dict[str, str]:
    """`megatron_args.sh`."""
    groups = [_parallelism(s), _batch(s), _optimizer(s), _memory(s), _model(s)]
    _cannot(s)
    title = (
        'Written by galley for Megatron-LM: source megatron_args.sh; torchrun ... pretrain_gpt.py "${MEGATRON_ARGS[@]}"'
    )
    body = "\n".join("  " + " ".join(shlex.quote(word) for word in flag) for group in groups for flag in group)
    return {"megatron_args.sh": f"{text.comments([title, *s.notes])}MEGATRON_ARGS=(\n{body}\n)\n"}


Flags = list[tuple[str, ...]]


def _parallelism(s: Settings) -> Flags:
    layout = s.layout
    flags: Flags = [
        ("--tensor-model-parallel-size", str(layout.tensor)),
        ("--pipeline-model-parallel-size", str(layout.pipeline)),
        ("--context-parallel-size", str(layout.context)),
    ]
    if layout.tensor > 1 and layout.sequence_parallel:
        flags.append(("--sequence-parallel",))
    if layout.virtual > 1:
        if s.architecture is None or s.architecture.layers % (layout.pipeline * layout.virtual) == 0:
            flags.append(("--num-virtual-stages-per-pipeline-rank", str(layout.virtual)))
        else:
            s.cannot(
                "megatron",
                f"{layout.virtual} uneven pieces a stage by number",
                "write --pipeline-model-parallel-layout",
            )
    elif layout.pipeline > 1 and s.architecture is not None and s.architecture.layers % layout.pipeline:
        flags += _uneven(s, s.architecture.layers)
    if layout.expert > 1:
        # Experts are whole on each device; else they would be split by tensor parallelism as well.
        flags += [("--expert-model-parallel-size", str(layout.expert)), ("--expert-tensor-parallel-size", "1")]
    if layout.zero:
        flags += [("--use-distributed-optimizer",), ("--overlap-grad-reduce",), ("--overlap-param-gather",)]
    if layout.zero == 3:
        flags += [("--use-megatron-fsdp",), ("--data-parallel-sharding-strategy", "optim_grads_params")]
        flags += [("--no-gradient-accumulation-fusion",), ("--ckpt-format", "fsdp_dtensor")]
        s.note("Megatron-FSDP asks for CUDA_DEVICE_MAX_CONNECTIONS other than 1")
    elif layout.zero == 2:
        flags += [("--use-megatron-fsdp",), ("--data-parallel-sharding-strategy", "optim_grads")]
        flags += [("--no-gradient-accumulation-fusion",), ("--ckpt-format", "fsdp_dtensor")]
    if s.replicas > 1:
        flags.append(("--num-distributed-optimizer-instances", str(s.replicas)))
    return flags


def _uneven(s: Settings, layers: int) -> Flags:
    """The last stage has fewer; so has the first where that is not enough."""
    each = -(-layers // s.layout.pipeline)
    missing = each * s.layout.pipeline - layers
    last = missing if s.layout.pipeline == 1 or missing == 1 else missing - missing // 2
    flags: Flags = [("--decoder-last-pipeline-num-layers", str(each - last))]
    if missing - last:
        flags.append(("--decoder-first-pipeline-num-layers", str(each - (missing - last))))
    return flags


def _batch(s: Settings) -> Flags:
    return [
        ("--micro-batch-size", str(s.micro_batch)),
        ("--global-batch-size", str(s.global_batch)),
        ("--seq-length", str(s.sequence)),
        ("--train-iters", str(s.plan.steps)),
        ("--seed", str(max(1, s.plan.seed))),
    ]


def _optimizer(s: Settings) -> Flags:
    o = s.optimizer
    names = {"adamw": "adam", "sgd": "sgd", "muon": "muon"}
    if o.name not in names:
        s.cannot("megatron", f"the optimizer {o.name}", "adam is written; its learning rate may not suit")
    flags: Flags = [
        ("--optimizer", names.get(o.name, "adam")),
        ("--lr", text.number(o.learning_rate)),
        ("--min-lr", text.number(float(f"{_end(s):.6g}"))),
        ("--lr-decay-style", o.schedule.upper() if o.schedule == "wsd" else o.schedule),
        ("--lr-warmup-iters", str(o.warmup_steps)),
        ("--lr-decay-iters", str(s.plan.steps)),
        ("--weight-decay", text.number(o.weight_decay)),
        ("--adam-beta1", text.number(o.betas[0])),
        ("--adam-beta2", text.number(o.betas[1])),
        ("--adam-eps", text.number(o.epsilon)),
        ("--clip-grad", text.number(o.clip)),
    ]
    if o.schedule == "wsd":
        flags += [("--lr-wsd-decay-style", "linear"), ("--lr-wsd-decay-iters", str(o.decay_steps))]
    if s.plan.seed < 1:
        s.cannot("megatron", f"seed {s.plan.seed}", "1 is written")
    return flags


def _end(s: Settings) -> float:
    share = {"cosine": FINAL_SHARE, "linear": FINAL_SHARE, "constant": 1.0}.get(s.optimizer.schedule, 0.0)
    return s.optimizer.learning_rate * share


def _memory(s: Settings) -> Flags:
    flags: Flags = [("--use-flash-attn",)]
    if s.precision in ("bf16", "fp8", "fp4"):
        flags.append(("--bf16",))
    if s.precision == "fp16":
        flags.append(("--fp16",))
    if s.precision == "fp8":
        flags += [("--fp8-format", "hybrid")]
    if s.precision == "fp4":
        flags += [("--fp4-format", "e2m1")]
    if s.recompute == "full":
        layers = s.workload.recompute_layers if s.workload else None
        flags += [("--recompute-granularity", "full"), ("--recompute-method", "uniform" if layers is None else "block")]
        flags.append(("--recompute-num-layers", str(layers or 1)))
    elif s.recompute == "selective":
        flags += [("--recompute-granularity", "selective"), ("--recompute-modules", "core_attn")]
    if s.offload_optimizer:
        flags += [
            ("--optimizer-cpu-offload",),
            ("--optimizer-offload-fraction", "1.0"),
            ("--use-precision-aware-optimizer",),
        ]
    return flags


def _model(s: Settings) -> Flags:
    a = s.architecture
    if a is None:
        s.note(f"the model's numbers (--num-layers, --hidden-size, ...) are not written: take those of {s.plan.model}")
        return [("--use-mcore-models",)]
    flags: Flags = [
        ("--num-layers", str(a.layers)),
        ("--hidden-size", str(a.hidden)),
        ("--ffn-hidden-size", str(a.ffn)),
        ("--num-attention-heads", str(a.heads)),
        ("--max-position-embeddings", str(max(s.sequence, a.positions))),
        ("--position-embedding-type", "learned_absolute" if a.positions else "rope"),
        ("--normalization", "LayerNorm" if a.biases else "RMSNorm"),
        ("--vocab-size", str(a.vocab)),
    ]
    if a.mla is None and a.kv_heads and a.kv_heads != a.heads:
        flags += [("--group-query-attention",), ("--num-query-groups", str(a.kv_heads))]
    if a.mla is None and a.head_dim and a.head_dim * a.heads != a.hidden:
        flags.append(("--kv-channels", str(a.head_dim)))
    flags += [("--swiglu",)] if a.gated else []
    flags += [] if a.tied else [("--untie-embeddings-and-output-weights",)]
    flags += [] if a.biases else [("--disable-bias-linear",)]
    flags += _latent(a) + _experts(a)
    s.note("rotary base, norm epsilon and tokenizer are the model's own and not part of a plan")
    return flags


def _latent(a: Architecture) -> Flags:
    if a.mla is None:
        return []
    query_rank, kv_rank, rotary, value = a.mla
    flags: Flags = [
        ("--multi-latent-attention",),
        ("--kv-lora-rank", str(kv_rank)),
        ("--qk-head-dim", str(a.head_dim - rotary)),
        ("--qk-pos-emb-head-dim", str(rotary)),
        ("--v-head-dim", str(value)),
    ]
    return [*flags, ("--q-lora-rank", str(query_rank))] if query_rank else flags


def _experts(a: Architecture) -> Flags:
    if not a.experts:
        return []
    flags: Flags = [
        ("--num-experts", str(a.experts)),
        ("--moe-router-topk", str(a.active_experts)),
        ("--moe-ffn-hidden-size", str(a.expert_ffn)),
        ("--moe-grouped-gemm",),
        ("--moe-token-dispatcher-type", "alltoall"),
    ]
    if a.shared_experts:
        flags.append(("--moe-shared-expert-intermediate-size", str(a.shared_experts * a.expert_ffn)))
    if a.dense_layers:
        flags.append(("--moe-layer-freq", f"([0]*{a.dense_layers}+[1]*{a.layers - a.dense_layers})"))
    return flags


def _cannot(s: Settings) -> None:
    adapter = s.adapter
    if adapter is not None:
        s.cannot(
            "megatron",
            f"{s.tuning} (rank {adapter.rank}, alpha {adapter.alpha:g})",
            "pretrain_gpt.py trains all weights; Megatron-Bridge has adapters",
        )
    if s.offload_parameters:
        s.cannot("megatron", "offload of the weights", "only the optimizer goes to the host")
    if s.plan.method == "sft":
        s.note("supervised rows need --sft and a chat tokenizer; the batch counts packed rows there")
    s.note(f"data: set --data-path to the same rows as {s.data}, made by tools/preprocess_data.py")
