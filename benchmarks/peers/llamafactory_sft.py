"""LLaMA-Factory on the shared workload, through its own `run_exp`.

It refuses bf16 on a CPU, so float32 is its only variant there. On a machine without CUDA its environment must have
neither torchaudio nor torchvision, whose wheels do not load beside a CPU build of torch.
"""

from __future__ import annotations

import importlib.machinery
import json
import os
import sys
import types
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Its import of torchaudio needs CUDA libraries; an empty module is enough for text.
_stub = types.ModuleType("torchaudio")
_stub.__spec__ = importlib.machinery.ModuleSpec("torchaudio", None)
sys.modules["torchaudio"] = _stub

from common import StepClock, arguments, read_rows, report


def main() -> None:
    args = arguments()
    import torch

    torch.set_num_threads(args.threads)
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    rows = read_rows(args.rows)
    records = [{"instruction": row["prompt"], "input": "", "output": row["completion"]} for row in rows]
    (out / "rows.json").write_text(json.dumps(records), encoding="utf-8")
    (out / "dataset_info.json").write_text(json.dumps({"rows": {"file_name": "rows.json"}}), encoding="utf-8")
    from llamafactory.train.tuner import run_exp
    from transformers import Trainer, TrainerCallback

    clock = StepClock()
    seen = [0]

    class Clock(TrainerCallback):
        def on_step_end(self, *_: object, **__: object) -> None:
            clock.tick(seen[0])
            seen[0] = 0

    step = Trainer.training_step

    def counting(
        self: Trainer, model: object, inputs: dict[str, torch.Tensor], *rest: object, **named: object
    ) -> object:
        seen[0] += int(inputs["attention_mask"].sum())
        return step(self, model, inputs, *rest, **named)

    Trainer.training_step = counting
    settings = {
        "model_name_or_path": args.model,
        "stage": "sft",
        "do_train": True,
        "finetuning_type": "lora",
        "lora_rank": args.rank,
        "lora_alpha": 2 * args.rank,
        "lora_target": "all",
        "dataset": "rows",
        "dataset_dir": str(out),
        "template": "smollm2",
        "cutoff_len": 512,
        "output_dir": str(out),
        "overwrite_output_dir": True,
        "max_steps": args.steps,
        "per_device_train_batch_size": args.batch,
        "gradient_accumulation_steps": 1,
        "learning_rate": args.learning_rate,
        "lr_scheduler_type": "constant",
        "logging_steps": 1000,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "disable_gradient_checkpointing": True,
        "dataloader_num_workers": 0,
        "preprocessing_num_workers": 1,
        "seed": args.seed,
    }
    run_exp(settings, callbacks=[Clock()])
    report(clock)


main()
