"""The service under Ray Serve: replicas behind one proxy, and one exporter of metrics (extra `ray`).

`options` and `gathered` need no Ray; the rest is imported where there is one.
"""
