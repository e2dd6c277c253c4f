"""Open a run or any model to talk to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from galley import models
from galley.base import GalleyError
from galley.data.template import Template
from galley.generate.chat import ChatSession, Note, say_nothing
from galley.generate.generator import Generator
from galley.generate.settings import Sampling
from galley.models.loading import LoadPrecision
from galley.runs import RunFolder, find_run


@dataclass(frozen=True)
class _Opened:
    """A model in memory, and whether it chats or continues texts."""

    module: nn.Module
    tokenizer: Any
    chats: bool


def open_chat(
    reference: str,
    *,
    runs_root: Path = Path("runs"),
    settings: Sampling | None = None,
    system: str | None = None,
    on_note: Note = say_nothing,
) -> ChatSession:
    """A conversation with a finished run, or with a model that a recipe can name.

    Args:
        reference: name or folder of a run, or a model reference.
        runs_root: folder of all runs.
        settings: how to generate; greedy when left out.
        system: system message.
        on_note: told about facts such as a model that does not chat.

    Raises:
        GalleyError: `run-not-found` when it is neither, and what loading raises.
    """
    device = str(torch.accelerator.current_accelerator()) if torch.accelerator.is_available() else "cpu"
    run = _find(reference, runs_root)
    opened = _open_run(run, device, on_note) if run is not None else _open_model(reference, device, on_note)
    generator = Generator(opened.module, opened.tokenizer, device=device)
    if generator.way != "together":
        on_note("generation", f"answers are generated {generator.way}: padding or caching would change them")
    if not opened.chats:
        on_note("continuation", "this model does not chat: it continues each text that it is given")
    template = Template(opened.tokenizer) if opened.chats else None
    return ChatSession(generator, template, settings=settings or Sampling(), system=system, on_note=on_note)


def _find(reference: str, runs_root: Path) -> RunFolder | None:
    """The run of that name, or None when the reference may be a model.

    A name that is neither is said to be no run, with the nearest one.
    """
    try:
        return find_run(runs_root, reference)
    except GalleyError as no_run:
        try:
            models.resolve(reference)
        except GalleyError as no_model:
            if no_model.code != "model-not-found":
                raise no_model from None
            raise GalleyError(
                "run-not-found", f"{reference!r} is neither a run nor a model", hint=no_run.hint
            ) from no_model
        return None


def _open_run(run: RunFolder, device: str, on_note: Note) -> _Opened:
    plan = run.plan()
    if plan["task"] == "classify":
        raise GalleyError(
            "model-unsupported", f"the run {run.name} classifies, and does not talk", hint=f"galley eval {run.name}"
        )
    if plan["task"] == "control":
        raise GalleyError(
            "model-unsupported", f"the run {run.name} acts, and does not talk", hint=f"galley watch {run.name}"
        )
    result = models.load_result(run.result, precision=plan["precision"], device=device, on_note=on_note)
    return _Opened(result.module, result.tokenizer, plan["task"] == "chat")


def _open_model(reference: str, device: str, on_note: Note) -> _Opened:
    spec = models.resolve(reference)
    module, tokenizer = models.load(spec, precision=_precision(device), device=device, on_note=on_note)
    if tokenizer is None:
        raise GalleyError("model-unsupported", f"{reference} has no tokenizer, and cannot be talked to")
    return _Opened(module, tokenizer, tokenizer.chat_template is not None)


def _precision(device: str) -> LoadPrecision:
    """Numbers of 16 bits where the processor multiplies them fast."""
    has_bf16 = device != "cpu" or torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return "bf16" if has_bf16 else "fp32"
