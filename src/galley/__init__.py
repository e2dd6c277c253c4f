"""Galley trains models: one recipe in, a trained and proven model out."""

__version__ = "0.1.0"
