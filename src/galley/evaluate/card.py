"""result/README.md: a model card that hub and people can read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from galley import recipe
from galley.base import format_count, format_duration
from galley.runs import write_bytes

if TYPE_CHECKING:
    from galley.evaluate.finished_run import FinishedRun
    from galley.evaluate.verdict import Verdict
    from galley.recipe.schema import Recipe

NAME = "README.md"
_SHOWN_CHARACTERS = 160


def write_card(run: FinishedRun, verdict: Verdict | None) -> None:
    """Write the model card of a run.

    Args:
        run: a run with a result.
        verdict: on it, if there is one.

    Raises:
        GalleyError: `disk-full`.
    """
    text = "\n".join(_lines(run, verdict)) + "\n"
    write_bytes(run.folder.result / NAME, text.encode())


def _lines(run: FinishedRun, verdict: Verdict | None) -> Iterator[str]:
    yield from _front_matter(run)
    yield f"# {run.folder.name}"
    yield ""
    yield _what(run)
    yield ""
    yield from _verdict(verdict)
    yield from _training(run)
    yield from _use(run)
    yield from _limits(run)
    yield from _provenance(run)


def _front_matter(run: FinishedRun) -> Iterator[str]:
    """Metadata that model hubs index."""
    is_adapter = (run.folder.result / "adapter").is_dir()
    yield "---"
    if _is_hub_name(run.asked.model):
        yield f"base_model: {run.asked.model}"
    if run.contestants.tuned.spec.kind != "module":
        yield f"library_name: {'peft' if is_adapter else 'transformers'}"
        yield f"pipeline_tag: {'text-classification' if run.asked.task == 'classify' else 'text-generation'}"
    yield f"tags: [galley, {run.plan.method}, {run.plan.tuning}]"
    yield "---"


def _what(run: FinishedRun) -> str:
    does = {"chat": "answers in a conversation", "complete": "continues text", "classify": "tells classes apart"}
    form = {"lora": "a LoRA adapter", "dora": "a DoRA adapter", "qlora": "a LoRA adapter, trained on 4-bit weights"}
    made = form.get(run.plan.tuning, "all weights of the model")
    return (
        f"This model {does[run.asked.task]}. It was made from `{_shown(run.asked.model)}` with "
        f"`{run.plan.method}` on `{_shown(run.asked.data.path)}`; what was trained is {made}."
    )


def _verdict(verdict: Verdict | None) -> Iterator[str]:
    yield "## Is it better?"
    yield ""
    if verdict is None:
        yield "It was not judged on held-out rows."
        yield ""
        return
    low, high = verdict.interval
    yield verdict.sentence
    yield ""
    yield f"| {verdict.metric} | value |"
    yield "|---|---|"
    yield f"| {verdict.baseline} | {verdict.base:.3f} |"
    yield f"| this model | {verdict.tuned:.3f} |"
    yield f"| difference (95 % interval) | {verdict.difference:+.3f} ({low:+.3f} to {high:+.3f}) |"
    yield f"| held-out rows | {verdict.n} |"
    yield ""
    for note in verdict.notes:
        yield f"Note: {note}."
        yield ""
    if verdict.best and verdict.confusion is None:
        yield "| | asked | expected | base | this model |"
        yield "|---|---|---|---|---|"
        for title, answers in (("best", verdict.best), ("worst", verdict.worst)):
            for answer in answers[:2]:
                cells = map(_cell, (answer.prompt, answer.expected, answer.base, answer.tuned))
                yield f"| {title} | {' | '.join(cells)} |"
        yield ""
        yield "All answers are in `answers.jsonl`."
        yield ""


def _training(run: FinishedRun) -> Iterator[str]:
    plan, optimizer, last = run.plan, run.plan.optimizer, run.folder.newest_metrics()
    yield "## Training"
    yield ""
    if (run.folder.result / "loss.png").is_file():
        yield "![loss over the steps](loss.png)"
        yield ""
    rows: dict[str, Any] = {
        "rows": f"{plan.rows} trained on, {run.dataset.statistics.held_out_rows} held out",
        "steps": f"{last.get('step', plan.steps)} of {plan.steps}, {plan.batch.global_batch_rows} rows each",
        "tuning": plan.tuning if plan.adapter is None else f"{plan.tuning}, rank {plan.adapter.rank}",
        "optimiser": f"{optimizer.name}, learning rate {optimizer.learning_rate:g}, {optimizer.schedule}",
        "precision": plan.precision,
        "hardware": plan.hardware.name,
        "seed": plan.seed,
    }
    if "seconds" in last:
        rows["time"] = format_duration(last["seconds"])
    if "tokens" in last and run.contestants.tokenizer is not None:
        rows["tokens"] = format_count(last["tokens"])
    yield "| | |"
    yield "|---|---|"
    for name, value in rows.items():
        yield f"| {name} | {value} |"
    yield ""
    yield "The recipe, which `galley train` repeats:"
    yield ""
    yield "```yaml"
    yield recipe.dump(_without_folders(run.asked)).rstrip()
    yield "```"
    yield ""


def _use(run: FinishedRun) -> Iterator[str]:
    yield "## Use"
    yield ""
    if run.asked.task != "classify":
        yield "```console"
        yield f"$ galley chat {run.folder.name}"
        yield "```"
        yield ""
    code = _code(run)
    if not code:
        yield "```python"
        yield "import galley"
        yield ""
        yield f'module, tokenizer = galley.Run.open("runs/{run.folder.name}").load()'
        yield "```"
        yield ""
    else:
        yield "With transformers, in this folder:"
        yield ""
        yield "```python"
        yield from code
        yield "```"
        yield ""


def _code(run: FinishedRun) -> list[str]:
    """Lines that load and run the result without Galley; none where only Galley can find the parts."""
    spec = run.contestants.tuned.spec
    is_adapter = run.contestants.is_adapter
    if spec.kind == "module" or (is_adapter and not _is_hub_name(run.asked.model)):
        return []
    folder = "adapter" if is_adapter else "model"
    kind = "AutoModelForSequenceClassification" if run.asked.task == "classify" else "AutoModelForCausalLM"
    lines = [
        f"from transformers import AutoTokenizer, {kind}",
        "",
        f'tokenizer = AutoTokenizer.from_pretrained("{folder}")',
    ]
    if is_adapter:
        lines.insert(0, "from peft import PeftModel")
        lines += [
            f'base = {kind}.from_pretrained("{run.asked.model}")',
            'model = PeftModel.from_pretrained(base, "adapter")',
        ]
    else:
        lines.append(f'model = {kind}.from_pretrained("model")')
    if run.asked.task == "chat":
        lines += [
            'messages = [{"role": "user", "content": "..."}]',
            'inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", '
            "return_dict=True)",
            "answer = model.generate(**inputs, max_new_tokens=256)",
            'print(tokenizer.decode(answer[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))',
        ]
    elif run.asked.task == "classify":
        lines += [
            'logits = model(**tokenizer("...", return_tensors="pt")).logits',
            "print(model.config.id2label[int(logits.argmax())])",
        ]
    return lines


def _limits(run: FinishedRun) -> Iterator[str]:
    yield "## Limits"
    yield ""
    yield "It was judged only on rows held out from the same data: other rows may fare better or worse."
    if run.contestants.tuned.spec.kind == "module":
        yield "Licence and terms are those of the data and of the module's author."
    else:
        yield "What the base model gets wrong, forgets or should not say, this model may too."
        yield "Licence and terms are those of the base model and of the data."
    yield ""


def _provenance(run: FinishedRun) -> Iterator[str]:
    manifest = run.folder.manifest()
    packages = ", ".join(f"{name} {version}" for name, version in sorted(manifest.get("packages", {}).items()))
    yield "## Made with"
    yield ""
    yield f"galley {manifest.get('galley', '')}, Python {manifest.get('python', '')}, {packages}."
    yield ""
    yield f"Data fingerprint `{manifest['data']['fingerprint']}`; weights at the start `{_weights(manifest)}`."


def _weights(manifest: dict[str, Any]) -> str:
    return str(manifest.get("model", {}).get("weights") or "random")


def _is_hub_name(reference: str) -> bool:
    """`org/name`: what a hub knows, unlike paths and short names."""
    owner, slash, name = reference.partition("/")
    return bool(slash and owner and name) and "/" not in name and not owner.startswith((".", "~")) and ":" not in name


def _without_folders(asked: Recipe) -> Recipe:
    data = asked.data.model_copy(update={"path": _shown(asked.data.path)})
    return asked.model_copy(update={"model": _shown(asked.model), "data": data})


def _shown(reference: str) -> str:
    """A reference without folders of the machine it was made on."""
    return PurePath(reference).name if PurePath(reference).is_absolute() else reference


def _cell(text: str) -> str:
    """Text that fits a cell of a table."""
    flat = " ".join(text.split()).replace("|", "\\|")
    return flat if len(flat) <= _SHOWN_CHARACTERS else f"{flat[: _SHOWN_CHARACTERS - 3].rstrip()}..."
