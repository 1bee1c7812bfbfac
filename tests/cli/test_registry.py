"""The registry of acts, held against the command line that is made from it."""

from __future__ import annotations

import shlex

import click
import pytest

from wsrm_mq.acts import ACTS, Act, Command, others, sequences
from wsrm_mq.cli import program
from wsrm_mq.cli.place import line_of

OTHERS = [one for one in vars(others).values() if isinstance(one, Command)]


def command_of(one: Command) -> click.Command:
    found: click.Command | None = program
    for word in (one.subject, one.name):
        if word:
            assert isinstance(found, click.Group)
            found = found.get_command(click.Context(found), word)
    assert found is not None, f"{one.subject} {one.name}"
    return found


@pytest.mark.parametrize("one", [*ACTS, *OTHERS], ids=lambda one: f"{one.subject} {one.name}".strip())
def test_each_is_a_command_and_takes_a_reason_where_it_says_so(one: Command) -> None:
    options = {parameter.name for parameter in command_of(one).params}
    given = {(parameter.name, parameter.metavar) for parameter in command_of(one).params}
    assert (("reason", "TEXT") in given) == one.takes_reason
    if isinstance(one, Act):
        assert {argument.name for argument in one.arguments} <= options


@pytest.mark.parametrize("act", ACTS, ids=lambda act: f"{act.subject} {act.name}")
def test_the_examples_of_an_act_can_be_typed_and_its_verb_is_there(act: Act) -> None:
    assert act.examples
    for example in act.examples:
        command_of(act).make_context(act.name, shlex.split(example))
    assert callable(act.load())


def test_a_proposal_is_one_line_that_a_shell_takes_apart_again() -> None:
    name = "urn:it's one"
    lines = {
        line_of(sequences.SKIP.step("", name, number=4)): ["sequence", "skip", name, "4", "--reason", "TEXT"],
        line_of(sequences.TERMINATE.step("", name, drain=False)): [
            *("sequence", "terminate", name, "--now", "--reason", "TEXT")
        ],
        line_of(sequences.HOLD.step("", name, dry_run=True)): ["sequence", "hold", name, "--dry-run"],
        line_of(others.RENAME.step("", "none")): ["store", "application", "none", "NEW", "--reason", "TEXT"],
        line_of(others.DOCTOR.step("")): ["doctor"],
    }
    assert [shlex.split(line)[1:] for line in lines] == list(lines.values())


def test_an_act_is_not_proposed_with_an_argument_that_it_does_not_have() -> None:
    with pytest.raises(TypeError, match="sequence hold has no argument number"):
        sequences.HOLD.step("", "urn:one", number=4)
