"""`org/name`: a model on the Hugging Face hub. The local cache comes first; the network only when it has to."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from galley.base import GalleyError
from galley.models.safetensors_header import weight_files
from galley.models.shape import has_chat_template, read_folder, read_json, spec_from_config
from galley.models.spec import ModelSpec

_FORM = re.compile(r"(?P<id>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w./-]+))?")
_PATTERNS = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt", "LICENSE*", "README.md"]
_TIMEOUT_SECONDS = 10


class HubReference:
    """`org/name` or `org/name@revision`."""

    order = 40
    form = "a hub id (org/name)"

    def accepts(self, reference: str) -> bool:
        """Two words with one slash between them."""
        return _FORM.fullmatch(reference) is not None

    def resolve(self, reference: str) -> ModelSpec:
        """The shape from the cache, or from the small files of the hub when the weights are not here yet."""
        cached = cached_snapshot(reference)
        if cached is not None and _is_complete(cached):
            return read_folder(cached, reference=reference, source="hub")
        return _remote_spec(reference)


def cached_snapshot(reference: str) -> Path | None:
    """The snapshot folder in the hub's cache that holds the config, or None. Reads no network."""
    name, revision = _split(reference)
    folder = _cache() / f"models--{name.replace('/', '--')}"
    ref = folder / "refs" / revision
    commit = ref.read_text().strip() if ref.is_file() else revision
    snapshot = folder / "snapshots" / commit
    return snapshot if (snapshot / "config.json").is_file() else None


def _is_complete(folder: Path) -> bool:
    """Whether all weights are there; a download may have been stopped half-way."""
    try:
        return bool(weight_files(folder))
    except GalleyError:
        return False


def fetch(reference: str) -> Path:
    """Download the model's safetensors, config and tokenizer; what the cache has is not fetched again.

    Raises:
        GalleyError: `model-offline` or `model-not-found`.
    """
    from huggingface_hub import snapshot_download

    name, revision = _split(reference)
    return Path(_ask(reference, snapshot_download, repo_id=name, revision=revision, allow_patterns=_PATTERNS))


def _remote_spec(reference: str) -> ModelSpec:
    from huggingface_hub import HfApi, hf_hub_download

    name, revision = _split(reference)
    info = _ask(
        reference, HfApi().model_info, repo_id=name, revision=revision, files_metadata=True, timeout=_TIMEOUT_SECONDS
    )
    files = {item.rfilename: item.size or 0 for item in info.siblings}
    weights = [file for file in files if file.endswith(".safetensors")]
    if "config.json" not in files or not weights:
        raise GalleyError(
            "model-invalid", f"{reference} has no config.json with safetensors weights", hint="choose another model"
        )
    small = [file for file in ("config.json", "tokenizer_config.json", "chat_template.jinja") if file in files]
    paths = [Path(_ask(reference, hf_hub_download, repo_id=name, revision=revision, filename=file)) for file in small]
    folder = paths[0].parent
    spec = spec_from_config(
        read_json(folder / "config.json"),
        reference=reference,
        source="hub",
        has_chat_template=has_chat_template(folder),
    )
    return _with_sizes(spec, sum(files[file] for file in weights), info.safetensors)


def _with_sizes(spec: ModelSpec, weight_bytes: int, safetensors: Any) -> ModelSpec:
    """The hub's own count of parameters is better than ours, where it has one."""
    from dataclasses import replace

    count = int(safetensors.total) if safetensors is not None else spec.num_parameters
    return replace(spec, weight_bytes=weight_bytes, num_parameters=count)


def _ask(reference: str, call: Any, **arguments: Any) -> Any:
    """Call the hub; every way to fail becomes one of two errors."""
    from huggingface_hub import errors

    try:
        return call(**arguments)
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        hint = "check the name; for a private or gated model log in with `hf auth login`"
        raise GalleyError(
            "model-not-found", f"the hub has no model {reference!r} that you may read", hint=hint
        ) from error
    except Exception as error:  # which HTTP library raises here, and so what, differs between versions of the client
        raise GalleyError(
            "model-offline",
            f"{reference!r} is not in the cache and the hub cannot be reached ({type(error).__name__})",
            hint=f"connect once, or name a folder or .gguf file; the cache is {_cache()}",
        ) from error


def _split(reference: str) -> tuple[str, str]:
    match = _FORM.fullmatch(reference)
    assert match is not None
    return match["id"], match["revision"] or "main"


def _cache() -> Path:
    """Where huggingface_hub keeps models, by the same environment variables."""
    if explicit := os.environ.get("HF_HUB_CACHE"):
        return Path(explicit).expanduser()
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "huggingface"
    return Path(home).expanduser() / "hub"


REFERENCE = HubReference()
