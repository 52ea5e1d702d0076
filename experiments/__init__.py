"""Experiments in one fixed form: model.py, data.py, README.md."""
