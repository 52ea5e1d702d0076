"""What the promises about speed are measured with. Run from the root of a checkout; nothing here is packaged."""
