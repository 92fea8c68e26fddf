"""Check deploy/ with the programs and schemas of those who read it: `make deployment`. No part of the tests.

kubernetes and systemd are a kind of file each; custom runs under the Python of .venv-deployment, which has the schemas.
"""
