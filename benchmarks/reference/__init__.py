"""What `tf.estimator` of TensorFlow 2.15 did, recorded in an environment of its own (`benchmarks.old_environment`)."""
