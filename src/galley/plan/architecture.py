"""A model as arithmetic: its parameters, operations and bytes, layer by layer, from its numbers alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Mixer:
    """What a layer has in place of attention: a state-space model or a short convolution.

    Args:
        layers: that have it.
        parameters: of one layer.
        state: numbers that one layer keeps of a row, however long it is.
        scan_flops: of one token's recurrence in one layer, beside its products with weights.
    """

    layers: int
    parameters: int
    state: int
    scan_flops: float = 0.0


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
        biases: linear layers and norms have biases, where the next four do not say otherwise.
        qkv_bias, out_bias, ffn_bias, norm_bias: of queries, keys and values, of attention's output, of the
            feed-forward net, of norms.
        norms: of a layer; one where attention and feed-forward net read the same input, four where outputs are
            normed as well.
        final_norms: behind the last layer; two in an encoder-decoder.
        attention_extra: further learned numbers of a layer's attention: norms of queries and keys, sinks.
        router_extra: further learned numbers of a router: biases, the gate of a shared expert.
        outside_extra: learned numbers outside of layers that nothing else counts: biases of the head, poolers.
        positions: rows of learned tables of positions and segments; 0 without.
        embedding_width: of the embedding and the head, where they are narrower than the residual stream.
        head: there is an output head over the vocabulary; encoders have none.
        cross_layers: layers that also attend to an encoder's output; the other layers are then the encoder's.
        mixer: what some layers have in place of attention.
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
    qkv_bias: bool | None = None
    out_bias: bool | None = None
    ffn_bias: bool | None = None
    norm_bias: bool | None = None
    norms: int = 2
    final_norms: int = 1
    attention_extra: int = 0
    router_extra: int = 0
    outside_extra: int = 0
    positions: int = 0
    embedding_width: int = 0
    head: bool = True
    cross_layers: int = 0
    mixer: Mixer | None = None
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
        return self.heads * self._width if self.heads else 0

    @property
    def keys(self) -> int:
        """Width of all keys, and of all values."""
        return (self.kv_heads or self.heads) * self._width if self.heads else 0

    @property
    def _width(self) -> int:
        return self.head_dim or self.hidden // self.heads

    @property
    def embedding_parameters(self) -> int:
        """Of the input embedding."""
        return self.vocab * (self.embedding_width or self.hidden)

    @property
    def attention_layers(self) -> int:
        """Layers that attend to their own row."""
        return self.layers - (self.mixer.layers if self.mixer else 0)

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
        weights += self.queries + 2 * self.keys if self._biased(self.qkv_bias) else 0
        weights += self.hidden if self._biased(self.out_bias) else 0
        return weights + self.attention_extra

    def ffn_parameters(self, inner: int) -> int:
        """Of one feed-forward net of this inner width; none where it is 0."""
        if not inner:
            return 0
        matrices = 3 if self.gated else 2
        biases = (matrices - 1) * inner + self.hidden if self._biased(self.ffn_bias) else 0
        return matrices * self.hidden * inner + biases

    def _biased(self, own: bool | None) -> bool:
        return self.biases if own is None else own

    @property
    def _norm(self) -> int:
        return self.hidden * (2 if self._biased(self.norm_bias) else 1)

    @property
    def norm_parameters(self) -> int:
        """Of the norms of one layer."""
        return self.norms * self._norm

    @property
    def mixing_parameters(self) -> int:
        """Of what mixes tokens, over all layers: attention, attention to an encoder with its norm, other mixers."""
        own = self.attention_layers * self.attention_parameters
        cross = self.cross_layers * (self.attention_parameters + self._norm)
        return own + cross + (self.mixer.layers * self.mixer.parameters if self.mixer else 0)

    @property
    def expert_layers(self) -> int:
        """Layers with experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def expert_parameters(self) -> int:
        """Of the experts of one layer that are split by expert parallelism."""
        return self.experts * self.ffn_parameters(self.expert_ffn) if self.experts else 0

    @property
    def router_parameters(self) -> int:
        """Of the router and the shared experts of one layer with experts."""
        shared = self.ffn_parameters(self.expert_ffn * self.shared_experts)
        return self.hidden * self.experts + self.router_extra + shared

    @property
    def dense_layer_parameters(self) -> int:
        """Of a layer without experts; where layers differ in what mixes tokens, of the mean one."""
        return round(self.mixing_parameters / self.layers) + self.norm_parameters + self.ffn_parameters(self.ffn)

    @property
    def expert_layer_parameters(self) -> int:
        """Of a layer with experts, but without those."""
        return round(self.mixing_parameters / self.layers) + self.norm_parameters + self.router_parameters

    @property
    def table_parameters(self) -> int:
        """Looked up and never multiplied: positions, and the embedding unless it is the head too."""
        lookup = 0 if self.head and self.tied else self.embedding_parameters
        return lookup + self.positions * self.hidden

    @property
    def num_parameters(self) -> int:
        """All, tied ones counted once."""
        if self.parameters:
            return self.parameters
        blocks = self.mixing_parameters + self.layers * self.norm_parameters
        blocks += (self.layers - self.expert_layers) * self.ffn_parameters(self.ffn)
        blocks += self.expert_layers * (self.router_parameters + self.expert_parameters)
        multiplied = self.embedding_parameters if self.head else 0
        return blocks + self.table_parameters + multiplied + self.final_norms * self._norm + self.outside_extra

    @property
    def active_parameters(self) -> int:
        """That one token meets."""
        idle = self.experts - self.active_experts if self.experts else 0
        return self.num_parameters - self.expert_layers * idle * self.ffn_parameters(self.expert_ffn)

    def forward_flops(self, sequence: int, *, causal: bool = True) -> float:
        """Multiplications and additions of one token's forward pass in a row of this length.

        An encoder-decoder is taken to read as many tokens as it writes; one of each is a token here.
        """
        matrices = 2.0 * (self.active_parameters - self.table_parameters)
        scan = self.mixer.layers * self.mixer.scan_flops if self.mixer else 0.0
        return matrices + scan + self.layers * self.attention_flops(sequence, causal=causal)

    def layer_flops(self, sequence: int, *, experts: bool = False, causal: bool = True) -> float:
        """Of one token's forward pass in one layer: products, and scores and weighted values.

        Args:
            sequence: tokens of its row.
            experts: whether it is a layer with experts.
            causal: whether a token sees only earlier ones.
        """
        if experts:
            visited = self.active_experts * self.ffn_parameters(self.expert_ffn)
            matrices = self.expert_layer_parameters + visited
        else:
            matrices = self.dense_layer_parameters
        scan = self.mixer.layers * self.mixer.scan_flops / self.layers if self.mixer else 0.0
        return 2.0 * matrices + scan + self.attention_flops(sequence, causal=causal)

    def attention_flops(self, sequence: int, *, causal: bool = True) -> float:
        """Of scores and weighted values of one token in one layer, on average over the layers and the row."""
        full = self.attention_layers - self.window_layers if self.window else self.attention_layers
        every = sequence / 2 if causal else float(sequence)
        seen = full * every + self.cross_layers * sequence
        if self.window:
            seen += self.window_layers * _seen_in_window(sequence, self.window, causal=causal)
        value = self.mla[3] * self.heads if self.mla else self.queries
        return 2.0 * seen / self.layers * (self.queries + value)

    def cache_bytes(self, sequence: int, *, number: float = 2.0) -> float:
        """Of what is kept of one row to generate its next token: keys and values, latents, states of mixers.

        Args:
            sequence: tokens so far; of the input as well, in an encoder-decoder.
            number: bytes of a number.
        """
        width = self.mla[1] + self.mla[2] if self.mla else 2 * self.keys
        own = self.cross_layers or self.attention_layers
        near = self.window_layers if self.window else 0
        kept = (own - near + self.cross_layers) * sequence + near * min(sequence, self.window)
        states = self.mixer.layers * self.mixer.state if self.mixer else 0
        return number * (kept * width + states)


def _seen_in_window(sequence: int, window: int, *, causal: bool) -> float:
    """Keys that a token sees, averaged over the row: the first `window` tokens see fewer."""
    if not causal:
        return float(min(sequence, window))
    return window * (1 - window / (2 * sequence)) if sequence > window else sequence / 2
