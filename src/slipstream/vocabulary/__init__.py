"""What a GGUF file says about its vocabulary, and the two ways of turning text into its ids.

``slipstream.tokenizer`` is the way in; these modules are its parts.
"""
