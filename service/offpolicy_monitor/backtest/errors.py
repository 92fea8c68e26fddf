"""BadHistory: a file that is no history of a run. Says which file, which field and which line."""

from offpolicy_monitor.errors import ConfigurationError


class BadHistory(ConfigurationError):
    """A history cannot be read; the message names the file, and the line or the field at fault."""
