"""The configuration: where a value comes from, what it may be, and what a mistake is told."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from wsrm_mq.config import Settings, load, settings_from
from wsrm_mq.config.loading import find_file, read
from wsrm_mq.config.options import toml
from wsrm_mq.config.settings import NODE_OPTIONS, OPTIONS, PARTNER_DEFAULTS, PARTNER_OPTIONS, Partner, under
from wsrm_mq.config.writing import as_toml, as_values
from wsrm_mq.errors import ConfigurationError
from wsrm_mq.queue.policy import MAX_RANGES, Acknowledge, Mode, OnFault, OnPoison, QueuePolicy
from wsrm_mq.queue.room import Room
from wsrm_mq.sequence.elements import IncompleteSequenceBehavior
from wsrm_mq.sequence.terms import Bounds, DeliveryAssurance

FOLLOWING = IncompleteSequenceBehavior.DISCARD_FOLLOWING_FIRST_GAP


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("wsrm-mq.toml")


def mistake(file: Path, text: str, environ: dict[str, str] | None = None) -> str:
    """What is said about a file."""
    file.write_text(text)
    with pytest.raises(ConfigurationError) as raised:
        load(file, environ or {})
    return str(raised.value)


# where a value comes from


def test_a_flag_beats_the_environment_beats_the_file_beats_the_default(file: Path) -> None:
    file.write_text("port = 1\nthreads = 1\nmax_held = 1\n")
    environ = {"WSRM_MQ_PORT": "2", "WSRM_MQ_THREADS": "2", "HOME": "/"}
    settings, origins = read(file, environ, port=3)
    assert (settings.port, settings.threads, settings.max_held, settings.host) == (3, 2, 1, "127.0.0.1")
    assert [origins[name] for name in ("port", "threads", "max_held", "host")] == ["flag", "env", "file", "default"]


def test_without_a_file_nothing_is_read(file: Path) -> None:
    file.write_text("port = 1")
    assert load(None, {}) == Settings()


def test_the_file_is_the_one_named_or_the_one_that_is_here(file: Path) -> None:
    assert find_file({}) is None
    file.write_text("")
    assert find_file({}) == file
    assert find_file({"WSRM_MQ_CONFIG": "/etc/wsrm.toml"}) == Path("/etc/wsrm.toml")
    assert load(None, {"WSRM_MQ_CONFIG": "/etc/wsrm.toml"}) == Settings()


def test_a_program_gives_python_values() -> None:
    settings = settings_from(
        {
            "store": Path("a.db"),
            "one_way": {"urn:put"},
            "retry": [],
            "acknowledge": Acknowledge.DELIVERED,
            "on_poison": "dead_letter",
            "window": None,
            "partners": {"acme": {"path": "/acme"}, "other": Partner(principal="other")},
        }
    )
    assert settings.store == "a.db"
    assert settings.one_way == ("urn:put",)
    assert settings.retry == ()
    assert settings.acknowledge is Acknowledge.DELIVERED
    assert settings.on_poison is OnPoison.DEAD_LETTER
    assert settings.window is None
    assert settings.partners == {"acme": Partner(path="/acme"), "other": Partner(principal="other")}


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        ("port", "8", 8),
        ("ordered", "false", False),
        ("retry", "1, 2.5,PT1M", (1.0, 2.5, 60.0)),
        ("retry", "", ()),
        ("max_expires", "P1D", 86_400.0),
        ("inactivity", "None", None),
        ("window", "none", None),
        ("max_held", "none", None),
        ("paths", "/a,/b", ("/a", "/b")),
        ("one_way", "auto", "auto"),
        ("one_way", "{urn:x}put,urn:y", ("{urn:x}put", "urn:y")),
        ("on_poison", "terminate", OnPoison.TERMINATE),
        ("behavior", "DiscardFollowingFirstGap", FOLLOWING),
        ("connection_header", "none", None),
    ],
)
def test_a_text_of_the_environment_is_read_as_its_option_reads(option: str, text: str, value: object) -> None:
    settings = load(None, {f"WSRM_MQ_{option.upper()}": text})
    assert getattr(settings, option) == value


def test_times_are_seconds_or_durations_everywhere(file: Path) -> None:
    file.write_text(
        'retry = [1, "PT0.5S"]\nmax_expires = "P2D"\nhold_wait = 0\n[partner.a]\npath = "/"\ninactivity = "PT5M"'
    )
    settings = load(file, {})
    assert (settings.retry, settings.max_expires, settings.hold_wait) == ((1.0, 0.5), 172_800.0, 0.0)
    assert settings.partners["a"].inactivity == 300.0


# mistakes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("on_posion = 'block'", "on_posion: there is no such option; did you mean on_poison?"),
        ("[partners.acme]", "partners: there is no such option; did you mean partner?"),
        (
            "[partner.acme]\nmax_body = 5",
            "partner.acme.max_body: is not allowed in a partner section, because it holds",
        ),
        ("zzz = 1", "zzz: there is no such option; `wsrm-mq config init -` shows all there are."),
        ("[partner.acme]\nadress = 'x'", "partner.acme.adress: there is no such option; did you mean address?"),
        (
            "[partner.acme]\npath = '/'\nhold_wait = 5",
            "partner.acme.hold_wait: is not allowed in a partner section, because it holds for all partners; "
            "it belongs to the top level, above the first section.",
        ),
        ("[node.north]\nsite = 'x'", "node.north: has no url; say where its queue server is, such as https://host/q"),
        ("[node.north]\nurl = 'ftp://x'", "node.north.url: 'ftp://x' is not allowed; allowed: http:// or https://"),
        ("[node.north]\nurl = 'http://x'\nsit = 'x'", "node.north.sit: there is no such option; did you mean site?"),
        ("node = 5", "node.NAME: allowed is a section, [node.NAME]."),
        ("principal = 'x'", "principal: is allowed in a partner section only; it belongs to [partner.NAME]."),
        ("on_poison = 'x'", 'on_poison: \'x\' is not allowed; allowed: "block", "dead_letter" or "terminate".'),
        ("headers = 'drop'", 'headers: \'drop\' is not allowed; allowed: "demote", "pass" or "strip".'),
        ("port = 'high'", "port: 'high' is not allowed; allowed: a whole number from 0 to 65535."),
        ("port = 65536", "port: 65536 is not allowed; allowed: a whole number from 0 to 65535."),
        ("threads = 0", "threads: 0 is not allowed; allowed: a whole number from 1."),
        ("ordered = 1", "ordered: 1 is not allowed; allowed: true or false."),
        ("host = 5", "host: 5 is not allowed; allowed: text."),
        ("window = -1", 'window: -1 is not allowed; allowed: a whole number from 1 or "none".'),
        ("max_expires = 'P1X'", "max_expires: 'P1X' is not allowed; allowed: seconds above 0 (or PT30S, P7D)."),
        ("max_expires = 'PT0S'", "max_expires: 'PT0S' is not allowed; allowed: seconds above 0 (or PT30S, P7D)."),
        ("max_expires = inf", "max_expires: inf is not allowed; allowed: seconds above 0 (or PT30S, P7D)."),
        ("hold_wait = -1", "hold_wait: -1 is not allowed; allowed: seconds from 0 (or PT30S, P7D)."),
        ("retry = 5", "retry: 5 is not allowed; allowed: a list, each item seconds above 0 (or PT30S, P7D)."),
        ("retry = [1, 0]", "retry: [1, 0] is not allowed; allowed: a list, each item seconds above 0"),
        ("one_way = 'put'", "one_way: 'put' is not allowed; allowed: a list, each item text or \"auto\"."),
        ("paths = ['/a', 'soap']", "paths: ['/a', 'soap'] is not allowed; allowed: a list of paths that begin with /."),
        (
            "public_url = 'shop.example'",
            "public_url: 'shop.example' is not allowed; allowed: http:// or https:// with a host, "
            "a port and a path if need be.",
        ),
        (
            "public_url = 'https://a:x'",
            "public_url: 'https://a:x' is not allowed; allowed: http:// or https:// with a host, "
            "a port and a path if need be.",
        ),
        ("public_url = 'auto'", "public_url: 'auto' is not allowed; allowed: http:// or https:// with a host, "),
        ("paths = ['']", "paths: [''] is not allowed; allowed: a list of paths that begin with /."),
        ("store = ''", "store: '' is not allowed; allowed: a path, or sqlite:///path."),
        ("one_way = ['auto']", "one_way: ['auto'] is not allowed; allowed: \"auto\" alone, or a list of actions"),
        ("paths = [1]", 'paths: [1] is not allowed; allowed: a list, each item text or "none".'),
        (
            "trusted_proxies = ['proxy']",
            "trusted_proxies: ['proxy'] is not allowed; allowed: a list of addresses and networks.",
        ),
        ("partner = 5", "partner.NAME: allowed is a section, [partner.NAME]."),
        ("partner.acme = 5", "partner.acme: allowed is a section, [partner.NAME]."),
        ("[partner.acme]\nwindow = 5", "partner.acme: fits no request; give it a principal, a path or an address."),
        (
            "[partner.acme]\naddress = 'host'",
            "partner.acme.address: 'host' is not allowed; allowed: an address or a network.",
        ),
        (
            "[partner.acme]\npath = '/'\non_poison = 'x'",
            'partner.acme.on_poison: \'x\' is not allowed; allowed: "block", "dead_letter" or "terminate".',
        ),
        ("port = ?", "is not TOML: Invalid value (at line 1, column 8)."),
        ("port = 1\nport = 2", "is not TOML: Cannot overwrite a value"),
        (f"paths = {'[' * 5_000}{']' * 5_000}", "is nested too deeply; "),
        (f"store = {'{a = ' * 5_000}1{'}' * 5_000}", "is nested too deeply; "),
        ("store.a = 1", "store: {'a': 1} is not allowed; allowed: text."),
        (f"store{'.a' * 63} = 1", "store: {'a': {'a': "),
        ("[partner.acme]\npath.a = 1", "partner.acme.path: {'a': 1} is not allowed; allowed: "),
        (f"store{'.a' * 2_000} = 1", "is nested too deeply; "),
        ("store" + ' . "a b"' * 2_000 + " = 1", "is nested too deeply; "),
        (f"[partner.acme{'.a' * 2_000}]\npath{'.a' * 2_000} = 1", "is nested too deeply; "),
        (f"partner = {{ acme{'.a' * 2_000} = 1 }}", "is nested too deeply; "),
    ],
)
def test_a_mistake_in_the_file_names_file_key_and_what_is_allowed(file: Path, text: str, said: str) -> None:
    assert mistake(file, text).startswith(f"wsrm-mq.toml: {said}")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("WSRM_MQ_RETRI", "1", "WSRM_MQ_RETRI: there is no such option; did you mean WSRM_MQ_RETRY?"),
        ("WSRM_MQ_CONFIGS", "x", "WSRM_MQ_CONFIGS: there is no such option; did you mean WSRM_MQ_CONFIG?"),
        ("WSRM_MQ_PARTNERS", "x", "WSRM_MQ_PARTNERS: there is no such option; "),
        ("WSRM_MQ_PORT", "x", "WSRM_MQ_PORT: 'x' is not allowed; allowed: a whole number from 0 to 65535."),
        ("WSRM_MQ_ORDERED", "perhaps", "WSRM_MQ_ORDERED: 'perhaps' is not allowed; allowed: true or false."),
        ("WSRM_MQ_RETRY", "1,x", "WSRM_MQ_RETRY: '1,x' is not allowed; allowed: a list, each item seconds above 0"),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(name: str, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load(None, {name: text})
    assert str(raised.value).startswith(f"environment: {said}")


def test_a_mistake_of_a_program_names_the_option() -> None:
    with pytest.raises(ConfigurationError, match=r"^option onpoison: there is no such .* did you mean on_poison\?$"):
        settings_from({"onpoison": "block"})
    with pytest.raises(ConfigurationError, match=r"^option port: None is not allowed; "):
        settings_from({"port": None})
    with pytest.raises(ConfigurationError, match=r"^option partner\.acme\.pth: there is no such option; "):
        settings_from({"partners": {"acme": {"pth": "/"}}})


def test_all_mistakes_are_told_at_once_and_none_that_follows_from_another(file: Path) -> None:
    text = (
        "max_hold = 5\nretry = 'often'\ntrusted_proxies = ['here']\nconnection_header = 'X-C'\nordered = false\n"
        "on_incomplete = 'dead_letter'\n[partner.acme]\nprincipal = 'acme'\nordred = false\n[partner.old]\npath = 'soap'\n"
    )
    file.write_text(text)
    with pytest.raises(ConfigurationError) as raised:
        load(file, {"WSRM_MQ_PORT": "x", "WSRM_MQ_HOSTS": "y"}, keep_alive=-1)
    beginnings = [
        "wsrm-mq.toml: max_hold: ",
        "wsrm-mq.toml: retry: ",
        "wsrm-mq.toml: trusted_proxies: ",
        "wsrm-mq.toml: partner.acme.ordred: ",
        "wsrm-mq.toml: partner.old.path: ",
        "environment: WSRM_MQ_PORT: ",
        "environment: WSRM_MQ_HOSTS: ",
        "option keep_alive: ",
        "ordered = false delivers across gaps at once",
    ]
    assert [said.startswith(first) for said, first in zip(raised.value.problems, beginnings, strict=True)] == [True] * 9
    assert str(raised.value).splitlines() == list(raised.value.problems)


def test_a_file_that_cannot_be_read_is_told_with_the_reason(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^wsrm-mq\.toml: there is no such file; .*config init"):
        load(file, {})
    with pytest.raises(ConfigurationError, match=r"cannot be read: .*Is a directory"):
        load(tmp_path, {})
    file.write_bytes(b"store = '\xff'")
    with pytest.raises(ConfigurationError, match=r"cannot be read: 'utf-8' codec"):
        load(file, {})


@pytest.mark.parametrize(
    ("text", "what", "do"),
    [
        (
            'behavior = "DiscardEntireSequence"\nacknowledge = "delivered"',
            "each waits for the other",
            'Set acknowledge = "stored", or another behavior.',
        ),
        ('ordered = false\nbehavior = "DiscardFollowingFirstGap"', "nothing is left to discard", "or ordered = true."),
        ('ordered = false\non_incomplete = "dead_letter"', "nothing is left to discard", "or ordered = true."),
        (
            'assurance = "at_most_once"\nbehavior = "DiscardEntireSequence"',
            "nothing is left to discard",
            "or another assurance.",
        ),
        ('mode = "pull"\nassurance = "at_most_once"', "whose consumer died", "Set another assurance"),
        ('connection_header = "X-Connection-Id"', "believed from trusted_proxies only", "Name the proxies, or leave"),
        ('address_header = "X-Forwarded-For"', "believed from trusted_proxies only", "leave address_header out"),
        (
            "[partner.acme]\npath = '/'\nacknowledgement_interval = 1",
            "partner.acme: acknowledgement_interval puts acknowledgements off",
            'Set one_way_answer = "empty"',
        ),
    ],
)
def test_options_that_contradict_are_told_with_what_to_do(file: Path, text: str, what: str, do: str) -> None:
    said = mistake(file, text)
    assert what in said
    assert do in said


def test_a_contradiction_between_a_partner_and_the_rest_names_the_partner(file: Path) -> None:
    said = mistake(file, 'acknowledge = "delivered"\n[partner.acme]\npath = "/a"\nbehavior = "DiscardEntireSequence"')
    assert said.startswith("partner.acme: ")
    file.write_text(
        'acknowledge = "delivered"\n[partner.acme]\npath = "/a"\nbehavior = "DiscardEntireSequence"\n'
        'acknowledge = "stored"'
    )
    assert load(file, {}).policy(load(file, {}).partners["acme"]).acknowledge is Acknowledge.STORED


# policies and partners


def test_the_default_policy_is_that_of_a_queue() -> None:
    assert Settings().policy() == QueuePolicy()


def test_a_policy_has_every_option_in_its_own_units() -> None:
    settings = settings_from(
        {
            "mode": "copy",
            "retry": [0.5, "PT2S"],
            "on_poison": "terminate",
            "on_fault": "dead_letter",
            "acknowledge": "delivered",
            "assurance": "at_least_once",
            "behavior": "DiscardFollowingFirstGap",
            "max_expires": 60,
            "inactivity": 1.5,
            "max_held": 7,
            "window": 9,
            "retry_faults": True,
            "max_sequences": 10,
            "max_store": 14,
        }
    )
    assert settings.policy() == QueuePolicy(
        mode=Mode.COPY,
        retry=(500, 2_000),
        on_poison=OnPoison.TERMINATE,
        on_fault=OnFault.DEAD_LETTER,
        acknowledge=Acknowledge.DELIVERED,
        assurance=DeliveryAssurance.AT_LEAST_ONCE,
        behavior=FOLLOWING,
        incomplete_reason="first_gap",
        max_expires=60_000,
        inactivity=1_500,
        bounds=Bounds(max_held=7, max_ranges=MAX_RANGES, window=9),
        room=Room(max_sequences=10, max_store=14),
        retry_faults=True,
    )


def test_what_only_a_partner_may_have_is_in_his_policy() -> None:
    given = {"path": "/", "stack": "wcf", "one_way_answer": "empty", "acknowledgement_interval": "PT2S"}
    settings = settings_from({"partners": {"acme": given}})
    policy = settings.policy(settings.partners["acme"])
    assert (policy.tells_room, policy.acknowledgement_interval) == (True, 2_000)
    assert (settings.policy().tells_room, settings.policy().acknowledgement_interval) == (False, None)


def test_dead_letters_at_an_incomplete_end_are_announced_as_another_behavior() -> None:
    policy = settings_from({"on_incomplete": "dead_letter"}).policy()
    assert (policy.behavior, policy.incomplete_reason) == (FOLLOWING, "sequence_terminated")
    policy = settings_from({"on_incomplete": "dead_letter", "behavior": "DiscardFollowingFirstGap"}).policy()
    assert (policy.behavior, policy.incomplete_reason) == (FOLLOWING, "first_gap")
    entire = settings_from({"on_incomplete": "dead_letter", "behavior": "DiscardEntireSequence"}).policy()
    assert entire.behavior is IncompleteSequenceBehavior.DISCARD_ENTIRE_SEQUENCE


def test_a_partner_has_his_own_values_and_else_the_general_ones(file: Path) -> None:
    file.write_text(
        "max_held = 10\nwindow = 20\nretry = [1]\nrequire_rm = true\n"
        "[partner.acme]\npath = '/a'\nmax_held = 'none'\nretry = []\nrequire_rm = false\n"
        "[partner.plain]\npath = '/b'\n"
    )
    settings = load(file, {})
    acme, plain = settings.policy(settings.partners["acme"]), settings.policy(settings.partners["plain"])
    assert (acme.bounds.max_held, acme.bounds.window, acme.retry) == (None, 20, ())
    assert plain == settings.policy()
    assert settings.effective("require_rm", settings.partners["acme"]) is False
    assert settings.effective("require_rm", settings.partners["plain"]) is True
    assert settings.effective("require_rm") is True


def test_every_value_that_a_partner_may_have_overrules_the_general_one() -> None:
    others: dict[str, Any] = {
        "one_way": [],
        "mode": "pull",
        "acknowledge": "delivered",
        "assurance": "at_least_once",
        "ordered": False,
        "behavior": "DiscardFollowingFirstGap",
        "on_incomplete": "dead_letter",
        "retry": [9],
        "resend": [9],
        "on_poison": "terminate",
        "on_fault": "dead_letter",
        "max_expires": 9,
        "inactivity": 9,
        "retain": 9,
        "retain_until_archived": True,
        "max_held": 9,
        "window": 9,
        "sender_fault_status": 400,
        "require_rm": True,
        "strict_addressing": True,
    }
    assert set(others) == {field.name for field in msgspec.structs.fields(Partner)} & set(OPTIONS)
    for name, value in others.items():
        given = {"path": "/", name: value, **({"ordered": True} if name in ("behavior", "on_incomplete") else {})}
        settings = settings_from({"partners": {"acme": given}})
        assert settings.effective(name, settings.partners["acme"]) != settings.effective(name)


@pytest.mark.parametrize(
    ("principal", "path", "address", "name"),
    [
        ("CN=acme", "/soap", "10.1.2.3", "acme_here"),
        ("CN=acme", "/soap", "10.9.2.3", "acme"),
        ("CN=acme", "/soap", None, "acme"),
        (None, "/orders/new", "10.1.2.3", "orders"),
        (None, "/orders", "192.0.2.1", "orders"),
        (None, "/ordersbox", "192.0.2.1", "lan"),
        (None, "/soap", "192.0.2.99", "lan"),
        (None, "/soap", "2001:db8::1", "six"),
        (None, "/soap", "not an address", None),
        (None, "/soap", "203.0.113.1", None),
    ],
)
def test_the_first_partner_all_of_whose_marks_fit_is_taken(
    principal: str | None, path: str, address: str | None, name: str | None
) -> None:
    settings = settings_from(
        {
            "partners": {
                "acme_here": {"principal": "CN=acme", "address": "10.1.0.0/16"},
                "acme": {"principal": "CN=acme"},
                "orders": {"path": "/orders"},
                "lan": {"address": "192.0.2.5/24"},
                "six": {"address": "2001:db8::/32"},
            }
        }
    )
    found = settings.partner_for(principal, path, address)
    assert (found and found[0]) == name
    if found is not None:
        assert found[1] is settings.partners[found[0]]


@pytest.mark.parametrize(
    ("prefix", "path", "is_under"),
    [("/a", "/a", True), ("/a", "/a/b", True), ("/a/", "/a/b", True), ("/a", "/ab", False), ("/", "/x", True)],
)
def test_a_path_is_under_a_prefix_at_a_slash_only(prefix: str, path: str, is_under: bool) -> None:
    assert under(prefix, path) is is_under


# writing


def test_the_template_has_every_option_and_changes_nothing(file: Path) -> None:
    template = as_toml(Settings())
    assert re.findall(r"^# (\w+) = .*$", template.partition("# [partner.NAME]")[0], re.MULTILINE) == list(OPTIONS)
    file.write_text(template)
    assert load(file, {}) == Settings()


def test_the_template_says_what_each_option_means_who_changes_it_and_what_it_may_be() -> None:
    template = as_toml(Settings())
    changed = r"# Changed by the (?:developer|integration engineer|operator): .+\."
    for option, kind in OPTIONS.items():
        may_be = f"# {kind.allowed}\n# {option} = {toml(getattr(Settings(), option))}\n"
        assert re.search(rf"\n\n# .+\.\n{changed}\n{re.escape(may_be)}", template), option


def test_the_template_says_what_each_option_of_a_section_means() -> None:
    general, partner, node = re.split(r"# \[(?:partner|node)\.NAME\]\n", as_toml(Settings()))
    shared = f"what may differ for it is\n# {', '.join(option for option in PARTNER_OPTIONS if option in OPTIONS)}.\n"
    assert shared in general
    own = [option for option in PARTNER_OPTIONS if option not in OPTIONS]
    lines = [f"# {option} = {re.escape(toml(PARTNER_DEFAULTS[option]))}  # .+\\." for option in own]
    assert re.match("\n".join(lines) + "\n\n", partner)
    assert re.fullmatch("\n".join(f'# {option} = "none"  # .+\\.' for option in NODE_OPTIONS) + "\n", node)


def test_the_defaults_of_the_template_are_allowed_when_they_are_written_out(file: Path) -> None:
    options = as_toml(Settings()).partition("# A partner:")[0]
    file.write_text(re.sub(r"^# (\w+ = )", r"\1", options, flags=re.MULTILINE))
    settings, origins = read(file, {})
    assert settings == Settings()
    assert set(origins.values()) == {"file"}


def test_what_is_written_is_read_to_the_same(file: Path) -> None:
    settings = settings_from(
        {
            "store": 'a "b" \\ \t \x7f ü 日.db',
            "one_way": "auto",
            "retry": [1, 2.5],
            "ordered": False,
            "max_held": None,
            "window": 5,
            "partners": {
                "a.b c": {"path": "/a", "window": None, "retry": [], "on_poison": "dead_letter"},
                "plain": {"principal": "CN=x", "one_way_answer": "empty"},
            },
            "site": "oslo",
            "nodes": {"a.b": {"url": "https://host/q", "site": "rome", "token_env": "T"}, "b": {"url": "http://b"}},
        }
    )
    file.write_text(as_toml(settings))
    assert load(file, {}) == settings
    assert tomllib.loads(as_toml(settings))["store"] == settings.store


def test_values_of_a_partner_are_only_his_own() -> None:
    settings = settings_from({"partners": {"acme": {"path": "/a", "window": None}}})
    assert as_values(settings)["partners"] == {"acme": {"path": "/a", "window": None}}


def test_values_of_another_node_are_those_that_are_given() -> None:
    settings = settings_from({"nodes": {"north": {"url": "http://host"}}})
    assert as_values(settings)["nodes"] == {"north": {"url": "http://host"}}
