"""Run the instructions, then the service and its health check; the last line says "healthy"."""

import argparse
import tempfile
from pathlib import Path

from scripts.dockerfile.builder import ROOT, Builder
from scripts.dockerfile.root import Root
from scripts.dockerfile.scratch import Scratch


def main() -> None:
    """In a folder that goes when it ends, unless a root is named."""
    parser = argparse.ArgumentParser(prog="python -m scripts.dockerfile", description=__doc__)
    parser.add_argument("--share-dependencies", action="store_true", help="take the dependencies from this Python")
    parser.add_argument("--root", type=Path, metavar="DIR", help="as they stand, in roots of Debian made below DIR")
    parser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    arguments = dict(text.split("=", 1) for text in options.build_arg)
    with tempfile.TemporaryDirectory() as name:
        builder: Builder
        if options.root:
            builder = Root(arguments, options.root.resolve())
        else:
            builder = Scratch(arguments, Path(name), options.share_dependencies)
        builder.build((ROOT / "Dockerfile").read_text())
        builder.serve_and_check()
    print("healthy")


if __name__ == "__main__":
    main()
