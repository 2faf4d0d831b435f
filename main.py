"""python main.py --game Boxing: see ga3c/cli.py for the commands, config.yaml for the knobs."""

import sys

if __name__ == "__main__":  # agent processes run this file again, and shall import nothing more from it
    from ga3c import cli

    sys.exit(cli.main(sys.argv[1:]))
