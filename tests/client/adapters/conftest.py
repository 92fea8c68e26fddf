"""Frameworks under test reach for no hub: whatever they need is built by the tests."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
