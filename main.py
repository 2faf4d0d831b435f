"""python main.py --game Boxing: see ga3c/cli.py for the commands, config.yaml for the knobs."""

import sys

from ga3c import cli

if __name__ == "__main__":
    sys.exit(cli.main(sys.argv[1:]))
