"""``wsrm-mq doctor``: processes, proxy, clock and store examined, a function for each part: what it saw, and how to
mend what is wrong."""

from __future__ import annotations

import os
import shlex
import socket
import stat
import struct
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from wsrm_mq.acts import others
from wsrm_mq.cli.output import Exit, as_json, prose, write
from wsrm_mq.cli.place import Place, in_store, line_of
from wsrm_mq.cli.status import see
from wsrm_mq.views.words import counted, moment, size, span

if TYPE_CHECKING:
    from wsrm_mq.store import port
    from wsrm_mq.views import overview, rows

# Where a process of this machine listens, as Linux tells those who may know: its user, and root.

_LISTENS: Final = "0A"
_LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Where a server that listens on every address is reached from this machine."""


def listening(pid: int) -> list[tuple[str, int]]:
    """Addresses and ports that can be connected to from here; none where it is not known."""
    process = Path("/proc", str(pid))
    found, sockets = set(), set()
    with suppress(OSError):
        for handle in os.listdir(process / "fd"):
            with suppress(FileNotFoundError):  # closed meanwhile
                sockets.add(os.readlink(process / "fd" / handle))
        for table in ("tcp", "tcp6"):
            for line in (process / "net" / table).read_text().splitlines()[1:]:
                _number, local, _remote, state, *rest = line.split()
                if state == _LISTENS and f"socket:[{rest[5]}]" in sockets:
                    found.add(_place(local))
    return sorted(found)


def _place(written: str) -> tuple[str, int]:
    """``0100007F:1F90``: words of 32 bits as this machine has them, and the port."""
    address, _colon, port = written.partition(":")
    packed = b"".join(struct.pack("=I", int(address[at : at + 8], 16)) for at in range(0, len(address), 8))
    host = socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)
    return _LOOPBACK.get(host, host), int(port, 16)


LOOKED_AT: Final = 200
"""The number of the newest messages that are looked at."""
AHEAD_MS: Final = 2_000
"""How far ahead of this clock a time may be, in ms: it was written while this runs."""
BACK_MS: Final = 1_000
OVERDUE_MS: Final = 10_000
"""A sequence that is open this long after its time, in ms, is kept on purpose."""
SECONDS: Final = 5.0
"""The longest time that the check of the pages may take, or an answer of the server, in seconds."""
DAY_MS: Final = 86_400_000
SOON_MS: Final = 7 * DAY_MS
"""A token that ends within that is to be replaced."""
LARGE_LOG: Final = 256 * 1024 * 1024
"""A write-ahead log that is larger is kept from being used again."""
_REPORTING: Final = {
    "HTTP_X_FORWARDED_FOR": "X-Forwarded-For",
    "HTTP_FORWARDED": "Forwarded",
    "HTTP_X_REAL_IP": "X-Real-IP",
}


class Patient(NamedTuple):
    place: Place
    db: port.Database
    sight: overview.Sight
    requests: list[rows.StoredRequest]
    """The newest first."""


class Trouble(NamedTuple):
    """``fix``: command lines, or lines of the configuration; ``remark``: what else to know of it."""

    what: str
    fix: str
    remark: str = ""


class Report(NamedTuple):
    """``said``: what is well. ``is_known``: otherwise it could not be examined."""

    said: str
    troubles: Sequence[Trouble] = ()
    is_known: bool = True


def processes(patient: Patient) -> Report:
    from wsrm_mq.views import findings

    at = patient.sight.at
    pids = ", ".join(f"{one.pid} on {one.host}" for one in at.instances)
    troubles = [
        Trouble(one.sentence, "\n".join(map(line_of, one.steps[:2])), "one of them, then start the service")
        for one in findings.deadly(patient.sight)
    ]
    if not at.instances and at.is_served and not patient.sight.doubt:
        troubles.append(Trouble("No process of the service lives.", *_start(patient)))
    if at.dead_instances:
        text = f"{at.dead_instances} died, and no live one has noticed: what they ran is not taken over."
        troubles.append(Trouble(text, *_start(patient)))
    troubles += [
        Trouble(
            f"Messages of {one.queue} are for {one.application or 'an application without a name'}, which none serves.",
            line_of(others.RENAME.step("", one.application or "none")),
            f"or start {one.application or 'it'}, if it has no new name",
        )
        for one in at.unserved
    ]
    said = "none lives" if at.is_served else "no service: programs put, consume or send"
    return Report(f"{len(at.instances)} live: {pids}" if pids else said, troubles)


def queues(patient: Patient) -> Report:
    """Does what programs put into queues get consumed?"""
    from wsrm_mq.views import attention

    severity = attention.severities(patient.sight)
    troubles = [
        Trouble(fact.sentence, line_of(fact.steps[0]), fact.steps[0].effect)
        for name in ("full", "unkept", "absent", "growing", "lost_leases", "unconsumed")
        if severity[name]
        for fact in attention.MEASURES[name].facts(patient.sight)
    ]
    there = [one for one in patient.sight.at.consumed if not one.is_kept]
    waits = sum(one.messages for one in there)
    return Report(f"{counted(waits, 'message waits', 'messages wait')} in {counted(len(there), 'queue')}", troubles)


def tokens(patient: Patient) -> Report:
    """Can the programs that use the queues from other machines go on doing so?"""
    from wsrm_mq.server import tokens as stored_tokens

    now, found = patient.sight.now, stored_tokens.listed(patient.db)
    ends = [one for one in found if one.expires_at is not None and one.expires_at - now < SOON_MS]
    troubles = [
        Trouble(
            f"The token {one.name} {'has expired' if one.expires_at <= now else 'expires'}: {moment(one.expires_at)}.",
            f"wsrm-mq token revoke {shlex.quote(one.name)}",
            "then give its program a new one: wsrm-mq token add",
        )
        for one in ends
        if one.expires_at is not None
    ]
    used = sum(one.used_at is not None and now - one.used_at < DAY_MS for one in found)
    said = f"{counted(len(found), 'token')}, {used} used within a day" if found else "none: no other machine uses it"
    return Report(said, troubles)


def _start(patient: Patient) -> tuple[str, str]:
    return f"wsrm-mq serve {patient.place.settings.app or 'MODULE:APP'}", "or as you start your server"


def server(patient: Patient) -> Report:
    """Does it answer, where its processes listen, or where the configuration says?"""
    settings = patient.place.settings
    if not patient.sight.at.is_served:
        return Report("no service, so nothing has to answer")
    if not patient.sight.at.instances:
        return Report("no process lives that could answer", is_known=False)
    if settings.observe_port:
        return _health(f"http://{settings.observe_host}:{settings.observe_port}/healthz")
    for one in patient.sight.at.instances:
        for host, port in listening(one.pid) if one.host == socket.gethostname() else ():
            if _takes_connections(host, port):
                return Report(f"process {one.pid} takes connections on {host}:{port}")
    where = f"{settings.host}:{settings.port}"
    if _takes_connections(settings.host, settings.port):
        return Report(f"something listens on {where}, which is configured; whether it is the service is not known")
    asked = f"nothing listens on {where}, where `serve` would, and it is not known where the processes do"
    return Report(f"{asked}; observe_port has it asked", is_known=False)


def _takes_connections(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), SECONDS).close()
    except OSError:
        return False
    return True


_DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _health(url: str) -> Report:
    try:
        with _DIRECT.open(url, timeout=SECONDS) as answer:
            return Report(f"{url} answers {answer.status}")
    except urllib.error.HTTPError as error:
        said = error.read(400).decode("utf-8", "replace").strip()
        return Report("", [Trouble(f"{url} answers {error.code}: {said}", "wsrm-mq status")])
    except (OSError, ValueError) as error:
        return Report("", [Trouble(f"{url} does not answer: {error}.", "wsrm-mq status", "and the service's log")])


def proxy(patient: Patient) -> Report:
    """Are the senders of the newest messages who they seem to be?"""
    from wsrm_mq.destination import connections as senders_of

    if not patient.requests:
        return Report("no message is stored to see it by", is_known=False)
    proxies = senders_of.Proxies(patient.place.settings.trusted_proxies)
    senders = Counter(one.environ.get("REMOTE_ADDR", "") for one in patient.requests)
    reported = Counter(
        (one.environ.get("REMOTE_ADDR", ""), header)
        for one in patient.requests
        for key, header in _REPORTING.items()
        if key in one.environ and one.environ.get("REMOTE_ADDR", "") not in one.environ[key]  # else it is known
    )
    header = patient.place.settings.address_header
    newest = f"the last {counted(len(patient.requests), 'message')}"
    told = f"{newest} came from {_some(senders)}"
    if header is None:
        for (address, named), count in reported.most_common(1):
            text = (
                f"{count} of {newest} came with {named}: a proxy at {address} sent "
                "that on, and it is taken for the proxy's own."
            )
            fix = f'trusted_proxies = ["{address}"]\naddress_header = "{named}"'
            return Report(told, [Trouble(text, fix, "lines of wsrm-mq.toml, above its first section")])
        return Report(told)
    unreported = sum(count for address, count in senders.items() if proxies.are_trusted(address))
    if unreported:
        text = f"{unreported} of {newest} came from a trusted proxy that did not name its client in {header}."
        return Report(
            told, [Trouble(text, _NGINX.format(header=header), "a line of nginx; other proxies have their own")]
        )
    return Report(told)


_NGINX: Final = "proxy_set_header {header} $proxy_add_x_forwarded_for;"


def _some(senders: Counter[str]) -> str:
    most = ", ".join(address or "no address" for address, _ in senders.most_common(3))
    return most if len(senders) <= 3 else f"{most} and {len(senders) - 3} more"


def clock(patient: Patient) -> Report:
    from wsrm_mq.views import rows

    now = patient.sight.now
    times = [rows.last_told(patient.db), *(one.received_at for one in patient.requests[:1])]
    times += [one.started_at for one in patient.sight.at.instances]
    ahead = max((at for at in times if at is not None), default=now) - now
    fix = "timedatectl", "have the clock slewed, not stepped: a step back makes waits longer, and times wrong"
    if ahead > AHEAD_MS:
        text = f"The store has a time that is {span(ahead)} ahead of this clock ({moment(now)}): it was stepped back."
        return Report("", [Trouble(text, *fix)])
    newest_first = [one.received_at for one in patient.requests]
    backwards = max((old - new for new, old in pairwise(newest_first)), default=0)
    if backwards > BACK_MS:
        text = f"Among the last {counted(len(newest_first), 'message')} the clock went back by {span(backwards)}."
        return Report("", [Trouble(text, *fix)])
    waiting, first = rows.overdue(patient.db, now - OVERDUE_MS)
    if waiting and first is not None and patient.sight.at.instances:
        text = (
            f"By this clock ({moment(now)}) the time of {counted(waiting, 'sequence')} is over, of the first since "
            f"{moment(first)}, and the service has not ended it: it doubts the clock, which has jumped ahead."
        )
        remark = "set it back within ten minutes of the jump if it is wrong: then the service ends what is over"
        return Report("", [Trouble(text, "timedatectl", remark)])
    return Report(f"{moment(now)}, and nothing in the store is later")


def lock(patient: Patient) -> Report:
    """See whether a service may write."""
    obstacle = patient.sight.obstacle
    if obstacle is None:
        return Report("the store can be written")
    if obstacle.is_of_asker:
        return Report(obstacle.what, is_known=False)
    return Report("", [Trouble(f"No message is taken: {obstacle.what}.", *_stop_others(patient))])


def log(patient: Patient) -> Report:
    """Is the write-ahead log used again from its beginning?"""
    wal = patient.sight.at.wal_bytes
    if wal < LARGE_LOG:
        return Report(f"{size(wal)}")
    text = f"The write-ahead log has {size(wal)}: a reader keeps it from being used again."
    return Report("", [Trouble(text, *_stop_others(patient))])


def _stop_others(patient: Patient) -> tuple[str, str]:
    from wsrm_mq.store.sqlite import vitals

    pids = {one.pid for one in patient.sight.at.instances}
    act = [one for one in vitals.openers(patient.place.path) if one.pid not in pids]
    if not act:
        return f"fuser -v {shlex.quote(str(patient.place.path))}", "as root: which program has it open; end that one"
    commands = "\n".join(f"kill {one.pid}" for one in act)
    return commands, "no process of the service: " + "; ".join(one.command for one in act)


def space(patient: Patient) -> Report:
    from wsrm_mq.views import attention, store_findings

    at, sight = patient.sight.at, patient.sight
    used = f"{size(at.file_bytes)} of store, {size(at.disk_free)} free beside it"
    first, *_doctor = store_findings.make_room(sight)
    remedy = (line_of(first), f"{first.effect}; or free space on the disk")
    if sight.room is not None and not sight.room.older_than:
        remedy = (f"df -h {shlex.quote(str(patient.place.path.parent))}", "nothing may be pruned: free space there")
    if at.is_reserve_spent or attention.severities(sight)["disk_free"]:
        full = "full" if at.is_reserve_spent else "nearly full"
        return Report(used, [Trouble(f"The disk is {full}: {size(at.disk_free)} free.", *remedy)])
    if sight.is_over:
        limit = size(sight.max_store or 0)
        return Report(used, [Trouble(f"max_store is reached: {size(at.used_bytes)} of {limit}.", *remedy)])
    return Report(used)


def pages(patient: Patient) -> Report:
    from wsrm_mq.store.sqlite import vitals

    found = vitals.unsound(patient.db, SECONDS)
    if found is None:
        return Report(f"not through in {SECONDS:g} s; all of it: wsrm-mq store verify", is_known=False)
    if found:
        return Report(
            "", [Trouble(f"The file is damaged: {found}", "wsrm-mq store verify", "then go on with a backup")]
        )
    return Report("the quick check finds nothing")


def identity(patient: Patient) -> Report:
    doubt = patient.sight.doubt
    if doubt:
        return Report("", [Trouble(f"The store {doubt}", "wsrm-mq store adopt --dry-run")])
    return Report("the newest state, as far as can be known")


def permissions(patient: Patient) -> Report:
    path = patient.place.path
    found = path.stat()
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        text = f"Others may read the store, which has messages of partners (mode {mode:04o})."
        return Report("", [Trouble(text, f"chmod 600 {shlex.quote(str(path))}")])
    if found.st_uid != os.geteuid():
        return Report(f"its owner is user {found.st_uid}; run repairs as that user", is_known=os.geteuid() == 0)
    return Report(f"its owner's alone (mode {mode:04o})")


EXAMINATIONS: Final[dict[str, Callable[[Patient], Report]]] = {
    examine.__name__: examine
    for examine in (*(processes, queues, tokens, server, proxy, clock, identity, lock, log, space, pages, permissions),)
}
MARGIN: Final = 9


@click.command()
@in_store
def doctor(place: Place) -> None:
    """Examine processes, server, proxy, clock and store, and say how to mend what is wrong. Exit status 1 where
    something is.

    \b
    Example: wsrm-mq doctor
             wsrm-mq doctor --json
    """
    from wsrm_mq.views import rows

    with place.looking() as db:
        patient = Patient(place, db, see(place, db), rows.newest_requests(db, LOOKED_AT))
        reports = {name: examine(patient) for name, examine in EXAMINATIONS.items()}
    is_well = not any(report.troubles for report in reports.values())
    if place.is_json:
        as_json(
            well=is_well,
            examinations={
                name: {
                    "well": None if not report.is_known else not report.troubles,
                    "said": report.said,
                    "troubles": [
                        {**one._asdict(), "fix": [place.command(line) for line in one.fix.splitlines()]}
                        for one in report.troubles
                    ],
                }
                for name, report in reports.items()
            },
        )
    for name, report in () if place.is_json else reports.items():
        if not report.troubles:
            word, style = ("ok", "green") if report.is_known else ("unknown", "cyan")
            prose(f"{name}: {report.said}", word, margin=MARGIN, style=style)
        for one in report.troubles:
            prose(f"{name}: {one.what}", "TROUBLE", margin=MARGIN, style="bold red")
            for count, line in enumerate(one.fix.splitlines()):
                write(f"{'fix: ' if not count else '':>{MARGIN}}{place.command(line)}")
            if one.remark:
                prose(one.remark, margin=MARGIN)
    if not is_well:
        raise click.exceptions.Exit(Exit.FAILED)
