"""What models compute per arrival, as kernels."""
