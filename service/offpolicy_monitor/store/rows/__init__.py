"""What the rows of the database are, and how they are read. Never imports `store.write`."""
