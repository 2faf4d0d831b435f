"""What the documents promise, and the rules for the code that no tool checks."""

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ga3c import cli
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = ["README.md", "docs/annealing.md", "docs/performance.md", "plots/README.md"]
SOURCES = sorted((ROOT / "ga3c").rglob("*.py"))
TREES = {str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}
WITHOUT_TORCH = ["agent", "channels", "environments", "config", "cli", "runs", "console", "metrics"]
PACKAGES = {
    "ale_py": "ale-py",
    "gymnasium": "gymnasium",
    "matplotlib": "matplotlib",
    "numpy": "numpy",
    "rich": "rich",
    "torch": "torch",
    "yaml": "pyyaml",
}


def commands_of(document: str) -> list[str]:
    """What follows every ``python main.py`` in a document, in a block or in a sentence, without comments."""
    text = (ROOT / document).read_text(encoding="utf-8").replace("\\\n", " ")
    return [
        shlex.join(shlex.split(found, comments=True))
        for found in re.findall(r"python main\.py\b([^`\n]*)", text)
    ]


def files_named_in_readme() -> list[str]:
    """Targets of the README's links and pictures, and all in it that ends like a file of the program."""
    targets = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    return sorted({*targets, *re.findall(r"[\w./-]+\.(?:py|yaml|txt|md)\b", README)})


def nodes_of(kind: type[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    """Every node of a kind in the program's syntax trees, with the name of its file."""
    for name, tree in TREES.items():
        yield from ((name, node) for node in ast.walk(tree) if isinstance(node, kind))


def imports_of(tree: ast.Module) -> set[str]:
    """The modules a file imports, wherever it does so, and what it takes from them: module.name."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found


def requirements(name: str) -> set[str]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return {match[1] for line in lines if (match := re.match(r"([\w.-]+)==", line))}


@pytest.mark.parametrize(
    "arguments",
    [pytest.param(command, id=command) for document in DOCUMENTS for command in commands_of(document)],
)
def test_every_command_in_the_documents_is_understood(arguments):
    words = [word for word in shlex.split(arguments) if word != "--help"]
    if not words or words[0].startswith("-"):
        words.insert(0, "train")
    options = cli._parser().parse_args(words)
    if options.command is cli._train and not options.resume:
        cli._configuration(options)


def test_the_readme_shows_training_resuming_evaluating_and_plotting():
    first_words = {command.split()[0] for command in commands_of("README.md")}
    assert {"--game", "--resume", "evaluate", "plot"} <= first_words


@pytest.mark.parametrize("name", files_named_in_readme())
def test_every_file_the_readme_names_exists(name):
    assert (ROOT / name).exists() or (ROOT / "ga3c" / name).exists()


def test_the_readme_has_the_two_set_up_commands():
    prepare = "python3 -m venv .venv && . .venv/bin/activate && pip install -r"
    commands = [line.strip() for line in README.splitlines() if line.strip().startswith("python3 -m venv")]
    assert commands == [
        f"{prepare} requirements.txt && python main.py --game Boxing",
        f"{prepare} requirements-dev.txt && python -m pytest",
    ]


def test_the_checks_install_and_test_as_the_readme_says():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    plain = [re.sub(r" --(?!version)[\w-]+", "", line) for line in script]
    assert "pip install -r requirements-dev.txt" in plain
    assert "python -m pytest" in plain
    assert "-r requirements.txt" in (ROOT / "requirements-dev.txt").read_text(encoding="utf-8").splitlines()


def test_no_file_of_the_program_is_longer_than_300_lines():
    lengths = {name: len((ROOT / name).read_text(encoding="utf-8").splitlines()) for name in TREES}
    assert {name: length for name, length in lengths.items() if length > 300} == {}


def test_every_file_says_first_what_it_is():
    assert [name for name, tree in TREES.items() if not ast.get_docstring(tree)] == []


def test_what_an_agent_or_the_command_line_imports_never_imports_torch():
    code = "\n".join(
        ["import importlib, sys"]
        + [
            f"importlib.import_module('ga3c.{name}'); assert 'torch' not in sys.modules"
            for name in WITHOUT_TORCH
        ]
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


def test_no_time_is_taken_from_the_wall_clock():
    named = {(name, ast.unparse(node)) for name, node in nodes_of(ast.Attribute)}
    assert [name for name, text in named if text in ("time.time", "time.time_ns")] == []
    assert [name for name, tree in TREES.items() if "time.time" in imports_of(tree)] == []


def test_nothing_that_is_loaded_can_run_code():
    assert [name for name, tree in TREES.items() if "pickle" in imports_of(tree)] == []
    given = [ast.unparse(node) for _, node in nodes_of(ast.keyword) if node.arg == "weights_only"]
    assert set(given) == {"weights_only=True"}


def test_requirements_are_what_the_program_imports_and_nothing_else():
    ours = [
        tree for name, tree in TREES.items() if "sample_factory" not in str(name)
    ]  # it has packages of its own
    imported = {module.partition(".")[0] for tree in ours for module in imports_of(tree)}
    foreign = imported - set(sys.stdlib_module_names) - {"ga3c"}
    assert foreign == set(PACKAGES)
    assert requirements("requirements.txt") == set(PACKAGES.values())


def test_the_readme_gives_a_reason_for_every_package():
    rows = re.findall(
        r"^\| ([\w-]+) \| .{5,} \|$", README.partition("| Package |")[2].partition("\n\n")[0], re.M
    )
    assert sorted(rows) == sorted(PACKAGES.values())
