"""`python -m tutorial_server` is the command `tutorial-server`."""

import sys

from .cli import main

sys.exit(main())
