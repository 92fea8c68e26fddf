"""The Grafana dashboards as data, and what turns them into JSON with the official SDK: `python -m scripts.dashboards`.

model says what a panel is; fleet, run, masks and ingest are the dashboards, a row per panel; panels, tables and frame
build them. For developers alone: the wheel carries the JSON under dashboards/grafana and no generator.
"""
