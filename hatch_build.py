"""README.md as a package index shows it: there no link to another file of this repository leads anywhere.

``WSRM_MQ_FILES=https://…/blob/v1.0/`` at build time says where the files are: links lead there. Without it a link is
its text, with the path behind it. Pictures are shown with it, and left out without.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

SETTING = "WSRM_MQ_FILES"
_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?!https?:|#)(?P<path>[^)\s]+)\)")


def readme(text: str, files: str) -> str:
    """``text`` with its relative links as an index needs them; ``files``: an address that ends in a slash, or empty."""

    def rewritten(link: re.Match[str]) -> str:
        if not files:
            shown = f"`{link['path']}`" if link["text"] == link["path"] else f"{link['text']} (`{link['path']}`)"
            return "" if link["picture"] else shown
        query = "?raw=true" if link["picture"] else ""
        return f"{link['picture']}[{link['text']}]({files}{link['path']}{query})"

    return _LINK.sub(rewritten, text)


class ReadmeOfAnIndex(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        files = os.environ.get(SETTING, "")
        files += "/" * (files != "" and not files.endswith("/"))
        metadata["readme"] = {"content-type": "text/markdown", "text": readme(text, files)}
