"""One package per family of agent programs."""
