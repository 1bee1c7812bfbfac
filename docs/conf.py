"""The documentation: `make docs`."""

import wsrm_mq

project = "wsrm_mq"
copyright = "the wsrm_mq authors"
author = "the wsrm_mq authors"
release = version = wsrm_mq.__version__
html_title = f"wsrm_mq {release}"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_preserve_defaults = True
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]

html_theme = "furo"
myst_heading_anchors = 3

# What is copied from a console is the commands, without prompt and output.
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
