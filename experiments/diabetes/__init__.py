"""Progression of diabetes: regression on feature columns, for the 442 patients that scikit-learn ships."""
