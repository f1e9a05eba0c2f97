"""python -m lvp: `lvp.cli.main`."""

import sys

from lvp.cli.main import main

sys.exit(main())
