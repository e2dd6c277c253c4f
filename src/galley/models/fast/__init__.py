"""The training step of Llama-shaped decoders, written by hand; `llama` is where it begins."""
