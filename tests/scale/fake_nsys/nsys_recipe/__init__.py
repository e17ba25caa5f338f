"""A minimal stand-in for NVIDIA's recipe library: what our adapter uses of it, and the way in which it finds and runs a recipe."""
