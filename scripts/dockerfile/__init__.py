"""Run the Dockerfile's own instructions where there is no container engine: `python -m scripts.dockerfile`

instructions reads the file; builder carries from one instruction to the next what an engine would; scratch moves every
path that the image owns below a folder, which needs no rights and, with shared dependencies, no network; root runs the
instructions as they stand, users and read-only root included, in roots of Debian that debootstrap makes. Knows the
instructions that this Dockerfile has and no others.
"""
