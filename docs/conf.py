"""The documentation: `make docs`."""

project = "wsrm_mq"
author = "the authors of wsrm_mq"
html_title = "wsrm_mq"

extensions = ["myst_parser", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]

html_theme = "furo"
myst_heading_anchors = 3

# What is copied from a console is the commands, without prompt and output.
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
