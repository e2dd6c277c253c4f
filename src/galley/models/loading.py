"""Load a model's weights and tokenizer, in the precision that the plan decided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from galley.base import GalleyError
from galley.models.spec import ModelSpec

if TYPE_CHECKING:
    import torch
    from torch import nn

LoadPrecision: TypeAlias = Literal["bf16", "fp32", "fp16"]
Note: TypeAlias = Callable[[str, str], None]
"""Receives (kind, message) about something that a user should know."""


def load(
    spec: ModelSpec,
    *,
    precision: LoadPrecision = "bf16",
    device: str = "cpu",
    labels: Sequence[str] = (),
    tokenizer: Any = None,
    offered: dict[str, Any] | None = None,
    quantise: bool = False,
    seed: int = 0,
    on_note: Note = lambda kind, message: None,
) -> tuple[nn.Module, Any]:
    """The module with its weights, in evaluation mode, and its tokenizer (None for a user's own module).

    Args:
        spec: from `resolve`. A `random:` model has no weights: use `create`.
        precision: dtype of the weights. A user's own module stays as it is built.
        device: cpu, cuda, cuda:1, mps.
        labels: names of classes: loads the body with a new classification head of that size.
        tokenizer: the model's own, when it is loaded already; it is returned as it is.
        offered: arguments that a user's own module may ask for by name.
        quantise: keep linear layers in 4 bits (NF4); for QLoRA.
        seed: of new weights, such as a classification head.
        on_note: told about slow or unusual work, such as a conversion.

    Raises:
        GalleyError: `model-offline`, `model-invalid`, `model-unsupported`, `package-missing`.
    """
    if spec.source == "file":
        from galley.models.user_module import user_module

        module = user_module(Path(spec.config["file"]), spec.config["class"], offered, seed=seed)
        return module.to(device), None
    folder = materialise(spec, on_note=on_note)
    tokenizer = tokenizer if tokenizer is not None else load_tokenizer(folder)
    placed = device if quantise else None  # weights are quantised on the device where they stay
    module = _module(folder, precision=precision, labels=labels, quantise_on=placed, seed=seed, on_note=on_note)
    return (module if quantise else module.to(device)), tokenizer


def materialise(spec: ModelSpec, *, on_note: Note = lambda kind, message: None) -> Path:
    """The hub-layout folder of the model: downloaded or converted first where it has to be.

    Raises:
        GalleyError: `model-offline`, `model-invalid`, `disk-full`; `model-unsupported` when it has no weights.
    """
    if spec.folder is not None:
        return spec.folder
    if spec.source == "hub":
        from galley.models.references.hub import fetch

        on_note("model", f"fetching {spec.reference} from the hub")
        return fetch(spec.reference)
    if "gguf_file" in spec.config:
        from galley.models.cache import converted_folder
        from galley.models.gguf_convert import convert

        path = Path(spec.config["gguf_file"])
        folder = converted_folder(path)
        if not folder.is_dir():
            on_note("model", f"converting {path.name} to bf16 safetensors, once")
        for warning in convert(path, folder):
            on_note("model", warning)
        return folder
    raise GalleyError("model-unsupported", f"{spec.reference} has no weights to load", hint="it is created, not loaded")


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a hub-layout folder.

    Raises:
        GalleyError: `model-invalid` when there is none, or it is damaged.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:
        message = f"the tokenizer of {folder} cannot be loaded: {first_line(error)}"
        raise GalleyError("model-invalid", message, hint="the folder needs tokenizer.json") from error


def torch_dtype(precision: LoadPrecision) -> torch.dtype:
    """The plan's word for a number format, as torch's."""
    import torch

    return {"bf16": torch.bfloat16, "fp32": torch.float32, "fp16": torch.float16}[precision]


def _module(
    folder: Path, *, precision: LoadPrecision, labels: Sequence[str], quantise_on: str | None, seed: int, on_note: Note
) -> nn.Module:
    import torch
    import transformers
    from transformers.utils import logging

    auto = transformers.AutoModelForSequenceClassification if labels else transformers.AutoModelForCausalLM
    arguments: dict[str, Any] = {"dtype": torch_dtype(precision)}
    if labels:
        arguments |= {"num_labels": len(labels), "id2label": dict(enumerate(labels))}
        arguments["label2id"] = {label: number for number, label in enumerate(labels)}
    if quantise_on is not None:
        arguments |= {"quantization_config": _nf4(torch_dtype(precision)), "device_map": {"": quantise_on}}
    logging.disable_progress_bar()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module, info = auto.from_pretrained(
                folder,
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
                **arguments,
            )
    except (ValueError, OSError, RuntimeError, KeyError, ImportError) as error:
        hint = "code that a model brings along is never run; a family must be known to transformers"
        raise GalleyError("model-unsupported", f"{folder} cannot be loaded: {first_line(error)}", hint=hint) from error
    missing = sorted(info["missing_keys"])
    if missing and not labels:
        message = f"the weights of {folder} lack {', '.join(missing[:3])}" + (" and more" if missing[3:] else "")
        raise GalleyError("model-invalid", message, hint="fetch the model again")
    if unused := sorted(info["unexpected_keys"]):
        on_note("model", f"{len(unused)} weights of {folder.name} are not part of the model, such as {unused[0]}")
    if quantise_on is not None:
        _keep_differentiable(module)
    return module.eval()  # type: ignore[no-any-return]


def _nf4(compute_dtype: torch.dtype) -> Any:
    from importlib.util import find_spec

    if find_spec("bitsandbytes") is None:
        raise GalleyError(
            "package-missing", "4-bit weights need bitsandbytes", hint="pip install 'galley-train[quantized]'"
        )
    from transformers import BitsAndBytesConfig

    from galley.models.adapters._targets import HEADS

    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=compute_dtype,
        llm_int8_skip_modules=list(HEADS),  # its name notwithstanding, for 4 bits too
    )


def _keep_differentiable(module: nn.Module) -> None:
    """Keep bitsandbytes from repacking weights at the first forward pass in evaluation mode.

    On CPUs with AVX512-BF16 it repacks for a kernel without a backward pass, and stays with it: after the first
    evaluation, layers below would silently get no gradients.
    """
    from bitsandbytes.nn import Linear4bit

    for part in module.modules():
        if isinstance(part, Linear4bit):
            part.support_avx512bf16_for_cpu = False


def first_line(error: BaseException) -> str:
    """What an error of another library says, short enough for one of ours."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300] if lines else ''}"
