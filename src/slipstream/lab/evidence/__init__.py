"""Records as they are kept, and every figure derived from them."""
