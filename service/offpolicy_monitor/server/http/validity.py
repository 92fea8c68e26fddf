"""When a certificate ends, read from its PEM: what Python's ssl tells of a peer only, it does not of one's own.

Walks the DER down to the validity (RFC 5280, 4.1) and looks at nothing else.
"""

import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

_BLOCK: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
#: Tags of DER: the version of a certificate, and a year of two digits; of four digits is what else a time can be.
VERSION, UTC_TIME = 0xA0, 0x17


def ends_at(pem: str) -> float:
    """Unix time at which the first certificate of a chain to end does; ValueError where there is none."""
    ends = [_end(ssl.PEM_cert_to_DER_cert(block)) for block in _BLOCK.findall(pem)]
    if not ends:
        raise ValueError("no certificate in PEM")
    return min(ends)


def _end(certificate: bytes) -> float:
    ((_, whole),) = _members(certificate)
    _, signed = next(_members(whole))
    fields = [content for tag, content in _members(signed) if tag != VERSION]
    _, (tag, text) = _members(fields[3])  # after serial number, algorithm and issuer
    form = "%y%m%d%H%M%SZ" if tag == UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(text.decode("ascii"), form).replace(tzinfo=UTC).timestamp()


def _members(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each value; ValueError for one that is cut off."""
    at = 0
    while at < len(content):
        tag, size, at = content[at], content[at + 1], at + 2
        if size & 0x80:
            digits = size & 0x7F
            size, at = int.from_bytes(content[at : at + digits]), at + digits
        if at + size > len(content):
            raise ValueError("a certificate that is cut off")
        yield tag, content[at : at + size]
        at += size
