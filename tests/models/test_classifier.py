"""Classifiers: encoders, decoders and a user's module; padding never matters, and scores equal transformers' own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, LlamaConfig, LlamaForSequenceClassification

from galley.base import GalleyError
from galley.data.batch import LabelledBatch
from galley.data.examples import Labelled
from galley.data.labelled import ArraySamples, TextSamples, labelled_samples
from galley.methods.classify import Classify, ClassifyConfig
from galley.models import resolve, user_module
from galley.models.base import ModelSettings
from galley.models.classifier import Classifier
from galley.models.spec import ModelSpec

pytestmark = pytest.mark.tiny

LABELS = ("cat", "dog", "owl")


def bert() -> Classifier:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, num_labels=3
    )
    return Classifier(ModelSpec("b", "encoder", "bert"), BertForSequenceClassification(config).eval(), None, LABELS)


def llama() -> Classifier:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        num_labels=3,
        pad_token_id=0,
    )
    return Classifier(ModelSpec("l", "decoder", "llama"), LlamaForSequenceClassification(config).eval(), None, LABELS)


def padded(rows: list[list[int]], width: int) -> LabelledBatch:
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for place, row in enumerate(rows):
        ids[place, : len(row)] = torch.tensor(row)
        mask[place, : len(row)] = 1
    return LabelledBatch({"input_ids": ids, "attention_mask": mask}, torch.zeros(len(rows), dtype=torch.long), 1)


ROWS = [[5, 9, 3], [7, 0, 0], [1, 2, 3, 4, 5, 6, 7]]


@pytest.mark.parametrize("make", [bert, llama])
def test_scores_do_not_depend_on_padding(make: object) -> None:
    model = make()  # type: ignore[operator]
    alone = torch.cat([model.class_logits(padded([row], len(row))) for row in ROWS])
    for width in (7, 12):
        torch.testing.assert_close(model.class_logits(padded(ROWS, width)), alone, rtol=1e-5, atol=1e-6)


def test_decoder_scores_equal_transformers_where_the_pad_id_does_not_occur() -> None:
    model = llama()
    batch = padded([[5, 9, 3], [1, 2, 3, 4]], 4)
    theirs = model.module(**batch.inputs).logits
    torch.testing.assert_close(model.class_logits(batch), theirs)


@pytest.mark.parametrize("parts", [[[0, 1, 2, 3]], [[0], [1, 2, 3]], [[3], [2], [1], [0]]])
def test_loss_is_a_sum_over_rows(parts: list[list[int]]) -> None:
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3))
    model = Classifier(ModelSpec("m", "module", "m"), module, None, LABELS)
    arrays = [np.full((2, 2), value, dtype=np.float32) for value in range(4)]
    samples = ArraySamples(arrays, [0, 1, 2, 0])
    method = Classify(ClassifyConfig(label_smoothing=0.0))
    losses = [method.loss(model, method.batch(samples, part)) for part in parts]
    scores = module(torch.from_numpy(samples.values))
    expected = torch.nn.functional.cross_entropy(scores, torch.tensor([0, 1, 2, 0]), reduction="sum")
    assert sum(float(loss.total.detach()) for loss in losses) == pytest.approx(float(expected), rel=1e-5)
    assert sum(loss.denominator for loss in losses) == 4


def test_a_mixed_or_unknown_row_is_named() -> None:
    image = np.zeros((1, 2, 2), dtype=np.float32)
    with pytest.raises(GalleyError, match="row 2 has the class 'bat'") as caught:
        labelled_samples([Labelled(image, "cat"), Labelled(image, "bat")], LABELS, tokenizer=None, max_length=8)
    assert caught.value.code == "data-row"
    wide = np.zeros((1, 2, 3), dtype=np.float32)
    with pytest.raises(GalleyError, match="row 2 has the shape"):
        labelled_samples([Labelled(image, "cat"), Labelled(wide, "cat")], LABELS, tokenizer=None, max_length=8)
    with pytest.raises(GalleyError, match="takes arrays"):
        labelled_samples([Labelled("text", "cat")], LABELS, tokenizer=None, max_length=8)


class Words:
    """A tokenizer of one id a word, with a token at either end."""

    pad_token_id = 0
    eos_token_id = 1

    def __call__(
        self, texts: list[str], truncation: bool = False, max_length: int | None = None
    ) -> dict[str, list[list[int]]]:
        rows = [[2, *(10 + len(word) for word in text.split())] for text in texts]
        return {"input_ids": [(row[: (max_length or 0) - 1] if truncation else row) + [1] for row in rows]}


def test_cut_texts_are_counted() -> None:
    samples = TextSamples(["a b c d e f", "a"], [0, 1], Words(), 5)
    assert samples.report.rows_truncated == 1
    assert samples.report.tokens_in == 11
    assert samples.report.tokens_cut == 3
    assert int(samples.lengths.sum()) == 11 - 3


@pytest.mark.parametrize("shape", [(1, 8, 8), (8, 8), (3, 28, 28), (1, 5, 7)])
def test_the_builtin_net_takes_any_image(shape: tuple[int, ...]) -> None:
    spec = resolve("convnet")
    offered = {"num_classes": 4, "input_shape": list(shape)}
    net = user_module(Path(spec.config["file"]), spec.config["class"], offered).eval()
    images = torch.rand(2, *shape)
    scores = net(images)
    assert scores.shape == (2, 4)
    torch.testing.assert_close(net(images[:1]), scores[:1], rtol=1e-4, atol=1e-5)


def _module(body: str) -> str:
    return f"import torch\nfrom torch import nn\n\nclass Net(nn.Module):\n{body}\n"


GOOD = """
    def __init__(self, num_classes: int):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.layer = nn.Linear(4, num_classes)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.layer(self.drop(self.norm(x.flatten(1))))
