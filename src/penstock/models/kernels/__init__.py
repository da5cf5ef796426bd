"""The kernels of models, run per arrival."""
