"""What changes the database: shards stored, steps merged, judged, settled and deleted. Reads through `store.rows`."""
