"""``wsrm-mq serve``: a WSGI or ASGI SOAP service behind uvicorn, made reliable. ``wsrm-mq queue-server``: the queues of
a store, for programs on other machines. Both stop only when what they have begun is done."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from socketserver import ThreadingMixIn
from types import FrameType
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import click

from wsrm_mq import server
from wsrm_mq.cli.node import hops_of
from wsrm_mq.cli.output import Exit, Stopped, say, write
from wsrm_mq.cli.place import config_option, together
from wsrm_mq.cli.replay import imported
from wsrm_mq.events import telling
from wsrm_mq.server import exposure
from wsrm_mq.serving.admission import ConnectionBounds, files_for
from wsrm_mq.serving.logs import log_to_stderr

if TYPE_CHECKING:
    from wsrm_mq import asgi_calls, front
    from wsrm_mq.config import Settings, loading
    from wsrm_mq.server import mounting


class Listener:
    """Listens from the start; ``run`` answers requests until a signal asks it to stop. Raises ``Stopped`` where uvicorn
    is missing, the address cannot be had or the certificate cannot be used."""

    def __init__(self, settings: Settings) -> None:
        try:
            from wsrm_mq.serving.uvicorn_server import BoundedServer
        except ModuleNotFoundError as error:
            raise Stopped(f"{error.name} is not installed: pip install 'wsrm-mq[serve]'.", Exit.FAILED) from error
        self._server, self._settings = BoundedServer, settings
        if settings.tls_certificate is not None:
            _check(settings.tls_certificate, settings.tls_key)
        self._socket = _listen(settings.host, settings.port)
        shown = f"[{settings.host}]" if ":" in settings.host else settings.host
        scheme = "http" if settings.tls_certificate is None else "https"
        self._url = f"{scheme}://{shown}:{self._socket.getsockname()[1]}"

    def run(
        self, app: asgi_calls.ASGIApplication, tell: Callable[..., None], *endings: Callable[[], None]
    ) -> tuple[int, bool]:
        """Tell the address, serve ``app`` until SIGTERM or SIGINT, take nothing more, call the ``endings`` and finish
        what is here, in ``DRAIN_SECONDS``; the application's lifespan ends last. A second signal ends the process at
        once. Connections are fewer than configured where the system does not allow so many. Answers which signal it
        was and whether all requests were answered. ``tell`` is told of events.

        Raises ``Stopped`` where the application does not start."""
        settings = self._settings
        connections, limit = files_for(settings.max_connections)
        if connections < settings.max_connections:
            tell("serve.few_files", connections=connections, limit=limit)

        def ending() -> None:
            say("wsrm-mq: stopping; what runs is finished first.")
            for end in endings:
                end()

        server = self._server(
            app,
            announce=lambda: write(f"wsrm-mq: serving {self._url}"),
            ending=ending,
            drain_seconds=DRAIN_SECONDS,
            bounds=ConnectionBounds(connections, settings.keep_alive),
            tell=tell,
            certificate=settings.tls_certificate,
            key=settings.tls_key,
        )

        def stop() -> None:
            server.should_exit = True

        with _signals(stop) as caught:
            try:
                server.run([self._socket])
            except SystemExit as error:
                raise Stopped("the application did not start; see above.", Exit.FAILED) from error
        return (caught or [0])[0], server.has_finished


def _check(certificate: str, key: str | None) -> None:
    import ssl

    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except OSError as error:  # what is wrong inside of a file is one too
        where = certificate if key is None else f"{certificate} and {key}"
        raise Stopped(f"cannot use the certificate in {where}: {error.strerror or error}.", Exit.FAILED) from error


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _kind, _protocol, _name, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address, family=family)
    except socket.gaierror as error:
        raise Stopped(f"cannot listen on {host}: {error.strerror}.", Exit.FAILED) from error
    except OSError as error:
        why = os.strerror(error.errno or 0)  # the error's own text repeats the address
        raise Stopped(f"cannot listen on {host}, port {port}: {why}.", Exit.FAILED) from error


@contextmanager
def _signals(wake: Callable[[], None]) -> Iterator[list[int]]:
    """The numbers of the signals that ask to stop, as they come. Each is caught once."""
    caught: list[int] = []

    def catch(number: int, _frame: FrameType | None) -> None:
        caught.append(number)
        signal.signal(number, signal.SIG_DFL)
        wake()

    before = {number: signal.signal(number, catch) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield caught
    finally:
        for number, previous in before.items():
            if number not in caught:
                signal.signal(number, previous)


# ``/metrics`` and ``/healthz`` of ``serve``: on a port of their own, whatever the service's own threads do.

SECONDS: Final = 10.0
"""How long a client may take to send its request."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    timeout = SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a scrape is worth no line."""


