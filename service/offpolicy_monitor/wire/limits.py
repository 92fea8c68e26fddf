"""Limits: the most that one body may hold, as a plain value.

The field names are those of the settings, so that a refusal can name the variable that raises a limit. Where the values
come from is not known here. Byte limits are refused with 413, limits on counts with 422.
"""

from dataclasses import dataclass

from offpolicy_monitor.errors import Refusal


@dataclass(frozen=True)
class Limits:
    """Bytes, counts and characters one body may have."""

    max_decoded_bytes: int
    max_decoded_ratio: int
    max_json_bytes: int
    max_json_lists: int
    max_frame_header_bytes: int
    max_tensors: int
    max_tokens: int
    max_sequences: int
    max_sequence_length: int
    max_label_length: int
    max_sequence_id_length: int
    max_methods: int
    max_run_methods: int
    max_summary_bytes: int
    max_summary_tables: int
    keep_worst: int

    def check(self, limit: str, field: str, got: int) -> None:
        """Refuse with 422 a count that is over the limit of that name; `field` is what the client sees at fault."""
        if got > getattr(self, limit):
            raise self.refusal(422, limit, field, got)

    def refusal(self, status: int, limit: str, field: str, got: object) -> Refusal:
        """The refusal that names field, limit and setting: 413 for bytes, 422 for counts."""
        kind = "too-large" if status == 413 else "over-limit"
        return Refusal.over_limit(status, kind, field, got, getattr(self, limit), f"OFFPOLICY_{limit.upper()}")
