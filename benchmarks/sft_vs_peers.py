"""Fine-tuning SmolLM2-135M with LoRA on a CPU: Galley against TRL and LLaMA-Factory, interleaved in one go.

    python benchmarks/sft_vs_peers.py --trl-python PEERS/bin/python --llamafactory-python PEERS/bin/python [--repeats 3]

Every side is a process of its own on the same rows, with rank 16 on all linear layers, 8 rows a step and 20 steps. Real
tokens are counted, never padding; the first two steps warm up. Afterwards one evaluator gives every side's adapters the
same held-out rows. Each repeat has its own seed, since after so few steps the loss depends on it more than on the tool.

Workloads: `family` (60 to 100 tokens a row), `chatterbot` (long-tailed), or `spam` with a folder of mails
given by --mails.
On a machine with a GPU give --device cuda, and --unsloth-python to add Unsloth.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
GALLEY = ("general", "fast", "fast-prefix")


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        model = materialised(args.model)
        rows, held_out = write_rows(args, work, model)
        sides = chosen_sides(args)
        results: dict[str, list[dict[str, float]]] = {name: [] for name, _, _ in sides}
        for repeat in range(args.repeats):
            for name, python, script in sides:
                result = run_side(name, python, script, model, rows, work / f"{name}-{repeat}", repeat, args)
                if result:
                    results[name].append(result)
                    print(f"{repeat + 1}/{args.repeats} {name}: {result['tokens_per_second']:.0f} tokens/s", flush=True)
        losses = {
            name: [
                held_out_loss(model, out, held_out)
                for repeat in range(args.repeats)
                if adapter_of(out := work / f"{name}-{repeat}")
            ]
            for name in results
            if results[name]
        }
        show(results, losses)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--workload", choices=("family", "chatterbot", "spam"), default="family")
    parser.add_argument("--mails", help="folder of JSON files with `text`, for --workload spam")
    parser.add_argument("--trl-python")
    parser.add_argument("--llamafactory-python")
    parser.add_argument("--unsloth-python")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--galley", nargs="*", default=list(GALLEY), choices=GALLEY)
    parser.add_argument("--trl", nargs="*", default=["documented", "bf16", "bf16-packed"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    return parser.parse_args()


def materialised(reference: str) -> Path:
    """The hub-layout folder that all sides load."""
    from galley import models

    return models.materialise(models.resolve(reference))


def write_rows(args: argparse.Namespace, work: Path, model: Path) -> tuple[Path, Path]:
    """320 training rows and 100 held-out rows, as prompt and completion."""
    from galley import data
    from galley.data.examples import Conversation
    from galley.recipe import DataSection, EvaluateSection

    if args.workload == "family":
        section = DataSection(path="reasoning-gym:family_relationships", options={"size": 320})
    elif args.workload == "chatterbot":
        section = DataSection(path="package:chatterbot-corpus/english")
    else:
        return write_mails(args, work)
    dataset = data.read(section, task="chat", evaluate=EvaluateSection(rows=100), seed=0)
    paths = []
    for name, examples in (("train", dataset.train[:320]), ("held-out", dataset.held_out[:100])):
        path = work / f"{name}.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for example in examples:
                assert isinstance(example, Conversation)
                prompt, answer = example.messages[-2].content, example.messages[-1].content
                file.write(json.dumps({"prompt": prompt, "completion": answer}) + "\n")
        paths.append(path)
    return paths[0], paths[1]


def write_mails(args: argparse.Namespace, work: Path) -> tuple[Path, Path]:
    """Mails with the question whether they are spam: lengths from ten to thousands of tokens."""
    if args.mails is None:
        sys.exit("--workload spam needs --mails FOLDER")
    mails = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(args.mails).rglob("*.json"))]
    rows = [
        {
            "prompt": "Is this mail spam?\n\n" + mail["text"][:3000],
            "completion": "yes" if "spam" in mail["group"] else "no",
        }
        for mail in mails
        if isinstance(mail, dict) and "text" in mail
    ]
    paths = (work / "train.jsonl", work / "held-out.jsonl")
    for path, part in zip(paths, (rows[: 320 * 7 : 7], rows[3 : 100 * 7 : 7]), strict=True):
        path.write_text("\n".join(json.dumps(row) for row in part), encoding="utf-8")
    return paths


def chosen_sides(args: argparse.Namespace) -> list[tuple[str, str, str]]:
    """(name, python, script) of every side."""
    sides = [(f"galley-{variant}", sys.executable, "galley_sft.py") for variant in args.galley]
    if args.trl_python:
        sides += [(f"trl-{variant}", args.trl_python, "trl_sft.py") for variant in args.trl]
    if args.llamafactory_python:
        sides.append(("llamafactory-documented", args.llamafactory_python, "llamafactory_sft.py"))
    if args.unsloth_python:
        sides.append(("unsloth-bf16", args.unsloth_python, "unsloth_sft.py"))
    return sides


def run_side(
    name: str, python: str, script: str, model: Path, rows: Path, out: Path, seed: int, args: argparse.Namespace
) -> dict[str, float] | None:
    """Run one side once; None when it fails."""
    variant = name.partition("-")[2]
    command = [python, str(HERE / "peers" / script), "--model", str(model), "--rows", str(rows), "--out", str(out)]
    command += [
        "--variant",
        variant,
        "--steps",
        str(args.steps),
        "--threads",
        str(args.threads),
        "--device",
        args.device,
        "--seed",
        str(seed),
    ]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(args.threads)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("RESULT "):
            result: dict[str, float] = json.loads(line.removeprefix("RESULT "))
            return result
    print(f"{name} failed:\n{done.stderr[-2000:]}", file=sys.stderr)
    return None


def adapter_of(out: Path) -> Path | None:
    """Where a side saved its adapter; None where it failed before."""
    places = (out, out / "result" / "adapter")
    return next((place for place in places if (place / "adapter_config.json").exists()), None)


def held_out_loss(model: Path, out: Path, held_out: Path) -> float:
    """Mean -log p of the completions, by transformers and PEFT alone, in float32."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    adapter = adapter_of(out)
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    module = PeftModel.from_pretrained(base, adapter).eval()
    tokenizer = AutoTokenizer.from_pretrained(model)
    total, count = 0.0, 0
    for line in held_out.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        turns = [{"role": "user", "content": row["prompt"]}]
        prompt = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        prompt_ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        answer_ids = tokenizer(row["completion"] + "<|im_end|>", add_special_tokens=False)["input_ids"]
        ids = torch.tensor([prompt_ids + answer_ids])
        with torch.no_grad():
            logprobs = module(ids).logits[0, len(prompt_ids) - 1 : -1].log_softmax(-1)
        total -= float(logprobs[torch.arange(len(answer_ids)), torch.tensor(answer_ids)].sum())
        count += len(answer_ids)
    return total / count


