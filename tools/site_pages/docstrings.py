"""An extension of griffe: the docstrings of this project as griffe's reader of NumPy's style wants them.

- Examples between paragraphs become code blocks; as plain Markdown, `>>>` would be a quotation.
- What follows the parameters without a heading gets one if it is an example, and goes before them if not.
- A section "Returns" that is a paragraph gets the type of the signature.
- A field without a docstring gets the comment behind it.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

HEADING = re.compile(r"^(\w[\w ]*)\n-{3,}(?:\n|$)")
COMMENT = re.compile(r"\s#\s(.+)$")


class Docstrings(griffe.Extension):
    """Rewrites docstrings before they are parsed."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rewrite the docstring of an object, or find one for a field."""
        if obj.docstring is not None:
            returned = str(obj.returns) if obj.is_function and obj.returns is not None else "value"
            obj.docstring.value = rewritten(obj.docstring.value, returned)
        elif obj.is_attribute and obj.lineno and obj.lines and (found := COMMENT.search(obj.lines[-1])):
            text = found[1].strip()
            if not text.startswith(("noqa", "type:")):
                obj.docstring = griffe.Docstring(f"{text[0].upper()}{text[1:].rstrip('.')}.", parent=obj)


def rewritten(text: str, returned: str = "value") -> str:
    """The docstring, part by part; `returned` is the type that the signature promises."""
    before: list[str] = []  # what comes before the first section
    sections: list[str] = []
    section = ""
    for part in re.split(r"\n\s*\n", text.strip("\n")):
        heading = HEADING.match(part)
        if heading:
            section = heading[1]
            body = part[heading.end() :]
            if section == "Returns" and not re.search(r"^\s+\S", body, re.MULTILINE):
                part = f"{heading[0]}{returned}\n{textwrap.indent(body, '    ')}"
            sections.append(part)
        elif not section:
            before.append(_fenced(part))
        elif section != "Examples" and part.startswith(">>>"):
            section = "Examples"
            sections.append(f"Examples\n--------\n{part}")
        elif section == "Parameters" and not re.search(r"^\s+\S", part, re.MULTILINE):
            before.append(part)
        else:
            sections.append(part)
    return "\n\n".join(before + sections)


def _fenced(part: str) -> str:
    if not part.lstrip().startswith(">>>"):
        return part
    code = re.sub(r"[ \t]*# doctest: .*", "", part.replace("<BLANKLINE>", ""))
    return f"```pycon\n{code}\n```"
