"""`halfmask recipes`: what can be run by name."""

from __future__ import annotations

from halfmask.cli.settings import JsonOption


def recipes(as_json: JsonOption = False) -> None:
    """List the recipes inside the package, each with what it says of itself."""
    from importlib import resources

    from halfmask.cli.console import say, say_json
    from halfmask.training.config import recipe_names

    root = resources.files("halfmask.recipes")
    found = {name: first_comment(root.joinpath(f"{name}.yaml").read_text()) for name in recipe_names()}
    if as_json:
        say_json([{"name": name, "about": about} for name, about in found.items()])
        return
    width = max(map(len, found), default=0)
    for name, about in found.items():
        say(f"{name:<{width}}  {about}".rstrip())


def first_comment(text: str) -> str:
    """The first comment line of a recipe."""
    return next((line.lstrip("# ").rstrip() for line in text.splitlines() if line.startswith("#")), "")
