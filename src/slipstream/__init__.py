"""Slipstream runs GGUF language models with speculative decoding."""
