"""What /metrics shows: gauges as a pure function of stored rows, counters and histograms of this process.

Nothing is registered in prometheus_client's default registry; a registry belongs to one application.
"""
