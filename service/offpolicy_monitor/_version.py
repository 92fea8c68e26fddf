"""The version of the distribution; read by the build, the client's user agent and `offpolicy_build_info`."""

__version__ = "0.1.0"
