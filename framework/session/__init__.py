"""RUN: the only room that runs a session."""
