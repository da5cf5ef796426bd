"""States as bytes: checksummed, versioned, and refused as a whole where anything is wrong."""
