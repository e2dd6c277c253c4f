"""The hand-written step against the general path and against plain transformers + PEFT, on one model and CPU.

    python benchmarks/fast_path.py [--model smollm2-135m-instruct] [--steps 20]

Speed: all sides take the same steps in turn within one process, so that they meet the same machine; the optimiser's
step is not counted. Memory: each side alone in a process of its own, AdamW included. Gradients: the largest relative
difference from plain transformers + PEFT of any adapter factor, in float32, on one step.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import reasoning_gym
import torch
from torch import Tensor

from galley import models
from galley.data.batch import TokenBatch
from galley.models.base import ModelSettings
from galley.models.language_model import language_model

SIDES = ("transformers", "general", "fast", "fast-prefix")
Side = Callable[[TokenBatch], Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--steps", type=int, default=20, help="0 leaves speeds out")
    parser.add_argument("--sides", nargs="*", default=list(SIDES), choices=SIDES)
    parser.add_argument("--memory-of", choices=SIDES, help="used by itself, in a process for each side")
    args = parser.parse_args()
    if args.memory_of:
        print(peak_memory(args.model, args.memory_of, args.steps))
        return
    if args.steps:
        speeds(args.model, args.sides, args.steps)
    for side in args.sides:
        command = [sys.executable, __file__, "--model", args.model, "--steps", "6", "--memory-of", side]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        print(f"{side:14s} peak memory {float(out) / 1e9:.2f} GB", flush=True)
    gradient_differences(args.model, [side for side in args.sides if side != "transformers"])


def build(reference: str, side: str, precision: str) -> tuple[Any, Side]:
    """The module and its log-probabilities by the given side."""
    spec = models.resolve(reference)
    settings = ModelSettings(
        precision=precision,
        device="cpu",
        tuning="lora",
        rank=16,
        alpha=32.0,
        fast_path=side.startswith("fast"),
        shared_prefix=side == "fast-prefix",
    )
    if side == "transformers":
        folder = models.materialise(spec)
        return plain_transformers(folder, precision)
    model = language_model(spec, settings, lambda kind, message: print(f"  {side}: {message}", file=sys.stderr))
    return model.module, model.token_logprobs


def plain_transformers(folder: Any, precision: str) -> tuple[Any, Side]:
    """Packed documents with restarting positions, logits only where they are needed."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    module = get_peft_model(base, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"))

    def logprobs(batch: TokenBatch) -> Tensor:
        hidden = base.model(input_ids=batch.ids_T[None], position_ids=batch.positions_T[None], use_cache=False)
        logits = base.lm_head(hidden.last_hidden_state[0][batch.target_index_N]).float()
        return torch.log_softmax(logits, -1).gather(1, batch.target_ids_N[:, None]).squeeze(1)

    return module, logprobs


def batches(reference: str) -> list[TokenBatch]:
    """40 batches of 8 questions with short answers, 60 to 100 tokens each."""
    folder = models.materialise(models.resolve(reference))
    tokenizer = models.load_tokenizer(folder)
    rows = []
    for row in reasoning_gym.create_dataset("family_relationships", size=320, seed=0):
        turns = [{"role": "user", "content": row["question"]}]
        prompt = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        asked = tokenizer(prompt, add_special_tokens=False).input_ids
        answer = [*tokenizer(row["answer"], add_special_tokens=False).input_ids, tokenizer.eos_token_id]
        rows.append((asked + answer, range(len(asked), len(asked) + len(answer))))
    return [pack(rows[start : start + 8]) for start in range(0, len(rows), 8)]


def pack(rows: list[tuple[list[int], range]]) -> TokenBatch:
    """Rows of token ids with the places that are learned."""
    bounds, index = [0], []
    for ids, learned in rows:
        index += [bounds[-1] + place - 1 for place in learned]
        bounds.append(bounds[-1] + len(ids))
    ids_T = torch.tensor([token for ids, _ in rows for token in ids])
    positions = torch.cat([torch.arange(len(ids)) for ids, _ in rows])
    index_N = torch.tensor(index)
    return TokenBatch(ids_T, positions, tuple(bounds), index_N, ids_T[index_N + 1])


def step(module: Any, logprobs: Side, batch: TokenBatch) -> None:
    (-logprobs(batch).sum() / batch.num_targets).backward()  # type: ignore[no-untyped-call]


def speeds(reference: str, names: list[str], steps: int) -> None:
    """Tokens per second of each side, taken in turn."""
    work = batches(reference)
    sides = {name: build(reference, name, "bf16") for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(steps + 2):
        batch = work[number % len(work)]
        for name, (module, logprobs) in sides.items():
            start = time.perf_counter()
            step(module, logprobs, batch)
            if number >= 2:
                seconds[name].append((time.perf_counter() - start) / batch.num_tokens)
            module.zero_grad()
    for name, each in seconds.items():
        print(f"{name:14s} median {1 / statistics.median(each):6.0f}, best {1 / min(each):6.0f} tokens/s", flush=True)


def peak_memory(reference: str, name: str, steps: int) -> int:
    """Highest resident set of a training, in bytes."""
    module, logprobs = build(reference, name, "bf16")
    optimizer = torch.optim.AdamW([p for p in module.parameters() if p.requires_grad], lr=1e-4, fused=True)
    for batch in batches(reference)[:steps]:
        step(module, logprobs, batch)
        optimizer.step()
        optimizer.zero_grad()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def gradient_differences(reference: str, names: list[str]) -> None:
    """Each side against plain transformers + PEFT, with equal adapters, in float32."""
    batch = batches(reference)[0]
    truth_module, truth = build(reference, "transformers", "fp32")
    random = torch.Generator().manual_seed(0)
    factors = {
        name: torch.randn(p.shape, generator=random) * 0.02
        for name, p in truth_module.named_parameters()
        if p.requires_grad
    }

    def gradients(module: Any, logprobs: Side) -> dict[str, Tensor]:
        with torch.no_grad():
            for name, p in module.named_parameters():
                if name in factors:
                    p.copy_(factors[name])
        step(module, logprobs, batch)
        return {name: p.grad for name, p in module.named_parameters() if name in factors}

    true_grads = gradients(truth_module, truth)
    del truth_module, truth
    for side in names:
        module, logprobs = build(reference, side, "fp32")
        grads = gradients(module, logprobs)
        worst = max(float((grads[name] - grad).norm() / grad.norm()) for name, grad in true_grads.items())
        print(f"{side:14s} gradients within {worst:.1e} of transformers + PEFT (float32)", flush=True)


if __name__ == "__main__":
    main()
