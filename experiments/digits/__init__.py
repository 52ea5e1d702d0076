"""Handwritten digits: a small convolutional network on the 1,797 images that scikit-learn ships."""
