"""HTTP in front of an engine process: OpenAI's, llama.cpp's and Anthropic's endpoints."""
