"""Data: reading it into typed examples, templates and masks, tokens, packing and batches."""

from galley.data.dataset import Dataset, DataStatistics, Scorer
from galley.data.examples import Completion, Conversation, Document, Example, Labelled, Message
from galley.data.facts import statistics
from galley.data.reading import read
from galley.data.source import FORMATS

__all__ = [
    "FORMATS",
    "Completion",
    "Conversation",
    "DataStatistics",
    "Dataset",
    "Document",
    "Example",
    "Labelled",
    "Message",
    "Scorer",
    "read",
    "statistics",
]
