"""The subcommands of token: make access tokens, list them, take them back. They work on the database, as db does."""

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from offpolicy_monitor.access import ANY_RUN, LONGEST_NOTE, MEANING, RUNS, SCOPES, AccessToken, id_in, made, proves
from offpolicy_monitor.answers.style import style_of
from offpolicy_monitor.answers.table import Column, table
from offpolicy_monitor.cli.command import Command, add_json, group_of, needed
from offpolicy_monitor.cli.environment import add_database, database_url, read_settings
from offpolicy_monitor.commandline import DONE, NO
from offpolicy_monitor.errors import ConfigurationError
from offpolicy_monitor.timestamps import timestamp

UNITS: Final[Mapping[str, int]] = {"m": 60, "h": 3600, "d": 86_400}
#: Columns of the list that may be cut on a narrow terminal, and to how much.
CUT: Final = {"note": 12, "runs": 12}
FIRST: Final = (
    "this is the first token: a service on this database asks for one from now on (OFFPOLICY_AUTH=auto), "
    "trainers, browsers and Prometheus included"
)


def _add_create(child: argparse.ArgumentParser) -> None:
    add_database(child)
    scopes = "; ".join(f"{scope}: {MEANING[scope]}" for scope in SCOPES)
    child.add_argument(
        "--scope",
        action="append",
        required=True,
        choices=SCOPES,
        help=f"what it is for, repeat it for several. {scopes}",
    )
    child.add_argument(
        "--run", type=_runs, default=ANY_RUN, metavar="PATTERN", help="the runs it is for: llama-*; * and ? (all)"
    )
    child.add_argument("--expires", type=_expiry, metavar="WHEN", help="30d, 12h, 90m, or a date: 2027-01-31 (never)")
    child.add_argument("--note", type=_note, default="", metavar="TEXT", help="whose it is, for the list")
    child.add_argument(
        "--file",
        type=Path,
        metavar="FILE",
        help="write it to FILE, for its owner alone; where FILE has a valid token of these scopes, no other is made",
    )
    add_json(child)


def _add_list(child: argparse.ArgumentParser) -> None:
    add_database(child)
    add_json(child)


def _add_revoke(child: argparse.ArgumentParser) -> None:
    add_database(child)
    child.add_argument("ids", nargs="+", type=_id, metavar="ID", help="from the list; a whole token is taken too")


def _create(options: argparse.Namespace) -> int:
    url, now, store = database_url(options), time.time(), needed("store.access")
    kept = _kept(options.file, store.read_all(url) if options.file else [], options.scope, now)
    if kept is not None:
        sys.stdout.write(f"{options.file} has {kept.id}, which is valid\n")
        return DONE
    token, text = made(options.scope, options.run, options.note, now, options.expires)
    if options.file is not None:
        _write(options.file, text)
    first = store.enter(url, token)
    _audit("token created", token=token.id, scopes=" ".join(sorted(token.scopes)), runs=token.runs)
    shown = {} if options.file else {"token": text}
    if options.json:
        sys.stdout.write(json.dumps(shown | _row(token, now), indent=2) + "\n")
    else:
        sys.stdout.write(f"{text if shown else f'{token.id} is in {options.file}'}\n")
    said = (["it is shown this once; set it as OFFPOLICY_TOKEN"] if shown else []) + ([FIRST] if first else [])
    sys.stderr.writelines(f"{line}\n" for line in said)
    return DONE


def _list(options: argparse.Namespace) -> int:
    now = time.time()
    rows = [_row(token, now) for token in needed("store.access").read_all(database_url(options))]
    names = [name for name in (rows[0] if rows else ()) if name != "revoked_at"]
    columns = [Column(name, [_cell(row[name]) for row in rows], cut=CUT.get(name, 0)) for name in names]
    lines = [json.dumps(rows, indent=2)] if options.json else table(columns, style_of(sys.stdout, os.environ))
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return DONE


