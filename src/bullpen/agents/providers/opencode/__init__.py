"""opencode: what our plugin hears of it."""
