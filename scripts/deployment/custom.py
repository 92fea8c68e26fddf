"""Check resources of the Prometheus Operator: `custom.py MANIFESTS`, under a Python that has its models.

The models let fields pass that they do not know, and forget them: what is read back has to be what was written.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

import yaml

KINDS = ("PrometheusRule", "ServiceMonitor")


def main(file: str) -> None:
    """Say what was checked, and end with 1 where something is wrong or missing."""
    models: Any = importlib.import_module("cloudcoil.models.prometheus_operator.v1")
    documents = {document["kind"]: document for document in yaml.safe_load_all(Path(file).read_text())}
    for kind in KINDS:
        resource = getattr(models, kind).model_validate(documents[kind])
        back = resource.model_dump(mode="json", by_alias=True, exclude_unset=True)
        if back != documents[kind]:
            sys.exit(f"{kind} has fields that the Prometheus Operator does not know")
        print(f"{kind}: accepted")


if __name__ == "__main__":
    main(*sys.argv[1:])