def _revoke(options: argparse.Namespace) -> int:
    found = needed("store.access").revoke(database_url(options), options.ids, time.time())
    for name in found:
        _audit("token revoked", token=name)
        sys.stdout.write(f"{name} is revoked\n")
    unknown = sorted(set(options.ids) - set(found))
    sys.stderr.writelines(f"there is no token {name}\n" for name in unknown)
    return NO if unknown else DONE


def _kept(file: Path | None, tokens: Sequence[AccessToken], scopes: Sequence[str], now: float) -> AccessToken | None:
    """The token that a file holds already, where it is valid and for all of this."""
    if file is None:
        return None
    text = ""
    with suppress(OSError, UnicodeDecodeError):
        text = file.read_text("ascii").strip()
    valid = (token for token in tokens if token.state(now) == "valid" and all(token.has([scope]) for scope in scopes))
    return next((token for token in valid if proves(text, token)), None)


def _write(file: Path, text: str) -> None:
    """In place of what is there, readable by its owner alone from its first moment on."""
    new = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="ascii") as opened:
            opened.write(f"{text}\n")
        new.replace(file)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written: {error.strerror}") from error


def _row(token: AccessToken, now: float) -> dict[str, Any]:
    times = {
        name: timestamp(getattr(token, name)) for name in ("created_at", "expires_at", "last_used_at", "revoked_at")
    }
    about = {"id": token.id, "state": token.state(now), "scopes": sorted(token.scopes, key=SCOPES.index)}
    return {**about, "runs": token.runs, "note": token.note, **times}


def _cell(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return "" if value is None else str(value)


def _audit(event: str, **fields: str) -> None:
    """A line of the audit log, on stderr as the service's own."""
    settings = read_settings()
    needed("logs").configure(settings.log_level, settings.log_format)
    needed("audit").log().info(event, **fields)


def _runs(text: str) -> str:
    if not re.fullmatch(RUNS, text):
        raise argparse.ArgumentTypeError(f"{text!r} names no runs: letters, digits, ._- and * and ?, up to 128")
    return text


def _note(text: str) -> str:
    if len(text) > LONGEST_NOTE or not text.isprintable():
        raise argparse.ArgumentTypeError(f"must be one line of at most {LONGEST_NOTE} characters")
    return text


def _id(text: str) -> str:
    return id_in(text) or text.removeprefix("opm_")


def _expiry(text: str) -> float:
    """Unix seconds, later than now."""
    now = time.time()
    length = re.fullmatch(r"([1-9][0-9]{0,5})([mhd])", text)
    try:
        when = now + int(length[1]) * UNITS[length[2]] if length else _date(text)
    except ValueError as error:
        message = f"{text!r} is neither a length of time (30d, 12h, 90m) nor a date (2027-01-31)"
        raise argparse.ArgumentTypeError(message) from error
    if when <= now:
        raise argparse.ArgumentTypeError(f"{text} is over")
    return when


def _date(text: str) -> float:
    """The beginning of a day, or a moment of it; in UTC where it does not say."""
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


TOKEN_COMMANDS: Final = (
    Command(
        "create",
        "make an access token and print it, once",
        (
            "$ token create --scope ingest --run 'llama-*' --note 'cluster A' --expires 90d",
            "$ token create --scope read --note prometheus --file /etc/prometheus/offpolicy.token",
            "export OFFPOLICY_TOKEN=$($ token create --scope admin)",
        ),
        _add_create,
        _create,
    ),
    Command(
        "list",
        "list the access tokens: what each is for, whether it is valid, when it was used last",
        ("$ token list", "$ token list --json | jq -r '.[] | select(.state == \"valid\") | .id'"),
        _add_list,
        _list,
    ),
    Command(
        "revoke",
        "take access tokens back; a running service knows within seconds",
        ("$ token revoke 5f1c09aa31d2",),
        _add_revoke,
        _revoke,
    ),
)

TOKEN: Final = group_of("token", "say who may post and read: access tokens", TOKEN_COMMANDS)
