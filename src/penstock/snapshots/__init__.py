"""States as bytes: checksummed, versioned, and rejected as a whole if anything is wrong."""