def show(results: dict[str, list[dict[str, float]]], losses: dict[str, list[float]]) -> None:
    """One line a side, with ratios against the best peer."""
    medians = {
        name: (
            statistics.median(r["tokens_per_second"] for r in runs),
            statistics.median(r["peak_bytes"] for r in runs) / 2**30,
        )
        for name, runs in results.items()
        if runs
    }
    peers = {name: value for name, value in medians.items() if not name.startswith("galley")}
    fastest = max((speed for speed, _ in peers.values()), default=float("nan"))
    leanest = min((memory for _, memory in peers.values()), default=float("nan"))
    columns = ("tokens/s", "ratio", "peak GiB", "ratio", "held-out loss", "+-", "first step s")
    print(f"\n{'side':26}" + "".join(f"{column:>15}" for column in columns))
    for name, (speed, memory) in medians.items():
        first = [r["first_step_seconds"] for r in results[name] if "first_step_seconds" in r]
        start = statistics.median(first) if first else float("nan")
        values = (
            speed,
            speed / fastest,
            memory,
            memory / leanest,
            statistics.fmean(losses[name]),
            spread(losses[name]),
            start,
        )
        print(f"{name:26}" + "".join(f"{value:15.4g}" for value in values))


def spread(values: list[float]) -> float:
    """Standard deviation; nan for a single value."""
    return statistics.stdev(values) if len(values) > 1 else float("nan")


if __name__ == "__main__":
    main()
