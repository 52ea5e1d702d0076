"""Those who alternate training and evaluation, each in its own way, with the same numbers as a result."""
