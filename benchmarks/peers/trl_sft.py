"""TRL's SFTTrainer on the shared workload.

Variants: `documented` (float32, as in TRL's documentation), `bf16` (bf16 weights and autocast), `bf16-packed` (one
packed sequence a step, as long as a step's rows are on average, so that steps compare).
"""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from common import StepClock, arguments, read_rows, report
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import SFTConfig, SFTTrainer


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    rows = read_rows(args.rows)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    half = args.variant.startswith("bf16")
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16 if half else torch.float32)
    data = Dataset.from_list(
        [
            {
                "prompt": [{"role": "user", "content": row["prompt"]}],
                "completion": [{"role": "assistant", "content": row["completion"]}],
            }
            for row in rows
        ]
    )
    clock = StepClock()
    seen = [0]

    class Clock(TrainerCallback):
        def on_step_end(self, *_: object, **__: object) -> None:
            clock.tick(seen[0])
            seen[0] = 0

    packed = args.variant.endswith("packed")
    config = SFTConfig(
        output_dir=args.out,
        max_steps=args.steps,
        per_device_train_batch_size=1 if packed else args.batch,
        learning_rate=args.learning_rate,
        lr_scheduler_type="constant",
        packing=packed,
        max_length=args.batch * mean_length(tokenizer, rows) if packed else 512,
        bf16=half,
        use_cpu=args.device == "cpu",
        gradient_checkpointing=False,
        report_to=[],
        save_strategy="no",
        logging_steps=1000,
        disable_tqdm=True,
        dataloader_num_workers=0,
        seed=args.seed,
    )
    lora = LoraConfig(r=args.rank, lora_alpha=2 * args.rank, target_modules="all-linear", task_type="CAUSAL_LM")
    trainer = SFTTrainer(
        model=model, args=config, train_dataset=data, peft_config=lora, processing_class=tokenizer, callbacks=[Clock()]
    )
    collate = trainer.data_collator

    def counting(features: list[dict[str, object]]) -> object:
        batch = collate(features)
        if "attention_mask" in batch:
            seen[0] += int(batch["attention_mask"].sum())
        else:
            seen[0] += batch["input_ids"].numel()
        return batch

    trainer.data_collator = counting
    trainer.train()
    trainer.model.save_pretrained(args.out)
    report(clock)


def mean_length(tokenizer: object, rows: list[dict[str, object]]) -> int:
    """Tokens of a row with its template, on average."""
    total = 0
    for row in rows:
        turns = [{"role": "user", "content": row["prompt"]}, {"role": "assistant", "content": row["completion"]}]
        total += len(tokenizer(tokenizer.apply_chat_template(turns, tokenize=False))["input_ids"])  # type: ignore[operator, attr-defined]
    return round(total / len(rows))


main()
