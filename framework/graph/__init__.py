"""BUILD: compiles a model_fn and input functions into one graph. Knows nothing of sessions or files."""
