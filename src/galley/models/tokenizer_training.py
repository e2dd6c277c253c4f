"""A tokenizer for models that start from nothing: byte-level BPE learned from the training text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

END_OF_TEXT = "<|endoftext|>"
CHAT_TOKENS = ("<|im_start|>", "<|im_end|>")


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Any:
    """Learn byte-level BPE: any text can be written and read back exactly, digits stand alone.

    Args:
        texts: the training text, in any pieces; the result depends on it alone.
        vocab_size: entries including the special ones. Little text may give fewer.

    Returns:
        A transformers tokenizer whose end-of-text token ends and pads documents; `<|im_start|>` and `<|im_end|>`
        are kept for chat templates.

    Source: Sennrich et al. (arXiv:1508.07909); byte level as in GPT-2.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT, *CHAT_TOKENS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        extra_special_tokens=list(CHAT_TOKENS),
        clean_up_tokenization_spaces=False,
    )