_ITS_OWN: Final = {
    "store": "--store",
    "paths": "--path",
    "one_way": "--one-way",
    "headers": "--headers",
    "acknowledge": "--acknowledge",
}
"""Settings of the middleware, not of the server; one that is there already was told them by its application."""
DRAIN_SECONDS: Final = 30.0
"""How long requests and running operations may take to finish once the server is told to stop."""


_listening_options: Final = together(
    config_option,
    click.option("--host", help="Address to listen on.  [default: 127.0.0.1]"),
    click.option("--port", type=int, help="Port; 0 takes a free one.  [default: 8080]"),
    click.option("--store", metavar="PATH", help="The store.  [default: wsrm.db]"),
)
_log_options: Final = together(
    click.option("--log-level", help="debug, info, warning or error."),
    click.option("--log-format", help="text, or json: one object a line."),
)
_tls_options: Final = together(
    click.option("--tls-certificate", metavar="FILE", help="Certificate to show, as PEM.  [default: no TLS]"),
    click.option("--tls-key", metavar="FILE", help="Its key.  [default: in the same file]"),
    click.option("--behind-proxy", is_flag=True, default=None, help="A proxy in front has TLS."),
)


@click.command()
@click.argument("app", metavar="[MODULE:ATTRIBUTE]", required=False)
@_listening_options
@click.option("--threads", type=int, help="Threads that run two-way operations.  [default: 64]")
@click.option("--path", "paths", multiple=True, help="Cover this path and what is below it only. Repeatable.")
@click.option("--one-way", multiple=True, help='An action or operation without an answer. Repeatable; or "auto".')
@click.option("--headers", help="RM headers on their way to the service: pass, demote or strip.")
@click.option("--acknowledge", help="When a message is acknowledged: stored or delivered.")
@click.option("--queues", is_flag=True, default=None, help="Offer its queues too, below /queues, to who has a token.")
@_tls_options
@_log_options
@click.option("--observe-port", type=int, help="Serve /metrics and /healthz on this port of --observe-host; 0: any.")
@click.option("--observe-host", help="Address for them.  [default: 127.0.0.1]")
def serve(app: str | None, config: Path | None, **flags: Any) -> None:
    """Serve the WSGI or ASGI application MODULE:ATTRIBUTE, made reliable with the options given here, in WSRM_MQ_*
    and in wsrm-mq.toml. One that is wrapped already is served as it is.

    The address is written to standard output. SIGTERM and Ctrl-C stop it when what runs is finished.

    \b
    Example: wsrm-mq serve shop.orders:app --port 8080
    """
    loaded = _read(config, app=app, **flags)
    settings = loaded.settings
    if settings.app is None:
        raise click.UsageError("Name the application, as MODULE:ATTRIBUTE, here or as `app` in wsrm-mq.toml.")
    status, is_over = _served(imported(settings.app), loaded)
    if not is_over:
        sys.stderr.flush()
        os._exit(status)  # a thread that never ends would keep the process
    raise click.exceptions.Exit(status)


def _read(config: Path | None, **flags: Any) -> loading.Loaded:
    """The options with the flags that were given; the log is written as they say from now on."""
    from wsrm_mq.config import loading

    given = {name: value for name, value in flags.items() if value not in (None, ())}
    if given.get("one_way") == ("auto",):
        given["one_way"] = "auto"
    loaded = loading.read(config or loading.find_file(os.environ), os.environ, **given)
    log_to_stderr(loaded.settings.log_level, loaded.settings.log_format)
    return loaded


