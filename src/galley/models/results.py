"""Load what a finished run left: an adapter on its base, a full model, or a user's module."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from galley.base import GalleyError
from galley.models.loading import LoadPrecision, Note, load, load_tokenizer, materialise
from galley.models.saving import ORIGIN
from galley.models.shape import read_folder, read_json
from galley.models.spec import ModelSpec

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class LoadedResult:
    """A trained model, ready to answer.

    Args:
        module: in evaluation mode; a PeftModel when `is_adapter`, whose `disable_adapter()` gives the base.
        tokenizer: as trained with; None for models without text.
        spec: of the base for an adapter, of the result itself otherwise.
        is_adapter: whether base and adapter are apart.
        labels: names of the classes of a classifier.
    """

    module: nn.Module
    tokenizer: Any
    spec: ModelSpec
    is_adapter: bool
    labels: tuple[str, ...] = ()


def load_result(
    result: Path,
    *,
    precision: LoadPrecision = "bf16",
    device: str = "cpu",
    offered: dict[str, Any] | None = None,
    on_note: Note = lambda kind, message: None,
) -> LoadedResult:
    """Load `result/adapter` (on its base, unquantised) or else `result/model`.

    Raises:
        GalleyError: `run-unfinished` when there is neither, and what `load` raises.
    """
    if (result / "adapter").is_dir():
        return load_adapter(result / "adapter", precision=precision, device=device, offered=offered, on_note=on_note)
    folder = result / "model"
    if not folder.is_dir():
        raise GalleyError("run-unfinished", f"{result} holds no adapter and no model", hint="finish the training first")
    origin = read_json(folder / ORIGIN)
    labels = tuple(origin.get("labels", ()))
    if origin["source"] == "file":
        return _load_user_module(folder, origin, labels, device=device, offered=offered)
    spec = read_folder(folder, reference=str(folder), source="folder")
    module, tokenizer = load(spec, precision=precision, device=device, labels=labels)
    return LoadedResult(module, tokenizer, spec, False, labels)


def load_adapter(
    folder: Path,
    *,
    precision: LoadPrecision = "bf16",
    device: str = "cpu",
    offered: dict[str, Any] | None = None,
    on_note: Note = lambda kind, message: None,
) -> LoadedResult:
    """An adapter on the base that it was trained on.

    Raises:
        GalleyError: `model-invalid` when the base's weights are other ones than in training, and what `load` raises.
    """
    from galley.models.adapters._peft import peft

    origin = read_json(folder / ORIGIN)
    labels = tuple(origin.get("labels", ()))
    spec = base_spec(origin, on_note=on_note)
    base, tokenizer = load(spec, precision=precision, device=device, labels=labels, offered=offered, on_note=on_note)
    with peft() as library:
        module: nn.Module = library.PeftModel.from_pretrained(base, str(folder), torch_device=device)
    own_tokenizer = load_tokenizer(folder) if (folder / "tokenizer_config.json").is_file() else tokenizer
    return LoadedResult(module.eval(), own_tokenizer, spec, True, labels)


def base_spec(origin: dict[str, Any], *, on_note: Note = lambda kind, message: None) -> ModelSpec:
    """The base that an adapter's origin names, with its folder, proven to be the same weights."""
    from galley.models.fingerprint import weights_fingerprint
    from galley.models.references import resolve

    spec = resolve(origin["reference"])
    if spec.source == "file":
        return spec
    folder = materialise(spec, on_note=on_note)
    if weights_fingerprint(folder) != origin.get("fingerprint"):
        message = f"the weights of {spec.reference} are not those that the adapter was trained on"
        raise GalleyError("model-invalid", message, hint="bring back the base model of the training")
    return replace(spec, folder=folder)


def _load_user_module(
    folder: Path, origin: dict[str, Any], labels: tuple[str, ...], *, device: str, offered: dict[str, Any] | None
) -> LoadedResult:
    from safetensors.torch import load_model

    from galley.models.user_module import user_module

    path = folder / origin["file"]
    module = user_module(path, origin["class"], {**origin.get("offered", {}), **(offered or {})})
    load_model(module, str(folder / "model.safetensors"))
    spec = ModelSpec(
        reference=f"{path}:{origin['class']}",
        kind="module",
        family=origin["class"],
        folder=folder,
        source="file",
        config={"file": str(path), "class": origin["class"]},
    )
    return LoadedResult(module.to(device).eval(), None, spec, False, labels)
