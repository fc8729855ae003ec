"""For our tests and those of our users: doubles, contract suites, and the real programs."""
