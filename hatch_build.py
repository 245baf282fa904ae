"""Metadata hook: the README for the package index, where links into the repository must be absolute."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

BRANCH = "main"
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?!\w+:|#)(?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")


class ReadmeHook(MetadataHookInterface):
    """Sets the readme of the package; hatchling finds this class by its base."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the README with absolute links, below the repository that pyproject.toml names."""
        text = Path(self.root, "README.md").read_text("utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": with_absolute_links(text, metadata["urls"]["Repository"], Path(self.root)),
        }


def with_absolute_links(text: str, repository: str, root: Path) -> str:
    """Return Markdown whose relative links point into the repository."""

    def absolute(found: re.Match[str]) -> str:
        target = found["target"].rstrip("/")
        view = "raw" if found["image"] else "tree" if (root / target).is_dir() else "blob"
        return f"{found['image']}[{found['text']}]({repository}/{view}/{BRANCH}/{target}{found['anchor'] or ''})"

    return LINK.sub(absolute, text)
