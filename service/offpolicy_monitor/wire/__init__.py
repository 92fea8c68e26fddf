"""The wire: from the bytes of a request to a message, and the digest of its content."""
