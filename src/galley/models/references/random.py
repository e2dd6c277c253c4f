"""`random:15M`: a Llama-shaped decoder of that many parameters, to be trained from nothing."""

from __future__ import annotations

from dataclasses import replace

from galley.base import GalleyError, parse_count
from galley.models.shape import count_parameters
from galley.models.spec import ModelSpec

SMALLEST, LARGEST = 100_000, 200 * 10**9
_VOCABULARIES = ((2e6, 1024), (2e7, 4096), (2e8, 8192), (2e9, 32768))
"""(parameters below, entries): small models spend their parameters on layers rather than on embeddings."""
_TIED_BELOW = 1e9
_WIDTHS = (*range(32, 256, 32), *range(256, 1024, 64), *range(1024, 16385, 256))


class RandomReference:
    """`random:SIZE`."""

    order = 0
    form = "random:15M (a new model of that size)"

    def accepts(self, reference: str) -> bool:
        """The prefix `random:`."""
        return reference.startswith("random:")

    def resolve(self, reference: str) -> ModelSpec:
        """Depth and width for the number of parameters."""
        words = reference.removeprefix("random:")
        try:
            target = parse_count(words)
        except ValueError:
            raise GalleyError("model-not-found", f"{reference!r}: {words!r} is not a size", hint="random:15M") from None
        if not SMALLEST <= target <= LARGEST:
            raise GalleyError(
                "model-not-found", f"{reference!r}: a new model has 100k to 200B parameters", hint="random:15M"
            )
        return random_spec(target, reference)


def random_spec(target: int, reference: str) -> ModelSpec:
    """The Llama shape that is nearest to `target` parameters among those about 64 times as wide as deep.

    Heads of 64 (32 in models narrower than 256), as many key-value heads as heads, a gated MLP of 8/3 the width,
    tied embeddings below a billion parameters. Where another ratio of
    width to depth brings the number of parameters nearer, it may move, to a quarter or four times that at most.

    Source: the one-dial rule of nanochat (width = 64 x depth); Llama (arXiv:2302.13971) for the block.
    """
    vocabulary = next((size for below, size in _VOCABULARIES if target < below), 65536)
    candidates = [_shape(width, vocabulary, target, reference) for width in _WIDTHS]
    return min(candidates, key=lambda spec: _misfit(spec, target))


def _misfit(spec: ModelSpec, target: int) -> float:
    """Relative error in size, plus a little for shapes away from 64 times as wide as deep."""
    ratio = spec.hidden_size / spec.num_layers / 64
    return abs(spec.num_parameters / target - 1) + 0.03 * (max(ratio, 1 / ratio) - 1)


def _shape(width: int, vocabulary: int, target: int, reference: str) -> ModelSpec:
    """The model of this width whose depth comes nearest to the target."""
    one, two = (_of_depth(depth, width, vocabulary, target, reference) for depth in (1, 2))
    a_layer = two.num_parameters - one.num_parameters
    depth = max(1, 1 + round((target - one.num_parameters) / a_layer))
    return _of_depth(depth, width, vocabulary, target, reference)


def _of_depth(depth: int, width: int, vocabulary: int, target: int, reference: str) -> ModelSpec:
    head = 64 if width >= 256 else 32
    spec = ModelSpec(
        reference=reference,
        kind="decoder",
        family="llama",
        source="random",
        num_layers=depth,
        hidden_size=width,
        intermediate_size=-(-8 * width // 3 // 32) * 32,
        num_heads=width // head,
        num_kv_heads=width // head,
        head_dim=head,
        vocab_size=vocabulary,
        max_positions=2048,
        tied_embeddings=target < _TIED_BELOW,
        weight_dtype="float32",
    )
    count = count_parameters(spec)
    return replace(spec, num_parameters=count, weight_bytes=4 * count)


REFERENCE = RandomReference()
