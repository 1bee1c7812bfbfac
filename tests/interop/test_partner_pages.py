"""The pages on partners with CXF and Metro are followed: their programs are run as printed, and show what is shown."""

from __future__ import annotations

import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.pages import DOCS, Shell, blocks, session

from .java_client import SOURCES

PARTNERS = DOCS / "partners"
PAGES = {"cxf": "cxf", "metro": "metro", "to-cxf": "cxf", "to-metro": "metro"}
"""Page → stack."""
MAVEN = "{http://maven.apache.org/POM/4.0.0}"


@pytest.mark.live
@pytest.mark.timeout(240)
@pytest.mark.parametrize("page", PAGES)
def test_the_program_of_a_page_sends_and_ends_as_it_shows(page: str, shell: Shell, java: Path, tmp_path: Path) -> None:
    (tmp_path / "lib").symlink_to(java / PAGES[page] / "lib")
    programs = [file for kind in ("*.java", "*.wsdl", "*.py") for file in PARTNERS.glob(kind)]
    for file in (*programs, DOCS / "howto" / "orders.py"):
        shutil.copy(file, tmp_path)
    for block in blocks(PARTNERS / f"{page}.md"):
        if block.kind == "console":
            for typed in session(block.text):
                shell.follow(typed)


@pytest.mark.parametrize("name", ["cxf", "metro"])
def test_a_page_names_the_libraries_that_the_tests_run(name: str) -> None:
    told = libraries(PARTNERS / f"pom-{name}.xml")
    assert told
    assert told <= libraries(SOURCES / name / "pom.xml")


def libraries(pom: Path) -> set[tuple[str, str]]:
    """Name and version of each."""
    root = ElementTree.parse(pom).getroot()
    properties = {f"${{{one.tag.removeprefix(MAVEN)}}}": one.text for one in root.iterfind(f"{MAVEN}properties/*")}
    found = set()
    for one in root.iterfind(f"{MAVEN}dependencies/{MAVEN}dependency"):
        artifact, version = (one.findtext(f"{MAVEN}{part}") or "" for part in ("artifactId", "version"))
        found.add((artifact, properties.get(version) or version))
    return found
