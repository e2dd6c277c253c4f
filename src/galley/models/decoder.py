"""Any causal language model on packed documents: log-probabilities of the learned tokens, exact and proven."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from torch import Tensor, nn

from galley.data.batch import TokenBatch
from galley.models.fused import fuse
from galley.models.heads import find_head
from galley.models.heap import keep_freed_memory
from galley.models.layer_tricks import checkpoint_layers, compile_layers
from galley.models.layout_choice import choose_layouts, forget_documents
from galley.models.layouts import Packed
from galley.models.network import Network
from galley.models.padding import filled
from galley.models.proof import evaluating, probe_tokens
from galley.models.spec import ModelSpec

Note: TypeAlias = Callable[[str, str], None]
"""Hears (kind, message) of decisions and fall-backs."""


class Decoder:
    """A `LanguageModel` over any module from token ids to logits; transformers' models run without waste.

    On construction the module is checked with a few tokens: how its logits come from its hidden states, and whether
    documents stay apart when packed; they are padded, or run one by one, if they do not.

    Args:
        spec: what the model is.
        module: owns the parameters, adapters included.
        tokenizer: kept for others.
        packing: try to pack; otherwise documents are padded.
        compile: `block` compiles one decoder layer and reuses it for all.
        checkpointing: `full` keeps only each layer's input for the backward pass.
        on_note: hears what was decided and what was not possible.
    """

    def __init__(
        self,
        spec: ModelSpec,
        module: nn.Module,
        tokenizer: Any,
        *,
        packing: bool = True,
        compile: Literal["none", "block"] = "none",  # noqa: A002 the plan's word
        checkpointing: Literal["none", "full"] = "none",
        on_note: Note,
    ) -> None:
        self.spec, self.module, self.tokenizer = spec, module, tokenizer
        network = Network(module)
        if network.device.type == "cpu":
            keep_freed_memory()
        fused = fuse(module)
        with evaluating(module):
            self._head = find_head(network, probe_tokens(network)[1])
            self._layouts = choose_layouts(network, self._head.face, packing=packing, on_note=on_note)
        facts = [f"documents {self._layouts.name}", f"log-probabilities from {self._head.name}"]
        if fused:
            facts.append(f"{fused} fused")
        on_note("model", "; ".join(facts))
        if checkpointing == "full":
            checkpoint_layers(network, on_note)
        if compile == "block":
            compile_layers(network, on_note)

    def release(self) -> None:
        """The module attends as it did when it was loaded."""
        forget_documents(Network(self.module))

    def token_logprobs(self, batch: TokenBatch) -> Tensor:
        """Give log p(target | its document so far) for every target, [N] float32, differentiable."""
        layout = self._layouts.of(batch)
        whole = filled(batch) if isinstance(layout, Packed) else batch
        rows_NX = layout.rows(self._head.face, whole)
        return self._head.logprobs(rows_NX, whole.target_ids_N)[: batch.num_targets]
