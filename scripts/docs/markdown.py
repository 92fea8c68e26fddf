"""Pieces of Markdown pages: a table, and text between two markers."""

from collections.abc import Iterable


def between(text: str, begin: str, content: str, end: str) -> str:
    """The text with this content between two markers."""
    head, rest = text.split(begin)
    return head + begin + content + end + rest.split(end)[1]


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)