def _served(application: Any, loaded: loading.Loaded) -> tuple[Exit, bool]:
    """Serve until a signal comes; answers the status of the command, and whether all that ran has finished."""
    settings = loaded.settings
    served, reliable = _reliable(application, loaded)
    first = reliable[0]
    tell = first.engine.events.tell
    mounted = offered(settings, first.engine.where, served) if settings.queues else None
    if mounted is None and (settings.stomp_port, settings.stomp_websocket_port) != (None, None):
        say("wsrm-mq: no port of STOMP is opened: `queues` is not set, and --queues not given.")

    endings = [*([mounted.ending] if mounted is not None else []), *(one.stop_waiting for one in reliable)]
    try:
        listener = Listener(settings)
        spare_the_collector()
        for middleware in reliable:
            middleware.engine.ask()
        with _observed(first, settings):
            stopped_by, all_answered = listener.run(mounted or served, tell, *endings)
    except BaseException:
        _close(reliable, has_ended=False)
        raise
    if not all_answered:
        say("wsrm-mq: some requests were cut off; their senders will send again.")
    all_settled = _close(reliable, has_ended=True)
    if not all_settled:
        say("wsrm-mq: an operation still runs; it will be delivered again, marked as a possible redelivery.")
    return Exit.INTERRUPTED if stopped_by == signal.SIGINT else Exit.OK, all_answered and all_settled


