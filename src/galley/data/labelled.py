"""Rows to classify as numbered samples: token ids for text, stacked arrays for everything else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from galley.base import GalleyError
from galley.data.batch import LabelledBatch
from galley.data.examples import Labelled
from galley.data.samples import EncodeReport

if TYPE_CHECKING:
    import numpy as np

    Int64Array = np.ndarray[Any, np.dtype[np.int64]]


class TextSamples:
    """Texts as token ids, cut at their end, with class numbers.

    Args:
        texts: one a row.
        classes: class number of each row.
        tokenizer: a transformers tokenizer; its own special tokens frame each text.
        max_length: longest row, in tokens, special ones included.
    """

    def __init__(self, texts: Sequence[str], classes: Sequence[int], tokenizer: Any, max_length: int) -> None:
        import numpy as np

        self.classes = np.asarray(classes, dtype=np.int64)
        self.pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id or 0
        full = np.array([len(ids) for ids in tokenizer(list(texts))["input_ids"]], dtype=np.int64)
        kept = tokenizer(list(texts), truncation=True, max_length=max_length)["input_ids"]
        self._ids = [np.asarray(ids, dtype=np.int64) for ids in kept]
        self._lengths = np.array([len(ids) for ids in kept], dtype=np.int64)
        longest = tuple(int(value) for value in np.percentile(full, [50, 95, 100], method="higher"))
        self.report = EncodeReport(
            rows_in=len(texts),
            rows_kept=len(texts),
            rows_without_targets=0,
            rows_truncated=int((self._lengths < full).sum()),
            tokens_in=int(full.sum()),
            tokens_cut=int((full - self._lengths).sum()),
            tokens_dropped=0,
            supervised_tokens=len(texts),
            lengths=(longest[0], longest[1], longest[2]),
        )

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def lengths(self) -> Int64Array:
        """Tokens of each row, [R]."""
        return self._lengths

    def batch(self, rows: Sequence[int]) -> LabelledBatch:
        """Rows padded on the right to the longest of them."""
        import numpy as np
        import torch

        width = int(self._lengths[list(rows)].max())
        ids_BT = np.full((len(rows), width), self.pad_id, dtype=np.int64)
        mask_BT = np.zeros_like(ids_BT)
        for place, row in enumerate(rows):
            ids_BT[place, : len(self._ids[row])] = self._ids[row]
            mask_BT[place, : len(self._ids[row])] = 1
        inputs = {"input_ids": torch.from_numpy(ids_BT), "attention_mask": torch.from_numpy(mask_BT)}
        return LabelledBatch(inputs, torch.from_numpy(self.classes[list(rows)]), int(mask_BT.sum()))


class ArraySamples:
    """Arrays of one shape, such as images, with class numbers. Every row counts as length 1."""

    def __init__(self, arrays: Sequence[np.ndarray[Any, Any]], classes: Sequence[int]) -> None:
        import numpy as np

        self.classes = np.asarray(classes, dtype=np.int64)
        self.values = np.stack(arrays).astype(np.float32)
        count = len(arrays)
        self.report = EncodeReport(
            rows_in=count,
            rows_kept=count,
            rows_without_targets=0,
            rows_truncated=0,
            tokens_in=count,
            tokens_cut=0,
            tokens_dropped=0,
            supervised_tokens=count,
            lengths=(1, 1, 1),
            row_shape=self.values.shape[1:],
        )

    def __len__(self) -> int:
        return len(self.values)

    @property
    def lengths(self) -> Int64Array:
        """Ones, [R]."""
        import numpy as np

        return np.ones(len(self), dtype=np.int64)

    def batch(self, rows: Sequence[int]) -> LabelledBatch:
        """Rows stacked; the module gets them as its only argument."""
        import torch

        chosen = list(rows)
        inputs = {"x": torch.from_numpy(self.values[chosen])}
        return LabelledBatch(inputs, torch.from_numpy(self.classes[chosen]), len(chosen))


def labelled_samples(
    examples: Sequence[Labelled], labels: Sequence[str], *, tokenizer: Any, max_length: int
) -> TextSamples | ArraySamples:
    """Samples of rows that are all text, or all arrays of one shape.

    Args:
        examples: rows with the name of their class.
        labels: names of all classes; their order numbers them.
        tokenizer: for text; None for models that take arrays.
        max_length: longest text, in tokens.

    Raises:
        GalleyError: `data-format` when the rows do not suit the model, `data-row` for a shape of its own or a class
            that the training rows do not have.
    """
    import numpy as np

    numbers = {label: number for number, label in enumerate(labels)}
    for row, example in enumerate(examples, start=1):
        if example.label not in numbers:
            known = ", ".join(list(labels)[:10])
            message = f"row {row} has the class {example.label!r}, which no training row has (known: {known})"
            raise GalleyError("data-row", message, hint="correct the label, or add training rows of that class")
    classes = [numbers[example.label] for example in examples]
    texts = [example.input for example in examples if isinstance(example.input, str)]
    if len(texts) == len(examples):
        if tokenizer is None:
            hint = "name a text model, e.g. model: smollm2-135m-instruct"
            raise GalleyError("data-format", "the rows are text, and this model takes arrays of numbers", hint=hint)
        return TextSamples(texts, classes, tokenizer, max_length)
    arrays = [np.asarray(example.input) for example in examples if not isinstance(example.input, str)]
    if texts or tokenizer is not None:
        what = "some rows are text and some are arrays" if texts else "the rows are arrays, and this model takes text"
        raise GalleyError("data-format", what, hint="images need a module of your own or `model: convnet`")
    for row, array in enumerate(arrays, start=1):
        if array.shape != arrays[0].shape:
            message = f"row {row} has the shape {array.shape}, row 1 has {arrays[0].shape}"
            raise GalleyError("data-row", message, hint="bring all rows to one shape first")
    return ArraySamples(arrays, classes)
