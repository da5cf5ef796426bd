"""What users call, one function per file."""
