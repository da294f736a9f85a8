"""`python -m klamm`, the same as the `klamm` command."""

import sys

from klamm.cli import main

sys.exit(main())