def spare_the_collector() -> None:
    """Have the garbage collector pass over what is loaded by now, and look less often: what a message leaves behind has
    no cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def _close(reliable: list[front.Served], *, has_ended: bool) -> bool:
    """Whether all finished. ``has_ended``: the server's lifespan, in which an event loop's middleware had its time."""
    from wsrm_mq import asgi

    end = time.monotonic() + DRAIN_SECONDS
    finished = [
        one.close(0 if has_ended and isinstance(one, asgi.WSRMASGIMiddleware) else max(0.0, end - time.monotonic()))
        for one in reliable
    ]
    return all(finished)


@contextmanager
def _observed(reliable: front.Served, settings: Settings) -> Iterator[None]:
    """/metrics and /healthz meanwhile, if a port is set for them."""
    from wsrm_mq import observe

    if settings.observe_port is None:
        yield
        return

    host, port = settings.observe_host, settings.observe_port
    try:
        server = make_server(host, port, observe.ObserveApp(reliable), _Server, _Quiet)
    except OSError as error:
        raise Stopped(f"cannot listen on {host}, port {port}: {error.strerror}.", Exit.FAILED) from error
    threading.Thread(target=server.serve_forever, name="wsrm-mq-observe", daemon=True).start()
    say(f"wsrm-mq: /metrics and /healthz on http://{host}:{server.server_port}")
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def _reliable(application: Any, loaded: loading.Loaded) -> tuple[asgi_calls.ASGIApplication, list[front.Served]]:
    """The application to serve, and every middleware in it: those that are there already, or a new one around
    ``application``."""
    from wsrm_mq import asgi, hooks
    from wsrm_mq.serving import wrapping

    if wrapping.named_by(application):
        raise click.UsageError(
            f"{loaded.settings.app} names WSRMASGIMiddleware as a middleware of its own, which is made too late for"
            " `serve`. Take it out there, and let `serve` wrap the application, or wrap it yourself, outermost."
        )
    found = wrapping.found_in(application)
    if not found:
        made = asgi.WSRMASGIMiddleware.from_settings(application, serving(loaded))
        return made, [made]
    ignored = ", ".join(flag for name, flag in _ITS_OWN.items() if loaded.origins[name] == "flag")
    say(
        "wsrm-mq: the application is wrapped already; the options it was given hold"
        + (f", and {ignored} changes nothing." if ignored else ".")
    )
    threads, wrapped = loaded.settings.threads, wrapping.outermost(application)
    if wrapped is not None:
        taken = asgi.WSRMASGIMiddleware.in_place_of(wrapped, threads)
        return taken, [taken]
    if hooks.is_asgi(application):
        return application, found
    say("wsrm-mq: the middleware is not the outermost part of the application, so requests are served in threads.")
    return asgi.behind_threads(application, threads), found


def offered(
    settings: Settings, store: str | os.PathLike[str], beside: asgi_calls.ASGIApplication | None = None
) -> mounting.Mounted:
    """The queues of ``store``, beside an application where there is one. Raises ``ConfigurationError`` where they may
    not be offered on the address that is listened on."""
    from wsrm_mq.queue import routing
    from wsrm_mq.server import access as admission_of
    from wsrm_mq.server import mounting, tokens
    from wsrm_mq.server import together as with_stomp
    from wsrm_mq.store import driver, outside
    from wsrm_mq.store import store as stores
    from wsrm_mq.store.sqlite import schema

    path = stores.store_path(store)
    schema.ensure(path)
    with closing(driver.connect_looker(path)) as db:
        has_tokens = bool(tokens.listed(db))
    exposure.refuse_exposed(
        settings.host,
        has_tokens=has_tokens,
        has_tls=settings.tls_certificate is not None,
        behind_proxy=settings.behind_proxy,
    )
    if not has_tokens:
        say("wsrm-mq: no token lets anybody use the queues yet: `wsrm-mq token add` makes one.")
    if settings.node_name is not None:
        outside.run_once(path, partial(routing.settle_name, configured=settings.node_name))
    access = partial(
        admission_of.Access,
        trusted_proxies=settings.trusted_proxies,
        address_header=settings.address_header,
        name_header=settings.client_name_header,
        nodes={name: one.site == settings.site for name, one in settings.nodes.items()},
    )
    hops = hops_of(settings)
    if settings.stomp_port is None and settings.stomp_websocket_port is None:
        return mounting.Mounted(server.queue_application(store, access=access, hops=hops), beside)

    listening = with_stomp.Listening(
        *(settings.host, settings.stomp_port, settings.stomp_websocket_port),
        *(settings.tls_certificate, settings.tls_key),
    )
    speaks = with_stomp.WithStomp(
        store, listening, lambda url: say(f"wsrm-mq: STOMP on {url}"), access=access, hops=hops
    )
    return mounting.Mounted(speaks, beside)


def serving(loaded: loading.Loaded) -> Settings:
    """The settings for an event loop, which keeps no thread for a request that waits: more may wait than elsewhere. A
    number that was set is left as it is."""
    settings = loaded.settings
    if settings.application is None:
        settings = settings.replace(application=settings.app)
    if loaded.origins["max_waiting"] != "default":
        return settings
    return settings.replace(max_waiting=settings.threads // 2)


# ``wsrm-mq queue-server``: the queues of a store for programs on other machines; and what ``serve --queues`` adds.

MANY: Final = 10_000
"""Connections, where the configuration says nothing of them: consumers that wait have one each."""


@click.command("queue-server")
@_listening_options
@_tls_options
@click.option("--stomp-port", type=int, help="Speak STOMP too, on this port; 0: any.")
@click.option("--stomp-websocket-port", type=int, help="The same over WebSockets.")
@_log_options
def queue_server(config: Path | None, **flags: Any) -> None:
    """Offer the queues of a store to programs on other machines, which show a token of `wsrm-mq token add`.

    The address is written to standard output. On one that other machines reach there has to be a token, and TLS here or
    in a proxy. SIGTERM and Ctrl-C stop it when what runs is finished.

    \b
    Example: wsrm-mq queue-server --store wsrm.db --port 8090
    """
    loaded = _read(config, **flags)
    settings = loaded.settings
    if loaded.origins["max_connections"] == "default":
        settings = settings.replace(max_connections=MANY)
    served = offered(settings, settings.store)
    listener = Listener(settings)
    spare_the_collector()
    stopped_by, all_answered = listener.run(served, telling.tell, served.ending)
    if not all_answered:
        say("wsrm-mq: some requests were cut off; their clients will ask again.")
    raise click.exceptions.Exit(Exit.INTERRUPTED if stopped_by == signal.SIGINT else Exit.OK)
