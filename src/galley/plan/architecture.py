"""A model as arithmetic: its parameters, operations and bytes, layer by layer, from its numbers alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """The numbers of a decoder or encoder that cost anything.

    Args:
        layers: blocks.
        hidden: width of the residual stream.
        heads: query heads.
        kv_heads: key and value heads.
        head_dim: width of a head.
        ffn: inner width of the feed-forward net, or of a dense layer's in a mixture of experts.
        vocab: rows of the embedding.
        gated: the feed-forward net has a gate (three matrices), else two.
        tied: the output head is the embedding.
        biases: linear layers have biases.
        positions: rows of a learned table of positions; 0 without.
        window: keys that a query sees at most in a layer with a sliding window; 0 for all.
        window_layers: layers with such a window.
        experts: of a mixture; 0 for a dense model.
        active_experts: that each token visits.
        expert_ffn: their inner width.
        shared_experts: that every token visits beside.
        dense_layers: layers without experts, in a mixture.
        mla: (query rank or 0, key-value rank, rotary width, value width) of multi-head latent attention; None without.
        parameters: where it is known exactly; else counted from the above.
        norm_fp32: norms compute copies in float32 (as transformers does).
    """

    layers: int
    hidden: int
    heads: int
    ffn: int
    vocab: int
    kv_heads: int = 0
    head_dim: int = 0
    gated: bool = True
    tied: bool = False
    biases: bool = False
    positions: int = 0
    window: int = 0
    window_layers: int = 0
    experts: int = 0
    active_experts: int = 0
    expert_ffn: int = 0
    shared_experts: int = 0
    dense_layers: int = 0
    mla: tuple[int, int, int, int] | None = None
    parameters: int = 0
    norm_fp32: bool = False

    @property
    def queries(self) -> int:
        """Width of all queries."""
        return self.heads * (self.head_dim or self.hidden // self.heads)

    @property
    def keys(self) -> int:
        """Width of all keys, and of all values."""
        return (self.kv_heads or self.heads) * (self.head_dim or self.hidden // self.heads)

    @property
    def embedding_parameters(self) -> int:
        """Of the input embedding."""
        return self.vocab * self.hidden

    @property
    def attention_parameters(self) -> int:
        """Of the attention of one layer."""
        if self.mla is not None:
            query_rank, kv_rank, rotary, value = self.mla
            nope = self.head_dim - rotary
            query = self.heads * self.head_dim
            down = self.hidden * (kv_rank + rotary) + kv_rank
            up = kv_rank * self.heads * (nope + value)
            queries = self.hidden * query_rank + query_rank + query_rank * query if query_rank else self.hidden * query
            return queries + down + up + self.heads * value * self.hidden
        weights = self.hidden * (2 * self.queries + 2 * self.keys)
        return weights + (self.queries + 2 * self.keys + self.hidden if self.biases else 0)

    def ffn_parameters(self, inner: int) -> int:
        """Of one feed-forward net of this inner width."""
        matrices = 3 if self.gated else 2
        biases = (matrices - 1) * inner + self.hidden if self.biases else 0
        return matrices * self.hidden * inner + biases

    @property
    def norm_parameters(self) -> int:
        """Of the norms of one layer."""
        return 2 * self.hidden * (2 if self.biases else 1)

    @property
    def expert_layers(self) -> int:
        """Layers with experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def expert_parameters(self) -> int:
        """Of the experts of one layer that are split by expert parallelism."""
        return self.experts * self.ffn_parameters(self.expert_ffn) if self.experts else 0

    @property
    def dense_layer_parameters(self) -> int:
        """Of a layer without experts."""
        return self.attention_parameters + self.norm_parameters + self.ffn_parameters(self.ffn)

    @property
    def expert_layer_parameters(self) -> int:
        """Of a layer with experts, but without those."""
        shared = self.ffn_parameters(self.expert_ffn * self.shared_experts) if self.shared_experts else 0
        return self.attention_parameters + self.norm_parameters + self.hidden * self.experts + shared

    @property
    def num_parameters(self) -> int:
        """All, tied ones counted once."""
        if self.parameters:
            return self.parameters
        blocks = (self.layers - self.expert_layers) * self.dense_layer_parameters
        blocks += self.expert_layers * (self.expert_layer_parameters + self.expert_parameters)
        tables = self.embedding_parameters * (1 if self.tied else 2) + self.positions * self.hidden
        return blocks + tables + self.norm_parameters // 2

    @property
    def active_parameters(self) -> int:
        """That one token meets."""
        idle = self.experts - self.active_experts if self.experts else 0
        return self.num_parameters - self.expert_layers * idle * self.ffn_parameters(self.expert_ffn)

    def forward_flops(self, sequence: int, *, causal: bool = True) -> float:
        """Multiplications and additions of one token's forward pass in a row of this length."""
        tables = self.embedding_parameters * (0 if self.tied else 1) + self.positions * self.hidden
        matrices = 2.0 * (self.active_parameters - tables)
        return matrices + self.layers * self.attention_flops(sequence, causal=causal)

    def attention_flops(self, sequence: int, *, causal: bool = True) -> float:
        """Of scores and weighted values of one token in one layer, on average over the layers."""
        seen = sequence / 2 if causal else float(sequence)
        if self.window_layers and self.window:
            near = min(seen, float(self.window))
            seen = (near * self.window_layers + seen * (self.layers - self.window_layers)) / self.layers
        value = self.mla[3] * self.heads if self.mla else self.queries
        return 2.0 * seen * (self.queries + value)
