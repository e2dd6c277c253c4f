"""Unsloth on the shared workload; it needs a CUDA device."""

from __future__ import annotations

# Unsloth asks to be imported before everything that it changes.
from unsloth import FastLanguageModel  # isort: skip

from common import StepClock, arguments, read_rows, report
from datasets import Dataset
from transformers import TrainerCallback
from trl import SFTConfig, SFTTrainer


def main() -> None:
    args = arguments()
    model, tokenizer = FastLanguageModel.from_pretrained(args.model, max_seq_length=512, load_in_4bit=False)
    model = FastLanguageModel.get_peft_model(
        model, r=args.rank, lora_alpha=2 * args.rank, lora_dropout=0, random_state=args.seed
    )
    texts = []
    for row in read_rows(args.rows):
        turns = [{"role": "user", "content": row["prompt"]}, {"role": "assistant", "content": row["completion"]}]
        texts.append({"text": tokenizer.apply_chat_template(turns, tokenize=False)})
    clock = StepClock()
    seen = [0]

    class Clock(TrainerCallback):
        def on_step_end(self, *_: object, **__: object) -> None:
            clock.tick(seen[0])
            seen[0] = 0

    config = SFTConfig(
        output_dir=args.out,
        max_steps=args.steps,
        per_device_train_batch_size=args.batch,
        learning_rate=args.learning_rate,
        lr_scheduler_type="constant",
        dataset_text_field="text",
        max_length=512,
        report_to=[],
        save_strategy="no",
        logging_steps=1000,
        disable_tqdm=True,
        seed=args.seed,
    )
    trainer = SFTTrainer(
        model=model,
        args=config,
        train_dataset=Dataset.from_list(texts),
        processing_class=tokenizer,
        callbacks=[Clock()],
    )
    collate = trainer.data_collator

    def counting(features: list[dict[str, object]]) -> object:
        batch = collate(features)
        seen[0] += int(batch["attention_mask"].sum())
        return batch

    trainer.data_collator = counting
    trainer.train()
    model.save_pretrained(args.out)
    report(clock)


main()