"""
RESULT = "return self.layer(self.drop(self.norm(x.flatten(1))))"


def _built(source: str, tmp_path: Path) -> Classifier:
    path = tmp_path / "net.py"
    path.write_text(_module(source))
    settings = ModelSettings(
        precision="fp32", device="cpu", tuning="full", labels=LABELS, input_shape=(1, 2, 2), tokenizer=None
    )
    return Classify(ClassifyConfig.model_validate({})).build(
        resolve(f"{path}:Net"), settings, lambda kind, message: None
    )


def test_a_single_row_left_over_is_no_trouble_for_batch_norm(tmp_path: Path) -> None:
    model = _built(GOOD, tmp_path)
    model.module.train()
    norm: Any = model.module.norm
    before = norm.running_mean.clone()
    one = LabelledBatch(inputs={"x": torch.randn(1, 1, 2, 2)}, labels_B=torch.zeros(1, dtype=torch.int64), num_tokens=1)
    torch.autograd.backward(model.class_logits(one).sum())
    assert norm.training
    assert torch.equal(norm.running_mean, before), "one row says nothing about the others"
    with pytest.raises(ValueError, match="2D or 3D"):
        norm(torch.randn(4))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "nn.Linear(4,",
            "nn.Linear(9,",
            "fails on rows of the shape [1, 2, 2] (a batch of 2 is [2, 1, 2, 2]): Runtime",
        ),
        ("(4, num_classes)", "(4, 2)", "gave a tensor [2, 2] of float32 for rows"),
        ("(4, num_classes)", "(4, num_classes + 1)", "gave a tensor [2, 4] of float32 for rows"),
        (RESULT, RESULT + ", x", "gave a tuple of 2 items for rows"),
        (RESULT, RESULT + ".argmax(1)", "gave a tensor [2] of int64"),
        (RESULT, RESULT + ".detach()", "that no parameter has a part in"),
        (RESULT, "return None", "gave a NoneType"),
        (RESULT, "return {}['scores']", "KeyError: 'scores'"),
        (
            RESULT,
            "raise ValueError",
            "(a batch of 2 is [2, 1, 2, 2]): ValueError;",
        ),
        ("forward(self, x)", "forward(self, x, mask)", "TypeError"),
    ],
)
def test_a_module_that_does_not_score_the_classes(old: str, new: str, words: str, tmp_path: Path) -> None:
    assert old in GOOD
    with pytest.raises(GalleyError) as caught:
        _built(GOOD.replace(old, new), tmp_path)
    assert caught.value.code == "model-invalid"
    assert words in caught.value.message
    assert "expected [B, 3] floats" in caught.value.message
    assert "net.py:Net" in caught.value.message


def test_a_module_without_parameters(tmp_path: Path) -> None:
    with pytest.raises(GalleyError, match="has no parameters to train") as caught:
        _built("    def forward(self, x):\n        return x.flatten(1)[:, :3]", tmp_path)
    assert caught.value.code == "model-invalid"


def test_the_trial_pass_leaves_no_trace(tmp_path: Path) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    module = _built(GOOD, tmp_path).module
    assert torch.equal(torch.get_rng_state(), before)
    buffers = dict(module.named_buffers())
    assert torch.equal(buffers["norm.running_mean"], torch.zeros(4))
    assert int(buffers["norm.num_batches_tracked"]) == 0
    assert all(weight.grad is None for weight in module.parameters())
    again = user_module(tmp_path / "net.py", "Net", {"num_classes": 3}, seed=0)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(module.parameters(), again.parameters(), strict=True))
