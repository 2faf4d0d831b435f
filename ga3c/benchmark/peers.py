"""Sample Factory, in the Python environment that has it."""

import json
import subprocess
from pathlib import Path

_SCRIPT = Path(__file__).with_name("sample_factory_appo.py")
_SECONDS = 30
_PATIENCE_SECONDS = 240


def run_sample_factory(python: Path, game: str, device: str) -> tuple[str, float]:
    """Its name with the version, and the actions per second of a short run.

    Raises RuntimeError, with the end of its messages, when it does not run.
    """
    command = [str(python), str(_SCRIPT), f"--game={game}", f"--seconds={_SECONDS}", f"--device={device}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"Sample Factory cannot be run: {error}") from error
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        end = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise RuntimeError(f"Sample Factory failed with exit code {done.returncode}:\n{end}")
    result = json.loads(lines[-1])
    return result["name"], result["pps"]
