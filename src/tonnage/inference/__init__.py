"""LLM serving: the engine model (one replica), its memory and timing, and what one replica sustains."""
