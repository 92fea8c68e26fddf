"""Routes, each module named by what it answers. What they share of HTTP is in `server.http`."""
