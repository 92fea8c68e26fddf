"""A fleet of runs against one, two and four workers."""
