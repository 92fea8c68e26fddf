"""The subcommands of db: make it, bring it up to date, check it, give room back, back it up and restore it."""

import argparse
import sys
from pathlib import Path
from typing import Final

from offpolicy_monitor.cli.command import Command, group_of, needed
from offpolicy_monitor.cli.environment import add_database, database_url, without_password
from offpolicy_monitor.commandline import DONE, NO


def _add_vacuum(child: argparse.ArgumentParser) -> None:
    add_database(child)
    child.add_argument("--full", action="store_true", help="on PostgreSQL: write the tables anew, which locks each")


def _upgrade(options: argparse.Namespace) -> int:
    url = database_url(options)
    revision = needed("store.migrate").upgrade(url)
    sys.stdout.write(f"{without_password(url)} is at revision {revision}\n")
    return DONE


def _check(options: argparse.Namespace) -> int:
    problems = needed("store.migrate").check(database_url(options))
    sys.stdout.writelines(f"{problem}\n" for problem in problems or ["the database is right"])
    return NO if problems else DONE


def _vacuum(options: argparse.Namespace) -> int:
    url = database_url(options)
    size = needed("store.space").vacuum(url, options.full)
    sys.stdout.write(f"{without_password(url)} takes {size / 1e6:,.1f} MB\n")
    return DONE


def _add_backup(child: argparse.ArgumentParser) -> None:
    child.add_argument("file", type=Path, metavar="FILE", help="file to write; one that is there is left alone")
    add_database(child)


def _backup(options: argparse.Namespace) -> int:
    revision = needed("store.backup").back_up(database_url(options), options.file.absolute())
    size = options.file.stat().st_size
    sys.stdout.write(f"{options.file}: {size / 1e6:,.1f} MB at revision {revision}, read through and whole\n")
    return DONE


def _add_restore(child: argparse.ArgumentParser) -> None:
    child.add_argument("file", type=Path, metavar="FILE", help="what db backup wrote; it is only read")
    add_database(child)


def _restore(options: argparse.Namespace) -> int:
    url = database_url(options)
    revision = needed("store.backup").restore(url, options.file.absolute())
    sys.stdout.write(f"{without_password(url)} is restored, at revision {revision}\n")
    if advice := needed("store.migrate").outdated(url, "; serve does so too"):
        sys.stdout.write(f"{advice}\n")
    return DONE


DB_COMMANDS: Final = (
    Command(
        "upgrade",
        "make the database, or bring its schema up to date",
        ("$ db upgrade", "$ db upgrade --database-url postgresql://user@host/offpolicy"),
        add_database,
        _upgrade,
    ),
    Command(
        "check",
        "say whether the database is whole and has the schema that this version needs (status 1: no)",
        ("$ db check && echo fine",),
        add_database,
        _check,
    ),
    Command(
        "vacuum",
        "give the room that deleted and old rows have left back to the file system",
        (
            "$ db vacuum          # SQLite: with the service stopped, and as much room again meanwhile",
            "$ db vacuum --full   # PostgreSQL: tables are written anew, each locked meanwhile",
        ),
        _add_vacuum,
        _vacuum,
    ),
    Command(
        "backup",
        "copy a SQLite database as it is now, while the service goes on, and check the copy",
        ("$ db backup /backup/offpolicy-2026-11-23.db",),
        _add_backup,
        _backup,
    ),
    Command(
        "restore",
        "make the SQLite database of a backup, with the service stopped and no database in its place",
        ("$ db restore /backup/offpolicy-2026-11-23.db",),
        _add_restore,
        _restore,
    ),
)

DB: Final = group_of("db", "look after the database", DB_COMMANDS)
