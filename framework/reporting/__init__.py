"""TELL: defines the rows that a run fills, and writes them to files and to the console."""
