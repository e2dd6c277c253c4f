"""Save what was trained in hub layout: `adapter/` beside a base, or `model/` with all weights."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from galley.models.loading import LoadPrecision, torch_dtype
from galley.models.spec import ModelSpec
from galley.runs.atomic import disk_full_is_an_error, fsync_file, fsync_folder

if TYPE_CHECKING:
    import torch
    from torch import nn

ORIGIN = "galley.json"
"""Beside the weights: what they were trained from, for loading them again."""


def save(
    module: nn.Module,
    tokenizer: Any,
    result: Path,
    *,
    spec: ModelSpec,
    stop_ids: Iterable[int] = (),
    labels: Sequence[str] = (),
    precision: LoadPrecision | None = None,
) -> Path:
    """Write `result/adapter` for a model with adapters, else `result/model`. Replaces what is there, at the end.

    Tokenizer, chat template, generation config and stop tokens go along, so that the folder behaves like the trained
    model in every other tool.

    Args:
        module: trained, with or without adapters.
        tokenizer: None for models without text.
        result: the run's result folder.
        spec: of the base model.
        stop_ids: tokens that end an answer, beside those that the generation config names.
        labels: names of the classes of a classifier.
        precision: dtype of the stored weights of a full model; as trained when None.

    Returns:
        The folder that was written.

    Raises:
        GalleyError: `disk-full`; what was there before is then untouched.
    """
    target = result / ("model" if _peft_model(module) is None else "adapter")
    save_as(module, tokenizer, target, spec=spec, stop_ids=stop_ids, labels=labels, precision=precision)
    return target


def save_as(
    module: nn.Module,
    tokenizer: Any,
    folder: Path,
    *,
    spec: ModelSpec,
    stop_ids: Iterable[int] = (),
    labels: Sequence[str] = (),
    precision: LoadPrecision | None = None,
) -> None:
    """`save` into a folder of any name."""
    aside = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        with disk_full_is_an_error(folder):
            aside.mkdir(parents=True)
            _write(module, tokenizer, aside, spec=spec, stop_ids=stop_ids, labels=labels, precision=precision)
            for written in aside.iterdir():
                fsync_file(written)
            fsync_folder(aside)
        shutil.rmtree(folder, ignore_errors=True)
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _write(
    module: nn.Module,
    tokenizer: Any,
    aside: Path,
    *,
    spec: ModelSpec,
    stop_ids: Iterable[int],
    labels: Sequence[str],
    precision: LoadPrecision | None,
) -> None:
    adapted = _peft_model(module)
    if adapted is not None:
        _save_adapter(adapted, aside, spec)
    elif spec.kind == "module":
        _save_user_module(module, aside, spec)
    else:
        _save_full(module, aside, precision)
    if tokenizer is not None:
        tokenizer.save_pretrained(aside)
    _save_generation(module, tokenizer, aside, stop_ids)
    _save_origin(aside, spec, labels, is_adapter=adapted is not None)


def _peft_model(module: nn.Module) -> Any:
    """The module when it is PEFT's, else None; PEFT is not imported to find out."""
    library = sys.modules.get("peft")
    return module if library is not None and isinstance(module, library.PeftModel) else None


def _save_adapter(module: Any, folder: Path, spec: ModelSpec) -> None:
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    # The embeddings are frozen; looking them up by the base's name would ask the hub.
    state = get_peft_model_state_dict(module, save_embedding_layers=False)
    save_file(
        {name: _plain(tensor) for name, tensor in state.items()}, folder / "adapter_model.safetensors", {"format": "pt"}
    )
    config = copy(module.peft_config["default"])
    config.inference_mode = True
    config.base_model_name_or_path, _, revision = spec.reference.partition("@")
    config.revision = revision or None
    config.save_pretrained(folder)


def _save_full(module: Any, folder: Path, precision: LoadPrecision | None) -> None:
    from transformers.utils import logging

    copies: dict[Any, Any] = {}
    state = {}
    for name, tensor in module.state_dict().items():
        # Tied weights stay one tensor, by which transformers knows to store them once.
        place = (tensor.data_ptr(), tensor.shape, tensor.stride())
        if place not in copies:
            copies[place] = _plain(tensor, torch_dtype(precision) if precision else None)
        state[name] = copies[place]
    logging.disable_progress_bar()  # the job shows its own
    module.save_pretrained(folder, state_dict=state)
    if precision:
        path = folder / "config.json"
        config = json.loads(path.read_text(encoding="utf-8"))
        config["dtype"] = str(torch_dtype(precision)).removeprefix("torch.")
        path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _save_user_module(module: nn.Module, folder: Path, spec: ModelSpec) -> None:
    from safetensors.torch import save_model

    save_model(module, str(folder / "model.safetensors"))
    source = Path(spec.config["file"])
    shutil.copyfile(source, folder / source.name)


def _plain(tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A tensor of its own on the CPU: parameters may be views into one buffer, which file formats refuse."""
    is_float = tensor.is_floating_point()
    return tensor.detach().to("cpu", dtype if is_float else None, copy=True).contiguous()


def _save_generation(module: Any, tokenizer: Any, folder: Path, stop_ids: Iterable[int]) -> None:
    """generation_config.json with every token that ends an answer."""
    from transformers import GenerationConfig, PreTrainedModel

    inner = module.get_base_model() if _peft_model(module) is not None else module
    if not isinstance(inner, PreTrainedModel) or not inner.can_generate():
        return
    config = (
        GenerationConfig.from_dict(inner.generation_config.to_dict()) if inner.generation_config else GenerationConfig()
    )
    known = config.eos_token_id
    stops = {*(known if isinstance(known, list) else [known]), *stop_ids}
    if tokenizer is not None:
        stops.add(tokenizer.eos_token_id)
    config.eos_token_id = sorted(stop for stop in stops if stop is not None) or None
    config.save_pretrained(folder)


def _save_origin(folder: Path, spec: ModelSpec, labels: Sequence[str], *, is_adapter: bool) -> None:
    from galley.models.fingerprint import weights_fingerprint
    from galley.models.user_module import source_hash

    origin: dict[str, Any] = {
        "reference": spec.reference,
        "source": spec.source,
        "kind": spec.kind,
        "family": spec.family,
    }
    if labels:
        origin["labels"] = list(labels)
    if is_adapter and spec.source != "file":
        from galley.models.loading import materialise

        origin["fingerprint"] = weights_fingerprint(materialise(spec))
    if spec.source == "file":
        source = Path(spec.config["file"])
        origin |= {"file": source.name, "class": spec.config["class"], "source_hash": source_hash(source)}
        origin["offered"] = spec.config.get("offered", {})
    (folder / ORIGIN).write_text(json.dumps(origin, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
